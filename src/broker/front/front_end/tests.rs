//! When answers to requests may be given.

use super::*;
use crate::{
    client::{BindRequest, Connection as _, ExchangeDeclare},
    testing,
};
use quorate_catalog::{CatalogCommand, CatalogEntry, CatalogOutput, ExchangeRecord, ExchangeType};
use quorate_types::{CatalogIndex, FieldTable, ResourceName, Stamp};
use std::time::Duration;

const CHANNEL: ChannelId = ChannelId { number: 1, opened: 0 };

fn delete() -> Operation {
    let queue = ShortString::from_static("missing");
    Operation::QueueDelete { queue, if_unused: false, if_empty: false }
}

fn connection() -> Connection {
    let node = testing::node();
    Connection { state: testing::connection(&node), node }
}

/// NAM 5: a node that was cut off does not know what was declared since, so it does not say that a queue
/// is not there.
#[tokio::test(start_paused = true)]
async fn nam_05_nothing_is_answered_from_the_catalog_without_a_lease() {
    let connection = connection();
    let begun = Instant::now();
    let refused = connection.ask(CHANNEL, delete()).await.err();
    assert_eq!(refused.map(|it| it.code), Some(ReplyCode::InternalError));
    assert_eq!(begun.elapsed(), connection.node.base.context.operation_timeout());
    // Publishing is not refused: what is published waits.
    let exchange = ShortString::from_static("missing");
    assert_eq!(connection.check_publish(&exchange), Ok(()));
}

/// The request waits for a lease that comes back in time, and is answered by the copy of then.
#[tokio::test(start_paused = true)]
async fn nam_05_a_request_waits_for_the_lease() {
    let connection = connection();
    let lease = &connection.node.base.lease;
    let returns = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        lease.granted(Instant::now() + Duration::from_secs(60));
    };
    let (answer, ()) = tokio::join!(connection.ask(CHANNEL, delete()), returns);
    // There is no such queue (DEL-01).
    assert!(matches!(answer, Ok(Answer::Removed(0))), "{answer:?}");
}

fn bind() -> BindRequest {
    let name = ShortString::from_static;
    BindRequest {
        destination: name("missing"),
        source: name("amq.direct"),
        routing_key: name("key"),
        arguments: FieldTable::default(),
    }
}

fn new_exchange(number: CatalogIndex) -> ExchangeRecord {
    let name = ShortString::try_from(number.to_string().as_str()).unwrap_or_default();
    ExchangeRecord {
        name: ResourceName { vhost: ShortString::from_static("/"), name },
        kind: ExchangeType::Fanout,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
    }
}

fn of_another_type() -> ExchangeDeclare {
    ExchangeDeclare {
        exchange: ShortString::from_static("amq.direct"),
        kind: ShortString::from_static("fanout"),
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
    }
}

/// NAM 5: another node that has not applied yet what this one's answer rests on would give the opposite
/// answer afterwards.
#[tokio::test(start_paused = true)]
async fn nam_05_an_answer_waits_until_all_nodes_would_give_it() {
    let connection = connection();
    let base = &connection.node.base;
    base.lease.granted(Instant::now() + Duration::from_secs(60));
    let missing = || ShortString::from_static("missing");
    let operations = [
        delete(),
        Operation::QueueExists(missing()),
        Operation::QueuePurge(missing()),
        Operation::Get { queue: missing(), no_ack: true },
        Operation::QueueBind(bind()),
        Operation::QueueUnbind(bind()),
        Operation::ExchangeExists(missing()),
        Operation::ExchangeDeclare(of_another_type()),
    ];
    for (index, operation) in (1..).map(CatalogIndex).zip(operations) {
        let commands = vec![CatalogCommand::DeclareExchange(new_exchange(index))];
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        base.catalog.write().apply(index, &entry, &mut CatalogOutput::default());
        let what = format!("{operation:?}");
        let answer = connection.ask(CHANNEL, operation);
        tokio::pin!(answer);
        let early = tokio::time::timeout(Duration::from_secs(1), &mut answer).await;
        assert!(early.is_err(), "{what}: {early:?}");
        base.lease.note_all_applied(index);
        let answer = tokio::time::timeout(Duration::from_secs(1), answer).await;
        assert!(answer.is_ok(), "{what}");
    }
}

/// CON-09: a request that must not overtake publishes is given up if they cannot be routed in time.
#[tokio::test(start_paused = true)]
async fn con_09_what_would_overtake_held_publishes_is_not_carried_out() {
    let connection = connection();
    connection.node.base.lease.granted(Instant::now() + Duration::from_secs(60));
    connection.state.publishing.held.lock().busy = true;
    let refused = connection.ask(CHANNEL, delete()).await.err();
    assert_eq!(refused.map(|it| it.code), Some(ReplyCode::InternalError));
}
