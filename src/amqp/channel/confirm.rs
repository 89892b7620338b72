//! Publisher confirms: acknowledges settled publishes with as few acks as possible (CNF-01 to
//! CNF-05).

use std::collections::BTreeMap;

/// A `basic.ack` or `basic.nack` to the publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Confirm {
    pub(crate) number: u64,
    pub(crate) multiple: bool,
    /// True for an ack, false for a nack.
    pub(crate) taken: bool,
}

/// The publishes of one channel in confirm mode.
#[derive(Debug)]
pub(crate) struct Confirms {
    /// Number of the next publish (CNF-01).
    next: u64,
    outstanding: u64,
    /// All lower numbers are settled, and their confirms have been sent.
    lowest: u64,
    /// Ranges above `lowest` whose confirms have been sent: first to last.
    confirmed: BTreeMap<u64, u64>,
    /// Ranges to be sent by the next [`Confirms::emit`].
    taken: Vec<(u64, u64)>,
    refused: Vec<(u64, u64)>,
}

impl Confirms {
    pub(crate) fn new() -> Self {
        Self {
            next: 1,
            outstanding: 0,
            lowest: 1,
            confirmed: BTreeMap::new(),
            taken: Vec::new(),
            refused: Vec::new(),
        }
    }

    /// The number of the next publish.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.outstanding += 1;
        self.next - 1
    }

    /// Number of publishes that are not settled.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Settles `first` to `last`. True if nothing else waits to be sent.
    pub(crate) fn settle(&mut self, first: u64, last: u64, taken: bool) -> bool {
        self.outstanding = self.outstanding.saturating_sub(last + 1 - first);
        let idle = self.taken.is_empty() && self.refused.is_empty();
        let ranges = if taken { &mut self.taken } else { &mut self.refused };
        match ranges.last_mut() {
            Some(range) if range.1.checked_add(1) == Some(first) => range.1 = last,
            Some(_) | None => ranges.push((first, last)),
        }
        idle
    }

    /// Sends everything settled since the last call, with `multiple` where all smaller numbers
    /// are settled too (CNF-02), each number once (CNF-05).
    pub(crate) fn emit(&mut self, mut send: impl FnMut(Confirm)) {
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_unstable();
        for (first, last) in refused.drain(..) {
            if first == self.lowest && last > first {
                send(Confirm { number: last, multiple: true, taken: false });
            } else {
                (first..=last)
                    .for_each(|number| send(Confirm { number, multiple: false, taken: false }));
            }
            self.mark(first, last);
        }
        self.refused = refused;
        self.emit_taken(send);
    }

    fn emit_taken(&mut self, mut send: impl FnMut(Confirm)) {
        let mut taken = std::mem::take(&mut self.taken);
        taken.sort_unstable();
        taken.iter().for_each(|&(first, last)| self.mark(first, last));
        let below = taken.iter().take_while(|&&(_, last)| last < self.lowest);
        let count: u64 = below.clone().map(|(first, last)| last - first + 1).sum();
        if let Some(&(_, number)) = below.last() {
            send(Confirm { number, multiple: count > 1, taken: true });
        }
        for &(first, last) in taken.iter().filter(|&&(_, last)| last >= self.lowest) {
            (first..=last)
                .for_each(|number| send(Confirm { number, multiple: false, taken: true }));
        }
        taken.clear();
        self.taken = taken;
    }

    fn mark(&mut self, first: u64, last: u64) {
        if first == self.lowest {
            self.lowest = last + 1;
            while let Some(last) = self.confirmed.remove(&self.lowest) {
                self.lowest = last + 1;
            }
            return;
        }
        match self.confirmed.range_mut(..first).next_back() {
            Some((_, end)) if *end + 1 == first => *end = last,
            Some(_) | None => drop(self.confirmed.insert(first, last)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn emitted(confirms: &mut Confirms) -> Vec<(u64, bool, bool)> {
        let mut emitted = Vec::new();
        confirms.emit(|confirm| emitted.push((confirm.number, confirm.multiple, confirm.taken)));
        emitted
    }

    fn with(count: u64) -> Confirms {
        let mut confirms = Confirms::new();
        (0..count).for_each(|_| {
            confirms.number();
        });
        confirms
    }

    /// CNF-02: `multiple` is set only if all lower numbers are settled too.
    #[test]
    fn cnf_02_multiple_only_when_all_smaller_are_settled() {
        let mut confirms = with(10);
        confirms.settle(2, 3, true);
        assert_eq!(emitted(&mut confirms), [(2, false, true), (3, false, true)]);
        confirms.settle(1, 1, true);
        assert_eq!(emitted(&mut confirms), [(1, false, true)]);
        confirms.settle(6, 6, true);
        confirms.settle(4, 5, true);
        confirms.settle(9, 9, true);
        assert_eq!(emitted(&mut confirms), [(6, true, true), (9, false, true)]);
    }

    /// CNF-04: nacks are sent before acks with `multiple`, which would cover them.
    #[test]
    fn cnf_04_a_nack_comes_before_the_ack_that_would_cover_it() {
        let mut confirms = with(5);
        confirms.settle(1, 1, true);
        confirms.settle(2, 2, false);
        confirms.settle(3, 5, true);
        assert_eq!(emitted(&mut confirms), [(2, false, false), (5, true, true)]);
        let mut confirms = with(5);
        confirms.settle(1, 5, false);
        assert_eq!(emitted(&mut confirms), [(5, true, false)]);
    }

    /// A client's record: the publishes that each ack and nack settles.
    fn client(open: &mut BTreeSet<u64>, confirm: Confirm) -> Vec<(u64, bool)> {
        assert!(open.contains(&confirm.number), "not outstanding: {confirm:?}");
        let meant: Vec<u64> = if confirm.multiple {
            open.range(..=confirm.number).copied().collect()
        } else {
            vec![confirm.number]
        };
        open.retain(|number| !meant.contains(number));
        meant.into_iter().map(|number| (number, confirm.taken)).collect()
    }

    proptest! {
        /// CNF-05: whatever the order, the client learns the outcome of each publish exactly once.
        #[test]
        fn cnf_05_each_publish_is_confirmed_once_and_rightly(
            outcomes in proptest::collection::vec(any::<bool>(), 1..60),
            order in any::<proptest::sample::Index>(),
            seed in any::<u64>(),
            batch in 1..9usize,
        ) {
            let count = u64::try_from(outcomes.len()).unwrap();
            let mut confirms = with(count);
            let mut numbers: Vec<u64> = (1..=count).collect();
            // A permutation that keeps some runs.
            numbers.sort_by_key(|number| (number / 3 + 1).wrapping_mul(seed | 1).rotate_left(17));
            numbers.rotate_left(order.index(outcomes.len()));
            let mut open: BTreeSet<u64> = (1..=count).collect();
            let mut learnt = Vec::new();
            for numbers in numbers.chunks(batch) {
                for &number in numbers {
                    let taken = outcomes[usize::try_from(number - 1).unwrap()];
                    confirms.settle(number, number, taken);
                }
                confirms.emit(|confirm| learnt.extend(client(&mut open, confirm)));
            }
            prop_assert!(open.is_empty());
            for (number, taken) in learnt {
                prop_assert_eq!(taken, outcomes[usize::try_from(number - 1).unwrap()]);
            }
            prop_assert!(confirms.confirmed.is_empty());
            prop_assert_eq!(confirms.lowest, count + 1);
        }
    }
}
