//! A history that is written by hand, with the time of everything in it.

use super::{kinds, number};
use crate::history::{Answer, Attached, Delivered, Fate, Log, Published, Traits};
use std::time::Duration;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Times are in milliseconds.
#[derive(Clone, Default)]
pub(super) struct Timeline {
    pub log: Log,
}

impl Timeline {
    /// Of a queue `q` that does this.
    pub fn of(traits: Traits) -> Self {
        let mut timeline = Self::default();
        timeline.log.queues.insert("q".to_owned(), traits);
        timeline
    }

    pub fn publish(&mut self, seq: u64, at: u64, answer: Answer, answered_at: u64) {
        let published = Published {
            queue: "q".to_owned(),
            priority: 0,
            at: ms(at),
            delay: Duration::ZERO,
            answer,
            answered_at: Some(ms(answered_at)),
            deliveries: 0,
        };
        self.log.published.insert(number(seq), published);
    }

    /// Confirmed at once.
    pub fn confirm(&mut self, seqs: impl IntoIterator<Item = u64>, at: u64) {
        seqs.into_iter().for_each(|seq| self.publish(seq, at, Answer::Confirmed, at));
    }

    pub fn attach(&mut self, queue: &str, prefetch: u16, from: u64) -> usize {
        let (queue, from) = (queue.to_owned(), ms(from));
        self.log.consumers.push(Attached { queue, prefetch, from, lost_at: None });
        self.log.consumers.len() - 1
    }

    pub fn lose(&mut self, consumer: usize, at: u64) {
        self.log.consumers[consumer].lost_at = Some(ms(at));
    }

    /// Settled at once.
    pub fn deliver(&mut self, consumer: usize, seq: u64, at: u64, fate: Fate) {
        let queue = self.log.consumers[consumer].queue.clone();
        let (at, settled_at) = (ms(at), Some(ms(at)));
        let (number, mut before) = (number(seq), self.log.delivered.iter());
        let redelivered = before.any(|d| d.number == number && d.queue == queue);
        let delivered = Delivered { queue, number, consumer, redelivered, at, fate, settled_at };
        self.log.delivered.push(delivered);
        if let Some(published) = self.log.published.get_mut(&number) {
            published.deliveries += 1;
        }
    }

    /// Each is acked.
    pub fn deliver_all(
        &mut self,
        consumer: usize,
        seqs: impl IntoIterator<Item = u64>,
        at: u64,
    ) -> &mut Self {
        seqs.into_iter().for_each(|seq| self.deliver(consumer, seq, at, Fate::Settled));
        self
    }

    pub fn kinds(&self) -> Vec<&'static str> {
        kinds(&self.log)
    }
}
