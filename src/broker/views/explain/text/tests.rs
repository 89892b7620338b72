//! Explanations, word by word.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::views::browse::looker::Ahead;
use bytes::Bytes;
use expect_test::expect;
use quorate_queue::{Routing, Via};
use quorate_types::{
    CatalogIndex, ConsumerId, Counts, FieldTable, GroupId, Home, LetterNumber, Level, LogIndex,
    Message, MessageId, NodeId, QueueId, QueueType, ResourceName, SessionId, StartNumber,
    Timestamp,
};
use std::collections::BTreeMap;

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn entry() -> QueueEntry {
    QueueEntry {
        id: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
        name: ResourceName { vhost: short("/"), name: short("orders") },
        creator: SessionId { node: NodeId(1), start: StartNumber(1) },
        queue_type: QueueType::Quorum,
        durable: true,
        auto_delete: false,
        owner: None,
        arguments: FieldTable::default(),
    }
}

fn field(name: &str, value: FieldValue) -> (ShortString, FieldValue) {
    (short(name), value)
}

/// A message that has died once.
fn died() -> FieldTable {
    let death = FieldTable(vec![
        field("count", FieldValue::I64(2)),
        field("reason", FieldValue::text("expired")),
        field("queue", FieldValue::text("work\u{1b}[2J")),
        field("time", FieldValue::Timestamp(951_782_400)),
        field("exchange", FieldValue::text("")),
        field("routing-keys", FieldValue::Array(vec![FieldValue::text("work")])),
    ]);
    FieldTable(vec![
        field("x-death", FieldValue::Array(vec![FieldValue::Table(death)])),
        field("x-first-death-exchange", FieldValue::text("")),
    ])
}

fn explanation(state: MessageState, annotations: FieldTable) -> Explanation {
    let message = Message {
        exchange: short("events"),
        routing_key: short("new"),
        annotations,
        body: Bytes::from_static(b"body"),
        ..Message::default()
    };
    let id = MessageId { level: Level(4), index: LogIndex(812), position: 0 };
    Explanation {
        message: BrowsedMessage {
            id,
            state,
            counts: Counts { acquired: 1, returned: 1 },
            expiration_ms: Some(90_000),
            age_ms: 61_000,
            since: WallTime(1_795_204_472_000),
            message,
            body_bytes: 4,
            targets: Vec::new(),
            retry_at: None,
        },
        ahead: Some(Ahead { messages: 3, more: false }),
        delivery_limit: Some(20),
        ttl_ms: Some(90_000),
        dead_letter: Some(DeadLetterPath {
            exchange: short("dlx"),
            routing_key: short("new"),
            queues: vec![short("dead"), short("audit")],
            nowhere: None,
        }),
        text: Vec::new(),
    }
}

fn told(config: &QueueConfig, explanation: &Explanation) -> String {
    sentences(&entry(), config, explanation).join("\n")
}

#[test]
fn a_ready_message_is_told_from_its_publish_to_its_end() {
    let config = QueueConfig {
        message_ttl_ms: Some(600_000),
        length_max: Some(10),
        ..QueueConfig::plain(QueueType::Quorum)
    };
    let ready = explanation(MessageState::Ready, FieldTable::default());
    expect![[r#"
        Message 4.812.0 of 'orders' in vhost '/', 4 bytes.
        It was published to exchange 'events' with routing key 'new'.
        It came into this queue 1 min 1 s ago, at 2026-11-20 19:54:32 UTC.
        It is ready; 3 messages are delivered before it.
        It has had 1 counted return; with more than 20 it dies (delivery_limit).
        It expires in 29 s, at 2026-11-20 19:56:02 UTC, by its own expiration of 90000 ms; not before all ready messages of its priority that are ahead of it have gone.
        Above 10 messages the queue lets the message die that is the next one (maxlen).
        If it dies, it goes to exchange 'dlx' with routing key 'new', which leads to queues 'dead', 'audit'."#]]
    .assert_eq(&told(&config, &ready));
}

#[test]
fn rqu_08_a_message_that_waits_for_its_retry_says_until_when() {
    let config = QueueConfig::plain(QueueType::Quorum);
    let state = MessageState::Delayed { until: Timestamp(9) };
    let mut waiting = explanation(state, FieldTable::default());
    waiting.ahead = None;
    waiting.message.retry_at = Some(WallTime(951_782_400_000));
    let told = told(&config, &waiting);
    let expected =
        "It was returned, and is ready again at 2000-02-29 00:00:00 UTC (delayed retry).";
    assert!(told.lines().any(|line| line == expected), "{told}");
}

#[test]
fn an_unacked_message_with_a_history_is_told_without_control_characters() {
    let session = SessionId { node: NodeId(2), start: StartNumber(7) };
    let holder = Holder::Consumer(ConsumerId { session, number: 1 });
    let state = MessageState::Unacked { holder, since: Timestamp(0) };
    let mut unacked = explanation(state, died());
    unacked.ttl_ms = Some(1_000);
    unacked.delivery_limit = None;
    unacked.dead_letter = None;
    let config =
        QueueConfig { message_ttl_ms: Some(1_000), ..QueueConfig::plain(QueueType::Classic) };
    let told = told(&config, &unacked);
    expect![[r#"
        Message 4.812.0 of 'orders' in vhost '/', 4 bytes.
        It was first published to the default exchange.
        It died 2 times in queue 'work�[2J', first at 2000-02-29 00:00:00 UTC: its time to live was over (expired). It had come there from the default exchange with routing key 'work'.
        It came into this queue 1 min 1 s ago, at 2026-11-20 19:54:32 UTC, dead-lettered to exchange 'events' with routing key 'new'.
        A consumer of node 2 has it, and has not acknowledged it.
        It has had 1 counted return; its queue has no limit of them.
        Its time to live is over, by the queue's message-ttl of 1000 ms; it dies when it is ready and the first of its priority.
        If it dies, it is dropped: its queue names no dead-letter exchange."#]]
    .assert_eq(&told);
    assert!(!told.contains('\u{1b}'));
}

fn letter(stage: Stage) -> MessageState {
    let id = MessageId { level: Level(4), index: LogIndex(812), position: 0 };
    let letter = Letter {
        message: id,
        body_bytes: 4,
        reason: DeathReason::Rejected,
        died_at: WallTime(0),
        stage,
    };
    MessageState::Letter(LetterNumber(1), Box::new(letter))
}

#[test]
fn a_dead_letter_says_what_it_waits_for() {
    let config = QueueConfig::plain(QueueType::Quorum);
    let last = |explanation: &Explanation| {
        sentences(&entry(), &config, explanation).split_off(3).join("\n")
    };
    let via = Via { exchange: short("dlx"), routing_key: None };
    let (at, transfers) = (CatalogIndex(1), BTreeMap::new());
    let routing = Routing { via, at, order: 1, taken: false, transfers, task: None };
    let mut routed = explanation(letter(Stage::Routed(Box::new(routing))), FieldTable::default());
    routed.message.targets = vec![
        LetterTarget { name: Some(short("dead")), attempt: None },
        LetterTarget { name: None, attempt: Some(2) },
    ];
    expect![[r#"
        It was routed by exchange 'dlx', and leaves when these have accepted it: queue 'dead' (full; it is tried again when it has room), a queue that has ended (being sent, attempt 2)."#]]
    .assert_eq(&last(&routed));
    let mut kept = explanation(letter(Stage::Kept), FieldTable::default());
    kept.dead_letter = Some(DeadLetterPath {
        exchange: short("dlx"),
        routing_key: short("new"),
        queues: Vec::new(),
        nowhere: Some(Nowhere::Kept),
    });
    expect![[r#"
        No queue takes it; it waits until one does (at-least-once).
        It goes to exchange 'dlx' with routing key 'new', which leads to no queue at present; it is kept until one takes it (at-least-once)."#]]
    .assert_eq(&last(&kept));
}

#[test]
fn times_are_those_of_the_calendar() {
    for (seconds, text) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_868_800, "2000-03-01 00:00:00 UTC"),
        (1_709_251_199, "2024-02-29 23:59:59 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        (1_798_761_600, "2027-01-01 00:00:00 UTC"),
    ] {
        assert_eq!(utc(WallTime(seconds * 1_000)), text);
    }
    assert!(!utc(WallTime(u64::MAX)).is_empty());
    assert_eq!(duration(999), "999 ms");
    assert_eq!(duration(86_400_000 * 3 + 3_600_000), "3 d 1 h");
}
