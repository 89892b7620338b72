//! How long messages waited in the queues that this node leads. Every replica counts, so what one
//! has counted before it leads is not added: each message counts on one node.

use crate::views::figures::Waits;
use parking_lot::Mutex;
use quorate_types::{Home, Term};
use std::collections::BTreeMap;

/// The sum of what the led homes have counted.
#[derive(Debug, Default)]
pub(crate) struct LedWaits(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// What each home showed last, and in which term.
    homes: BTreeMap<Home, (Term, Waits)>,
    sum: Waits,
}

impl LedWaits {
    /// Adds what homes have counted since the last call. What a home showed when it was first seen in
    /// a term is where it begins.
    pub(crate) fn update(&self, homes: impl IntoIterator<Item = (Home, Term, Waits)>) -> Waits {
        let mut seen = self.0.lock();
        let Seen { homes: known, sum } = &mut *seen;
        let mut led = BTreeMap::new();
        for (home, term, now) in homes {
            if let Some((_, before)) = known.get(&home).filter(|(of, _)| *of == term) {
                sum.sum_ms += now.sum_ms.saturating_sub(before.sum_ms);
                for ((sum, now), before) in sum.counts.iter_mut().zip(now.counts).zip(before.counts)
                {
                    *sum += now.saturating_sub(before);
                }
            }
            led.insert(home, (term, now));
        }
        *known = led;
        *sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::GroupId;

    #[test]
    fn what_was_counted_under_another_leader_is_not_added() {
        let home = Home::Group(GroupId(1));
        let waits = |count| {
            let mut waits = Waits { sum_ms: count, ..Waits::default() };
            waits.counts[0] = count;
            waits
        };
        let led = LedWaits::default();
        let seen = |term, count| led.update([(home, Term(term), waits(count))]).sum_ms;
        assert_eq!([seen(1, 10), seen(1, 13), seen(3, 50), seen(3, 51)], [0, 3, 3, 4]);
    }
}
