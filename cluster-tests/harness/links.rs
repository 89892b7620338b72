//! The links between the nodes of a cluster under test: what each node dials at each other one goes
//! over a proxy of its own, which can hold bytes back, one way or both, or refuse connections.
//!
//! Bytes held back are not lost: they are delivered at the healing, as TCP does after a partition,
//! unless an end has given the connection up. A connection that is dialed meanwhile is not established.

use super::ports::Port;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a proxy lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gates {
    /// From the one that dials to the one that listens.
    forward: bool,
    backward: bool,
    /// Otherwise the port refuses, and connections are reset.
    listens: bool,
}

impl Gates {
    const OPEN: Self = Self { forward: true, backward: true, listens: true };
}

/// Stands between one node that dials and another one that listens.
#[derive(Debug)]
struct Proxy {
    port: Port,
    gates: Arc<watch::Sender<Gates>>,
    serving: JoinHandle<()>,
}

impl Proxy {
    fn start(target: String) -> Self {
        let port = Port::reserve();
        let gates = Arc::new(watch::Sender::new(Gates::OPEN));
        let serving = tokio::spawn(serve(port.address(), target, Arc::clone(&gates)));
        Self { port, gates, serving }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The links of a cluster, by who dials and who is dialed.
#[derive(Debug, Default)]
pub struct Links(BTreeMap<(u64, u64), Proxy>);

impl Links {
    /// A proxy for each ordered pair of these nodes, given with their real addresses. Within a
    /// runtime.
    pub(super) fn start(nodes: &[(u64, String)]) -> Self {
        let mut proxies = BTreeMap::new();
        for (from, _) in nodes {
            for (to, address) in nodes.iter().filter(|(to, _)| to != from) {
                proxies.insert((*from, *to), Proxy::start(address.clone()));
            }
        }
        Self(proxies)
    }

    /// Where `from` dials `to`; nothing for links without proxies.
    pub(super) fn address(&self, from: u64, to: u64) -> Option<String> {
        self.0.get(&(from, to)).map(|proxy| proxy.port.address())
    }

    /// Drops all traffic between the two nodes without an error to either (as `iptables -j DROP`).
    ///
    /// # Panics
    /// When the cluster was not started with proxies.
    pub fn cut(&self, one: u64, other: u64) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Drops what `from` sends to `to`; traffic in the other direction passes.
    ///
    /// # Panics
    /// When the cluster was not started with proxies.
    pub fn cut_one_way(&self, from: u64, to: u64) {
        self.set(from, to, |gates| gates.forward = false);
        self.set(to, from, |gates| gates.backward = false);
    }

    /// Connections that `from` has dialed to `to` are reset and new ones refused, though both live
    /// (as `iptables -j REJECT --reject-with tcp-reset`).
    ///
    /// # Panics
    /// When the cluster was not started with proxies.
    pub fn refuse(&self, from: u64, to: u64) {
        self.set(from, to, |gates| gates.listens = false);
    }

    /// Cuts a node off from all others, both ways.
    pub fn isolate(&self, node: u64) {
        for (from, to) in self.0.keys().filter(|(from, _)| *from == node) {
            self.cut(*from, *to);
        }
    }

    /// Everything comes through again.
    pub fn heal(&self) {
        for proxy in self.0.values() {
            proxy.gates.send_replace(Gates::OPEN);
        }
    }

    fn set(&self, from: u64, to: u64, change: impl FnOnce(&mut Gates)) {
        let Some(proxy) = self.0.get(&(from, to)) else {
            panic!(
                "no proxy from node {from} to node {to}: start the cluster with `Options::proxied`"
            )
        };
        proxy.gates.send_modify(change);
    }
}

async fn serve(address: String, target: String, gates: Arc<watch::Sender<Gates>>) {
    let mut changes = gates.subscribe();
    while changes.wait_for(|gates| gates.listens).await.is_ok() {
        let listener = TcpListener::bind(&address).await;
        let listener = listener.unwrap_or_else(|error| panic!("proxy at {address}: {error}"));
        tokio::select! {
            () = accept(&listener, &target, &gates) => {}
            _ = changes.wait_for(|gates| !gates.listens) => {}
        }
    }
}

async fn accept(listener: &TcpListener, target: &str, gates: &Arc<watch::Sender<Gates>>) {
    loop {
        let Ok((dialed, _)) = listener.accept().await else { continue };
        let (target, gates) = (target.to_owned(), gates.subscribe());
        tokio::spawn(async move {
            // Either end's error ends both: what a reset does.
            let _ = connection(dialed, target, gates).await;
        });
    }
}

async fn connection(
    dialed: TcpStream,
    target: String,
    mut gates: watch::Receiver<Gates>,
) -> io::Result<()> {
    let now = *gates.borrow();
    if now != Gates::OPEN {
        // The handshake is not completed; the dialer gives up after its own timeout.
        let _ = gates.wait_for(|gates| *gates == Gates::OPEN || !gates.listens).await;
        return Ok(());
    }
    let listening = TcpStream::connect(target).await?;
    dialed.set_nodelay(true)?;
    listening.set_nodelay(true)?;
    let ((from_dialer, to_dialer), (from_listener, to_listener)) =
        (dialed.into_split(), listening.into_split());
    let forward = pump(from_dialer, to_listener, gates.clone(), |gates| gates.forward);
    let backward = pump(from_listener, to_dialer, gates.clone(), |gates| gates.backward);
    tokio::select! {
        ended = forward => ended,
        ended = backward => ended,
        _ = gates.wait_for(|gates| !gates.listens) => Ok(()),
    }
}

/// Carries bytes one way until an end closes, while the gate is open.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut gates: watch::Receiver<Gates>,
    is_open: impl Fn(&Gates) -> bool,
) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut bytes).await;
        // Also an end is not told of before the healing.
        if gates.wait_for(&is_open).await.is_err() {
            return Ok(());
        }
        match read? {
            0 => return Ok(()),
            count => to.write_all(&bytes[..count]).await?,
        }
    }
}
