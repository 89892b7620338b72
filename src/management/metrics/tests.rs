//! The page as a whole.

use super::*;
use expect_test::expect_file;
use quorate_broker::view::{
    DeadLetterCounters, DeadLetterFact, DeadLetterStrategy, DeathReason, GroupView, HistogramView,
    NodeView,
};
use quorate_broker::{Share, ShareFigures};
use quorate_types::{ClusterId, GroupId, LogIndex, MachineVersion, NodeId, QueueType, Term};

const REJECTED: (QueueType, DeadLetterStrategy, DeadLetterFact) = (
    QueueType::Quorum,
    DeadLetterStrategy::AtLeastOnce,
    DeadLetterFact::Died(DeathReason::Rejected),
);

fn view() -> MetricsView {
    let group = |group, role| GroupView {
        group: GroupId(group),
        role,
        leader: Some(NodeId(1)),
        term: Term(3),
        last: LogIndex(70),
        applied: LogIndex(69),
        purged: LogIndex(10),
        log_bytes: 4096,
    };
    MetricsView {
        node: NodeView {
            machine_newest: MachineVersion::NEWEST,
            id: NodeId(1),
            alarms: vec![Alarm::Disk],
            memory_limit_bytes: 1_000,
            disk_free_bytes: 20,
            disk_free_limit_bytes: 30,
            connections: 2,
            queues: 5,
            groups: vec![group(0, Role::Leader), group(1, Role::Follower)],
            ..NodeView::default()
        },
        memory_budget_bytes: 64,
        memory: vec![
            ShareFigures { share: Share::Contents, held_bytes: 5, waited: 2, refused: 1 },
            ShareFigures { share: Share::InFlight, held_bytes: 6, waited: 0, refused: 0 },
        ],
        messages_ready: 11,
        messages_unacknowledged: 4,
        received: 100,
        quorum: DeliveryCounters {
            consume_manual_ack: 7,
            get_auto_ack: 2,
            ..DeliveryCounters::default()
        },
        dead_letters: DeadLetterCounters::from([
            (REJECTED, 6),
            ((QueueType::Classic, DeadLetterStrategy::AtMostOnce, DeadLetterFact::Cycle), 3),
            ((QueueType::Quorum, DeadLetterStrategy::Disabled, DeadLetterFact::Cycle), 1),
        ]),
        sync: HistogramView { bounds: vec![100, 1_000], counts: vec![3, 2, 1], sum: 4_200 },
        ..MetricsView::default()
    }
}

#[test]
fn the_page_has_rabbitmqs_names_where_it_has_the_thing() {
    let facts = crate::tests::facts();
    let cluster = ClusterView {
        cluster: Some(ClusterId(0xab)),
        catalog_leader: None,
        members: Vec::new(),
        machine: MachineVersion::FIRST,
        placement: Vec::new(),
    };
    let process = ProcessFacts { resident_bytes: 500, fds_open: 6, fds_limit: 1024, cores: 2 };
    expect_file!["tests.txt"].assert_eq(&text(&facts, process, &cluster, &view()));
}
