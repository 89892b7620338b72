//! A client that never ends as AMQP wants it: it resets its connections while it holds messages, while it
//! reads nothing, within a message, and within the handshake. What it held comes back, marked if it was
//! shown; a part of a message never becomes one; and its nodes go on.

use super::{History, Number};
use crate::harness::wait::HANGS;
use crate::harness::wire::{self, BODY, Frame, HEADER, PROTOCOL_HEADER, Wire};
use lapin::uri::AMQPUri;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpSocket, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Time between two acts.
const INTERVAL: Duration = Duration::from_millis(300);
/// An act ends within this, whatever its node does.
const ACT_BOUND: Duration = Duration::from_secs(30);
/// Size of the sockets' receive buffers, in bytes: less than one large message.
const RECEIVE_BUFFER: u32 = 8 * 1024;

/// Prefetch of a consumer that is killed. It is small, since the checker excuses this number of redeliveries.
const PREFETCH: u16 = 10;
/// How long it takes deliveries.
const TAKES: Duration = Duration::from_millis(300);
/// Prefetch of a consumer that reads nothing: enough large messages to fill all buffers on their way.
const PREFETCH_LARGE: u16 = 2;
/// How long it reads nothing.
const DEAF: Duration = Duration::from_secs(2);
/// Size of a message that is never sent to its end, in bytes.
const CUT_BYTES: usize = 1024;
/// Time in which the broker reads what was sent of it.
const CUT_TIME: Duration = Duration::from_millis(100);
/// How long it says nothing within the handshake.
const SILENCE: Duration = Duration::from_secs(1);

/// The ways to behave badly.
#[derive(Clone, Copy, Debug)]
enum Act {
    Killed,
    Deaf,
    Cut,
    Silent,
}

/// In their order, with what the client is doing, for the error message if it does not end in time.
const ACTS: [(Act, &str); 4] = [
    (Act::Killed, "takes messages and settles none"),
    (Act::Deaf, "consumes and reads nothing"),
    (Act::Cut, "publishes a part of a message"),
    (Act::Silent, "sends a part of the handshake"),
];

/// Queues in which a message that comes again has no other consequence than its mark.
#[derive(Clone, Debug)]
pub struct Victims {
    /// Queues of small messages.
    pub plain: Vec<String>,
    /// A queue whose messages are larger than the buffers between a broker and a client.
    pub large: String,
}

/// The running client.
#[derive(Debug)]
pub struct Rude {
    stop: watch::Sender<bool>,
    stage: Arc<Mutex<&'static str>>,
    task: JoinHandle<()>,
}

impl Rude {
    /// Starts it. Each time it connects to any of these nodes.
    #[must_use]
    pub fn start(history: Arc<History>, uris: &[String], victims: Victims) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stage = Arc::new(Mutex::new("begins"));
        let addresses = uris.iter().filter_map(|uri| address(uri)).collect();
        let told = Arc::clone(&stage);
        let task =
            tokio::spawn(async move { run(&history, addresses, victims, stopped, &told).await });
        Self { stop, stage, task }
    }

    /// Ends after the act under way.
    ///
    /// # Panics
    /// When that does not end.
    pub async fn finish(self) {
        // Nobody listens any more where the client failed; that shows next.
        let _ = self.stop.send(true);
        let Ok(ended) = tokio::time::timeout(HANGS, self.task).await else {
            let stage = *self.stage.lock().expect("a stage");
            panic!("not within {HANGS:?}: a rude client leaves; it {stage}");
        };
        ended.expect("the rude client");
    }
}

async fn run(
    history: &History,
    addresses: Vec<String>,
    victims: Victims,
    stopped: watch::Receiver<bool>,
    stage: &Mutex<&'static str>,
) {
    let (producer, mut cuts) = (history.producer(), 0);
    for (act, at) in ACTS.into_iter().cycle() {
        let address = fastrand::choice(&addresses);
        let (Some(address), Some(queue)) = (address, fastrand::choice(&victims.plain)) else {
            return;
        };
        *stage.lock().expect("a stage") = at;
        let mut held = Held { history, consumer: None };
        let work = async {
            match act {
                Act::Killed => held.killed(address, queue).await,
                Act::Deaf => held.deaf(address, &victims.large).await,
                Act::Cut => {
                    cuts += 1;
                    publish_part(address, queue, Number { producer, seq: cuts }).await
                }
                Act::Silent => shake_half_a_hand(address).await,
            }
        };
        // That the node does not serve now is no news of this client.
        let done = tokio::time::timeout(ACT_BOUND, work).await;
        // The socket is closed: what it held goes back.
        held.consumer.into_iter().for_each(|consumer| history.lost(consumer));
        if matches!(done, Ok(Ok(()))) {
            history.rude();
        }
        // Longer than a broker takes to hear of a reset, so that what it held is back when the client has left.
        tokio::time::sleep(INTERVAL).await;
        if *stopped.borrow() {
            return;
        }
    }
}

/// What the history knows of the consumer of one act.
struct Held<'a> {
    history: &'a History,
    consumer: Option<usize>,
}

impl Held<'_> {
    /// Takes deliveries, and is killed without having settled any.
    async fn killed(&mut self, address: &str, queue: &str) -> io::Result<()> {
        let mut wire = self.consume(address, queue, PREFETCH).await?;
        // Much shorter than what `Wire::next` waits before it panics. A delivery under way is cut off.
        let _ = tokio::time::timeout(TAKES, self.take(&mut wire)).await;
        Ok(())
    }

    /// Consumes, and lets the broker write until its buffers are full.
    async fn deaf(&mut self, address: &str, queue: &str) -> io::Result<()> {
        let _wire = self.consume(address, queue, PREFETCH_LARGE).await?;
        tokio::time::sleep(DEAF).await;
        Ok(())
    }

    /// A consumer, after consume-ok: before that nobody can say when its queue hears of it and of its loss.
    async fn consume(&mut self, address: &str, queue: &str, prefetch: u16) -> io::Result<Wire> {
        let mut wire = connect(address).await?.try_open_channel().await?;
        wire.method(1, 60, 10, &basic_qos(prefetch)).await;
        wire.try_expect(1, 60, 11).await?;
        // Deliveries may be under way before consume-ok is seen.
        self.consumer = Some(self.history.attached(queue, prefetch));
        wire.method(1, 60, 20, &wire::basic_consume(queue, false)).await;
        wire.try_expect(1, 60, 21).await?;
        Ok(wire)
    }

    /// Writes down every delivery that is shown in whole, to the end of the stream: each must come again,
    /// marked. One that is shown in part may come marked or not.
    async fn take(&self, wire: &mut Wire) -> Option<()> {
        let consumer = self.consumer?;
        loop {
            let frame = wire.next().await?;
            if frame.method() != Some((60, 60)) {
                continue;
            }
            let redelivered = redelivered(frame.arguments())?;
            let bytes = body_bytes(&wire.next().await?)?;
            let mut body = Vec::new();
            while (body.len() as u64) < bytes {
                body.extend(wire.next().await?.payload);
            }
            self.history.delivered(consumer, &body, redelivered);
        }
    }
}

/// Publishes a message but for its end. Nobody wrote it down as published: it is invented if it ever comes.
async fn publish_part(address: &str, queue: &str, number: Number) -> io::Result<()> {
    let mut wire = connect(address).await?.try_open_channel().await?;
    let frames = publish(queue, &number.body(CUT_BYTES));
    wire.try_send(&cut_within(&frames, fastrand::usize(..frames.len()))).await?;
    tokio::time::sleep(CUT_TIME).await;
    Ok(())
}

/// Begins to log in.
async fn shake_half_a_hand(address: &str) -> io::Result<()> {
    let mut wire = connect(address).await?;
    wire.try_send(PROTOCOL_HEADER).await?;
    let start_ok = wire::method_frame(0, 10, 11, &wire::start_ok(&[]));
    wire.try_send(&cut_within(&[start_ok], 0)).await?;
    tokio::time::sleep(SILENCE).await;
    Ok(())
}

/// A connection with little room for what is not read yet, which ends with a reset, however it ends.
async fn connect(address: &str) -> io::Result<Wire> {
    let address = lookup_host(address).await?.find(SocketAddr::is_ipv4);
    let address = address.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.set_zero_linger()?;
    Ok(socket.connect(address).await?.into())
}

/// The address in a URI; none in what is no URI.
fn address(uri: &str) -> Option<String> {
    let authority = uri.parse::<AMQPUri>().ok()?.authority;
    Some(format!("{}:{}", authority.host, authority.port))
}

/// Arguments of `basic.qos`, for each consumer by itself.
fn basic_qos(prefetch: u16) -> Vec<u8> {
    [&[0; 4][..], &prefetch.to_be_bytes(), &[0]].concat()
}

/// The frames of a publish through the default exchange, with a body of two frames.
fn publish(queue: &str, body: &[u8]) -> [Vec<u8>; 4] {
    let (first, second) = body.split_at(body.len() / 2);
    [
        wire::method_frame(1, 60, 40, &wire::basic_publish(queue, false)),
        wire::frame(HEADER, 1, &wire::content_header(60, body.len() as u64, None)),
        wire::frame(BODY, 1, first),
        wire::frame(BODY, 1, second),
    ]
}

/// The frames before the one at this place, and the first half of that.
fn cut_within(frames: &[Vec<u8>], last: usize) -> Vec<u8> {
    let mut bytes = frames[..last].concat();
    bytes.extend(&frames[last][..frames[last].len() / 2]);
    bytes
}

/// What the arguments of `basic.deliver` say.
fn redelivered(arguments: &[u8]) -> Option<bool> {
    // A consumer tag, a delivery tag, then the flag.
    let (tag_bytes, rest) = arguments.split_first()?;
    rest.get(usize::from(*tag_bytes) + 8).map(|flag| *flag != 0)
}

/// Size of the body that a content header announces.
fn body_bytes(header: &Frame) -> Option<u64> {
    let (_, rest) = header.payload.split_at_checked(4)?;
    rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_message_ends_within_any_of_its_frames() {
        let frames = publish("q", &Number { producer: 1, seq: 1 }.body(CUT_BYTES));
        let whole = frames.concat();
        let mut before = 0;
        for (last, frame) in frames.iter().enumerate() {
            let cut = cut_within(&frames, last);
            assert!(whole.starts_with(&cut));
            assert!((before + 1..before + frame.len()).contains(&cut.len()), "frame {last}");
            before += frame.len();
        }
    }

    #[test]
    fn a_delivery_is_taken_apart() {
        let arguments = |flag| [&[2, b't', b'g'][..], &7_u64.to_be_bytes(), &[flag, 0, 0]].concat();
        assert_eq!(redelivered(&arguments(1)), Some(true));
        assert_eq!(redelivered(&arguments(0)), Some(false));
        assert_eq!(redelivered(&arguments(0)[..11]), None);
        let payload = wire::content_header(60, 1 << 20, None);
        assert_eq!(body_bytes(&Frame { kind: HEADER, channel: 1, payload }), Some(1 << 20));
    }

    #[test]
    fn an_address_is_found_in_a_uri() {
        let found = address("amqp://guest:guest@127.0.0.1:5673/%2f");
        assert_eq!(found.as_deref(), Some("127.0.0.1:5673"));
        assert_eq!(address("127.0.0.1"), None);
    }
}
