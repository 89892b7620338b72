//! What clients saw, written down as it happened: numbered publishes and their answers, deliveries
//! and what became of them. [`crate::invariant`] judges it.

mod churn;
mod consumer;
mod load;
mod message;
mod mix;
mod publisher;
mod requests;
mod rude;
mod transactional;

pub use churn::Churn;
pub use consumer::{Consumer, ConsumerOptions};
pub use load::{Load, Summary};
pub use message::Number;
pub use mix::{Homes, Mix};
pub use publisher::{Publisher, PublisherOptions};
pub use requests::Requests;
pub use rude::{Rude, Victims};

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
    /// `basic.ack`, or `tx.commit-ok`.
    Confirmed,
    /// `basic.nack`, or a rollback.
    Refused,
}

/// A published message, and its answer.
#[derive(Clone, Debug)]
pub struct Published {
    /// To which queue.
    pub queue: String,
    /// Priority; 0 for none.
    pub priority: u8,
    /// When it was handed to the connection, since the history began.
    pub at: Duration,
    /// How long an exchange keeps it before it is routed (EXC-17).
    pub delay: Duration,
    /// How it was answered.
    pub answer: Answer,
    /// When that answer came, or the connection was lost, since the history began.
    pub answered_at: Option<Duration>,
    /// How often it has been delivered.
    pub deliveries: u32,
}

/// What a client did with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The client has not settled it yet.
    Held,
    /// The client has acked it.
    Settled,
    /// Given back to the queue.
    Returned,
    /// Rejected: dropped, or a dead letter where the queue has somewhere to send it.
    Rejected,
}

/// What a queue does beside giving messages to its consumers in turn. Queues that nobody
/// [described](History::describe) do nothing else.
#[derive(Clone, Debug, Default)]
pub struct Traits {
    /// The queue that its dead letters go to.
    pub dead_letters: Option<String>,
    /// Messages die without a consumer's doing: of age, or of the queue's length.
    pub dies: bool,
    /// How long a message takes at least from its publish until it is a dead letter, if time is what it
    /// dies of.
    pub lives: Duration,
    /// A message dies when it comes back more often than this (DLM-04).
    pub delivery_limit: Option<u32>,
    /// Only one consumer at a time is served (SAC-01).
    pub single_active: bool,
    /// The limit of its ready messages. Nobody publishes to it in transactions: a rollback looks
    /// like a refusal.
    pub length: Option<Length>,
}

/// A limit of the ready messages of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Most messages that are ready.
    pub limit: u64,
    /// What becomes of one more.
    pub overflow: Overflow,
}

/// What a queue does at its length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest message dies (LEN-04).
    DropHead,
    /// The publish is refused (LEN-07).
    RejectPublish,
}

/// A delivery, and how the client settled it.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// From which queue.
    pub queue: String,
    /// The message that was delivered.
    pub number: Number,
    /// Whose, in [`Log::consumers`].
    pub consumer: usize,
    /// The flag that it came with.
    pub redelivered: bool,
    /// When, since the history began.
    pub at: Duration,
    /// What became of it.
    pub fate: Fate,
    /// When the client said so.
    pub settled_at: Option<Duration>,
}

/// One attached consumer, from consume-ok to its end.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Of which queue.
    pub queue: String,
    /// What it can be given unsettled; 0 for no limit.
    pub prefetch: u16,
    /// When it began.
    pub from: Duration,
    /// When its channel or connection was lost with deliveries in doubt, if it was. One that was
    /// cancelled and had settled all it was given leaves no doubt, and this empty.
    pub lost_at: Option<Duration>,
}

/// Everything that a history has recorded.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Publishes by the message's number.
    pub published: BTreeMap<Number, Published>,
    /// In the order of arrival.
    pub delivered: Vec<Delivered>,
    /// By the number that [`History::attached`] gave.
    pub consumers: Vec<Attached>,
    /// What was said of queues.
    pub queues: BTreeMap<String, Traits>,
    /// Deliveries whose body is not what was published, in words.
    pub damaged: Vec<String>,
    /// Queues that a client has declared and another one did not find, in words.
    pub forgotten: Vec<String>,
    /// How many messages nodes counted in queues that nobody had consumed from yet.
    pub counted: Vec<(String, u64)>,
    /// How often a queue was declared, used and deleted.
    pub churned: u64,
    /// How many requests were answered.
    pub replied: u64,
    /// How often a client ended in a way that AMQP does not know, as it was meant to.
    pub rude: u64,
    /// Confirmed and not yet delivered.
    awaited: u64,
    confirms: u64,
    producers: u32,
}

impl Log {
    /// How many publishes were confirmed.
    #[must_use]
    pub fn confirms(&self) -> usize {
        usize::try_from(self.confirms).unwrap_or(usize::MAX)
    }

    fn confirmed_of(&self, queue: &str) -> impl Iterator<Item = &Published> {
        let published = self.published.values();
        published.filter(move |p| p.answer == Answer::Confirmed && p.queue == queue)
    }
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

    /// Says what a queue does.
    pub fn describe(&self, queue: &str, traits: Traits) {
        self.log().queues.insert(queue.to_owned(), traits);
    }

    /// A message is about to be published.
    pub fn publishing(&self, number: Number, queue: &str, priority: u8, delay: Duration) {
        let published = Published {
            queue: queue.to_owned(),
            priority,
            at: self.now(),
            delay,
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
            let awaited = published.deliveries == 0;
            if answer == Answer::Confirmed {
                log.confirms += 1;
                log.awaited += u64::from(awaited);
            }
        }
    }

    /// A publishing channel is gone: what has no answer yet gets none.
    pub fn unanswered(&self, producer: u32) {
        let at = self.now();
        let all = Number { producer, seq: 0 }..=Number { producer, seq: u64::MAX };
        for (_, published) in self.log().published.range_mut(all) {
            if published.answer == Answer::Outstanding {
                published.answer = Answer::Lost;
                published.answered_at = Some(at);
            }
        }
    }

    /// A consumer has been attached; gives its number.
    pub fn attached(&self, queue: &str, prefetch: u16) -> usize {
        let from = self.now();
        let mut log = self.log();
        log.consumers.push(Attached { queue: queue.to_owned(), prefetch, from, lost_at: None });
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
        let (fate, settled_at) = (Fate::Held, None);
        log.delivered.push(Delivered {
            queue,
            number,
            consumer,
            redelivered,
            at,
            fate,
            settled_at,
        });
        log.delivered.len() - 1
    }

    /// What a client was given is not what was published.
    pub fn damaged(&self, what: String) {
        self.log().damaged.push(what);
    }

    /// A queue was declared, and another client did not find it.
    pub fn forgotten(&self, what: String) {
        self.log().forgotten.push(what);
    }

    /// A node has counted the messages of a queue that nobody has consumed from.
    pub fn counted(&self, queue: &str, count: u64) {
        self.log().counted.push((queue.to_owned(), count));
    }

    /// A queue was declared, used and deleted.
    pub fn churned(&self) {
        self.log().churned += 1;
    }

    /// A request was answered.
    pub fn replied(&self) {
        self.log().replied += 1;
    }

    /// A client has ended in a way that AMQP does not know.
    pub fn rude(&self) {
        self.log().rude += 1;
    }

    /// What the client did with a delivery.
    pub fn settled(&self, delivery: usize, fate: Fate) {
        let at = self.now();
        if let Some(delivered) = self.log().delivered.get_mut(delivery) {
            delivered.fate = fate;
            delivered.settled_at = Some(at);
        }
    }

    /// Confirmed messages that nobody has seen yet.
    #[must_use]
    pub fn awaited(&self) -> u64 {
        self.log().awaited
    }

    /// How many deliveries from a queue there were so far.
    #[must_use]
    pub fn deliveries_of(&self, queue: &str) -> usize {
        self.log().delivered.iter().filter(|delivered| delivered.queue == queue).count()
    }

    /// How many confirms of publishes to a queue there were so far.
    #[must_use]
    pub fn confirms_of(&self, queue: &str) -> usize {
        self.log().confirmed_of(queue).count()
    }

    /// How many confirms there were so far.
    #[must_use]
    pub fn confirms(&self) -> usize {
        self.log().confirms()
    }

    /// How many confirms and how many deliveries there were so far.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let log = self.log();
        (log.confirms, log.delivered.len() as u64)
    }

    /// When the first confirm from a queue came at this time of the history or later.
    #[must_use]
    pub fn first_confirm_since(&self, queue: &str, from: Duration) -> Option<Duration> {
        let log = self.log();
        let times = log.confirmed_of(queue).filter_map(|published| published.answered_at);
        times.filter(|at| *at >= from).min()
    }

    /// The longest time without a confirm from a queue in a span of the history, its ends counting as
    /// confirms.
    #[must_use]
    pub fn longest_confirm_gap(&self, queue: &str, from: Duration, to: Duration) -> Duration {
        longest(&self.confirm_gaps(queue, from, to))
    }

    /// Begin and end of each time without a confirm from a queue, in a span whose ends count as confirms.
    #[must_use]
    pub fn confirm_gaps(&self, queue: &str, from: Duration, to: Duration) -> Vec<[Duration; 2]> {
        gaps(self.log().confirmed_of(queue).filter_map(|p| p.answered_at), from, to)
    }

    /// The longest time without a delivery from a queue in a span of the history.
    #[must_use]
    pub fn longest_delivery_gap(&self, queue: &str, from: Duration, to: Duration) -> Duration {
        let log = self.log();
        let delivered = log.delivered.iter().filter(|delivered| delivered.queue == queue);
        longest(&gaps(delivered.map(|delivered| delivered.at), from, to))
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

fn gaps(times: impl Iterator<Item = Duration>, from: Duration, to: Duration) -> Vec<[Duration; 2]> {
    let mut inside: Vec<Duration> = times.filter(|at| (from..=to).contains(at)).collect();
    inside.extend([from, to]);
    inside.sort_unstable();
    inside.windows(2).map(|pair| [pair[0], pair[1]]).collect()
}

fn longest(gaps: &[[Duration; 2]]) -> Duration {
    gaps.iter().map(|[from, to]| to.saturating_sub(*from)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_the_ends_of_the_span() {
        let ms = Duration::from_millis;
        let at = [ms(90), ms(10), ms(20)];
        assert_eq!(longest(&gaps(at.into_iter(), ms(0), ms(100))), ms(70));
        assert_eq!(longest(&gaps(at.into_iter(), ms(0), ms(300))), ms(210));
        assert_eq!(longest(&gaps([].into_iter(), ms(5), ms(10))), ms(5));
    }

    #[test]
    fn a_confirmed_message_is_awaited_until_it_is_delivered() {
        let history = History::default();
        let consumer = history.attached("q", 0);
        let [first, second] = [1, 2].map(|seq| Number { producer: 1, seq });
        for number in [first, second] {
            history.publishing(number, "q", 0, Duration::ZERO);
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
