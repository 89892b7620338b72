//! A message for many queues is sent in steps, so that one connection's bytes in flight stay within
//! their bound, and nothing more is written while an alarm is on.
//!
//! Each target's queue writes the message separately, so the bytes of each copy count as in flight.
//! The message is routed once and has one confirm. Later publishes of its connection wait until all
//! copies are sent, as they do without a routing lease.

use crate::{
    client::ChannelId,
    front::{
        batch::MESSAGE_COST_BYTES,
        confirm::{ConfirmTo, FanOut},
        connection_state::ConnectionState,
        pressure::until_room,
        publish::{Outgoings, Source, shared_by},
        publisher::Publisher,
        routed::RoutedPublish,
    },
    memory::{Share, takes_body},
};
use std::{sync::Arc, time::Duration};

/// Longest time that a step waits for room.
const STEP_PATIENCE: Duration = Duration::from_secs(1);

/// A publish of which some copies have not been sent.
#[derive(Debug)]
pub(crate) struct Spread {
    connection: Arc<ConnectionState>,
    channel: ChannelId,
    confirm_to: ConfirmTo,
    mandatory: bool,
    routed: RoutedPublish,
    shared: Option<Arc<FanOut>>,
    /// Index of the next target.
    next: usize,
}

impl RoutedPublish {
    /// Its bytes in flight, with each target counted.
    pub(crate) fn copies_bytes(&self) -> usize {
        self.targets.len().saturating_mul(self.copy_bytes())
    }

    fn copy_bytes(&self) -> usize {
        self.message.len() + MESSAGE_COST_BYTES
    }
}

impl Spread {
    pub(crate) fn new(source: &Source<'_>, routed: RoutedPublish) -> Self {
        Self {
            connection: Arc::clone(source.connection),
            channel: source.channel,
            confirm_to: source.confirm_to.clone(),
            mandatory: source.mandatory,
            shared: shared_by(routed.targets.len()),
            routed,
            next: 0,
        }
    }

    /// Bytes of the copies in the next step of about `bytes_max`.
    fn step_bytes(&self, bytes_max: usize) -> usize {
        let left = self.routed.targets.len() - self.next;
        self.routed.copy_bytes() * left.min(self.copies(bytes_max))
    }

    fn copies(&self, bytes_max: usize) -> usize {
        (bytes_max / self.routed.copy_bytes()).max(1)
    }

    /// Adds copies of about `bytes_max` bytes, at least one; false if none is left.
    fn step(&mut self, bytes_max: usize, outgoings: &mut Outgoings) -> bool {
        let first = self.next;
        self.next = first.saturating_add(self.copies(bytes_max)).min(self.routed.targets.len());
        let source = Source {
            connection: &self.connection,
            channel: self.channel,
            confirm_to: self.confirm_to.clone(),
            mandatory: self.mandatory,
        };
        if first == 0 {
            outgoings.add_replies(&self.routed);
        }
        outgoings.add_copies(&source, &self.routed, first..self.next, self.shared.as_ref());
        self.next < self.routed.targets.len()
    }
}

impl Publisher {
    /// Bytes of copies that are sent in one step.
    pub(crate) fn step_bytes(&self) -> usize {
        usize::try_from(self.base.context.settings.connection_in_flight_bytes / 2)
            .unwrap_or(usize::MAX)
    }

    /// Whether the copies of the publish are sent in steps: together with the `beside` bytes of
    /// earlier copies they exceed one step, or the memory for publishes in flight is used up.
    pub(crate) fn is_spread(&self, routed: &RoutedPublish, beside: usize) -> bool {
        let bytes = routed.copies_bytes().saturating_add(beside);
        routed.targets.len() > 1
            && (bytes > self.step_bytes()
                || self.base.context.memory.is_overdrawn(Share::InFlight, false))
    }

    /// Sends all copies in steps, as far as there is room for them.
    pub(crate) async fn spread(&self, mut spread: Spread) {
        loop {
            self.room_to_spread(&spread.connection).await;
            let bytes = spread.step_bytes(self.step_bytes());
            // One message at a time, so that each step counts what the step before has sent.
            let turn = self.spreading.lock().await;
            self.room_for_step(bytes as u64).await;
            if self.alarms.reason().is_some() || !self.may_step(&spread.connection) {
                continue;
            }
            let mut outgoings = Outgoings::default();
            let more = spread.step(self.step_bytes(), &mut outgoings);
            self.send_all(outgoings);
            drop(turn);
            if !more {
                return;
            }
            // Other tasks get a turn after a step of many small copies.
            tokio::task::yield_now().await;
        }
    }

    /// Resolves when no alarm is on and the connection may have more publishes in flight. One that has ended
    /// gets no more of them, and what it had in flight before may never be answered (SES 6).
    pub(crate) async fn room_to_spread(&self, connection: &ConnectionState) {
        self.alarms.until_lifted().await;
        until_room(connection, || self.may_step(connection)).await;
    }

    fn may_step(&self, connection: &ConnectionState) -> bool {
        self.has_room_for(connection) || connection.has_ended()
    }

    pub(crate) fn has_room_for(&self, connection: &ConnectionState) -> bool {
        connection.publishing.in_flight.has_room() && !self.is_full_for(connection)
    }

    /// Resolves when there is room for another step, or after [`STEP_PATIENCE`]: copies for a home
    /// that does not answer must not hold back all others. Publishes that are held behind a message
    /// to many queues do not count, since they wait for it.
    async fn room_for_step(&self, bytes: u64) {
        let max = self.base.context.memory.share_bytes_max(Share::InFlight);
        let fits = || takes_body(self.base.proposers.bytes(), bytes, max);
        let room = self.base.context.memory.until(Share::InFlight, fits);
        // The copies are then sent without room, one step at a time.
        let _ = tokio::time::timeout(STEP_PATIENCE, room).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Connection,
        leader::enqueue_options::EnqueueOptions,
        testing::{self, lone_connection},
    };
    use bytes::Bytes;
    use quorate_queue::MessageHead;
    use quorate_types::{GroupId, Home, Level, QueueId};

    const MIB: usize = 1 << 20;

    /// A publish of a body of `bytes` to `queues` queues.
    fn routed(queues: u32, bytes: usize) -> RoutedPublish {
        let home = Home::Group(GroupId(1));
        let targets =
            (1..=queues).map(|number| QueueId { home, index: u64::from(number), position: 0 });
        let options = EnqueueOptions { level: Level(0), head: MessageHead::default() };
        RoutedPublish {
            targets: targets.collect(),
            options: vec![options; queues as usize],
            message: Bytes::from(vec![0; bytes]),
            ..RoutedPublish::default()
        }
    }

    fn steps(queues: u32, bytes: usize) -> Vec<usize> {
        let connection = lone_connection();
        let channel = ChannelId { number: 1, opened: 0 };
        let confirm_to = ConfirmTo::Nobody;
        let source = Source { connection: &connection, channel, confirm_to, mandatory: false };
        let mut spread = Spread::new(&source, routed(queues, bytes));
        let mut steps = Vec::new();
        loop {
            let mut outgoings = Outgoings::default();
            let more = spread.step(8 * MIB, &mut outgoings);
            steps.push(connection.publishing.in_flight.bytes());
            connection.publishing.in_flight.landed(connection.publishing.in_flight.bytes());
            if !more {
                return steps;
            }
        }
    }

    #[tokio::test]
    async fn copies_that_are_sent_together_are_counted_together() {
        let node = testing::node();
        let small = routed(10, 1024);
        assert!(!node.publisher.is_spread(&small, 0));
        assert!(node.publisher.is_spread(&small, node.publisher.step_bytes()));
        assert!(
            !node.publisher.is_spread(&routed(1, 1024), node.publisher.step_bytes()),
            "one copy cannot be parted"
        );
    }

    #[test]
    fn large_copies_are_sent_one_by_one() {
        assert_eq!(steps(40, 16 * MIB), [16 * MIB; 40]);
    }

    #[test]
    fn small_copies_are_sent_as_many_as_fit() {
        let steps = steps(100_000, 1024);
        assert_eq!(steps.iter().sum::<usize>(), 100_000 * 1024);
        assert!(steps.iter().all(|bytes| *bytes <= 8 * MIB), "{steps:?}");
        assert!(steps.len() < 20, "{steps:?}");
    }

    /// What a fenced start had in flight is never answered (SES 6).
    #[tokio::test(start_paused = true)]
    async fn copies_of_a_connection_that_has_ended_wait_for_nothing_in_flight() {
        let node = testing::node();
        let state = testing::connection(&node);
        state.publishing.in_flight.launched(1 << 40);
        let room = async |most| {
            let room = node.publisher.room_to_spread(&state);
            tokio::time::timeout(Duration::from_secs(most), room).await
        };
        assert!(room(60).await.is_err());
        drop(Connection { node: Arc::clone(&node), state: Arc::clone(&state) });
        assert!(room(60).await.is_ok());
    }

    #[test]
    fn every_queue_gets_one_copy_of_nothing_too() {
        assert_eq!(steps(100_000, 0).len(), 2);
        assert_eq!(steps(0, 5), [0]);
    }
}
