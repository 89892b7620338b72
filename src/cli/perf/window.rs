//! The publishes of one channel that are not yet confirmed.

use std::collections::VecDeque;

/// A publish: when it was sent, and whether it is unconfirmed.
#[derive(Clone, Copy, Debug)]
struct Slot {
    sent_ns: u64,
    waits: bool,
}

/// Publishes by number, from the lowest unconfirmed one.
#[derive(Debug)]
pub(crate) struct Window {
    first: u64,
    slots: VecDeque<Slot>,
    waiting: usize,
}

impl Window {
    /// An empty window; the first publish gets number 1.
    pub(crate) fn new() -> Self {
        Self { first: 1, slots: VecDeque::new(), waiting: 0 }
    }

    /// Number of unconfirmed publishes.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Records that a publish is sent.
    pub(crate) fn sent(&mut self, now_ns: u64) {
        self.slots.push_back(Slot { sent_ns: now_ns, waits: true });
        self.waiting += 1;
    }

    /// Handles a confirm: calls `settled` with number and time of each publish that it settles.
    /// Publishes that were settled before, or never sent, are skipped.
    pub(crate) fn settle(
        &mut self,
        number: u64,
        multiple: bool,
        mut settled: impl FnMut(u64, u64),
    ) {
        let Some(at) = number.checked_sub(self.first) else { return };
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let from = if multiple { 0 } else { at };
        let numbers = if multiple { self.first } else { number }..=number;
        for (number, slot) in numbers.zip(self.slots.iter_mut().skip(from)) {
            if slot.waits {
                slot.waits = false;
                self.waiting -= 1;
                settled(number, slot.sent_ns);
            }
        }
        while self.slots.front().is_some_and(|slot| !slot.waits) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Numbers of unconfirmed publishes.
    pub(crate) fn unconfirmed(&self) -> Vec<u64> {
        (self.first..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.waits)
            .map(|(number, _)| number)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(window: &mut Window, number: u64, multiple: bool) -> Vec<(u64, u64)> {
        let mut settled = Vec::new();
        window.settle(number, multiple, |number, sent_ns| settled.push((number, sent_ns)));
        settled
    }

    fn sent(count: u64) -> Window {
        let mut window = Window::new();
        (1..=count).for_each(|number| window.sent(number * 10));
        window
    }

    #[test]
    fn confirms_settle_one_or_all_up_to_one() {
        let mut window = sent(6);
        assert_eq!(settle(&mut window, 3, false), [(3, 30)]);
        assert_eq!(settle(&mut window, 4, true), [(1, 10), (2, 20), (4, 40)]);
        assert_eq!(window.unconfirmed(), [5, 6]);
        assert_eq!(settle(&mut window, 6, false), [(6, 60)]);
        assert_eq!(window.waiting(), 1);
        window.sent(70);
        assert_eq!(settle(&mut window, 7, true), [(5, 50), (7, 70)]);
        assert_eq!(window.waiting(), 0);
    }

    #[test]
    fn a_confirm_that_comes_twice_or_for_nothing_settles_nothing() {
        let mut window = sent(2);
        assert_eq!(settle(&mut window, 1, false), [(1, 10)]);
        assert_eq!(settle(&mut window, 1, false), []);
        assert_eq!(settle(&mut window, 1, true), []);
        assert_eq!(settle(&mut window, 9, false), []);
        assert_eq!(settle(&mut window, 0, true), []);
        assert_eq!(window.unconfirmed(), [2]);
    }
}
