//! Sets of letters' numbers, stored as ranges: the numbers of waiting letters are nearly always
//! consecutive.

use quorate_types::LetterNumber;
use std::collections::BTreeMap;

/// A set of numbers.
#[derive(Debug, Default)]
pub(crate) struct NumberSet {
    /// First number of each range, with its last number. Ranges neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl NumberSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The range that contains the number.
    fn range_of(&self, number: u64) -> Option<(u64, u64)> {
        let (first, last) = self.ranges.range(..=number).next_back()?;
        (number <= *last).then_some((*first, *last))
    }

    /// Adds a number.
    pub(crate) fn insert(&mut self, number: LetterNumber) {
        let LetterNumber(number) = number;
        if self.range_of(number).is_some() {
            return;
        }
        let before = number.checked_sub(1).and_then(|before| self.range_of(before));
        let first = before.map_or(number, |(first, _)| first);
        let last =
            number.checked_add(1).and_then(|after| self.ranges.remove(&after)).unwrap_or(number);
        self.ranges.insert(first, last);
    }

    /// Removes a number; false if the set does not contain it.
    pub(crate) fn remove(&mut self, number: LetterNumber) -> bool {
        let LetterNumber(number) = number;
        let Some((first, last)) = self.range_of(number) else { return false };
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
        true
    }

    /// The numbers from `from` on, ascending.
    pub(crate) fn range(&self, from: LetterNumber) -> impl Iterator<Item = LetterNumber> + '_ {
        let LetterNumber(from) = from;
        let first = self.range_of(from).map_or(from, |(first, _)| first);
        let ranges = self.ranges.range(first..);
        ranges.flat_map(move |(first, last)| (*first).max(from)..=*last).map(LetterNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((any::<bool>(), 0..24u64), 0..200)) {
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for (add, number) in steps {
                if add {
                    set.insert(LetterNumber(number));
                    model.insert(number);
                } else {
                    prop_assert_eq!(set.remove(LetterNumber(number)), model.remove(&number));
                }
                for from in [0, 7, 23] {
                    let numbers: Vec<_> = set.range(LetterNumber(from)).map(|it| it.0).collect();
                    let expected: Vec<_> = model.range(from..).copied().collect();
                    prop_assert_eq!(numbers, expected);
                }
                prop_assert_eq!(set.is_empty(), model.is_empty());
                // Adjacent ranges are merged.
                let follow = set.ranges.values().zip(set.ranges.keys().skip(1));
                prop_assert!(follow.into_iter().all(|(last, next)| last + 1 < *next));
            }
        }
    }
}
