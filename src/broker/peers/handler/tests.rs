//! What full lanes refuse is sent again.

#![expect(clippy::unwrap_used, reason = "tests")]
use crate::{
    peers::{PeerMessage, Retry, message::Deliveries, wire},
    testing,
};
use bytes::Bytes;
use quorate_rpc::{
    Cause, ClusterCell, ClusterSecret, LinkConfig, LinkHandler, Links, Listener, MachineCell,
    Origin, PeerHello, Responder,
};
use quorate_types::{
    BootNumber, ClusterId, ConsumerId, Epoch, GroupId, Home, Incarnation, NodeId, Sequence,
    SessionId, StartNumber, Term,
};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};
use tonic::service::Routes;

/// What has not come within this time never comes.
const DEADLINE: Duration = Duration::from_secs(600);

/// What a node hears of; a service of 0 is that it is linked.
struct Services(mpsc::UnboundedSender<u32>);

impl LinkHandler for Services {
    fn request(&self, _: &Origin, _: u32, _: GroupId, _: Bytes, _: Responder) {}

    fn notice(&self, _: &Origin, service: u32, _: GroupId, _: Bytes) {
        let _ = self.0.send(service);
    }

    fn connected(&self, _: &PeerHello) {
        let _ = self.0.send(0);
    }

    fn lost(&self, _: NodeId, _: BootNumber, _: Cause) {}
}

/// A node's links, whose control lane is full as soon as anything waits in it.
fn links(
    me: u16,
    listener: Listener,
    peer: (u16, SocketAddr),
) -> (Links, mpsc::UnboundedReceiver<u32>) {
    let (sender, services) = mpsc::unbounded_channel();
    let config = LinkConfig {
        me: NodeId(me),
        boot: BootNumber(u64::from(me)),
        former_boots: Vec::new(),
        incarnation: Incarnation(1),
        address: String::new(),
        peers: [(NodeId(peer.0), peer.1.to_string())].into(),
        secret: ClusterSecret::new(b"a secret of the cluster").unwrap(),
        tls: None,
        cluster: ClusterCell::new(Some(ClusterId(1)), Epoch::default()),
        machine: MachineCell::default(),
        lane_bytes: 4,
    };
    let links = Links::new(config, Arc::new(Services(sender)));
    links.open();
    let (routes, door) = (Routes::new(links.service()), links.door());
    tokio::spawn(listener.serve(routes, door, std::future::pending()));
    (links, services)
}

async fn next(services: &mut mpsc::UnboundedReceiver<u32>) -> u32 {
    timeout(DEADLINE, services.recv()).await.unwrap().unwrap()
}

/// DLV 2: a leader whose deliveries a full lane refused announces itself when there is room, so
/// that the consumers re-attach. On one thread nothing is sent between the two notices.
#[tokio::test]
async fn dlv_02_what_a_full_lane_refused_is_said_anew() {
    let listener = || Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (mine, other) = (listener(), listener());
    let (at_mine, at_other) = (mine.address(), other.address());
    let (mine, mut linked) = links(1, mine, (2, at_other));
    let (_other, mut services) = links(2, other, (1, at_mine));
    assert_eq!((next(&mut linked).await, next(&mut services).await), (0, 0));
    let (node, home) = (testing::node(), Home::Group(GroupId(1)));
    assert!(node.base.context.peers.link(mine));
    node.base.led.leaderships.lead(home, Term(3));
    let to = NodeId(2);
    let session = SessionId { node: to, start: StartNumber(1) };
    let consumer = ConsumerId { session, number: 1 };
    let deliveries = Deliveries { cancelled: vec![consumer; 8], ..Deliveries::default() };
    let message = PeerMessage::Deliveries { home, deliveries };
    let notify =
        || node.base.context.peers.send_or_retry(message.clone(), Retry::Leadership(home, to));
    assert_eq!([notify(), notify(), notify()], [true, false, false]);
    assert_eq!(next(&mut services).await, wire::DELIVERIES);
    assert_eq!(next(&mut services).await, wire::LEADER_ANNOUNCED);
    assert!(node.base.context.peers.retries().is_empty());
    assert!(notify(), "there is room");
    assert_eq!(next(&mut services).await, wire::DELIVERIES);
    // CTO-05: a get does not re-attach; that it has timed out is itself said anew.
    let get = (session, Sequence(7));
    assert_eq!([notify(), notify()], [true, false]);
    node.leader.send_get_timed_out(home, get);
    assert!(node.base.context.peers.retries().contains(&Retry::GetTimedOut(home, get)));
    let services =
        [next(&mut services).await, next(&mut services).await, next(&mut services).await];
    assert_eq!(services.iter().filter(|it| **it == wire::DELIVERIES).count(), 2);
    assert!(node.base.context.peers.retries().is_empty());
}
