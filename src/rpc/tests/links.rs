//! Links between nodes in one process, over loopback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use quorate_rpc::{
    CallError, Cause, ClusterCell, ClusterSecret, Lane, LinkConfig, LinkHandler, Links, Listener,
    MachineCell, NotifyError, Origin, PeerHello, Reason, Responder,
};
use quorate_types::{BootNumber, ClusterId, Epoch, GroupId, Incarnation, NodeId};
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tonic::service::Routes;

/// What has not come within this time never comes.
const DEADLINE: Duration = Duration::from_secs(600);

#[derive(Debug)]
enum Event {
    Connected(PeerHello),
    Lost(NodeId, BootNumber, Cause),
    Notice(Origin, u32, GroupId, Bytes),
}

/// Answers requests of service 1 with their payload, refuses service 2, and keeps those of others.
struct Echo {
    events: mpsc::UnboundedSender<Event>,
    kept: Mutex<Vec<Responder>>,
}

impl LinkHandler for Echo {
    fn request(&self, _: &Origin, service: u32, _: GroupId, payload: Bytes, responder: Responder) {
        match service {
            1 => responder.answer(payload),
            2 => responder.refuse(Bytes::from_static(b"no")),
            _ => self.kept.lock().unwrap().push(responder),
        }
    }

    fn notice(&self, origin: &Origin, service: u32, group: GroupId, payload: Bytes) {
        let _ = self.events.send(Event::Notice(*origin, service, group, payload));
    }

    fn connected(&self, peer: &PeerHello) {
        let _ = self.events.send(Event::Connected(*peer));
    }

    fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause) {
        let _ = self.events.send(Event::Lost(node, boot, cause));
    }
}

struct Node {
    links: Links,
    echo: Arc<Echo>,
    events: mpsc::UnboundedReceiver<Event>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

struct Spec {
    node: u16,
    boot: u64,
    incarnation: u64,
    cluster: u64,
    secret: &'static [u8],
}

const SECRET: &[u8] = b"a secret of the cluster";

fn spec(node: u16) -> Spec {
    Spec { node, boot: 100 + u64::from(node), incarnation: 7, cluster: 5, secret: SECRET }
}

impl Node {
    fn start(spec: &Spec, listener: Listener, peers: &[(u16, SocketAddr)]) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let echo = Arc::new(Echo { events: sender, kept: Mutex::default() });
        let config = LinkConfig {
            me: NodeId(spec.node),
            boot: BootNumber(spec.boot),
            former_boots: (100..spec.boot).map(BootNumber).collect(),
            incarnation: Incarnation(spec.incarnation),
            address: listener.address().to_string(),
            peers: peers.iter().map(|(node, at)| (NodeId(*node), at.to_string())).collect(),
            secret: ClusterSecret::new(spec.secret).unwrap(),
            tls: None,
            cluster: ClusterCell::new(Some(ClusterId(spec.cluster)), Epoch::default()),
            machine: MachineCell::default(),
            lane_bytes: 64 << 20,
        };
        let links = Links::new(config, Arc::clone(&echo) as Arc<dyn LinkHandler>);
        links.open();
        let (stop, stopped) = oneshot::channel::<()>();
        let (routes, door) = (Routes::new(links.service()), links.door());
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            listener.serve(routes, door, stopped).await.unwrap();
        });
        Self { links, echo, events, stop, serving }
    }

    async fn event(&mut self) -> Event {
        timeout(DEADLINE, self.events.recv()).await.unwrap().unwrap()
    }

    async fn connected(&mut self) -> PeerHello {
        match self.event().await {
            Event::Connected(peer) => peer,
            other @ (Event::Lost(..) | Event::Notice(..)) => {
                panic!("expected a connection: {other:?}")
            }
        }
    }

    async fn lost(&mut self) -> (NodeId, BootNumber, Cause) {
        match self.event().await {
            Event::Lost(node, boot, cause) => (node, boot, cause),
            other @ (Event::Connected(_) | Event::Notice(..)) => {
                panic!("expected a loss: {other:?}")
            }
        }
    }

    /// Behaves like a process that dies: its port and all its connections close.
    async fn die(self) {
        self.links.stop();
        let _ = self.stop.send(());
        timeout(DEADLINE, self.serving).await.unwrap().unwrap();
    }
}

fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn again(address: SocketAddr) -> Listener {
    Listener::bind(address).unwrap()
}

async fn pair() -> (Node, Node, SocketAddr, SocketAddr) {
    let (one, two) = (listener(), listener());
    let (at_one, at_two) = (one.address(), two.address());
    let mut a = Node::start(&spec(1), one, &[(2, at_two)]);
    let mut b = Node::start(&spec(2), two, &[(1, at_one)]);
    assert_eq!(a.connected().await.node, NodeId(2));
    assert_eq!(b.connected().await.node, NodeId(1));
    (a, b, at_one, at_two)
}

/// Node 1 dials node 2 at its former address, where connections are refused, until node 2 connects and says
/// its present address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mem_03_a_process_that_has_moved_is_dialed_where_it_says_that_it_is() {
    let (one, two, before) = (listener(), listener(), listener());
    let (at_one, at_two, was_at) = (one.address(), two.address(), before.address());
    drop(before);
    let mut a = Node::start(&spec(1), one, &[(2, was_at)]);
    let mut b = Node::start(&spec(2), two, &[(1, at_one)]);
    assert_eq!(b.connected().await.node, NodeId(1));
    assert_eq!(a.connected().await.node, NodeId(2));
    // Where it was, connections are still refused. That does not make it dead.
    let waited = timeout(Duration::from_millis(400), a.events.recv()).await;
    assert!(waited.is_err(), "{waited:?}");
    let moved = Spec { boot: 200, ..spec(2) };
    b.die().await;
    assert_eq!(a.lost().await.1, BootNumber(102));
    let mut b = Node::start(&moved, again(at_two), &[(1, at_one)]);
    let present = loop {
        // First that its former process is dead.
        match a.event().await {
            Event::Connected(peer) => break peer.boot,
            Event::Lost(node, boot, _) => assert_eq!((node, boot), (NodeId(2), BootNumber(102))),
            Event::Notice(..) => panic!("a notice nobody sent"),
        }
    };
    assert_eq!(present, BootNumber(200));
    assert_eq!(b.connected().await.node, NodeId(1));
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_answered_refused_and_time_out() {
    let (a, b, _, _) = pair().await;
    let two = NodeId(2);
    for bytes in [0, 1, 300_000, 5_000_000] {
        let content: Vec<u8> = (0..bytes).map(|i| (i % 253) as u8).collect();
        let payload = Bytes::from(content);
        for lane in [Lane::Control, Lane::Bulk] {
            let answer = a.links.call(two, lane, 1, GroupId(3), payload.clone(), DEADLINE).await;
            assert!(answer.unwrap() == payload, "{bytes} bytes");
        }
    }
    let call = |service, deadline| {
        a.links.call(two, Lane::Control, service, GroupId(3), Bytes::new(), deadline)
    };
    let refused = CallError::Refused { node: two, reason: Bytes::from_static(b"no") };
    assert_eq!(call(2, DEADLINE).await, Err(refused));
    assert_eq!(call(3, Duration::from_millis(20)).await, Err(CallError::Timeout(two)));
    // A late answer without a caller has no effect; a dropped responder refuses.
    let kept = async || {
        while b.echo.kept.lock().unwrap().pop().is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, kept()).await.unwrap();
    let pending = a.links.request(two, Lane::Bulk, 3, GroupId(3), Bytes::new()).await.unwrap();
    timeout(DEADLINE, kept()).await.unwrap();
    let refused = CallError::Refused { node: two, reason: Bytes::new() };
    assert_eq!(timeout(DEADLINE, pending).await.unwrap(), Err(refused));
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_one_lane_arrive_in_order() {
    let (a, mut b, _, _) = pair().await;
    for i in 0..1000_u32 {
        let bytes = Bytes::copy_from_slice(&i.to_be_bytes());
        let mut payload = quorate_rpc::Payload::from(bytes);
        payload.push(Bytes::from(vec![0; (i as usize % 7) * 50_000]));
        while a.links.notify(NodeId(2), Lane::Bulk, 9, GroupId(4), payload.clone()).is_err() {
            tokio::task::yield_now().await;
        }
    }
    for i in 0..1000_u32 {
        let Event::Notice(origin, 9, GroupId(4), payload) = b.event().await else { panic!() };
        assert_eq!((origin.peer.node, origin.lane), (NodeId(1), Lane::Bulk));
        assert_eq!(payload.get(..4), Some(&i.to_be_bytes()[..]));
        assert_eq!(payload.len(), 4 + (i as usize % 7) * 50_000);
    }
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_process_is_known_by_its_refusing_port_and_its_successor_by_its_boot_number() {
    let (mut a, b, at_one, at_two) = pair().await;
    let two = NodeId(2);
    let pending = a.links.request(two, Lane::Control, 3, GroupId(1), Bytes::new()).await.unwrap();
    let died = Instant::now();
    b.die().await;
    assert_eq!(a.lost().await, (two, BootNumber(102), Cause::Closed));
    assert_eq!(a.lost().await, (two, BootNumber(102), Cause::Refused));
    println!("known dead after {:?}", died.elapsed());
    assert_eq!(pending.await, Err(CallError::Lost(two)));
    assert!(a.links.has_no_process(two));
    let told = a.links.notify(two, Lane::Control, 1, GroupId(1), Bytes::new());
    assert_eq!(told, Err(NotifyError::NotConnected(two)));

    let next = Spec { boot: 200, ..spec(2) };
    let mut b = Node::start(&next, again(at_two), &[(1, at_one)]);
    assert_eq!(a.connected().await.boot, BootNumber(200));
    assert_eq!(b.connected().await.boot, BootNumber(101));
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_replaced_before_anyone_dialed_is_known_dead() {
    let (mut a, b, at_one, at_two) = pair().await;
    // The port does not refuse in between: the successor listens before the process has ended.
    drop(b.stop);
    b.links.stop();
    b.serving.abort();
    let _ = b.serving.await;
    let next = Spec { boot: 200, ..spec(2) };
    let b = Node::start(&next, again(at_two), &[(1, at_one)]);
    let mut causes = Vec::new();
    let peer = loop {
        match a.event().await {
            Event::Connected(peer) => break peer,
            Event::Lost(_, boot, cause) => {
                assert_eq!(boot, BootNumber(102));
                causes.push(cause);
            }
            Event::Notice(..) => panic!("a notice nobody sent"),
        }
    };
    assert_eq!(peer.boot, BootNumber(200));
    let dead = causes.iter().filter(|cause| cause.is_known_dead()).count();
    assert_eq!(dead, 1, "{causes:?}");
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_refused() {
    let strangers = [
        (Spec { cluster: 6, ..spec(2) }, Some(Reason::Cluster)),
        (Spec { secret: b"quite another secret", ..spec(2) }, Some(Reason::Secret)),
        (Spec { node: 3, cluster: 0, ..spec(3) }, None),
        (Spec { node: 1, boot: 555, ..spec(1) }, None),
    ];
    for (stranger, reason) in strangers {
        let (one, two) = (listener(), listener());
        let (at_one, at_two) = (one.address(), two.address());
        let mut a = Node::start(&spec(1), one, &[(2, at_two)]);
        let other = if stranger.node == 1 { 2 } else { 1 };
        let b = Node::start(&stranger, two, &[(other, at_one)]);
        // Only a permanent rejection, by a majority, ends a process.
        if let Some(reason) = reason {
            let told = timeout(DEADLINE, b.links.rejected()).await.unwrap();
            assert_eq!(told.reason, reason);
        }
        // Both retry all the time meanwhile.
        let waited = timeout(Duration::from_millis(400), a.events.recv()).await;
        assert!(waited.is_err(), "node {} was let in: {waited:?}", stranger.node);
        assert!(b.links.all_connected().is_empty());
        if reason.is_none() {
            let told = timeout(Duration::from_millis(1), b.links.rejected()).await;
            assert!(told.is_err(), "{told:?}");
        }
        a.die().await;
        b.die().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_let_in_once_goes_on_when_a_stranger_takes_the_others_place() {
    let (mut a, b, at_one, at_two) = pair().await;
    b.die().await;
    assert_eq!(a.lost().await.2, Cause::Closed);
    assert_eq!(a.lost().await.2, Cause::Refused);
    let stranger = Spec { boot: 200, incarnation: 9, cluster: 6, ..spec(2) };
    let b = Node::start(&stranger, again(at_two), &[(1, at_one)]);
    let rejected = timeout(DEADLINE, b.links.rejected()).await.unwrap();
    assert_eq!((rejected.by, rejected.reason), (vec![NodeId(1)], Reason::Cluster));
    let told = timeout(Duration::from_millis(300), a.links.rejected()).await;
    assert!(told.is_err(), "{told:?}");
    a.die().await;
    b.die().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lost_its_data_is_refused_until_it_is_expected() {
    let (mut a, b, at_one, at_two) = pair().await;
    b.die().await;
    assert_eq!(a.lost().await.2, Cause::Closed);
    assert_eq!(a.lost().await.2, Cause::Refused);
    let wiped = Spec { boot: 300, incarnation: 8, cluster: 0, ..spec(2) };
    let b = Node::start(&wiped, again(at_two), &[(1, at_one)]);
    let waited = timeout(Duration::from_millis(400), a.events.recv()).await;
    assert!(waited.is_err(), "it was let in: {waited:?}");
    a.links.expect(NodeId(2), Incarnation(8), Some(BootNumber(0)));
    assert_eq!(a.connected().await.incarnation, Incarnation(8));
    a.die().await;
    b.die().await;
}
