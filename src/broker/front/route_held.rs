//! Routing of publishes that had to wait.

use crate::{
    client::{Event, Publish, PublishOutcome},
    front::{
        confirm::ConfirmTo, connection_state::ConnectionState, publish::sender_selected,
        publisher::Publisher, refusals::Refusals, spread::Spread,
    },
};
use quorate_types::{FieldTable, Message};
use std::sync::Arc;

/// What could not be routed or sent at once of the publishes of one read.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The publish that is being sent to its many queues.
    pub(crate) spread: Spread,
    /// The publishes after it.
    pub(crate) publishes: Vec<Publish>,
}

impl Publisher {
    /// Routes the held publishes of a connection, after the publish that is to be spread.
    pub(crate) async fn route_held(
        self: Arc<Self>,
        connection: Arc<ConnectionState>,
        mut spread: Option<Spread>,
    ) {
        loop {
            if let Some(spread) = spread.take() {
                self.spread(spread).await;
            }
            if !connection.lives_until(self.base.lease.until_held()).await {
                return;
            }
            spread = self.route_some(&connection);
            if spread.is_none() {
                // Wakes what waits for room, or until nothing is held.
                connection.publishing.in_flight.wake();
                return;
            }
        }
    }

    /// Routes held publishes. If none needs to be spread, none is held afterwards.
    fn route_some(&self, connection: &Arc<ConnectionState>) -> Option<Spread> {
        let mut held = connection.publishing.held.lock();
        let publishes = held.take();
        let identities: Vec<_> = publishes
            .iter()
            .map(|publish| (publish.channel, publish.confirm, publish.mandatory))
            .collect();
        let messages: Vec<_> = publishes.iter().map(late_return).collect();
        let mut outcomes = Vec::new();
        let spread = self.route_all(connection, publishes, &mut outcomes, &mut held.refusals);
        let spread = spread.map(|rest| {
            held.hold(rest.publishes);
            rest.spread
        });
        held.routed(spread.is_some());
        // The connection's own task settles, so that credits keep their order.
        let may_settle = !held.busy && held.has_settles();
        drop(held);
        if may_settle {
            connection.mailbox.put(Event::MaySettle);
        }
        for ((outcome, (channel, confirm, _)), message) in
            outcomes.into_iter().zip(identities).zip(messages)
        {
            match outcome {
                PublishOutcome::Routed => {}
                PublishOutcome::Unroutable => {
                    if let Some(message) = message {
                        connection.mailbox.put(Event::Returned { channel, message });
                    }
                    ConfirmTo::of(confirm).send(connection, channel, 1, true);
                }
                PublishOutcome::Refused(exception) => {
                    connection.mailbox.put(Event::ChannelException { channel, exception });
                }
            }
        }
        spread
    }
}

/// Refuses a publish after one that is being spread, if an earlier publish of its channel was refused;
/// else it waits for its turn.
pub(crate) fn await_turn(
    publish: &Publish,
    refusals: &Refusals,
    outcomes: &mut Vec<PublishOutcome>,
) -> bool {
    let exception = refusals.of(publish.channel);
    outcomes.push(match exception {
        Some(exception) => PublishOutcome::Refused(exception.clone()),
        None => PublishOutcome::Routed,
    });
    exception.is_none()
}

/// The content with which a mandatory publish is returned, if it turns out to be unroutable.
fn late_return(publish: &Publish) -> Option<Box<Message>> {
    publish.mandatory.then(|| {
        Box::new(Message {
            exchange: publish.exchange.clone(),
            routing_key: publish.routing_key.clone(),
            further_keys: Vec::new(),
            // Without BCC (PUB-04).
            properties: sender_selected(&publish.properties)
                .map_or_else(|_| publish.properties.raw.clone(), |(_, raw)| raw),
            annotations: FieldTable::default(),
            body: publish.body.clone(),
        })
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        Connection,
        client::{ChannelId, Connection as _, HolderRef, Operation, Settle, Settlement},
        testing,
    };
    use bytes::Bytes;
    use futures::FutureExt;
    use quorate_queue::Command;
    use quorate_types::{DeliveryNumber, Exception, Properties, ReplyCode, ShortString};
    use std::time::Duration;

    fn publish(channel: ChannelId) -> Publish {
        Publish {
            channel,
            confirm: None,
            exchange: Default::default(),
            routing_key: Default::default(),
            properties: Properties::parse(Bytes::from_static(&[0, 0])).unwrap(),
            body: Bytes::new(),
            mandatory: false,
        }
    }

    fn acknowledge(connection: &Connection, holder: HolderRef, number: u64) {
        let numbers = vec![(DeliveryNumber(number), DeliveryNumber(number))];
        connection.settle(vec![Settle { holder, numbers, settlement: Settlement::Ack }]);
    }

    /// A cancel or a get must not overtake them.
    #[tokio::test]
    async fn con_09_what_is_about_a_queue_waits_for_held_publishes() {
        let node = testing::node();
        let state = testing::connection(&node);
        let channel = ChannelId { number: 1, opened: 0 };
        let is_routed = || state.publishing.routed().now_or_never().is_some();
        assert!(is_routed(), "nothing is held");
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(channel)]);
        }
        assert!(!is_routed());
        let routing = async {
            tokio::task::yield_now().await;
            assert!(node.publisher.route_some(&state).is_none());
            state.publishing.in_flight.wake();
        };
        let ((), ()) = tokio::join!(state.publishing.routed(), routing);
        assert!(is_routed());
    }

    /// A refused publish closes its channel. A request that follows it on the channel must not be carried
    /// out, even if the publish was held and is refused late (CHN-06).
    #[tokio::test]
    async fn chn_06_what_follows_a_refused_publish_is_not_carried_out() {
        let node = testing::node();
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        let channel = ChannelId { number: 1, opened: 0 };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            let exchange = "missing".try_into().unwrap();
            held.hold([Publish { exchange, ..publish(channel) }]);
        }
        let queue = "q".try_into().unwrap();
        let delete = Operation::QueueDelete { queue, if_unused: false, if_empty: false };
        let deleted = connection.ask(channel, delete);
        let routing = async {
            tokio::task::yield_now().await;
            assert!(node.publisher.route_some(&state).is_none());
            state.publishing.in_flight.wake();
        };
        let (deleted, ()) = tokio::join!(deleted, routing);
        let refused = deleted.err().map(|exception| exception.to_string()).unwrap_or_default();
        assert!(refused.contains("missing"), "{refused}");
        // The connection does not know of the error yet.
        state.publishing.held.lock().hold([publish(channel)]);
        assert!(node.publisher.route_some(&state).is_none());
        let mut events = Vec::new();
        connection.events(&mut events).await;
        let is_error = |event: &&Event| matches!(event, Event::ChannelException { .. });
        assert_eq!(events.iter().filter(is_error).count(), 2, "{events:?}");
    }

    /// Its publishes that are still held are dropped, and so is a request that has not begun.
    #[tokio::test]
    async fn chn_06_a_channel_that_ends_with_a_refused_publish_leaves_nothing() {
        let node = testing::node();
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        let (ends, stays) =
            (ChannelId { number: 1, opened: 0 }, ChannelId { number: 2, opened: 0 });
        let purge = connection.ask(ends, Operation::QueuePurge("q".try_into().unwrap()));
        {
            let mut held = state.publishing.held.lock();
            held.hold([publish(ends), publish(stays), publish(ends)]);
            let missing = Exception::new(ReplyCode::NotFound, "missing");
            held.refusals.note(ends, &missing);
        }
        connection.close_channel(ends);
        connection.close_channel(ChannelId { number: 3, opened: 0 });
        let left: Vec<_> =
            state.publishing.held.lock().take().iter().map(|it| it.channel).collect();
        assert_eq!(left, [stays]);
        let refused = purge.await.err().map(|exception| exception.to_string()).unwrap_or_default();
        assert!(refused.contains("missing"), "{refused}");
    }

    /// A publish may be refused after its channel has ended. What was noted of it goes with the last held
    /// publish of the connection.
    #[tokio::test]
    async fn chn_06_nothing_is_kept_of_channels_that_have_ended() {
        let node = testing::node();
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        let channel = |opened| ChannelId { number: 1, opened };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            let exchange: ShortString = "missing".try_into().unwrap();
            let missing = |it| Publish { exchange: exchange.clone(), ..publish(channel(it)) };
            held.hold((0..100).map(missing));
        }
        // The commit of an ended channel learns of the refusal too.
        let commit = connection.ask(channel(7), Operation::Commit { settles: Vec::new() });
        (0..100).for_each(|opened| connection.close_channel(channel(opened)));
        assert!(node.publisher.route_some(&state).is_none());
        let refused = commit.await.err().map(|exception| exception.to_string()).unwrap_or_default();
        assert!(refused.contains("missing"), "{refused}");
        assert!(state.publishing.held.lock().refusals.is_empty());
    }

    /// A commit that waits for held publishes is rolled back if its channel is closed meanwhile: what it
    /// would settle has been given back, so what it would publish must not be sent (TX-07).
    #[tokio::test]
    async fn tx_07_a_commit_that_has_not_begun_ends_with_its_channel() {
        let node = testing::node();
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        let (closed, other) =
            (ChannelId { number: 1, opened: 0 }, ChannelId { number: 2, opened: 0 });
        connection.open_channel(closed).unwrap();
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(other)]);
        }
        let commit = connection.ask(closed, Operation::Commit { settles: Vec::new() });
        let routing = async {
            tokio::task::yield_now().await;
            connection.close_channel(closed);
            assert!(node.publisher.route_some(&state).is_none());
            state.publishing.in_flight.wake();
        };
        let (committed, ()) = tokio::join!(commit, routing);
        let why = committed.err().map(|exception| exception.to_string()).unwrap_or_default();
        assert!(why.contains("closed before its transaction was committed"), "{why}");
    }

    /// A message is not settled before the messages made from it are in flight.
    #[tokio::test]
    async fn nam_05_settles_wait_for_the_publishes_that_are_held_before_them() {
        let node = testing::node();
        let state = testing::connection(&node);
        let consumer = testing::consumer_on(&state, 1);
        let channel = consumer.about.channel;
        let unsettled = || state.held.lock().channels.get(&channel).map(|held| held.unsettled);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        state.held.lock().channels.entry(channel).or_default().unsettled = 3;
        acknowledge(&connection, consumer.holder(), 1);
        assert_eq!(unsettled(), Some(2), "nothing is held");
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(channel)]);
        }
        acknowledge(&connection, consumer.holder(), 2);
        assert_eq!(unsettled(), Some(2));
        assert!(node.publisher.route_some(&state).is_none());
        assert_eq!(unsettled(), Some(2), "left to the connection's own task");
        let mut events = Vec::new();
        connection.events(&mut events).await;
        assert!(events.iter().any(|event| matches!(event, Event::MaySettle)), "{events:?}");
        assert_eq!(unsettled(), Some(1));
    }

    /// What was settled before a channel ended waits for the publishes before it, and the end with it.
    #[tokio::test]
    async fn nam_05_the_end_of_a_channel_waits_with_what_it_has_settled() {
        let node = testing::node();
        let state = testing::connection(&node);
        let consumer = testing::consumer_on(&state, 1);
        let channel = consumer.about.channel;
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(channel)]);
        }
        acknowledge(&connection, consumer.holder(), 1);
        connection.close_channel(channel);
        assert!(state.publishing.held.lock().take_ended().is_empty(), "not before the publish");
        assert!(node.publisher.route_some(&state).is_none());
        let ended = state.publishing.held.lock().take_ended();
        let commands: Vec<_> = ended.into_iter().map(|(_, command)| command).collect();
        assert!(matches!(commands[..], [Command::Ack { .. }, Command::Detach { .. }]));
    }

    /// Nobody waits for them any more, and the client may have published them again elsewhere.
    #[tokio::test]
    async fn conn_32_held_publishes_end_with_their_connection_and_what_was_settled_behind_them_too()
    {
        let node = testing::node();
        let state = testing::connection(&node);
        let consumer = testing::consumer_on(&state, 1);
        let channel = consumer.about.channel;
        let other = ChannelId { number: 2, opened: 0 };
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(channel), publish(other)]);
        }
        acknowledge(&connection, consumer.holder(), 1);
        drop(connection);
        let mut held = state.publishing.held.lock();
        assert!(held.take().is_empty() && !held.has_settles());
        assert!(state.has_ended());
    }

    /// Its publishes are in flight, so nothing has to come again.
    #[tokio::test]
    async fn conn_32_what_was_settled_behind_publishes_that_are_routed_is_settled() {
        let node = testing::node();
        let state = testing::connection(&node);
        let consumer = testing::consumer_on(&state, 1);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(consumer.about.channel)]);
        }
        acknowledge(&connection, consumer.holder(), 1);
        assert!(node.publisher.route_some(&state).is_none());
        let counters = node.base.context.counters.deliveries(consumer.about.queue_type);
        let acknowledged = || counters.acknowledged.get();
        assert_eq!(acknowledged(), 0, "left to the connection's own task");
        drop(connection);
        assert_eq!(acknowledged(), 1);
    }

    /// A node may be cut off for long, and clients come again and again.
    #[tokio::test(start_paused = true)]
    async fn conn_32_nothing_waits_for_a_lease_when_its_connection_has_ended() {
        let node = testing::node();
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(ChannelId { number: 1, opened: 0 })]);
        }
        let publisher = Arc::clone(&node.publisher);
        let mut routing = tokio::spawn(publisher.route_held(Arc::clone(&state), None));
        let minute = Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, &mut routing).await.is_err(), "no lease");
        drop(connection);
        tokio::time::timeout(minute, routing).await.unwrap().unwrap();
    }

    /// CONN-27: what was asked for before is finished first, for as long as requests may take.
    #[tokio::test(start_paused = true)]
    async fn conn_27_a_close_waits_for_held_publishes_but_not_for_ever() {
        let node = testing::node();
        let state = testing::connection(&node);
        let hold = |state: &ConnectionState| {
            let mut held = state.publishing.held.lock();
            held.busy = true;
            held.hold([publish(ChannelId { number: 1, opened: 0 })]);
        };
        hold(&state);
        let close = Connection { node: Arc::clone(&node), state: Arc::clone(&state) }.close();
        let routing = async {
            tokio::task::yield_now().await;
            assert_eq!(state.publishing.held.lock().take().len(), 1, "not dropped");
            assert!(node.publisher.route_some(&state).is_none());
            state.publishing.in_flight.wake();
        };
        let ((), ()) = tokio::join!(close, routing);
        let state = testing::connection(&node);
        hold(&state);
        let begun = tokio::time::Instant::now();
        Connection { node: Arc::clone(&node), state: Arc::clone(&state) }.close().await;
        assert_eq!(begun.elapsed(), node.base.context.operation_timeout());
        assert!(state.publishing.held.lock().take().is_empty());
    }
}
