//! The limit of all consumers of a channel together (QOS-06, Q-12), and which consumer gets the
//! room. Waiting consumers get it one after the other, in the order of their last deliveries. So no
//! queue and no consumer of the channel is starved, and a consumer whose queue has become empty
//! does not hold up the next.
//!
//! The waiting consumer whose last delivery is the oldest gets the credit first, and its queue's
//! answer says whether there was a message. After 200 ms without an answer the next consumer gets
//! the credit. If at most one consumer waits, every consumer has credit for all that is left. A
//! consumer that does not acknowledge does not count against the limit, but gets nothing while the
//! limit is reached.

use crate::{
    client::ChannelId,
    front::{
        FrontEnd,
        batch::Ticket,
        channel_room::{claims, credit, waits},
        connection_state::{ConnectionState, HeldByChannel},
        consumer::FrontConsumer,
    },
};
use quorate_queue::Command;
use quorate_types::Home;
use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long a consumer's turn waits for its queue's answer: one whose group has no leader does not
/// hold up the others.
const TURN_MAX: Duration = Duration::from_millis(200);

/// The waiting consumers and the room of a channel.
struct Shares {
    /// The waiting consumers, in the order of their turns.
    consumers: Vec<Arc<FrontConsumer>>,
    /// Room that no ready delivery will take; `None` without a limit.
    free: Option<u64>,
}

impl Shares {
    /// `None` if the channel holds nothing.
    fn of(connection: &ConnectionState, channel: ChannelId) -> Option<Self> {
        let (mut consumers, room) = {
            let held = connection.held.lock();
            let channel = held.channels.get(&channel)?;
            (channel.consumers.values().cloned().collect::<Vec<_>>(), channel.room())
        };
        consumers.sort_by_key(|consumer| consumer.turn.load(Ordering::Relaxed));
        let claimed = || consumers.iter().map(|consumer| claims(consumer)).sum::<u64>();
        let free = room.map(|room| room.saturating_sub(claimed()));
        Some(Self { consumers, free })
    }

    /// The consumers that wait for room.
    fn waiting(&self) -> impl Iterator<Item = &Arc<FrontConsumer>> {
        self.consumers.iter().filter(|consumer| waits(consumer))
    }
}

impl FrontEnd {
    /// Gives credit to the consumers of a channel that may have room again.
    pub(crate) fn share_room(
        self: &Arc<Self>,
        connection: &Arc<ConnectionState>,
        channel: ChannelId,
    ) {
        if with_channel(connection, channel, |held| held.limit).flatten().is_none() {
            return;
        }
        let Some(shares) = Shares::of(connection, channel) else { return };
        let contended = shares.waiting().nth(1).is_some();
        let begun = with_channel(connection, channel, |held| match &mut held.sharing {
            Some(again) => {
                *again = true;
                None
            }
            idle @ None => {
                *idle = contended.then_some(false);
                Some(contended)
            }
        });
        match begun.flatten() {
            Some(true) => {
                let (node, connection) = (Arc::clone(self), Arc::clone(connection));
                self.base.context.spawn(async move { node.give_turns(&connection, channel).await });
            }
            Some(false) => self.credit(&shares.consumers),
            None => {}
        }
    }

    /// Gives credit to the consumers of a channel whose limit was removed.
    pub(crate) fn lift_limit(&self, connection: &ConnectionState, channel: ChannelId) {
        if let Some(shares) = Shares::of(connection, channel) {
            self.credit(&shares.consumers);
        }
    }

    /// Sends credits to the homes of consumers.
    fn credit(&self, consumers: &[Arc<FrontConsumer>]) {
        let mut by_home: BTreeMap<Home, Vec<Command>> = BTreeMap::new();
        for consumer in consumers {
            by_home.entry(consumer.home()).or_default().extend(credit(consumer, u64::MAX));
        }
        for (home, commands) in by_home {
            self.base.proposers.fill(home, |batches| {
                commands.into_iter().for_each(|command| batches.push(command, Ticket::None));
            });
        }
    }

    /// Gives the channel's room to one waiting consumer after the other.
    async fn give_turns(&self, connection: &Arc<ConnectionState>, channel: ChannelId) {
        while let Some(shares) = Shares::of(connection, channel) {
            let waiting = shares.waiting().count() as u64;
            let next = shares.waiting().next().filter(|_| shares.free != Some(0));
            if let Some(next) = next {
                let share = shares.free.map_or(u64::MAX, |free| free.div_ceil(waiting));
                if let Some(credit) = credit(next, share) {
                    // Deliveries of the queue arrive before the answer, and are counted as claims
                    // on the room.
                    let asked = self.base.proposers.ask(next.home(), credit);
                    let _ = tokio::time::timeout(TURN_MAX, asked).await;
                    continue;
                }
            }
            // While no consumer waits, each consumer gets credit for all the room that is left.
            if waiting == 0 && shares.free != Some(0) {
                self.credit(&shares.consumers);
            }
            let again = with_channel(connection, channel, |held| {
                let again = held.sharing == Some(true);
                held.sharing = again.then_some(false);
                again
            });
            if again != Some(true) {
                return;
            }
        }
    }
}

fn with_channel<T>(
    connection: &ConnectionState,
    channel: ChannelId,
    change: impl FnOnce(&mut HeldByChannel) -> T,
) -> Option<T> {
    connection.held.lock().channels.get_mut(&channel).map(change)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::front::channel_room::{close_gate, wait_for_room};
    use crate::testing;
    use quorate_types::DeliveryNumber;
    use quorate_types::{Holder, Term};

    /// A range of settles or a re-attachment does not reach back behind references that have been
    /// given back, though the queue may not have released them yet (DLV 6).
    #[tokio::test]
    async fn dlv_06_what_was_given_back_counts_as_shown() {
        let consumer = testing::consumer(&testing::node());
        let delivery = |number| testing::delivery(&consumer, number);
        let attachment = consumer.reattach(Term(3)).unwrap();
        consumer.deliver(Term(3), attachment.number, &[delivery(1), delivery(2)]);
        let mut commands = Vec::new();
        close_gate(&consumer, &mut consumer.state.lock(), &mut commands);
        let numbers = [1, 2].map(|number| (DeliveryNumber(number), DeliveryNumber(number)));
        let holder = Holder::Consumer(consumer.about.id);
        assert_eq!(commands, [Command::Release { holder, numbers: numbers.to_vec() }]);
        let (shown, _) = consumer.end();
        assert_eq!(shown, DeliveryNumber(2));
    }

    /// Room that was kept for a consumer of a silent group goes to the channel's other consumers
    /// (Q-12, DLV 5).
    #[tokio::test]
    async fn dlv_05_what_a_silence_drops_makes_room_for_others() {
        let node = testing::node();
        let connection = testing::connection(&node);
        let (silent, other) =
            (testing::consumer_on(&connection, 1), testing::consumer_on(&connection, 2));
        connection.held.lock().channels.entry(silent.about.channel).or_default().limit = Some(2);
        let up_to = || other.state.lock().progress.up_to;
        node.front.share_room(&connection, other.about.channel);
        assert_eq!(up_to(), DeliveryNumber(2));
        let attachment = silent.reattach(Term(3)).unwrap();
        let deliveries = [1, 2].map(|number| testing::delivery(&silent, number));
        silent.deliver(Term(3), attachment.number, &deliveries);
        let mut commands = Vec::new();
        close_gate(&other, &mut other.state.lock(), &mut commands);
        wait_for_room(&other);
        assert!(
            waits(&other) && Shares::of(&connection, other.about.channel).unwrap().free == Some(0)
        );
        let taken = silent.take(&node.front, usize::MAX, &mut Vec::new());
        assert!(taken.freed && other.waits.load(Ordering::Relaxed), "it asks in turn");
        while other.waits.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
    }
}
