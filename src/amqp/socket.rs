//! The only tokio I/O of this crate: one socket, its read buffer, and the bytes that wait to be
//! written.

use crate::outbox::{Outbox, SLICES_MAX};
use bytes::BytesMut;
use quorate_client::SocketReport;
use quorate_tls::TlsStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    future::Future,
    io::{self, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite},
    net::TcpStream,
};

/// Smallest room for one read, bytes. It grows while reads fill it, up to the limit of
/// [`Socket::limit_reads`].
const READ_BYTES_MIN: usize = 4 * 1024;

/// Largest room for one read before the client has logged in.
const READ_BYTES_STRANGER: usize = 16 * 1024;

/// A socket and its buffers. While the connection is idle both buffers are empty and hold no
/// memory.
#[derive(Debug)]
pub(crate) struct Socket<S> {
    stream: S,
    pub(crate) input: BytesMut,
    pub(crate) outbox: Outbox,
    read_bytes: usize,
    read_bytes_max: usize,
    /// Size of the buffer whose unread rest is `input`.
    buffer_bytes: usize,
    received: u64,
    written: u64,
    reads: u64,
    writes: u64,
    /// Written bytes may still be in a buffer of the stream, as with TLS.
    unflushed: bool,
    ended: bool,
}

/// The stream of a client: TCP, or TLS over it.
pub(crate) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Whether the client has closed its end. There may still be bytes to read that it sent before.
    fn is_hung_up(&self) -> bool;
}

impl ClientStream for TcpStream {
    fn is_hung_up(&self) -> bool {
        let hung_up = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(self, hung_up)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error of the call says nothing about the client.
        poll(&mut polled, Some(&now)).is_ok()
            && polled.iter().any(|socket| socket.revents().intersects(hung_up))
    }
}

impl ClientStream for TlsStream<TcpStream> {
    fn is_hung_up(&self) -> bool {
        self.get_ref().0.is_hung_up()
    }
}

/// A pipe, for tests; its end shows when it is read.
#[cfg(test)]
impl ClientStream for tokio::io::DuplexStream {
    fn is_hung_up(&self) -> bool {
        false
    }
}

impl<S: ClientStream> Socket<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            input: BytesMut::new(),
            outbox: Outbox::new(),
            read_bytes: READ_BYTES_MIN,
            read_bytes_max: READ_BYTES_STRANGER,
            buffer_bytes: 0,
            received: 0,
            written: 0,
            reads: 0,
            writes: 0,
            unflushed: false,
            ended: false,
        }
    }

    /// Bytes read so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The socket's state for lists.
    pub(crate) fn report(&self) -> SocketReport {
        SocketReport {
            received_bytes: self.received,
            sent_bytes: self.written,
            reads: self.reads,
            writes: self.writes,
            pending_bytes: self.outbox.len() as u64,
        }
    }

    /// True if the client will send nothing more.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Whether the client has closed its end, also if it is not read.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.stream.is_hung_up()
    }

    /// Writes waiting bytes, and reads once if `read`. Ready when bytes were read or written.
    pub(crate) fn poll_move(&mut self, read: bool, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut moved = false;
        while !self.outbox.is_empty() {
            match self.poll_write(cx) {
                Poll::Ready(written) => moved |= written? > 0,
                Poll::Pending => break,
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
            moved = true;
        }
        if read && !self.ended {
            match self.poll_read(cx) {
                Poll::Ready(done) => {
                    done?;
                    moved = true;
                }
                Poll::Pending => {}
            }
        }
        if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Resolves as [`Socket::poll_move`] does.
    pub(crate) async fn moved(&mut self, read: bool) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_move(read, cx)).await
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = self.outbox.slices(&mut slices);
        let slices = slices.get(..count).unwrap_or_default();
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, slices))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.written += u64::try_from(written).unwrap_or(u64::MAX);
        self.writes += 1;
        self.unflushed = true;
        self.outbox.advance(written);
        Poll::Ready(Ok(written))
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.input.capacity() - self.input.len() < READ_BYTES_MIN {
            self.input.reserve(self.read_bytes);
            self.buffer_bytes = self.input.capacity();
        }
        // Reading loses nothing when its future is dropped.
        let read = pin!(self.stream.read_buf(&mut self.input)).poll(cx);
        let Poll::Ready(read) = read else {
            if self.input.is_empty() {
                // An idle connection holds no buffer.
                self.input = BytesMut::new();
                self.buffer_bytes = 0;
            }
            return Poll::Pending;
        };
        let read = match read {
            // A TLS client that ends without a word of TLS. AMQP has words of its own for an end.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        self.ended = read == 0;
        self.received += u64::try_from(read).unwrap_or(u64::MAX);
        self.reads += 1;
        self.read_bytes = if read >= self.read_bytes {
            (self.read_bytes * 4).min(self.read_bytes_max)
        } else if read < self.read_bytes / 8 {
            (self.read_bytes / 2).max(READ_BYTES_MIN)
        } else {
            self.read_bytes
        };
        Poll::Ready(Ok(()))
    }

    /// From now on a read takes about this number of bytes, at most.
    pub(crate) fn limit_reads(&mut self, bytes_max: usize) {
        self.read_bytes_max = bytes_max;
        self.read_bytes = self.read_bytes.min(bytes_max);
    }

    /// The rest of a frame is awaited: shrinks a large buffer.
    pub(crate) fn trim(&mut self) {
        if self.buffer_bytes > 4 * (self.input.len() + READ_BYTES_MIN) {
            self.input = BytesMut::from(self.input.as_ref());
            self.buffer_bytes = self.input.capacity();
        }
    }

    /// Closes the sending half: the client reads an end of file.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| Pin::new(&mut self.stream).poll_shutdown(cx)).await
    }

    /// Writes everything that waits.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() || self.unflushed {
            self.moved(false).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::codec::frame;
    use bytes::Bytes;
    use tokio::io::{AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_one_side_writes_the_other_reads_however_small_the_pipe() {
        let (client, server) = duplex(1000);
        let (mut client, mut server) = (Socket::new(client), Socket::new(server));
        let body = Bytes::from(vec![7; 300_000]);
        client.outbox.content(1, &[0, 0], &body, 131_072);
        let length = client.outbox.len();
        let write = async {
            client.flush().await.unwrap();
            client.shutdown().await.unwrap();
        };
        let read = async {
            while !server.is_ended() {
                server.moved(true).await.unwrap();
            }
        };
        tokio::join!(write, read);
        assert_eq!(u64::try_from(length).unwrap(), server.received());
        let mut bytes = 0;
        while let Some(frame) = frame::take(&mut server.input, 131_072).unwrap() {
            bytes += if frame.kind == frame::Kind::Body { frame.payload.len() } else { 0 };
        }
        assert_eq!(bytes, body.len());
    }

    #[tokio::test]
    async fn an_idle_socket_holds_no_buffer() {
        let (mut client, server) = duplex(1000);
        let mut server = Socket::new(server);
        client.write_all(b"hello").await.unwrap();
        server.moved(true).await.unwrap();
        server.input.clear();
        assert!(server.input.capacity() > 0);
        std::future::poll_fn(|cx| {
            assert!(server.poll_move(true, cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(server.input.capacity(), 0);
    }

    #[tokio::test]
    async fn a_socket_that_is_not_to_be_read_is_not_read() {
        let (mut client, server) = duplex(1000);
        let mut server = Socket::new(server);
        client.write_all(b"hello").await.unwrap();
        std::future::poll_fn(|cx| {
            assert!(server.poll_move(false, cx).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(server.received(), 0);
    }

    /// A client that was killed, with bytes before its end that are not read.
    #[tokio::test]
    async fn the_end_of_a_client_shows_though_it_is_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = Socket::new(listener.accept().await.unwrap().0);
        client.write_all(b"hello").await.unwrap();
        assert!(!server.is_hung_up());
        drop(client);
        while !server.is_hung_up() {
            tokio::task::yield_now().await;
        }
        assert_eq!(server.received(), 0);
    }

    #[tokio::test]
    async fn the_other_ends_end_is_an_end_here() {
        let (client, server) = duplex(1000);
        let mut server = Socket::new(server);
        drop(client);
        server.moved(true).await.unwrap();
        assert!(server.is_ended());
    }
}
