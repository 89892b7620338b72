//! Proxies as links: what each node dials at each other one goes over a proxy of its own, which can hold
//! bytes back, one way or both, delay them, let them through at a low rate, reset connections, or refuse
//! them.
//!
//! Bytes held back are not lost: they are delivered at the healing, as TCP does after a partition,
//! unless an end has given the connection up. A connection that is dialed meanwhile is not established.

use super::{Hindrance, Unable};
use crate::harness::ports::Port;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

/// Bytes of one read of a proxy.
const CHUNK_BYTES: usize = 64 << 10;
/// Interval between two attempts to connect to a target that refuses.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);
/// Chunks on their way through a proxy in one direction.
const CHUNKS: usize = 64;

/// What a proxy lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gates {
    /// From the one that dials to the one that listens.
    forward: bool,
    backward: bool,
    /// Otherwise the port refuses, and connections are reset.
    listens: bool,
    /// How late bytes arrive, at least and by up to how much more.
    delay: (Duration, Duration),
    /// Bytes a second in each direction; 0 for no limit.
    rate: u64,
    /// Connections that were established under a lower number are reset.
    generation: u64,
    /// The target refuses connections, so its proxy does too: the dialer learns of a dead process as early
    /// as without a proxy.
    is_refused: bool,
}

impl Gates {
    const OPEN: Self = Self {
        forward: true,
        backward: true,
        listens: true,
        delay: (Duration::ZERO, Duration::ZERO),
        rate: 0,
        generation: 0,
        is_refused: false,
    };

    fn passes(self) -> bool {
        self.forward && self.backward
    }

    /// When what was read now arrives.
    fn due(self) -> Instant {
        let (least, jitter) = self.delay;
        Instant::now() + least + jitter.mul_f64(fastrand::f64())
    }

    /// How long bytes take at the rate.
    fn time_of(self, bytes: usize) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(bytes as f64 / self.rate as f64)
    }
}

/// Stands between one node that dials and another one that listens.
#[derive(Debug)]
struct Proxy {
    port: Port,
    gates: Arc<watch::Sender<Gates>>,
    hindered: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

impl Proxy {
    fn start(target: String) -> Self {
        let port = Port::reserve();
        let gates = Arc::new(watch::Sender::new(Gates::OPEN));
        let hindered = Arc::default();
        let way = Way { target, gates: Arc::clone(&gates), hindered: Arc::clone(&hindered) };
        let serving = tokio::spawn(serve(port.address(), way));
        Self { port, gates, hindered, serving }
    }
}

/// What every connection of a proxy needs.
#[derive(Clone, Debug)]
struct Way {
    target: String,
    gates: Arc<watch::Sender<Gates>>,
    /// Chunks that were held back or delayed, and connections that were not let through or were reset.
    hindered: Arc<AtomicU64>,
}

impl Way {
    /// Connects to the target. If it refuses, so does the proxy from now on.
    async fn connect(&self) -> io::Result<TcpStream> {
        let connected = TcpStream::connect(&self.target).await;
        if connected.is_err() {
            self.gates.send_modify(|gates| gates.is_refused = true);
        }
        connected
    }

    fn hinder(&self) {
        self.hindered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The proxies of a cluster, by who dials and who is dialed.
#[derive(Debug)]
pub(super) struct Proxies(BTreeMap<(u64, u64), Proxy>);

impl Proxies {
    /// A proxy for each ordered pair of these nodes, given with their real addresses. Within a
    /// runtime.
    pub fn start(nodes: &[(u64, String)]) -> Self {
        let mut proxies = BTreeMap::new();
        for (from, _) in nodes {
            for (to, address) in nodes.iter().filter(|(to, _)| to != from) {
                proxies.insert((*from, *to), Proxy::start(address.clone()));
            }
        }
        Self(proxies)
    }

    /// Where `from` dials `to`.
    pub fn address(&self, from: u64, to: u64) -> Option<String> {
        self.0.get(&(from, to)).map(|proxy| proxy.port.address())
    }

    /// From now on this is done to what `from` sends to `to`, or to connections that it dials.
    pub fn hinder(&self, from: u64, to: u64, hindrance: Hindrance) -> Result<(), Unable> {
        match hindrance {
            Hindrance::Cut => {
                self.set(from, to, |gates| gates.forward = false);
                self.set(to, from, |gates| gates.backward = false);
            }
            Hindrance::Refuse => self.set(from, to, |gates| gates.listens = false),
            Hindrance::Reset => self.set(from, to, |gates| gates.generation += 1),
            Hindrance::Late { least, jitter, in_order: true } => {
                self.set(from, to, |gates| gates.delay = (least, jitter));
            }
            Hindrance::Slow { bytes_per_s } => self.set(from, to, |gates| gates.rate = bytes_per_s),
            Hindrance::Late { in_order: false, .. }
            | Hindrance::Lose { .. }
            | Hindrance::Duplicate { .. } => return Err(Unable),
        }
        Ok(())
    }

    /// How often any proxy has held bytes back, delayed them, or refused or reset a connection.
    pub fn hindered(&self) -> u64 {
        self.0.values().map(|proxy| proxy.hindered.load(Ordering::Relaxed)).sum()
    }

    /// Everything comes through again.
    pub fn heal(&self) {
        for proxy in self.0.values() {
            proxy.gates.send_modify(|gates| {
                let Gates { generation, is_refused, .. } = *gates;
                *gates = Gates { generation, is_refused, ..Gates::OPEN };
            });
        }
    }

    fn set(&self, from: u64, to: u64, change: impl FnOnce(&mut Gates)) {
        if let Some(proxy) = self.0.get(&(from, to)) {
            proxy.gates.send_modify(change);
        }
    }
}

async fn serve(address: String, way: Way) {
    let mut changes = way.gates.subscribe();
    while changes.wait_for(|gates| gates.listens).await.is_ok() {
        if changes.borrow().is_refused {
            until_accepted(&way.target).await;
            way.gates.send_modify(|gates| gates.is_refused = false);
        }
        let listener = TcpListener::bind(&address).await;
        let listener = listener.unwrap_or_else(|error| panic!("proxy at {address}: {error}"));
        tokio::select! {
            () = accept(&listener, &way) => {}
            _ = changes.wait_for(|gates| !gates.listens || gates.is_refused) => {}
        }
    }
}

async fn until_accepted(target: &str) {
    while TcpStream::connect(target).await.is_err() {
        sleep(PROBE_INTERVAL).await;
    }
}

async fn accept(listener: &TcpListener, way: &Way) {
    loop {
        let Ok((dialed, _)) = listener.accept().await else { continue };
        let way = way.clone();
        tokio::spawn(async move {
            // Either end's error ends both: what a reset does.
            let _ = connection(dialed, &way).await;
        });
    }
}

async fn connection(dialed: TcpStream, way: &Way) -> io::Result<()> {
    let mut gates = way.gates.subscribe();
    let now = *gates.borrow();
    if !now.passes() || !now.listens {
        way.hinder();
        // The handshake is not completed; the dialer gives up after its own timeout.
        let _ = gates.wait_for(|gates| gates.passes() || !gates.listens).await;
        return Ok(());
    }
    let listening = way.connect().await?;
    dialed.set_nodelay(true)?;
    listening.set_nodelay(true)?;
    let ((from_dialer, to_dialer), (from_listener, to_listener)) =
        (dialed.into_split(), listening.into_split());
    let forward = pump(from_dialer, to_listener, way, |gates| gates.forward);
    let backward = pump(from_listener, to_dialer, way, |gates| gates.backward);
    tokio::select! {
        ended = forward => ended,
        ended = backward => ended,
        _ = gates.wait_for(|gates| !gates.listens || gates.generation > now.generation) => {
            way.hinder();
            Ok(())
        }
    }
}

/// Carries bytes one way until an end closes, while the gate is open.
async fn pump(
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    way: &Way,
    is_open: impl Fn(&Gates) -> bool,
) -> io::Result<()> {
    let (sender, mut chunks) = mpsc::channel::<(Instant, io::Result<Vec<u8>>)>(CHUNKS);
    let mut gates = way.gates.subscribe();
    let write = async {
        while let Some((due, chunk)) = chunks.recv().await {
            let now = *gates.borrow_and_update();
            if !is_open(&now) || due > Instant::now() || now.rate > 0 {
                way.hinder();
            }
            sleep_until(due).await;
            // Also an end is not told of before the healing.
            if gates.wait_for(&is_open).await.is_err() {
                return Ok(());
            }
            let Some(chunk) = chunk.ok().filter(|chunk| !chunk.is_empty()) else { break };
            sleep(now.time_of(chunk.len())).await;
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        // Before the other end is closed: it may connect again at once.
        way.connect().await.map(drop)
    };
    let read = async {
        read_all(from, way, sender).await;
        // The writer ends when it has come to the last chunk.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        written = write => written,
        () = read => Ok(()),
    }
}

/// Reads until the end, which an empty chunk tells, or until nobody takes what is read.
async fn read_all(
    mut from: OwnedReadHalf,
    way: &Way,
    chunks: mpsc::Sender<(Instant, io::Result<Vec<u8>>)>,
) {
    loop {
        let mut bytes = vec![0; CHUNK_BYTES];
        let read = from.read(&mut bytes).await.map(|count| {
            bytes.truncate(count);
            bytes
        });
        let ends = read.as_ref().map_or(true, Vec::is_empty);
        let due = way.gates.borrow().due();
        if chunks.send((due, read)).await.is_err() || ends {
            return;
        }
    }
}
