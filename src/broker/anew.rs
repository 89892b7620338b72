//! Notices that a full control lane has refused. A loss with a connection is made up for when the next
//! one begins; a full lane ends nothing, so what follows from it is said anew here.
//!
//! Gaps in delivery numbers are accepted, so a later delivery would hide one that a full lane
//! refused (DLV 2). So the leader sends a node that missed deliveries no more of them until its
//! consumers have re-attached, and announces itself to that node when the lane has room. A
//! re-attachment that the lane refused is sent again.

use crate::{
    node::Node,
    peers::{PeerMessage, Sent, Untold},
};
use quorate_rpc::Lane;
use std::sync::Arc;

impl Node {
    /// Sends a message. If the lane is full, it is dropped, `anew` is said when the lane has room,
    /// and false is returned.
    pub(crate) fn send_or_anew(&self, message: PeerMessage, anew: Untold) -> bool {
        let full = self.context.peers.send(anew.is_for(), message) == Sent::Full;
        if full {
            self.say_later(anew);
        }
        !full
    }

    /// Says that when the lane has room.
    pub(crate) fn say_later(&self, anew: Untold) {
        if let Some(node) = self.arc().filter(|node| node.context.peers.begin_anew(anew)) {
            self.context.spawn(async move { node.say_anew(anew).await });
        }
    }

    async fn say_anew(self: Arc<Self>, anew: Untold) {
        self.context.peers.wait_for_room(anew.is_for(), Lane::Control).await;
        self.context.peers.end_anew(anew);
        match anew {
            Untold::Leadership(home, to) => {
                if let Some(term) = self.led.leading(home) {
                    self.announce(home, term, Some(to));
                }
            }
            Untold::Consumers(home, leader) => {
                let known = self.proposers.leader(home);
                if let Some((_, term)) = known.filter(|(known, _)| *known == leader) {
                    self.reattach_all(home, leader, term);
                }
            }
            Untold::GetTimedOut(home, get) => self.tell_get_timed_out(home, get),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::peers::{message::Deliveries, wire};
    use crate::testing;
    use bytes::Bytes;
    use quorate_rpc::{
        Cause, ClusterCell, ClusterSecret, LinkConfig, LinkHandler, Links, Listener, Origin,
        PeerHello, Responder,
    };
    use quorate_types::{
        BootNumber, ClusterId, ConsumerId, GroupId, Home, Incarnation, NodeId, Sequence, SessionId,
        StartNumber, Term,
    };
    use std::{net::SocketAddr, time::Duration};
    use tokio::{sync::mpsc, time::timeout};
    use tonic::service::Routes;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// What a node hears of; a service of 0 is that it is linked.
    struct Heard(mpsc::UnboundedSender<u32>);

    impl LinkHandler for Heard {
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
        let (sender, heard) = mpsc::unbounded_channel();
        let config = LinkConfig {
            me: NodeId(me),
            boot: BootNumber(u64::from(me)),
            former_boots: Vec::new(),
            incarnation: Incarnation(1),
            peers: [(NodeId(peer.0), peer.1.to_string())].into(),
            secret: ClusterSecret::new(b"a secret of the cluster").unwrap(),
            cluster: ClusterCell::new(Some(ClusterId(1))),
            lane_bytes: 4,
        };
        let links = Links::new(config, Arc::new(Heard(sender)));
        links.open();
        let (routes, door) = (Routes::new(links.service()), links.door());
        tokio::spawn(listener.serve(routes, door, std::future::pending()));
        (links, heard)
    }

    async fn next(heard: &mut mpsc::UnboundedReceiver<u32>) -> u32 {
        timeout(DEADLINE, heard.recv()).await.unwrap().unwrap()
    }

    /// DLV 2: a leader whose deliveries a full lane refused announces itself when there is room, so
    /// that the consumers re-attach. On one thread nothing is sent between the two notices.
    #[tokio::test]
    async fn dlv_02_what_a_full_lane_refused_is_said_anew() {
        let listener = || Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (mine, other) = (listener(), listener());
        let (at_mine, at_other) = (mine.address(), other.address());
        let (mine, mut linked) = links(1, mine, (2, at_other));
        let (_other, mut heard) = links(2, other, (1, at_mine));
        assert_eq!((next(&mut linked).await, next(&mut heard).await), (0, 0));
        let (node, home) = (testing::node(), Home::Group(GroupId(1)));
        assert!(node.context.peers.link(mine));
        node.led.leaderships.lead(home, Term(3));
        let to = NodeId(2);
        let session = SessionId { node: to, start: StartNumber(1) };
        let consumer = ConsumerId { session, number: 1 };
        let deliveries = Deliveries { cancelled: vec![consumer; 8], ..Deliveries::default() };
        let message = PeerMessage::Deliveries { home, deliveries };
        let notify = || node.send_or_anew(message.clone(), Untold::Leadership(home, to));
        assert_eq!([notify(), notify(), notify()], [true, false, false]);
        assert_eq!(next(&mut heard).await, wire::DELIVERIES);
        assert_eq!(next(&mut heard).await, wire::LEADER_ANNOUNCED);
        assert!(node.context.peers.untold().is_empty());
        assert!(notify(), "there is room");
        assert_eq!(next(&mut heard).await, wire::DELIVERIES);
        // CTO-05: a get does not re-attach; that it has timed out is itself said anew.
        let get = (session, Sequence(7));
        assert_eq!([notify(), notify()], [true, false]);
        node.tell_get_timed_out(home, get);
        assert!(node.context.peers.untold().contains(&Untold::GetTimedOut(home, get)));
        let services = [next(&mut heard).await, next(&mut heard).await, next(&mut heard).await];
        assert_eq!(services.iter().filter(|it| **it == wire::DELIVERIES).count(), 2);
        assert!(node.context.peers.untold().is_empty());
    }
}
