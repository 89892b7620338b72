//! Transfers of letters, by ascending numbers (of a stream, or of routings). Transfers at equal
//! distances are stored as one series, since a queue's letters mostly go to few targets, and a
//! million of them may be in flight.

use crate::outbox::TransferKey;
use quorate_types::LetterNumber;
use std::collections::BTreeMap;

/// Transfers by number.
#[derive(Debug, Default)]
pub(crate) struct TransferMap {
    /// Series by their first keys. The keys of two series may interleave only in gaps that neither
    /// uses.
    series: BTreeMap<u64, Series>,
    count: u64,
}

/// Transfers at equal distances, from the same queue into the same target.
#[derive(Clone, Copy, Debug)]
struct Series {
    first: TransferKey,
    /// Number of transfers, at least 1.
    count: u64,
    /// Distance between consecutive keys, and between their letters; at least 1 if there are two
    /// transfers.
    key_step: u64,
    letter_step: u64,
}

impl Series {
    fn one(transfer: TransferKey) -> Self {
        Self { first: transfer, count: 1, key_step: 1, letter_step: 1 }
    }

    /// The key of its last transfer, given its first key.
    fn last_key(&self, first_key: u64) -> u64 {
        first_key + (self.count - 1) * self.key_step
    }

    /// The transfer at an index, from 0.
    fn transfer(&self, place: u64) -> TransferKey {
        let letter = LetterNumber(self.first.letter.0 + place * self.letter_step);
        TransferKey { letter, ..self.first }
    }

    /// The index of a key, if the series contains it.
    fn place_of(&self, first_key: u64, key: u64) -> Option<u64> {
        let distance = key.checked_sub(first_key)?;
        let place = distance / self.key_step;
        (distance.is_multiple_of(self.key_step) && place < self.count).then_some(place)
    }

    /// The rest of the series from an index on.
    fn beginning_at(&self, place: u64) -> Option<Self> {
        let count = self.count.checked_sub(place).filter(|count| *count > 0)?;
        Some(Self { first: self.transfer(place), count, ..*self })
    }

    /// Appends one transfer; false if it does not fit.
    fn extend(&mut self, first_key: u64, key: u64, transfer: TransferKey) -> bool {
        if (self.first.queue, self.first.target) != (transfer.queue, transfer.target) {
            return false;
        }
        let last = self.transfer(self.count - 1);
        let key_step = key.checked_sub(self.last_key(first_key));
        let letter_step = transfer.letter.0.checked_sub(last.letter.0);
        let (Some(key_step), Some(letter_step)) = (key_step, letter_step) else { return false };
        if key_step == 0 || letter_step == 0 {
            return false;
        }
        if self.count == 1 {
            (self.key_step, self.letter_step) = (key_step, letter_step);
        }
        let fits = (self.key_step, self.letter_step) == (key_step, letter_step);
        self.count += u64::from(fits);
        fits
    }
}

impl TransferMap {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// The lowest key.
    pub(crate) fn first_key(&self) -> Option<u64> {
        self.series.first_key_value().map(|(key, _)| *key)
    }

    /// Adds a transfer under a key that is not in the map.
    pub(crate) fn insert(&mut self, key: u64, transfer: TransferKey) {
        self.count += 1;
        if let Some((&first_key, series)) = self.series.range_mut(..key).next_back() {
            if series.last_key(first_key) > key {
                self.part(first_key, key);
            } else if series.extend(first_key, key, transfer) {
                return;
            }
        }
        self.series.insert(key, Series::one(transfer));
    }

    /// Splits the series so that one begins above `key`.
    fn part(&mut self, first_key: u64, key: u64) {
        let Some(series) = self.series.get_mut(&first_key) else { return };
        let below = (key - first_key).div_ceil(series.key_step);
        let rest = series.beginning_at(below);
        let rest_key = first_key + below * series.key_step;
        series.count = below;
        if let Some(rest) = rest {
            self.series.insert(rest_key, rest);
        }
    }

    /// Removes a transfer.
    pub(crate) fn remove(&mut self, key: u64) -> Option<TransferKey> {
        let (&first_key, series) = self.series.range(..=key).next_back()?;
        let place = series.place_of(first_key, key)?;
        let series = self.series.remove(&first_key)?;
        self.count -= 1;
        if place > 0 {
            self.series.insert(first_key, Series { count: place, ..series });
        }
        if let Some(rest) = series.beginning_at(place + 1) {
            self.series.insert(key + series.key_step, rest);
        }
        Some(series.transfer(place))
    }

    /// Removes the first transfer.
    pub(crate) fn pop_first(&mut self) -> Option<(u64, TransferKey)> {
        let key = self.first_key()?;
        self.remove(key).map(|transfer| (key, transfer))
    }

    /// The transfers from a key on, ascending.
    pub(crate) fn range(&self, from: u64) -> impl Iterator<Item = (u64, TransferKey)> + '_ {
        let first = self.series.range(..=from).next_back().map_or(from, |(key, _)| *key);
        let all = self.series.range(first..).flat_map(|(key, series)| {
            (0..series.count)
                .map(move |place| (key + place * series.key_step, series.transfer(place)))
        });
        // Only the first series may begin below; its earlier transfers are skipped without a scan.
        let skipped = self.series.get(&first).map_or(0, |series| {
            from.saturating_sub(first).div_ceil(series.key_step).min(series.count)
        });
        all.skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quorate_types::{GroupId, Home, QueueId};

    fn transfer(queue: u64, letter: u64, target: u64) -> TransferKey {
        let id = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
        TransferKey { queue: id(queue), letter: LetterNumber(letter), target: id(target) }
    }

    #[derive(Clone, Debug)]
    enum Do {
        Insert(u64, TransferKey),
        Remove(u64),
        Pop,
        /// Several transfers at equal distances.
        Many {
            key: u64,
            step: u64,
            letter: u64,
            letter_step: u64,
            count: u64,
        },
    }

    fn step() -> impl Strategy<Value = Do> {
        prop_oneof![
            (0..60u64, 0..2u64, 0..60u64, 0..2u64).prop_map(|(key, queue, letter, target)| {
                Do::Insert(key, transfer(queue, letter, target))
            }),
            (0..60u64).prop_map(Do::Remove),
            Just(Do::Pop),
            (0..60u64, 1..4u64, 0..60u64, 1..4u64, 1..12u64).prop_map(
                |(key, step, letter, letter_step, count)| Do::Many {
                    key,
                    step,
                    letter,
                    letter_step,
                    count
                }
            ),
        ]
    }

    fn insert(
        transfers: &mut TransferMap,
        model: &mut BTreeMap<u64, TransferKey>,
        key: u64,
        transfer: TransferKey,
    ) {
        if let std::collections::btree_map::Entry::Vacant(place) = model.entry(key) {
            place.insert(transfer);
            transfers.insert(key, transfer);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut transfers, mut model) = (TransferMap::default(), BTreeMap::new());
            for one in steps {
                match one {
                    Do::Insert(key, transfer) => insert(&mut transfers, &mut model, key, transfer),
                    Do::Remove(key) => prop_assert_eq!(transfers.remove(key), model.remove(&key)),
                    Do::Pop => prop_assert_eq!(transfers.pop_first(), model.pop_first()),
                    Do::Many { key, step, letter, letter_step, count } => {
                        for place in 0..count {
                            let transfer = transfer(1, letter + place * letter_step, 1);
                            insert(&mut transfers, &mut model, key + place * step, transfer);
                        }
                    }
                }
                for from in [0, 13, 40, 99] {
                    let found: Vec<_> = transfers.range(from).collect();
                    let expected: Vec<_> =
                        model.range(from..).map(|(key, transfer)| (*key, *transfer)).collect();
                    prop_assert_eq!(found, expected);
                }
                prop_assert_eq!(transfers.len(), model.len() as u64);
                prop_assert_eq!(transfers.first_key(), model.keys().next().copied());
            }
        }
    }

    #[test]
    fn what_follows_each_other_is_one_series() {
        let mut transfers = TransferMap::default();
        for place in 0..1_000 {
            transfers.insert(place, transfer(1, place * 3, 1));
        }
        assert_eq!(transfers.series.len(), 1);
        assert_eq!(transfers.remove(500), Some(transfer(1, 1_500, 1)));
        assert_eq!(transfers.series.len(), 2);
    }
}
