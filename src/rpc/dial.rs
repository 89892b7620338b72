//! Dialing one node, for as long as this process runs.

use crate::{
    admission::Attempt,
    chance,
    connection::Connection,
    door::knock,
    frame::{Head, Outgoing},
    handshake::HandshakeError,
    hello::{PeerHello, Refusal},
    join::{FrameError, Incoming, Joiner},
    lane::{Lane, LaneFrames, LaneQueue},
    link_config::LinkConfig,
    links::Shared,
    peers::Cause,
    rejection::{Reason, Rejection, rejection},
    roster::Address,
    server::{CONNECTION_WINDOW_BYTES, HTTP_FRAME_BYTES, KEEP_ALIVE, STREAM_WINDOW_BYTES},
    sockets::{Network, Socket, connect_tcp},
    wire::{Frame, links_client::LinksClient},
};
use hyper_util::rt::TokioIo;
use quorate_tls::Stream;
use quorate_types::{BootNumber, NodeId};
use std::{collections::BTreeMap, io, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, timeout};
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Channel, Endpoint},
};
use tower::service_fn;

/// Longest wait for a connection, and for the hello on it. The kernel of a hanging process still
/// accepts connections, but the process sends nothing.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a process is dialed at its node's first address only, until it was reached there once. It may
/// just be starting, and where a proxy is in between, it must not be passed by.
const FIRST_ONLY: Duration = Duration::from_secs(3);

/// After a connection that ended within this time, there is a pause before the next dial.
const SHORT_LIVED: Duration = Duration::from_millis(50);

/// Pause between attempts, drawn from this range so that nodes do not dial in step.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 50..=100;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("the node refuses connections")]
    Refused,
    #[error("cannot connect: {0}")]
    Io(io::Error),
    #[error("cannot connect: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("the node did not answer in time")]
    Timeout,
    #[error("the node refused the stream: {}", .0.message())]
    Status(Box<Status>),
    #[error("the handshake failed: {0}")]
    Handshake(#[from] HandshakeError),
    #[error(transparent)]
    Peer(#[from] Refusal),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the node restarted in the meantime")]
    Restarted,
}

impl From<Status> for DialError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl DialError {
    /// True if the error stays until a setting is changed. A node that does not run, or that
    /// accepts no connections while it starts or stops, is part of every start.
    fn stays(&self) -> bool {
        match self {
            Self::Status(status) => status.code() == Code::FailedPrecondition,
            Self::Handshake(error) => !matches!(error, HandshakeError::Io(_)),
            Self::Peer(refusal) => !matches!(refusal, Refusal::NoHello),
            Self::Refused
            | Self::Io(_)
            | Self::Transport(_)
            | Self::Timeout
            | Self::Frame(_)
            | Self::Restarted => false,
        }
    }

    /// The attempt's meaning for this process's own admission.
    fn attempt(&self) -> Attempt {
        match self {
            Self::Status(status) => rejection(status).map_or(Attempt::Failed, Attempt::Rejected),
            Self::Handshake(HandshakeError::Refused { admitted }) => {
                let (reason, admitted) = (Reason::Secret, *admitted);
                Attempt::Rejected(Rejection { reason, admitted })
            }
            // This node's objection to the peer says nothing about this node.
            Self::Peer(_)
            | Self::Handshake(_)
            | Self::Refused
            | Self::Io(_)
            | Self::Transport(_)
            | Self::Timeout
            | Self::Frame(_)
            | Self::Restarted => Attempt::Failed,
        }
    }
}

/// One opened lane.
struct Opened {
    peer: PeerHello,
    /// Where it says that it is.
    address: String,
    queue: Arc<LaneQueue>,
    answers: Streaming<Frame>,
    /// Held to keep the connection open.
    _client: LinksClient<Channel>,
}

/// Keeps both lanes to a node open until the links stop, or the node is dialed no more.
pub(crate) async fn keep_linked(shared: Arc<Shared>, node: NodeId, address: Address) {
    let mut stopping = shared.stopping.subscribe();
    let mut removed = address.clone();
    tokio::select! {
        () = dial(&shared, node, &address) => {}
        _ = removed.wait_for(Option::is_none) => forget(&shared, node),
        _ = stopping.wait_for(|stop| *stop) => {}
    }
}

/// What is known of a node from dialing it.
struct Dialing {
    /// The process that is dialed, if one is known.
    process: Option<BootNumber>,
    /// Since when it is dialed.
    since: Instant,
    /// Which of its addresses is dialed next.
    turn: usize,
    /// The process that was reached at each address, and where it said that it is: the address may be a
    /// proxy's, or another name of the same place.
    reached: BTreeMap<String, (BootNumber, String)>,
    /// The last process that was opened, and where.
    opened: Option<(BootNumber, String)>,
    /// Why the last attempt has failed, by address.
    logged: BTreeMap<String, String>,
}

impl Dialing {
    fn new() -> Self {
        Self {
            process: None,
            since: Instant::now(),
            turn: 0,
            reached: BTreeMap::new(),
            opened: None,
            logged: BTreeMap::new(),
        }
    }

    /// Notes which process is dialed. A new one may be elsewhere.
    fn meet(&mut self, process: Option<BootNumber>) {
        if process.is_some() && process != self.process {
            (self.process, self.since) = (process, Instant::now());
        }
    }

    /// The address to dial next. An address is left out if the first address was seen to lead to the same
    /// process, for example through a proxy.
    fn address(&self, addresses: &[String]) -> Option<String> {
        let (first, others) = addresses.split_first()?;
        let is_present =
            |(boot, _): &&(BootNumber, String)| self.process.is_none_or(|process| process == *boot);
        let same = self.reached.get(first).filter(is_present).map(|(_, address)| address);
        let may_be_elsewhere = same.is_some() || self.since.elapsed() >= FIRST_ONLY;
        let is_other = |address: &&String| may_be_elsewhere && Some(*address) != same;
        let others = others.iter().filter(is_other);
        let addresses: Vec<&String> = [first].into_iter().chain(others).collect();
        addresses.get(self.turn % addresses.len()).map(|address| (*address).clone())
    }

    /// True if a refused connection shows that the process is dead: not at an address where another
    /// process is, because this one has moved.
    fn is_at(&self, process: Option<BootNumber>, claimed: Option<String>, address: &str) -> bool {
        match &self.opened {
            Some((boot, at)) if Some(*boot) == process => at == address,
            Some(_) | None => claimed.is_none_or(|claimed| claimed == address),
        }
    }
}

/// Opens links to a node again and again, until it has no address.
async fn dial(shared: &Shared, node: NodeId, address: &Address) {
    let mut dialing = Dialing::new();
    loop {
        let Some(first) = address.borrow().clone() else { return };
        let addresses = shared.roster.addresses(node, first);
        dialing.meet(shared.peers.present(node));
        let Some(at) = dialing.address(&addresses) else { return };
        match open_both(shared, node, &at).await {
            Ok((control, bulk)) => {
                dialing.reached.insert(at.clone(), (control.peer.boot, control.address.clone()));
                dialing.opened = Some((control.peer.boot, at));
                dialing.logged.clear();
                let opened = Instant::now();
                run(shared, control, bulk).await;
                if opened.elapsed() >= SHORT_LIVED {
                    continue;
                }
            }
            Err(error) => {
                shared.note(node, error.attempt());
                let process = shared.peers.present(node);
                if matches!(error, DialError::Refused)
                    && dialing.is_at(process, shared.roster.claimed(node), &at)
                {
                    shared.report_lost(shared.peers.refused(node));
                }
                dialing.logged.retain(|address, _| addresses.contains(address));
                dialing.reached.retain(|address, _| addresses.contains(address));
                log_failure(node, &at, &error, dialing.logged.entry(at.clone()).or_default());
                dialing.turn = dialing.turn.wrapping_add(1);
            }
        }
        let pause = chance::in_range(PAUSE_MS);
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Ends the link to a node that is dialed no more.
fn forget(shared: &Shared, node: NodeId) {
    let linked = shared.linked.write().remove(&node);
    if let Some(connection) = linked {
        connection.close();
        shared.handler.lost(node, connection.peer.boot, Cause::Closed);
    }
}

/// Logs why a node is not linked: once for each reason, not at every attempt.
fn log_failure(node: NodeId, address: &str, error: &DialError, logged: &mut String) {
    let text = error.to_string();
    if *logged != text {
        if error.stays() {
            tracing::warn!(%node, address, "cannot open a link: {text}");
        } else {
            tracing::debug!(%node, address, "cannot open a link: {text}");
        }
        *logged = text;
    }
}

/// Opens both lanes, or none, to the same process.
async fn open_both(
    shared: &Shared,
    node: NodeId,
    address: &str,
) -> Result<(Opened, Opened), DialError> {
    let (control, bulk) = tokio::try_join!(
        open(shared, node, address, Lane::Control),
        open(shared, node, address, Lane::Bulk),
    )?;
    if control.peer.boot != bulk.peer.boot {
        return Err(DialError::Restarted);
    }
    Ok((control, bulk))
}

/// Opens a lane. Each lane is a separate TCP connection, so that large messages do not delay urgent
/// ones in a socket.
async fn open(
    shared: &Shared,
    node: NodeId,
    address: &str,
    lane: Lane,
) -> Result<Opened, DialError> {
    let channel =
        timeout(OPEN_TIMEOUT, connect(shared, address)).await.map_err(|_| DialError::Timeout)??;
    let mut client = LinksClient::new(channel);
    let queue = LaneQueue::new(lane.bytes_max(shared.config.lane_bytes));
    let mine = shared.hello(node);
    queue.push_beyond(Outgoing::new(Head::Hello(mine), crate::Payload::new()));
    let request = Request::new(LaneFrames(Arc::clone(&queue)));
    let greeting = async {
        let response = match lane {
            Lane::Control => client.control(request).await?,
            Lane::Bulk => client.bulk(request).await?,
        };
        let mut answers = response.into_inner();
        let first = answers.message().await?.ok_or(Refusal::NoHello)?;
        Ok::<_, DialError>((answers, first))
    };
    let (answers, first) =
        timeout(OPEN_TIMEOUT, greeting).await.map_err(|_| DialError::Timeout)??;
    let (peer, address) = greeted(shared, node, first)?;
    Ok(Opened { peer, address, queue, answers, _client: client })
}

/// Checks the hello with which a stream is answered, and records the peer; returns also where it says that
/// it is.
fn greeted(shared: &Shared, node: NodeId, first: Frame) -> Result<(PeerHello, String), DialError> {
    let incoming = Joiner::default().push(first)?;
    let Some(Incoming { head: Head::Hello(theirs), .. }) = incoming else {
        return Err(Refusal::NoHello.into());
    };
    let peer = shared.examine(&theirs)?;
    if peer.node != node {
        return Err(Refusal::OtherNode { wanted: node, found: peer.node }.into());
    }
    let is_ours = shared.is_ours(&peer);
    shared.report_lost(shared.peers.meet(&peer, &theirs.former_boots, is_ours)?);
    Ok((peer, theirs.address))
}

async fn connect(shared: &Shared, address: &str) -> Result<Channel, DialError> {
    let LinkConfig { secret, tls, .. } = &shared.config;
    let tls = tls.as_ref().map(|tls| &tls.dialer);
    let failed = |error: io::Error| {
        let refused = error.kind() == io::ErrorKind::ConnectionRefused;
        if refused { DialError::Refused } else { DialError::Io(error) }
    };
    match &shared.network {
        Network::Tcp => {
            let stream = connect_tcp(address).await.map_err(failed)?;
            channel(knock(stream, address, tls, secret).await?).await
        }
        Network::Simulated(connect) => {
            let stream = connect(address.to_owned()).await.map_err(failed)?;
            channel(knock(stream, address, tls, secret).await?).await
        }
    }
}

/// The gRPC channel for calls, over a connection that has just been opened.
async fn channel<S: Socket>(stream: Stream<S>) -> Result<Channel, DialError> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = service_fn(move |_: tonic::transport::Uri| {
        // tonic connects a second time only if the connection has ended, and then it must not.
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        std::future::ready(stream)
    });
    let endpoint = Endpoint::from_static("http://quorate")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(HTTP_FRAME_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_with_connector(connector).await?)
}

/// Runs from the opening of both lanes until one of them ends.
async fn run(shared: &Shared, mut control: Opened, mut bulk: Opened) {
    let peer = control.peer;
    if !shared.peers.linked(peer.node, peer.boot) {
        return;
    }
    shared.note(peer.node, Attempt::Linked { formed: peer.cluster.is_some() });
    let queues = (Arc::clone(&control.queue), Arc::clone(&bulk.queue));
    let connection = Arc::new(Connection::new(peer, queues.0, queues.1));
    shared.linked.write().insert(peer.node, Arc::clone(&connection));
    tracing::info!(node = %peer.node, boot = peer.boot.0, "link opened");
    shared.handler.connected(&peer);
    tokio::select! {
        () = read_answers(&mut control.answers, &connection) => {}
        () = read_answers(&mut bulk.answers, &connection) => {}
        () = shared.peers.until_refused(&peer) => {}
    }
    shared.linked.write().remove(&peer.node);
    connection.close();
    shared.report_lost(shared.peers.closed(peer.node, peer.boot));
}

async fn read_answers(answers: &mut Streaming<Frame>, connection: &Connection) {
    let mut joiner = Joiner::default();
    loop {
        let frame = match answers.message().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(status) => {
                tracing::debug!(node = %connection.peer.node, "stream ended: {}", status.message());
                return;
            }
        };
        match joiner.push(frame).and_then(|incoming| answer(incoming, connection)) {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(node = %connection.peer.node, "protocol error: {error}");
                return;
            }
        }
    }
}

fn answer(incoming: Option<Incoming>, connection: &Connection) -> Result<(), FrameError> {
    let Some(Incoming { head, payload }) = incoming else { return Ok(()) };
    match head {
        Head::Response { id, refused } => {
            connection.calls.answer(id, refused, payload);
            Ok(())
        }
        Head::Hello(_) | Head::Request { .. } | Head::Notice { .. } => Err(FrameError::WrongKind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn mem_03_a_node_that_has_moved_is_dialed_at_its_addresses_in_turn() {
        let addresses = ["old:1", "new:1"].map(str::to_owned);
        let mut dialing = Dialing { turn: 1, ..Dialing::new() };
        assert_eq!(dialing.address(&addresses).as_deref(), Some("old:1"), "it may be starting");
        tokio::time::advance(FIRST_ONLY).await;
        dialing.turn = 0;
        assert_eq!(dialing.address(&addresses).as_deref(), Some("old:1"));
        dialing.turn += 1;
        assert_eq!(dialing.address(&addresses).as_deref(), Some("new:1"));
        dialing.turn += 1;
        assert_eq!(dialing.address(&addresses).as_deref(), Some("old:1"));
        assert_eq!(dialing.address(&[]), None);
    }

    #[test]
    fn a_node_that_was_reached_where_it_says_that_it_is_is_dialed_there_again() {
        let addresses = ["two:1".to_owned()];
        let mut dialing = Dialing { turn: 3, ..Dialing::new() };
        dialing.reached.insert("two:1".to_owned(), (BootNumber(1), "two:1".to_owned()));
        assert_eq!(dialing.address(&addresses).as_deref(), Some("two:1"));
    }

    /// A proxy that does not let through must not be passed by.
    #[tokio::test(start_paused = true)]
    async fn where_an_address_has_led_to_is_no_other_address_of_that_process() {
        let addresses = ["proxy:1", "real:1"].map(str::to_owned);
        let mut dialing = Dialing { turn: 1, ..Dialing::new() };
        dialing.meet(Some(BootNumber(1)));
        dialing.reached.insert("proxy:1".to_owned(), (BootNumber(1), "real:1".to_owned()));
        assert_eq!(dialing.address(&addresses).as_deref(), Some("proxy:1"));
        let moved = ["proxy:1", "real:1", "new:1"].map(str::to_owned);
        assert_eq!(dialing.address(&moved).as_deref(), Some("new:1"));
        dialing.meet(None);
        assert_eq!(dialing.address(&addresses).as_deref(), Some("proxy:1"), "no other is known");
        // The name may lead elsewhere now.
        tokio::time::advance(FIRST_ONLY).await;
        dialing.meet(Some(BootNumber(2)));
        assert_eq!(dialing.address(&addresses).as_deref(), Some("proxy:1"), "it may be starting");
        tokio::time::advance(FIRST_ONLY).await;
        dialing.meet(Some(BootNumber(2)));
        assert_eq!(dialing.address(&addresses).as_deref(), Some("real:1"));
    }

    #[test]
    fn a_refusal_where_a_process_is_not_does_not_show_that_it_is_dead() {
        let text = |text: &str| Some(text.to_owned());
        let (former, present) = (Some(BootNumber(1)), Some(BootNumber(2)));
        let mut dialing = Dialing::new();
        assert!(dialing.is_at(present, None, "a:1"), "it does not say where it is");
        assert!(dialing.is_at(present, text("a:1"), "a:1"));
        dialing.opened = Some((BootNumber(1), "a:1".to_owned()));
        assert!(!dialing.is_at(present, text("b:1"), "a:1"), "it has moved from there");
        assert!(dialing.is_at(former, text("b:1"), "a:1"), "it has another name for its address");
        assert!(!dialing.is_at(former, text("b:1"), "b:1"), "it was linked elsewhere");
        assert!(!dialing.is_at(former, None, "b:1"), "nor if it does not say where it is");
    }
}
