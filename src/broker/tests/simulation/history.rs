//! What clients have observed, and what must hold for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How much earlier than its end a message may be dead-lettered: stamps are whole milliseconds.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);

/// The observations of one message.
#[derive(Default)]
struct Message {
    confirmed: bool,
    published_at: Duration,
    deliveries: u32,
    /// The queues that it was delivered from.
    shown_from: BTreeSet<String>,
    /// It was settled, and a later request of its client was answered.
    settled: bool,
    /// It was published to a queue where it expires, but not before this time.
    lives_until: Option<Duration>,
    /// The highest number of returns that a delivery of it has shown.
    returned: u32,
}

/// All messages, by their bodies.
#[derive(Default)]
pub struct History {
    messages: BTreeMap<String, Message>,
    violations: BTreeSet<String>,
}

impl History {
    /// A message is published to a queue where it expires at `lives_until`, if that is a time.
    pub fn published(&mut self, body: &str, now: Duration, lives_until: Option<Duration>) {
        let message = Message { published_at: now, lives_until, ..Message::default() };
        self.messages.insert(body.to_owned(), message);
    }

    pub fn confirmed(&mut self, body: &str) {
        self.messages.entry(body.to_owned()).or_default().confirmed = true;
    }

    /// A message, or the dead letter that it has become, is delivered to be settled.
    pub fn delivered(&mut self, body: &str, now: Duration) {
        let Some(message) = self.known(body) else { return };
        message.deliveries += 1;
        let (settled, lives_until) = (message.settled, message.lives_until);
        if settled {
            self.violation(format!("{body} came again after it was settled"));
        }
        if lives_until.is_some_and(|until| now + CLOCK_GRAIN < until) {
            self.violation(format!("{body} has expired at {now:?}, before {lives_until:?}"));
        }
    }

    /// A message comes from a queue. One that is not marked as redelivered is the queue's first
    /// delivery of it (CON-19). If another consumer was shown it before, then its holder was thought
    /// lost, and its node shows it too late (DLV 5).
    pub fn came_from(&mut self, queue: &str, body: &str, redelivered: bool) {
        let Some(message) = self.known(body) else { return };
        let is_first = message.shown_from.insert(queue.to_owned());
        if !redelivered && !is_first {
            self.violation(format!("{body} came from {queue} as new, and had come before"));
        }
    }

    /// A message that is not marked as redelivered comes after one that its publisher published later
    /// (DUR-04). It may have been given to a consumer that was lost before it was shown the message, if
    /// anything was broken since its publish.
    pub fn late(&mut self, body: &str, after: &str, calm_since: Duration) {
        let Some(message) = self.known(body) else { return };
        if message.published_at > calm_since {
            self.violation(format!("{body} came after {after}"));
        }
    }

    /// A message of the queue with a delivery limit is delivered, to be returned: its count of
    /// returns never falls and keeps to the limit (DLM-04).
    pub fn shown(&mut self, body: &str, returned: u32, limit: u32) {
        let Some(message) = self.known(body) else { return };
        let before = message.returned;
        message.returned = before.max(returned);
        let dead = message.deliveries > 0;
        if returned < before {
            self.violation(format!("{body} was returned {before} times, and now {returned} times"));
        }
        if returned > limit || dead {
            self.violation(format!("{body} was delivered after its delivery limit"));
        }
    }

    /// A message that is delivered; `None` if nobody has published it.
    fn known(&mut self, body: &str) -> Option<&mut Message> {
        if !self.messages.contains_key(body) {
            self.violation(format!("{body} was delivered but never published"));
        }
        self.messages.get_mut(body)
    }

    pub fn settled(&mut self, body: &str) {
        self.messages.entry(body.to_owned()).or_default().settled = true;
    }

    pub fn violation(&mut self, violation: String) {
        self.violations.insert(violation);
    }

    /// Number of messages that were certainly published, confirmed and settled.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Message) -> bool| self.messages.values().filter(|m| is(m)).count();
        (self.messages.len(), count(|m| m.confirmed), count(|m| m.settled))
    }

    /// Number of delivered messages that had expired, and of those that had been returned.
    pub fn dead(&self) -> (usize, usize) {
        let delivered = || self.messages.values().filter(|message| message.deliveries > 0);
        let expired = delivered().filter(|message| message.lives_until.is_some()).count();
        (expired, delivered().filter(|message| message.returned > 0).count())
    }

    /// The violated rules, once all queues are drained.
    pub fn violations(&self) -> Vec<String> {
        let lost = self.messages.iter().filter(|(_, m)| m.confirmed && m.deliveries == 0);
        let lost = lost.map(|(body, _)| format!("{body} was confirmed and is lost"));
        self.violations.iter().cloned().chain(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    #[test]
    fn a_lost_message_and_one_that_comes_again_are_noticed() {
        let mut history = History::default();
        for body in ["a", "b", "c"] {
            history.published(body, NOW, None);
        }
        history.confirmed("a");
        history.confirmed("b");
        history.delivered("a", NOW);
        history.delivered("a", NOW);
        assert_eq!(history.violations(), ["b was confirmed and is lost"]);
        history.delivered("b", NOW);
        history.settled("b");
        assert!(history.violations().is_empty(), "c was not confirmed");
        history.delivered("b", NOW);
        history.delivered("d", NOW);
        let wanted = ["b came again after it was settled", "d was delivered but never published"];
        assert_eq!(history.violations(), wanted);
    }

    #[test]
    fn a_message_that_is_new_twice_is_noticed() {
        let mut history = History::default();
        history.published("a", NOW, None);
        history.came_from("here", "a", false);
        history.came_from("here", "a", true);
        history.came_from("there", "a", false);
        assert!(history.violations().is_empty());
        history.came_from("here", "a", false);
        assert_eq!(history.violations(), ["a came from here as new, and had come before"]);
    }

    #[test]
    fn an_early_end_and_a_forgotten_return_are_noticed() {
        let mut history = History::default();
        history.published("a", Duration::ZERO, Some(NOW));
        history.delivered("a", NOW);
        history.published("b", NOW, None);
        (0..=2).for_each(|returned| history.shown("b", returned, 2));
        assert!(history.violations().is_empty());
        history.shown("b", 1, 2);
        assert_eq!(history.violations().len(), 1);
        history.shown("b", 3, 2);
        assert_eq!(history.violations().len(), 2);
        history.delivered("a", NOW - Duration::from_millis(10));
        assert_eq!(history.violations().len(), 3);
    }

    #[test]
    fn a_late_message_is_noticed_unless_a_lost_consumer_may_have_had_it() {
        let mut history = History::default();
        history.published("a", NOW, None);
        history.late("a", "b", NOW + Duration::from_millis(1));
        assert!(history.violations().is_empty());
        history.late("a", "b", NOW - Duration::from_millis(1));
        assert_eq!(history.violations(), ["a came after b"]);
    }
}
