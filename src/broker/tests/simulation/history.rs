//! What clients have observed, and what must hold for it.

use std::collections::{BTreeMap, BTreeSet};

/// The observations of one message.
#[derive(Default)]
struct Message {
    confirmed: bool,
    deliveries: u32,
    /// It was settled, and a later request of its client was answered.
    settled: bool,
}

/// All messages, by their bodies.
#[derive(Default)]
pub struct History {
    messages: BTreeMap<String, Message>,
    faults: BTreeSet<String>,
}

impl History {
    pub fn published(&mut self, body: &str) {
        self.messages.entry(body.to_owned()).or_default();
    }

    pub fn confirmed(&mut self, body: &str) {
        self.messages.entry(body.to_owned()).or_default().confirmed = true;
    }

    pub fn delivered(&mut self, body: &str) {
        let Some(message) = self.messages.get_mut(body) else {
            self.fault(format!("{body} was delivered but never published"));
            return;
        };
        message.deliveries += 1;
        if message.settled {
            self.fault(format!("{body} came again after it was settled"));
        }
    }

    pub fn settled(&mut self, body: &str) {
        self.messages.entry(body.to_owned()).or_default().settled = true;
    }

    pub fn fault(&mut self, fault: String) {
        self.faults.insert(fault);
    }

    /// Number of messages that were certainly published, confirmed and settled.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |is: fn(&Message) -> bool| self.messages.values().filter(|m| is(m)).count();
        (self.messages.len(), count(|m| m.confirmed), count(|m| m.settled))
    }

    /// The violated rules, once all queues are drained.
    pub fn faults(&self) -> Vec<String> {
        let lost = self.messages.iter().filter(|(_, m)| m.confirmed && m.deliveries == 0);
        let lost = lost.map(|(body, _)| format!("{body} was confirmed and is lost"));
        self.faults.iter().cloned().chain(lost).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_message_and_one_that_comes_again_are_noticed() {
        let mut history = History::default();
        for body in ["a", "b", "c"] {
            history.published(body);
        }
        history.confirmed("a");
        history.confirmed("b");
        history.delivered("a");
        history.delivered("a");
        assert_eq!(history.faults(), ["b was confirmed and is lost"]);
        history.delivered("b");
        history.settled("b");
        assert!(history.faults().is_empty(), "c was not confirmed");
        history.delivered("b");
        history.delivered("d");
        let wanted = ["b came again after it was settled", "d was delivered but never published"];
        assert_eq!(history.faults(), wanted);
    }
}
