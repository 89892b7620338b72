//! One client from its first byte to its last: handshake, session, end.
//!
//! A socket that is closed with unread bytes is reset, and a client that is still writing would
//! then lose its close-ok. So after either side's close the broker writes what is left, shuts down
//! its half of the connection, and reads and discards the client's bytes until the client closes
//! its half. The time of this is bounded by CONN-26, the amount by 64 MiB.

use crate::{
    accounts::Accounts,
    channel::Bounds,
    codec::{
        PROTOCOL_HEADER,
        cold::{Cold, connection},
        frame::{self, FrameError},
    },
    connection::{
        close::{Ending, Fault, Linger, SILENCE_MS, WhileClosing, linger_ms, while_closing},
        handshake::{Capabilities, FirstBytes, Handshake, Opening, Question, protocol_header},
        machine::Machine,
        properties,
    },
    handshakes::Place,
    session::{Session, SessionEnd},
    socket::{ClientStream, Socket},
    tls::Tls,
};
use bytes::{Buf, BufMut};
use quorate_client::{Broker, Connection, ConnectionInfo};
use quorate_types::{Exception, ReplyCode};
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

/// Text of the close that a node that stops sends to its clients (CONN-29).
const STOP_TEXT: &str = "broker forced connection closure with reason 'shutdown'";

/// Bytes that the client of a closed connection may still send, and that are discarded: the
/// contents of its own and the network's buffers when it learns of the close.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Time limit for writing the last bytes, once nothing is awaited any more.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// How long close-ok is awaited from a client whose connection was not opened, s.
const UNOPENED_LINGER_S: u16 = 10;

/// A client as it has come.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    /// The end of the time for its handshake, TLS included (CONN-05).
    pub(crate) until: Instant,
    /// What its TLS handshake has agreed on.
    pub(crate) tls: Option<Tls>,
}

/// Serves one client.
pub(crate) async fn serve_client<S: ClientStream, B: Broker>(
    stream: S,
    arrival: Arrival,
    broker: B,
    place: Place,
    stop: watch::Receiver<bool>,
) {
    let peer = arrival.peer;
    let mut socket = Socket::new(stream);
    match serve(&mut socket, &arrival, &broker, place, stop).await {
        Ok(()) => tracing::info!(%peer, "connection closed"),
        // A port probe that connects and closes is not an error (CONN-05).
        Err(error) if socket.received() == 0 => {
            tracing::debug!(%peer, %error, "connection lost before the client sent anything")
        }
        Err(error) => tracing::info!(%peer, %error, "connection lost"),
    }
}

async fn serve<S: ClientStream, B: Broker>(
    socket: &mut Socket<S>,
    arrival: &Arrival,
    broker: &B,
    mut place: Place,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let entry = tokio::select! {
        entry = timeout_at(arrival.until, enter(socket, arrival, broker)) => entry,
        _ = stop.wait_for(|stops| *stops) => return Ok(()),
        () = place.taken() => {
            return Err(io::Error::other("too many clients are logging in; this was the oldest"));
        }
    };
    // The client is too slow: the connection is closed without an answer (CONN-05).
    let entry = entry.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "handshake timeout"))?;
    match entry? {
        Entry::Open(connection, machine) => {
            drop(place);
            live(socket, broker, *connection, *machine, stop).await
        }
        Entry::Ending(ending) => {
            // Until it has ended, a refused client counts as one that has not logged in.
            tokio::select! {
                parted = turn_away(socket, ending) => parted,
                () = place.taken() => Ok(()),
            }
        }
    }
}

/// Closes the connection of a client that was refused.
async fn turn_away<S: ClientStream>(socket: &mut Socket<S>, ending: Refusal) -> io::Result<()> {
    match ending {
        Refusal::Ending(Ending::Server { close, linger }) => {
            Cold::from(*close).put(socket.outbox.buffer(), 0);
            say_goodbye(socket, linger, linger_ms(linger, UNOPENED_LINGER_S)).await
        }
        Refusal::Ending(Ending::Silent | Ending::Client) => silence(socket).await,
        Refusal::Protocol => {
            socket.outbox.buffer().put_slice(&PROTOCOL_HEADER);
            timeout(FLUSH_MAX, socket.flush()).await??;
            socket.shutdown().await?;
            silence(socket).await
        }
    }
}

/// The result of a handshake.
enum Entry<C> {
    Open(Box<C>, Box<Machine>),
    Ending(Refusal),
}

/// Why a client is refused.
enum Refusal {
    Ending(Ending),
    /// The client uses another protocol.
    Protocol,
}

impl<C> From<Ending> for Entry<C> {
    fn from(ending: Ending) -> Self {
        Self::Ending(Refusal::Ending(ending))
    }
}

async fn enter<S: ClientStream, B: Broker>(
    socket: &mut Socket<S>,
    arrival: &Arrival,
    broker: &B,
) -> io::Result<Entry<B::Connection>> {
    let settings = broker.front_settings();
    loop {
        match protocol_header(&mut socket.input) {
            FirstBytes::Missing => more(socket).await?,
            FirstBytes::Refused => return Ok(Entry::Ending(Refusal::Protocol)),
            FirstBytes::Accepted => break,
        }
    }
    let user = arrival.tls.as_ref().and_then(|tls| tls.user.clone());
    let mut handshake = Handshake::new(&settings, user, socket.outbox.buffer());
    loop {
        let frame = match frame::take(&mut socket.input, handshake.frame_max()) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                more(socket).await?;
                continue;
            }
            Err(error) => return Ok(Ending::frame_error(&error).into()),
        };
        let question = match handshake.frame(&frame, socket.outbox.buffer()) {
            Ok(question) => question,
            Err(ending) => return Ok(ending.into()),
        };
        match question {
            None => {}
            Some(Question::Credentials(credentials)) => {
                let password = credentials.password.as_deref();
                let right = broker.log_in(&credentials.user, password, arrival.peer.ip()).await;
                if let Err(ending) = handshake.authenticated(right, socket.outbox.buffer()) {
                    return Ok(ending.into());
                }
            }
            Some(Question::Open(opening)) => return Ok(open(socket, *opening, arrival, broker)),
        }
    }
}

/// Waits for more bytes; the client's end is an error here.
async fn more<S: ClientStream>(socket: &mut Socket<S>) -> io::Result<()> {
    socket.moved(true).await?;
    if socket.is_ended() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// `connection.open` (CONN-20 to CONN-22).
fn open<S: ClientStream, B: Broker>(
    socket: &mut Socket<S>,
    opening: Opening,
    arrival: &Arrival,
    broker: &B,
) -> Entry<B::Connection> {
    let Opening { user, mechanism, vhost, client_properties, limits } = opening;
    let capabilities = Capabilities::of(&client_properties);
    let settings = broker.front_settings();
    let bounds = Bounds {
        max_message_size: settings.max_message_size,
        consumer_max_per_channel: settings.consumer_max_per_channel,
        default_consumer_prefetch: settings.default_consumer_prefetch,
    };
    let info = ConnectionInfo {
        user: user.clone(),
        mechanism,
        vhost: vhost.detached(),
        peer: arrival.peer,
        local: arrival.local,
        client_properties: properties::kept(&client_properties),
        channel_max: limits.channel_max,
        frame_max: limits.frame_max,
        heartbeat_s: limits.heartbeat_s,
        tls: arrival.tls.as_ref().map(|tls| tls.report.clone()),
    };
    match broker.connect(info) {
        Ok(broker_connection) => {
            tracing::info!(peer = %arrival.peer, ?user, ?vhost, "connection opened");
            Cold::from(connection::OpenOk::default()).put(socket.outbox.buffer(), 0);
            let alarm = broker.alarm();
            let machine = Machine::new(vhost, limits, capabilities, bounds, alarm);
            Entry::Open(Box::new(broker_connection), Box::new(machine))
        }
        Err(exception) => {
            let fault = Fault::of(exception, connection::Open::ID);
            Ending::fault(&fault).into()
        }
    }
}

/// An open connection, and its end (CONN-26 to CONN-29, CONN-32).
async fn live<S: ClientStream, B: Broker>(
    socket: &mut Socket<S>,
    broker: &B,
    connection: B::Connection,
    machine: Machine,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let heartbeat_s = connection.info().heartbeat_s;
    let mut node_stops = stop.clone();
    let stopped = async move {
        // The loss of the sender means a stop too.
        let _ = stop.wait_for(|stops| *stops).await;
        Exception::new(ReplyCode::ConnectionForced, STOP_TEXT)
    };
    let mut accounts = Accounts::new(broker.memory());
    let settings = broker.front_settings();
    let session = Session::new(socket, &connection, &mut accounts, machine, &settings);
    let end = session.run(stopped).await;
    accounts.end(socket.outbox.len());
    match end {
        SessionEnd::Ending(Ending::Client) => {
            // First the end, then its confirmation (CONN-27).
            connection.close().await;
            Cold::from(connection::CloseOk {}).put(socket.outbox.buffer(), 0);
            let bound = Duration::from_millis(linger_ms(Linger::CloseOk, heartbeat_s));
            tokio::select! {
                biased;
                parted = timeout(bound, part(socket)) => parted.unwrap_or(Ok(())),
                _ = node_stops.wait_for(|stops| *stops) => Ok(()),
            }
        }
        SessionEnd::Ending(Ending::Server { close, linger }) => {
            log_close(connection.info().peer, &close, *node_stops.borrow());
            Cold::from(*close).put(socket.outbox.buffer(), 0);
            let goodbye = say_goodbye(socket, linger, linger_ms(linger, heartbeat_s));
            if *node_stops.borrow() {
                // The connection's queues and consumers end with the node, whichever node leads
                // their groups.
                drop(connection);
                return goodbye.await;
            }
            let ((), goodbye) = tokio::join!(connection.end(), goodbye);
            goodbye
        }
        SessionEnd::Ending(Ending::Silent) => {
            drop(connection);
            silence(socket).await
        }
        SessionEnd::Lost(error) => {
            drop(connection);
            Err(error)
        }
    }
}

/// Logs a close. A node that stops closes all connections, which the listener logs once.
fn log_close(peer: SocketAddr, close: &connection::Close, node_stops: bool) {
    let (code, text) = (close.reply_code, &close.reply_text);
    if node_stops {
        tracing::debug!(%peer, code, ?text, "closing a connection");
    } else {
        tracing::warn!(%peer, code, ?text, "closing a connection");
    }
}

/// After the server's close: everything but the client's own closes is ignored (CONN-26, CONN-28).
async fn say_goodbye<S: ClientStream>(
    socket: &mut Socket<S>,
    linger: Linger,
    bound_ms: u64,
) -> io::Result<()> {
    let parted = async {
        let until = socket.received() + DISCARDED_BYTES_MAX;
        let mut farewell = Farewell { linger, passed_over: 0 };
        while !farewell.agreed(socket) {
            if socket.is_ended() {
                return Ok(());
            }
            read_on(socket, until).await?;
        }
        part(socket).await
    };
    // A client that has not answered by then is not awaited.
    timeout(Duration::from_millis(bound_ms), parted).await.unwrap_or(Ok(()))
}

/// Writes what is left, shuts down the sending half, and reads until the client has closed its
/// half: the client may still have publishes in its buffers. A socket that is closed with unread
/// bytes is reset, and the client may then lose a close-ok that it has not read.
async fn part<S: ClientStream>(socket: &mut Socket<S>) -> io::Result<()> {
    let until = socket.received() + DISCARDED_BYTES_MAX;
    while !socket.outbox.is_empty() {
        socket.input.clear();
        read_on(socket, until).await?;
    }
    socket.shutdown().await?;
    while !socket.is_ended() {
        socket.input.clear();
        read_on(socket, until).await?;
    }
    Ok(())
}

/// Copies bytes in both directions until the given number has been received.
async fn read_on<S: ClientStream>(socket: &mut Socket<S>, until: u64) -> io::Result<()> {
    if socket.received() > until {
        return Err(io::Error::other("the client keeps sending after its connection was closed"));
    }
    socket.moved(true).await
}

/// The state of a connection after the server's close.
struct Farewell {
    linger: Linger,
    /// Bytes of a large frame that have not arrived yet, and are skipped.
    passed_over: usize,
}

impl Farewell {
    /// Handles the bytes that have arrived. True if the client has sent close-ok.
    fn agreed<S>(&mut self, socket: &mut Socket<S>) -> bool {
        if self.linger == Linger::Silence {
            socket.input.clear();
            return false;
        }
        loop {
            let come = self.passed_over.min(socket.input.len());
            socket.input.advance(come);
            self.passed_over -= come;
            if self.passed_over > 0 {
                return false;
            }
            match frame::take(&mut socket.input, frame::FRAME_MAX_LEAST) {
                Ok(Some(frame)) => match while_closing(&frame) {
                    WhileClosing::Ignored => {}
                    // A client that sends closes without reading the answers gets no more answers.
                    WhileClosing::Crossing if socket.outbox.len() < CROSSING_BYTES_MAX => {
                        Cold::from(connection::CloseOk {}).put(socket.outbox.buffer(), 0);
                    }
                    WhileClosing::Crossing => {}
                    WhileClosing::Agreed => return true,
                },
                Ok(None) => return false,
                // The frame has no meaning here, so it is skipped without being buffered.
                Err(FrameError::TooLarge { size, .. }) if size <= CLOSING_FRAME_MAX => {
                    let payload = usize::try_from(size).unwrap_or(usize::MAX);
                    self.passed_over = payload.saturating_add(frame::OVERHEAD_BYTES);
                }
                Err(_) => return true,
            }
        }
    }
}

/// Sends nothing, discards what arrives, and closes the socket after a while.
async fn silence<S: ClientStream>(socket: &mut Socket<S>) -> io::Result<()> {
    say_goodbye(socket, Linger::Silence, SILENCE_MS).await
}

/// Largest frame that is skipped while closing: a larger one ends the wait.
const CLOSING_FRAME_MAX: u32 = 1024 * 1024;

/// Above this number of unwritten bytes, a close that crosses the server's is not answered.
const CROSSING_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::codec::frame;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// A client with one thread, which reads nothing before it has written all.
    async fn writes_then_reads(bytes: usize) -> (io::Result<()>, Vec<u8>, io::Result<()>) {
        let (mut client, server) = duplex(1000);
        let mut server = Socket::new(server);
        Cold::from(connection::CloseOk {}).put(server.outbox.buffer(), 0);
        let client = async move {
            let written = client.write_all(&vec![1; bytes]).await;
            let mut read = Vec::new();
            client.read_to_end(&mut read).await.unwrap();
            (written, read)
        };
        let server = async move { part(&mut server).await };
        let ((written, read), parted) = tokio::join!(client, server);
        (written, read, parted)
    }

    /// CONN-27: bytes that the client still has to write are read, and close-ok arrives.
    #[tokio::test]
    async fn conn_27_a_client_with_full_buffers_gets_its_close_ok() {
        let (written, read, parted) = writes_then_reads(1_000_000).await;
        written.unwrap();
        parted.unwrap();
        let mut read = bytes::BytesMut::from(&read[..]);
        let frame = frame::take(&mut read, 8192).unwrap().unwrap();
        assert_eq!(
            crate::codec::method::MethodId::peek(&frame.payload),
            Some(connection::CloseOk::ID)
        );
        assert!(read.is_empty());
    }

    /// CONN-26: the client's bytes in flight are skipped as they arrive, however large its frames.
    #[tokio::test]
    async fn conn_26_large_frames_are_not_kept_while_closing() {
        let (client, server) = duplex(1000);
        let (mut client, mut server) = (client, Socket::new(server));
        let mut stream = bytes::BytesMut::new();
        for bytes in [900_000, 8_192, 0, 131_072] {
            frame::put(&mut stream, frame::Kind::Body, 1, &vec![7; bytes]);
        }
        Cold::from(connection::CloseOk {}).put(&mut stream, 0);
        let writes = async move { client.write_all(&stream).await.unwrap() };
        let reads = async {
            let mut farewell = Farewell { linger: Linger::CloseOk, passed_over: 0 };
            while !farewell.agreed(&mut server) {
                assert!(server.input.len() <= 16 * 1024, "{}", server.input.len());
                server.moved(true).await.unwrap();
                assert!(!server.is_ended());
            }
        };
        tokio::join!(writes, reads);
    }

    #[tokio::test]
    async fn a_client_that_never_stops_sending_is_left() {
        let more = usize::try_from(DISCARDED_BYTES_MAX).unwrap() * 2;
        let (written, _, parted) = writes_then_reads(more).await;
        assert!(written.is_err() && parted.is_err());
    }
}
