//! The consumers that a leader has attached, and the deliveries that a consumer takes from its
//! leaders.

#![expect(clippy::unwrap_used, reason = "tests")]
use super::*;
use proptest::{collection::vec, prelude::*};
use quorate_types::{DeliveryNumber, GroupId, SessionId, StartNumber};

/// DLV 2: a reference that was lost with a connection is not skipped, though one that was sent
/// after it arrives first over the next connection.
#[tokio::test]
async fn dlv_02_what_is_sent_before_a_re_attaching_is_not_taken_after_it() {
    let consumer = crate::testing::consumer(&crate::testing::node());
    let delivery = |number| crate::testing::delivery(&consumer, number);
    let term = Term(3);
    let first = consumer.reattach(term).unwrap();
    consumer.deliver(term, first.number, &[delivery(1), delivery(2)]);
    let second = consumer.reattach(term).unwrap();
    assert_eq!(second.last, DeliveryNumber(2));
    // 3 was lost; 4 was in flight after it, or was sent before the leader knew.
    consumer.deliver(term, first.number, &[delivery(4)]);
    consumer.deliver(term, second.number, &[delivery(3), delivery(4)]);
    assert_eq!(consumer.reattach(term).unwrap().last, DeliveryNumber(4));
    assert!(consumer.reattach(Term(2)).is_none(), "the leader of an earlier term");

    let mut leadership = Leadership::default();
    assert!(leadership.attach(consumer.about.id, second.number, |_| true));
    assert!(!leadership.attach(consumer.about.id, first.number, |_| true), "it came late");
}

/// DLV 2: references that a full lane refused are not skipped for later ones.
#[test]
fn dlv_02_a_node_that_missed_deliveries_gets_none_before_it_re_attaches() {
    let of_node = |node| {
        let session = SessionId { node: NodeId(node), start: StartNumber(1) };
        ConsumerId { session, number: 1 }
    };
    let mut leadership = Leadership::default();
    for node in [2, 3] {
        assert!(leadership.attach(of_node(node), 1, |_| true));
    }
    leadership.detach_all_of(NodeId(2));
    let attached: Vec<_> = leadership.attached.keys().copied().collect();
    assert_eq!(attached, [of_node(3)]);
}

/// Clients that consume and cancel repeatedly, beside some that stay.
#[test]
fn consumers_that_are_gone_are_not_remembered_for_ever() {
    let session = SessionId { node: NodeId(1), start: StartNumber(1) };
    let stays = |number: u64| number < 3_000;
    let mut leadership = Leadership::default();
    for number in 0..100_000 {
        let present = |id: ConsumerId| stays(id.number) || id.number == number;
        leadership.attach(ConsumerId { session, number }, 1, present);
    }
    let kept = leadership.attached.keys().filter(|id| stays(id.number)).count();
    assert_eq!(kept, 3_000, "attached consumers stay");
    assert!(leadership.attached.len() <= 2 * 3_000 + 2, "{}", leadership.attached.len());
}

#[derive(Clone, Debug)]
enum Step {
    Attach(u16, u64, u32),
    DetachAllOf(u16),
    Lead,
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..4_u16, 0..4_u64, 0..6_u32).prop_map(|(node, it, of)| Step::Attach(node, it, of)),
        2 => (1..4_u16).prop_map(Step::DetachAllOf),
        1 => Just(Step::Lead),
        1 => Just(Step::Stop),
    ]
}

proptest! {
    /// DLV 2: a leader sends to consumers that have attached in its term, under their highest
    /// attachment number, until something for their node was lost.
    #[test]
    fn dlv_2_only_who_has_asked_this_leader_is_sent_something(steps in vec(step(), 1..80)) {
        let home = Home::Group(GroupId(1));
        let leaderships = Leaderships::new([home].into_iter());
        let consumer = |node, number| {
            let session = SessionId { node: NodeId(node), start: StartNumber(1) };
            ConsumerId { session, number }
        };
        let (mut model, mut term, mut leads) = (BTreeMap::new(), Term(0), false);
        for step in steps {
            match step {
                Step::Attach(node, number, attachment) => {
                    let id = consumer(node, number);
                    let known = model.get(&id).copied().unwrap_or(0);
                    let attached = leaderships.of(home).unwrap().attach(id, attachment, |_| true);
                    prop_assert_eq!(attached, known <= attachment);
                    model.insert(id, known.max(attachment));
                }
                Step::DetachAllOf(node) => {
                    leaderships.of(home).unwrap().detach_all_of(NodeId(node));
                    model.retain(|id, _| id.session.node != NodeId(node));
                }
                Step::Lead => {
                    (term, leads) = (Term(term.0 + 1), true);
                    leaderships.lead(home, term);
                    model.clear();
                }
                Step::Stop => {
                    leads = false;
                    leaderships.stop(home);
                    model.clear();
                }
            }
            prop_assert_eq!(leaderships.leading(home), leads.then_some(term));
            prop_assert_eq!(leaderships.leading_for(home).is_some(), leads);
            for id in (1..4).flat_map(|node| (0..4).map(move |number| consumer(node, number))) {
                let attachment = leaderships.of(home).unwrap().attachment(id);
                prop_assert_eq!(attachment, model.get(&id).copied());
            }
        }
    }
}

/// NAM 8: messages are routed to the connection-bound queues of a node that has joined since.
#[test]
fn mem_03_a_node_that_joins_is_known() {
    let home = |node| Home::Node(NodeId(node));
    let leaderships = Leaderships::new([home(1), home(2)].into_iter());
    assert!(leaderships.is_known(home(2)) && !leaderships.is_known(home(4)));
    leaderships.add([NodeId(1), NodeId(2), NodeId(4)].into_iter());
    assert!(leaderships.is_known(home(4)) && !leaderships.is_known(home(5)));
    assert!(!leaderships.is_known(Home::Group(GroupId(4))));
}
