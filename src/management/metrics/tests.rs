//! The page as a whole.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::rates::Sampling;
use expect_test::expect_file;
use quorate_broker::view::{
    Attempts, ChannelFigure, ChannelReport, ChannelTraffic, ConnectionFigure, DatabaseMemory,
    DeadLetterCounters, DeadLetterFact, DeadLetterStrategy, DeathReason, DeliveryCounters,
    ExchangeTraffic, FollowerLag, GroupView, HistogramView, LogFiles, LoginProtocol, MemberView,
    MemoryUse, NodeView, Role, Traffic, Waits,
};
use quorate_broker::{Share, ShareFigures, SocketReport};
use quorate_catalog::{ConnectionId, MemberState};
use quorate_types::{
    ClusterId, GroupId, Home, LogIndex, MachineVersion, NodeId, QueueId, QueueType, ResourceName,
    SessionId, ShortString, StartNumber, Term,
};

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
        rounds: 2,
        rounds_us: 3_000,
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
            memory: MemoryUse {
                shares: vec![
                    ShareFigures { share: Share::Contents, held_bytes: 5, waited: 2, refused: 1 },
                    ShareFigures { share: Share::InFlight, held_bytes: 6, waited: 0, refused: 0 },
                ],
                exclusive: 7,
                database: DatabaseMemory { run_cache: 8, write_buffers: 9, blocks: 10 },
            },
            ..NodeView::default()
        },
        follower_lags: vec![FollowerLag { group: GroupId(0), follower: NodeId(2), entries: 12 }],
        memory_budget_bytes: 64,
        messages_ready: 11,
        messages_unacknowledged: 4,
        messages_delayed: 2,
        received: 100,
        logins: vec![Attempts { protocol: LoginProtocol::Amqp091, succeeded: 3, failed: 1 }],
        log_files: LogFiles { wal: 1, mem_tables: 2, tables: 3 },
        waits: Waits { sum_ms: 1_500, ..Waits::default() },
        message_bytes: HistogramView {
            bounds: vec![100, 1_000_000, 50_000_000],
            counts: vec![1, 0, 2, 0],
            sum: 30,
        },
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

fn figures() -> Figures {
    let text = ShortString::from_static;
    let name = |name| ResourceName { vhost: text("/"), name: text(name) };
    let queue = |index, name, ready| QueueFigure {
        id: QueueId { home: Home::Group(GroupId(1)), index, position: 0 },
        name,
        queue_type: QueueType::Quorum,
        ready,
        ready_bytes: 7 * ready,
        unacknowledged: 1,
        unacknowledged_bytes: 7,
        memory_bytes: 1_064,
        delayed: 1,
        consumers: 2,
        dead_letters_waiting: 0,
        oldest_age_ms: Some(1_500),
        traffic: Traffic { published: 9, got: 4, ..Traffic::default() },
    };
    let session = SessionId { node: NodeId(1), start: StartNumber(4) };
    let connection = ConnectionId { session, number: 8 };
    let traffic = ChannelTraffic { published: 9, ..ChannelTraffic::default() };
    Figures {
        homes: vec![Home::Group(GroupId(1))],
        queues: vec![queue(1, name("a\"b"), 3), queue(2, name("other"), 0)],
        exchanges: vec![(
            name("x"),
            ExchangeTraffic { published_in: 9, published_out: 18, ..ExchangeTraffic::default() },
        )],
        connections: vec![ConnectionFigure {
            id: connection,
            vhost: text("/"),
            socket: SocketReport { received_bytes: 100, ..SocketReport::default() },
        }],
        channels: vec![ChannelFigure {
            connection,
            number: 1,
            report: ChannelReport { traffic, ..ChannelReport::default() },
        }],
    }
}

fn member(id: u16, running: bool) -> MemberView {
    MemberView {
        id: NodeId(id),
        state: MemberState::Member,
        zone: String::new(),
        rpc_address: format!("h{id}:7672"),
        amqp_address: String::new(),
        running,
        replicas: 0,
        leads: 0,
    }
}

fn page(figures: &Figures, wanted: &Wanted, show: impl Fn(&Scrape<'_>) -> String) -> String {
    let cluster = ClusterView {
        cluster: Some(ClusterId(0xab)),
        catalog_leader: None,
        members: vec![member(1, true), member(2, true), member(3, false)],
        machine: MachineVersion::FIRST,
        placement: Vec::new(),
    };
    show(&Scrape {
        facts: &crate::tests::facts(),
        process: ProcessFacts { resident_bytes: 500, fds_open: 6, fds_limit: 1024, cores: 2 },
        cluster: &cluster,
        name: Some("c1"),
        view: &view(),
        figures,
        rates: &Rates::new(Sampling::default()),
        wanted,
    })
}

#[test]
fn the_page_has_rabbitmqs_names_where_it_has_the_thing() {
    let text = page(&Figures::default(), &Wanted::default(), aggregated);
    expect_file!["tests.txt"].assert_eq(&text);
}

#[test]
fn memory_is_broken_down_as_rabbitmq_does() {
    let text = page(&Figures::default(), &Wanted::default(), memory_breakdown);
    let samples: Vec<_> =
        text.lines().filter(|line| line.starts_with("rabbitmq_memory_")).collect();
    assert_eq!(samples.len(), 26);
    for (metric, bytes) in [
        ("client_connection_reader", 5),
        ("client_connection_channel", 6),
        ("classic_queue_erlang_process", 7),
        ("binary_heap", 8),
        ("quorum_queue_ets_table", 9),
        ("message_index", 10),
        ("other_system", 500 - 45),
        ("code_module", 0),
    ] {
        let sample = format!("rabbitmq_memory_{metric}_bytes {bytes}");
        assert!(samples.contains(&sample.as_str()), "{sample}: {samples:?}");
    }
    assert!(text.contains("rabbitmq_endpoint=\"memory-breakdown\""), "{text}");
}

#[test]
fn queues_and_clients_have_series_of_their_own() {
    let text = page(&figures(), &Wanted::default(), per_object);
    let objects = text.lines().filter(|line| {
        let labels = ["queue=", "channel=", "connection=", "exchange=", "rabbitmq_endpoint="];
        !line.starts_with('#') && labels.iter().any(|label| line.contains(label))
    });
    let objects: Vec<&str> = objects.collect();
    expect_file!["per_object.txt"].assert_eq(&objects.join("\n"));
}

/// A family, a virtual host and a queue can be chosen.
#[test]
fn a_detailed_scrape_has_what_it_asks_for() {
    let parse = |parameters: &[(&'static str, &'static str)]| {
        Wanted::parse(parameters.iter().copied()).unwrap()
    };
    let shown = |parameters: &[(&'static str, &'static str)]| {
        let quiet = crate::tests::Quiet::default();
        page(&figures(), &parse(parameters), |scrape| detailed(scrape, &quiet))
    };
    let text = shown(&[("family", "queue_coarse_metrics"), ("queue", "^oth")]);
    let samples: Vec<_> =
        text.lines().filter(|line| line.starts_with("rabbitmq_detailed")).collect();
    assert_eq!(
        samples,
        [
            "rabbitmq_detailed_queue_messages_ready{vhost=\"/\",queue=\"other\"} 0",
            "rabbitmq_detailed_queue_messages_unacked{vhost=\"/\",queue=\"other\"} 1",
            "rabbitmq_detailed_queue_messages{vhost=\"/\",queue=\"other\"} 2",
        ]
    );
    assert_eq!(text.matches("rabbitmq_identity_info{").count(), 1);
    assert!(text.contains("rabbitmq_endpoint=\"detailed\""));
    let none = shown(&[("family", "queue_coarse_metrics"), ("vhost", "elsewhere")]);
    assert!(!none.lines().any(|line| line.starts_with("rabbitmq_detailed")));
}

/// Every family gives something, under the prefixes that RabbitMQ has.
#[test]
fn every_family_has_a_head() {
    for (family, _) in families::FAMILIES {
        let wanted = Wanted::parse([("family", family)].into_iter()).unwrap();
        let quiet = crate::tests::Quiet::default();
        let text = page(&figures(), &wanted, |scrape| detailed(scrape, &quiet));
        let heads = text.lines().filter(|line| {
            line.starts_with("# TYPE rabbitmq_detailed_")
                || line.starts_with("# TYPE rabbitmq_cluster_")
        });
        assert!(heads.count() > 0, "{family}");
    }
}
