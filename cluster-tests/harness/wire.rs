//! AMQP 0-9-1 spoken byte by byte, for what no client library would send or leave unread.

use super::wait::{HANGS, in_time};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Type of a method frame.
pub const METHOD: u8 = 1;
/// Type of a content header frame.
pub const HEADER: u8 = 2;
/// Type of a body frame.
pub const BODY: u8 = 3;
/// Type of a heartbeat frame.
pub const HEARTBEAT: u8 = 8;
/// The last byte of every frame.
pub const FRAME_END: u8 = 0xCE;

/// The protocol header of AMQP 0-9-1.
pub const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

/// A frame as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type byte of the frame.
    pub kind: u8,
    /// Channel of the frame.
    pub channel: u16,
    /// Payload, without header and end byte.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Class and method of a method frame.
    #[must_use]
    pub fn method(&self) -> Option<(u16, u16)> {
        match (self.kind, self.payload.as_slice()) {
            (METHOD, [c0, c1, m0, m1, ..]) => {
                Some((u16::from_be_bytes([*c0, *c1]), u16::from_be_bytes([*m0, *m1])))
            }
            _ => None,
        }
    }

    /// The arguments of a method frame.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        self.payload.get(4..).unwrap_or_default()
    }
}

/// How a broker ended a connection or channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// Reply code, such as 406.
    pub code: u16,
    /// Reply text, as the client sees it.
    pub text: String,
    /// Class of the method that failed.
    pub class: u16,
    /// Method, within the class, that failed.
    pub method: u16,
}

/// A socket to a broker.
#[derive(Debug)]
pub struct Wire {
    socket: TcpStream,
}

impl Wire {
    /// Connects, and says nothing.
    ///
    /// # Panics
    /// When nobody listens.
    pub async fn connect(address: &str) -> Self {
        let socket = TcpStream::connect(address).await;
        let socket = socket.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        socket.set_nodelay(true).expect("TCP_NODELAY");
        Self { socket }
    }

    /// Connects and logs in as guest, up to `connection.open-ok`.
    ///
    /// # Panics
    /// When the broker does not follow.
    pub async fn open(address: &str) -> Self {
        Self::open_as(address, &[]).await
    }

    /// As [`Wire::open`], with these bytes as the content of client-properties.
    ///
    /// # Panics
    /// When the broker does not follow.
    pub async fn open_as(address: &str, client_properties: &[u8]) -> Self {
        let wire = Self::connect(address).await.log_in(client_properties).await;
        wire.expect("the broker logs a client in")
    }

    /// As [`Wire::open_channel`], on a socket that takes only a few kilobytes ahead of its reader.
    ///
    /// # Panics
    /// When the broker does not follow.
    pub async fn open_channel_narrow(address: &str) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(8 * 1024).expect("SO_RCVBUF");
        let address = address.parse().expect("an address");
        let socket = socket.connect(address).await.expect("connect");
        Self::from(socket).try_open_channel().await.expect("the broker opens a channel")
    }

    async fn log_in(self, client_properties: &[u8]) -> io::Result<Self> {
        let mut wire = self;
        wire.send(PROTOCOL_HEADER).await;
        wire.try_expect(0, 10, 10).await?;
        wire.method(0, 10, 11, &start_ok(client_properties)).await;
        let tune = wire.try_expect(0, 10, 30).await?;
        // What it offers, heartbeats off.
        let mut tune_ok = tune.arguments().to_vec();
        tune_ok[6..8].copy_from_slice(&[0, 0]);
        wire.method(0, 10, 31, &tune_ok).await;
        wire.method(0, 10, 40, &[1, b'/', 0, 0]).await;
        wire.try_expect(0, 10, 41).await?;
        Ok(wire)
    }

    /// As [`Wire::open`], with channel 1 open.
    ///
    /// # Panics
    /// When the broker does not follow.
    pub async fn open_channel(address: &str) -> Self {
        let wire = Self::connect(address).await.try_open_channel().await;
        wire.expect("the broker opens a channel")
    }

    /// Logs in as guest and opens channel 1, at a broker that may not serve.
    ///
    /// # Errors
    /// It does not follow.
    pub async fn try_open_channel(self) -> io::Result<Self> {
        let mut wire = self.log_in(&[]).await?;
        wire.method(1, 20, 10, &[0]).await;
        wire.try_expect(1, 20, 11).await?;
        Ok(wire)
    }

    /// Sends bytes. That the broker has closed already is no failure here: its answer is read next.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.try_send(bytes).await;
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// What the socket says.
    pub async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Sends a method frame.
    pub async fn method(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) {
        self.send(&method_frame(channel, class, method, arguments)).await;
    }

    /// The next frame; none at the end of the stream.
    ///
    /// # Panics
    /// When nothing comes, or half a frame.
    pub async fn next(&mut self) -> Option<Frame> {
        in_time("the broker answers", self.read_frame()).await
    }

    /// The next frame, if one begins to come within a while.
    ///
    /// # Panics
    /// When it begins and does not end.
    pub async fn within(&mut self, a_while: Duration) -> Option<Frame> {
        // Looked at and not taken, so that a frame is read whole or not at all.
        tokio::time::timeout(a_while, self.socket.peek(&mut [0])).await.ok()?.ok()?;
        self.next().await
    }

    /// The next frame that is no heartbeat, which must be this method.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect(&mut self, channel: u16, class: u16, method: u16) -> Frame {
        let frame = self.try_expect(channel, class, method).await;
        frame.unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Wire::expect`], from a broker that may not serve.
    ///
    /// # Errors
    /// It is another, or none comes.
    pub async fn try_expect(&mut self, channel: u16, class: u16, method: u16) -> io::Result<Frame> {
        loop {
            match tokio::time::timeout(HANGS, self.read_frame()).await {
                Ok(Some(frame)) if frame.kind == HEARTBEAT => {}
                Ok(Some(frame))
                    if frame.channel == channel && frame.method() == Some((class, method)) =>
                {
                    return Ok(frame);
                }
                other => {
                    let story =
                        format!("wanted {class}.{method} on channel {channel}, got {other:?}");
                    return Err(io::Error::other(story));
                }
            }
        }
    }

    /// Reads until the broker's `connection.close`, answers it, and waits until it hangs up.
    ///
    /// # Panics
    /// When it does not close in time.
    pub async fn closed(mut self) -> Option<Close> {
        let mut close = None;
        while let Some(frame) = self.next().await {
            if frame.channel == 0 && frame.method() == Some((10, 50)) {
                close = parse_close(frame.arguments());
                self.method(0, 10, 51, &[]).await;
            }
        }
        close
    }

    /// Reads until the broker's `channel.close` on this channel, without answering it.
    ///
    /// # Panics
    /// When it does not come in time.
    pub async fn channel_close(&mut self, channel: u16) -> Option<Close> {
        while let Some(frame) = self.next().await {
            if frame.channel == channel && frame.method() == Some((20, 40)) {
                return parse_close(frame.arguments());
            }
        }
        None
    }

    /// What comes until the broker hangs up, raw.
    ///
    /// # Panics
    /// When it does not hang up.
    pub async fn rest(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = in_time("the broker hangs up", self.socket.read_to_end(&mut bytes));
        // A reset is an end too.
        let _ = end.await;
        bytes
    }

    async fn read_frame(&mut self) -> Option<Frame> {
        let mut head = [0; 7];
        // A reset counts as the end: the broker may hang up with bytes of ours unread.
        self.socket.read_exact(&mut head).await.ok()?;
        let [kind, c0, c1, s0, s1, s2, s3] = head;
        let size = u32::from_be_bytes([s0, s1, s2, s3]);
        let mut payload = vec![0; usize::try_from(size).expect("64 bits")];
        self.socket.read_exact(&mut payload).await.ok()?;
        let end = self.socket.read_u8().await.ok()?;
        assert_eq!(end, FRAME_END, "the broker's frame ends wrong");
        Some(Frame { kind, channel: u16::from_be_bytes([c0, c1]), payload })
    }
}

impl From<TcpStream> for Wire {
    fn from(socket: TcpStream) -> Self {
        Self { socket }
    }
}

/// A whole method frame.
///
/// # Panics
/// When the arguments are 4 GiB or more.
#[must_use]
pub fn method_frame(channel: u16, class: u16, method: u16, arguments: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 + arguments.len());
    payload.extend(class.to_be_bytes());
    payload.extend(method.to_be_bytes());
    payload.extend(arguments);
    frame(METHOD, channel, &payload)
}

/// A whole frame.
///
/// # Panics
/// When the payload is 4 GiB or more.
#[must_use]
pub fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let size = u32::try_from(payload.len()).expect("under 4 GiB");
    let mut bytes = frame_head(kind, channel, size);
    bytes.extend(payload);
    bytes.push(FRAME_END);
    bytes
}

/// The first seven bytes of a frame, which may lie about its size.
#[must_use]
pub fn frame_head(kind: u8, channel: u16, size: u32) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(channel.to_be_bytes());
    bytes.extend(size.to_be_bytes());
    bytes
}

/// Arguments of `connection.start-ok`: PLAIN guest, with these bytes as the table's content.
#[must_use]
pub fn start_ok(client_properties: &[u8]) -> Vec<u8> {
    start_ok_with(client_properties, "PLAIN", b"\0guest\0guest")
}

/// As [`start_ok`], by any mechanism.
#[must_use]
pub fn start_ok_with(client_properties: &[u8], mechanism: &str, response: &[u8]) -> Vec<u8> {
    let mut bytes = long(client_properties);
    bytes.extend(short(mechanism));
    bytes.extend(long(response));
    bytes.extend(short("en_US"));
    bytes
}

/// Arguments of `queue.declare`: durable, with these bytes as the table's content.
#[must_use]
pub fn queue_declare(queue: &str, arguments: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(short(queue));
    bytes.push(0b0000_0010);
    bytes.extend(long(arguments));
    bytes
}

/// Arguments of `basic.publish` through the default exchange.
#[must_use]
pub fn basic_publish(routing_key: &str, mandatory: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(short(""));
    bytes.extend(short(routing_key));
    bytes.push(u8::from(mandatory));
    bytes
}

/// Arguments of `basic.consume` with an empty tag.
#[must_use]
pub fn basic_consume(queue: &str, no_ack: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(short(queue));
    bytes.extend(short(""));
    bytes.push(u8::from(no_ack) << 1);
    bytes.extend(long(&[]));
    bytes
}

/// Payload of a content header: no properties, or the headers table alone.
#[must_use]
pub fn content_header(class: u16, body_bytes: u64, headers: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = class.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(body_bytes.to_be_bytes());
    match headers {
        None => bytes.extend([0, 0]),
        Some(table) => {
            bytes.extend([0b0010_0000, 0]);
            bytes.extend(long(table));
        }
    }
    bytes
}

/// A table's content: one field, an array in an array in an array, `depth` deep, all lengths right.
#[must_use]
pub fn nested_arrays(depth: usize) -> Vec<u8> {
    let mut value = Vec::new();
    for _ in 0..depth {
        // Built inside out, reversed at the end: each level puts its length and letter in front.
        let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        value.extend(size.to_be_bytes().iter().rev());
        value.push(b'A');
    }
    value.reverse();
    let mut bytes = short("a");
    bytes.extend(value);
    bytes
}

/// A short string.
#[must_use]
pub fn short(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
    bytes.extend(text.bytes().take(255));
    bytes
}

/// A long string, or a table around its content.
#[must_use]
pub fn long(content: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend(content);
    bytes
}

fn parse_close(arguments: &[u8]) -> Option<Close> {
    let (code, rest) = arguments.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    let (class, rest) = rest.split_first_chunk::<2>()?;
    let (method, _) = rest.split_first_chunk::<2>()?;
    Some(Close {
        code: u16::from_be_bytes(*code),
        text: String::from_utf8_lossy(text).into_owned(),
        class: u16::from_be_bytes(*class),
        method: u16::from_be_bytes(*method),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_arrays_have_true_lengths() {
        assert_eq!(nested_arrays(1), [1, b'a', b'A', 0, 0, 0, 0]);
        assert_eq!(nested_arrays(2), [1, b'a', b'A', 0, 0, 0, 5, b'A', 0, 0, 0, 0]);
        assert_eq!(nested_arrays(8_000).len(), 2 + 8_000 * 5);
    }

    #[test]
    fn a_close_is_taken_apart() {
        let close = parse_close(&[2, 28, 2, b'N', b'I', 0, 60, 0, 40]).unwrap();
        assert_eq!((close.code, close.text.as_str()), (540, "NI"));
        assert_eq!((close.class, close.method), (60, 40));
        assert!(parse_close(&[2, 28, 200]).is_none());
    }
}
