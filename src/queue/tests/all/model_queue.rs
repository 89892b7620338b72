//! One queue of the model: the holders of its messages, a sorted list searched from the front, and
//! the messages that have expired by its clock.

use quorate_queue::{
    ConsumerTerms, Counts, DeadLetterFact, DeadLetterStrategy, DeathReason, QueueConfig,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, Holder, LogIndex, MessageId, QueueType, ResourceName, Sequence,
    SessionId,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub counts: Counts,
    pub bytes: u32,
    pub expiration: Option<u64>,
    pub enqueued_at: u64,
    pub unacked_since: u64,
}

#[derive(Debug)]
pub struct Consumer {
    pub terms: ConsumerTerms,
    pub next: u64,
    pub up_to: u64,
    pub cancelled: bool,
    pub timed_out: BTreeSet<u64>,
    pub arrival: usize,
    pub paused: bool,
    pub unacked: BTreeMap<u64, Message>,
}

/// A dead letter, by number in [`Queue::letters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letter {
    pub message: MessageId,
    pub reason: DeathReason,
    pub kept: bool,
}

#[derive(Debug)]
pub struct Queue {
    pub name: ResourceName,
    pub config: QueueConfig,
    pub life: u64,
    /// The entry that is applied.
    pub entry: LogIndex,
    pub had_consumer: bool,
    pub used_at: u64,
    pub was_used: bool,
    pub arrivals: usize,
    pub active: Option<ConsumerId>,
    pub ready: Vec<Message>,
    pub consumers: BTreeMap<ConsumerId, Consumer>,
    pub gets: BTreeMap<(SessionId, Sequence), Message>,
    pub get_timeouts: BTreeMap<SessionId, Option<u64>>,
    pub service_queue: Vec<ConsumerId>,
    pub letters: BTreeMap<u64, Letter>,
    pub last_letter: u64,
    pub tally: Tally,
}

/// Counts for metrics in one entry.
pub type Tally = BTreeMap<(QueueType, DeadLetterStrategy, DeadLetterFact), u64>;

impl Message {
    fn ttl(&self, config: &QueueConfig) -> u64 {
        config.message_ttl_ms.into_iter().chain(self.expiration).min().unwrap_or(u64::MAX)
    }

    /// A message of TTL 0 expires with the entry that enqueued it.
    fn has_expired(&self, config: &QueueConfig, now: u64, entry: LogIndex) -> bool {
        let ttl = self.ttl(config);
        now - self.enqueued_at > ttl || (ttl == 0 && self.id.index < entry)
    }
}

impl Queue {
    pub fn attached(&self) -> u32 {
        self.consumers.values().filter(|consumer| !consumer.cancelled).count() as u32
    }

    /// Adds messages to the ready ones: highest level first, then by index and position.
    pub fn add(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.ready.extend(messages);
        let order = |it: &Message| (Reverse(it.id.level), it.id.index, it.id.position);
        self.ready.sort_by_key(order);
    }

    pub fn take(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
    ) -> Vec<Message> {
        let mut taken = Vec::new();
        for (first, last) in numbers {
            match holder {
                Holder::Consumer(id) => {
                    let Some(consumer) = self.consumers.get_mut(&id) else { continue };
                    let inside = |number: &u64| first.0 <= *number && *number <= last.0;
                    taken.extend(consumer.unacked.extract_if(.., |n, _| inside(n)).map(|it| it.1));
                    // A late settlement counts only for the consumer (CTO-06).
                    consumer.timed_out.retain(|number| !inside(number));
                }
                Holder::Get(session, number) if first.0 <= 1 && last.0 >= 1 => {
                    taken.extend(self.gets.remove(&(session, number)));
                }
                Holder::Get(..) => {}
            }
        }
        taken
    }

    pub fn count(&mut self, fact: DeadLetterFact, more: u64) {
        let strategy = match &self.config.dead_letter {
            None => DeadLetterStrategy::Disabled,
            Some(it) if it.at_least_once => DeadLetterStrategy::AtLeastOnce,
            Some(_) => DeadLetterStrategy::AtMostOnce,
        };
        *self.tally.entry((self.config.queue_type, strategy, fact)).or_default() += more;
    }

    /// With a dead-letter exchange in force the message becomes a letter (LET 1).
    pub fn die(&mut self, message: Message, reason: DeathReason) {
        self.count(DeadLetterFact::Died(reason), 1);
        if self.config.dead_letter.is_some() {
            self.last_letter += 1;
            let letter = Letter { message: message.id, reason, kept: false };
            self.letters.insert(self.last_letter, letter);
        }
    }

    /// Messages that return too often die (DLM-04).
    pub fn requeue(&mut self, messages: Vec<Message>, acquired: u32, returned: u32) {
        let limit = self.config.delivery_limit.filter(|_| returned > 0).unwrap_or(u32::MAX);
        for mut message in messages {
            message.counts.acquired += acquired;
            message.counts.returned += returned;
            if message.counts.returned > limit {
                self.die(message, DeathReason::DeliveryLimit);
            } else {
                self.add([message]);
            }
        }
    }

    /// Ends the first messages of their level that have expired; after all consumers were served
    /// also those of TTL 0.
    pub fn expire(&mut self, now: u64, zero: bool) {
        let mut alive = BTreeSet::new();
        for it in std::mem::take(&mut self.ready) {
            let over = it.has_expired(&self.config, now, self.entry)
                || (zero && it.ttl(&self.config) == 0);
            if over && !alive.contains(&it.id.level) {
                self.die(it, DeathReason::Expired);
            } else {
                alive.insert(it.id.level);
                self.ready.push(it);
            }
        }
    }

    pub fn expire_first(&mut self, now: u64) {
        while self.ready.first().is_some_and(|it| it.has_expired(&self.config, now, self.entry)) {
            let first = self.ready.remove(0);
            self.die(first, DeathReason::Expired);
        }
    }
}
