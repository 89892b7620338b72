//! What clients saw, written down as it happened: numbered publishes and their answers, deliveries
//! and what became of them. [`crate::invariant`] judges it.

mod consumer;
mod load;
mod message;
mod publisher;

pub use consumer::{Consumer, ConsumerOptions};
pub use load::{Load, Summary};
pub use message::Number;
pub use publisher::{Publisher, PublisherOptions};

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The answer to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None has come.
    Outstanding,
    /// None came before the connection was lost: the message may be in the queue, or not (DUR-02).
    Lost,
    /// `basic.ack`.
    Confirmed,
    /// `basic.nack`.
    Refused,
}

/// One publish.
#[derive(Clone, Debug)]
pub struct Published {
    /// To which queue.
    pub queue: String,
    /// How it was answered.
    pub answer: Answer,
    /// When that answer came, since the history began.
    pub answered_at: Option<Duration>,
    /// How often it has been delivered.
    pub deliveries: u32,
}

/// What a client did with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet.
    Held,
    /// Acked.
    Settled,
    /// Given back to the queue.
    Returned,
}

/// One delivery.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// From which queue.
    pub queue: String,
    /// Which message.
    pub number: Number,
    /// Whose, in [`Log::consumers`].
    pub consumer: usize,
    /// The flag that it came with.
    pub redelivered: bool,
    /// When, since the history began.
    pub at: Duration,
    /// What became of it.
    pub fate: Fate,
}

/// One attached consumer, from consume-ok to its end.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Of which queue.
    pub queue: String,
    /// When it began.
    pub from: Duration,
    /// When its channel or connection was lost with deliveries in doubt, if it was. One that was
    /// cancelled and had settled all it was given leaves no doubt, and this empty.
    pub lost_at: Option<Duration>,
}

/// Everything recorded.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// By number.
    pub published: BTreeMap<Number, Published>,
    /// In the order of arrival.
    pub delivered: Vec<Delivered>,
    /// By the number that [`History::attached`] gave.
    pub consumers: Vec<Attached>,
    /// Deliveries whose body is not what was published, in words.
    pub damaged: Vec<String>,
    /// Confirmed and not yet delivered.
    awaited: u64,
    producers: u32,
}

/// The recorder, shared by all clients of a test.
#[derive(Debug)]
pub struct History {
    begun: Instant,
    log: Mutex<Log>,
}

impl Default for History {
    fn default() -> Self {
        Self { begun: Instant::now(), log: Mutex::default() }
    }
}

impl History {
    /// Time since the history began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A number for one publishing channel.
    pub fn producer(&self) -> u32 {
        let mut log = self.log();
        log.producers += 1;
        log.producers
    }

    /// A message is about to be published.
    pub fn publishing(&self, number: Number, queue: &str) {
        let published = Published {
            queue: queue.to_owned(),
            answer: Answer::Outstanding,
            answered_at: None,
            deliveries: 0,
        };
        self.log().published.insert(number, published);
    }

    /// A publish has been answered.
    pub fn answered(&self, number: Number, answer: Answer) {
        let at = self.now();
        let mut log = self.log();
        if let Some(published) = log.published.get_mut(&number) {
            published.answer = answer;
            published.answered_at = Some(at);
            if answer == Answer::Confirmed && published.deliveries == 0 {
                log.awaited += 1;
            }
        }
    }

    /// A publish's connection was lost; it gets no answer any more, if it had none yet.
    pub fn unanswered(&self, number: Number) {
        if let Some(published) = self.log().published.get_mut(&number)
            && published.answer == Answer::Outstanding
        {
            published.answer = Answer::Lost;
        }
    }

    /// A consumer has been attached; gives its number.
    pub fn attached(&self, queue: &str) -> usize {
        let from = self.now();
        let mut log = self.log();
        log.consumers.push(Attached { queue: queue.to_owned(), from, lost_at: None });
        log.consumers.len() - 1
    }

    /// A consumer's channel or connection was lost with deliveries in doubt.
    pub fn lost(&self, consumer: usize) {
        let at = self.now();
        if let Some(consumer) = self.log().consumers.get_mut(consumer) {
            consumer.lost_at = Some(at);
        }
    }

    /// A delivery has arrived; gives its place for [`History::settled`].
    pub fn delivered(&self, consumer: usize, body: &[u8], redelivered: bool) -> usize {
        let at = self.now();
        let mut log = self.log();
        let queue = log.consumers.get(consumer).map(|c| c.queue.clone()).unwrap_or_default();
        let number = match Number::read(body) {
            Ok(number) => number,
            Err(damage) => {
                log.damaged.push(format!("from '{queue}': {damage}"));
                return usize::MAX;
            }
        };
        if let Some(published) = log.published.get_mut(&number) {
            published.deliveries += 1;
            if published.deliveries == 1 && published.answer == Answer::Confirmed {
                log.awaited -= 1;
            }
        }
        let fate = Fate::Held;
        log.delivered.push(Delivered { queue, number, consumer, redelivered, at, fate });
        log.delivered.len() - 1
    }

    /// What the client did with a delivery.
    pub fn settled(&self, delivery: usize, fate: Fate) {
        if let Some(delivered) = self.log().delivered.get_mut(delivery) {
            delivered.fate = fate;
        }
    }

    /// Confirmed messages that nobody has seen yet.
    #[must_use]
    pub fn awaited(&self) -> u64 {
        self.log().awaited
    }

    /// How many deliveries there were so far.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.log().delivered.len()
    }

    /// How many confirms there were so far.
    #[must_use]
    pub fn confirms(&self) -> usize {
        self.log().published.values().filter(|p| p.answer == Answer::Confirmed).count()
    }

    /// The longest time without a confirm in a span of the history, its ends counting as confirms.
    #[must_use]
    pub fn longest_confirm_gap(&self, from: Duration, to: Duration) -> Duration {
        let log = self.log();
        let confirmed = log.published.values().filter(|p| p.answer == Answer::Confirmed);
        longest_gap(confirmed.filter_map(|p| p.answered_at), from, to)
    }

    /// The longest time without a delivery in a span of the history.
    #[must_use]
    pub fn longest_delivery_gap(&self, from: Duration, to: Duration) -> Duration {
        longest_gap(self.log().delivered.iter().map(|delivered| delivered.at), from, to)
    }

    /// A copy of everything recorded so far.
    #[must_use]
    pub fn snapshot(&self) -> Log {
        self.log().clone()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn longest_gap(times: impl Iterator<Item = Duration>, from: Duration, to: Duration) -> Duration {
    let mut inside: Vec<Duration> = times.filter(|at| (from..=to).contains(at)).collect();
    inside.extend([from, to]);
    inside.sort_unstable();
    let gaps = inside.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    gaps.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_the_ends_of_the_span() {
        let ms = Duration::from_millis;
        let at = [ms(90), ms(10), ms(20)];
        assert_eq!(longest_gap(at.into_iter(), ms(0), ms(100)), ms(70));
        assert_eq!(longest_gap(at.into_iter(), ms(0), ms(300)), ms(210));
        assert_eq!(longest_gap([].into_iter(), ms(5), ms(10)), ms(5));
    }

    #[test]
    fn a_confirmed_message_is_awaited_until_it_is_delivered() {
        let history = History::default();
        let consumer = history.attached("q");
        let [first, second] = [1, 2].map(|seq| Number { producer: 1, seq });
        for number in [first, second] {
            history.publishing(number, "q");
        }
        history.delivered(consumer, &first.body(20), false);
        history.answered(first, Answer::Confirmed);
        assert_eq!(history.awaited(), 0);
        history.answered(second, Answer::Confirmed);
        assert_eq!(history.awaited(), 1);
        history.delivered(consumer, &second.body(20), false);
        assert_eq!(history.awaited(), 0);
    }
}
