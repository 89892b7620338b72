//! Checks which messages have arrived: lost, doubled, out of order (`--verify`). Pure.

use std::collections::HashMap;

/// A message that a consumer received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) publisher: u16,
    /// Number of the message within its publisher, from 1.
    pub(crate) number: u64,
    pub(crate) redelivered: bool,
}

/// All messages that have arrived at any consumer.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// For each publisher, a bit for each number.
    arrived: Vec<Vec<u64>>,
    /// Number of messages that arrived again without the redelivered mark.
    pub(crate) doubled: u64,
    /// Number of messages that arrived again with the redelivered mark.
    pub(crate) redelivered: u64,
    /// Some of the doubled messages: publisher and number.
    pub(crate) examples: Vec<(u16, u64)>,
}

/// Number of examples in a report.
const EXAMPLES: usize = 5;

fn place(number: u64) -> Option<(usize, u64)> {
    let bit = number.checked_sub(1)?;
    Some((usize::try_from(bit / 64).ok()?, 1 << (bit % 64)))
}

impl Ledger {
    /// Records arrivals. Numbers above 2^40 cannot be from a run of this program, and are ignored.
    pub(crate) fn record(&mut self, arrivals: &[Arrival]) {
        for arrival in arrivals.iter().filter(|arrival| arrival.number < 1 << 40) {
            let publisher = usize::from(arrival.publisher);
            if self.arrived.len() <= publisher {
                self.arrived.resize_with(publisher + 1, Vec::new);
            }
            let Some((word, bit)) = place(arrival.number) else { continue };
            let Some(words) = self.arrived.get_mut(publisher) else { continue };
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            let Some(word) = words.get_mut(word) else { continue };
            if *word & bit == 0 {
                *word |= bit;
            } else if arrival.redelivered {
                self.redelivered += 1;
            } else {
                self.doubled += 1;
                if self.examples.len() < EXAMPLES {
                    self.examples.push((arrival.publisher, arrival.number));
                }
            }
        }
    }

    fn has(&self, publisher: u16, number: u64) -> bool {
        let words = self.arrived.get(usize::from(publisher));
        place(number)
            .zip(words)
            .and_then(|((word, bit), words)| words.get(word).map(|word| word & bit != 0))
            .unwrap_or(false)
    }

    /// The messages 1 to `published` of a publisher that have not arrived, without those of
    /// `excused` (ascending): their number, and the first few.
    pub(crate) fn missing(
        &self,
        publisher: u16,
        published: u64,
        excused: &[u64],
    ) -> (u64, Vec<u64>) {
        let mut count = 0;
        let mut examples = Vec::new();
        for number in 1..=published {
            if self.has(publisher, number) || excused.binary_search(&number).is_ok() {
                continue;
            }
            count += 1;
            if examples.len() < EXAMPLES {
                examples.push(number);
            }
        }
        (count, examples)
    }
}

/// The order in which one consumer gets each publisher's messages from each queue.
#[derive(Debug, Default)]
pub(crate) struct Order {
    last: HashMap<(u16, u32), u64>,
    /// Number of arrivals with a lower number than an earlier one, without the redelivered mark.
    pub(crate) reordered: u64,
}

impl Order {
    /// Records an arrival from the queue with this index.
    pub(crate) fn record(&mut self, queue: u32, arrival: Arrival) {
        let last = self.last.entry((arrival.publisher, queue)).or_default();
        if arrival.number > *last {
            *last = arrival.number;
        } else if !arrival.redelivered {
            self.reordered += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(publisher: u16, number: u64, redelivered: bool) -> Arrival {
        Arrival { publisher, number, redelivered }
    }

    #[test]
    fn lost_is_what_was_published_and_is_neither_there_nor_excused() {
        let mut ledger = Ledger::default();
        let arrivals: Vec<Arrival> =
            [1, 2, 4, 64, 65, 128].map(|number| arrival(2, number, false)).to_vec();
        ledger.record(&arrivals);
        assert_eq!(ledger.missing(2, 4, &[]), (1, vec![3]));
        assert_eq!(ledger.missing(2, 4, &[3]), (0, vec![]));
        assert_eq!(ledger.missing(2, 66, &[3, 66]).0, 59);
        assert_eq!(ledger.missing(0, 2, &[]), (2, vec![1, 2]));
        assert_eq!(ledger.missing(9, 1, &[]), (1, vec![1]));
    }

    #[test]
    fn doubled_is_an_arrival_again_without_the_mark() {
        let mut ledger = Ledger::default();
        ledger.record(&[arrival(0, 1, false), arrival(0, 1, true), arrival(1, 1, true)]);
        assert_eq!((ledger.doubled, ledger.redelivered), (0, 1));
        ledger.record(&[arrival(0, 1, false)]);
        assert_eq!((ledger.doubled, ledger.examples.as_slice()), (1, &[(0, 1)][..]));
    }

    #[test]
    fn numbers_that_cannot_be_ours_are_left_out() {
        let mut ledger = Ledger::default();
        ledger.record(&[arrival(0, 0, false), arrival(0, 1 << 47, false)]);
        assert_eq!(ledger.missing(0, 1, &[]).0, 1);
    }

    #[test]
    fn order_holds_for_each_publisher_and_queue() {
        let mut order = Order::default();
        order.record(0, arrival(0, 2, false));
        order.record(1, arrival(0, 1, false));
        order.record(0, arrival(1, 1, false));
        order.record(0, arrival(0, 1, true));
        assert_eq!(order.reordered, 0);
        order.record(0, arrival(0, 1, false));
        assert_eq!(order.reordered, 1);
    }
}
