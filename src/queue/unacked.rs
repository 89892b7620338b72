//! Unacked messages of one consumer, by delivery number. Numbers ascend and are mostly settled from
//! the front, so a ring buffer with holes is used, not a tree.

use crate::record::QueuedMessage;
use quorate_types::DeliveryNumber;
use std::collections::{BTreeMap, VecDeque};

/// Number of holes up to which the ring is not compacted.
const HOLES_MIN: usize = 32;

/// Deliveries in ascending order of number. The first and the last slot are never holes, and at
/// most half of the slots, or [`HOLES_MIN`], are holes, so that memory is proportional to the
/// number of messages.
#[derive(Debug, Default)]
pub(crate) struct UnackedSet {
    slots: VecDeque<Slot>,
    holes: usize,
}

#[derive(Debug)]
struct Slot {
    number: DeliveryNumber,
    message: Option<QueuedMessage>,
}

impl UnackedSet {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.holes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a delivery; its number is higher than all others.
    #[inline]
    pub(crate) fn push(&mut self, number: DeliveryNumber, queued: QueuedMessage) {
        debug_assert!(self.slots.back().is_none_or(|last| last.number < number));
        self.slots.push_back(Slot { number, message: Some(queued) });
    }

    /// Removes the deliveries from `first` to `last`, at most `limit`, in ascending order. Returns
    /// their number.
    pub(crate) fn take(
        &mut self,
        first: DeliveryNumber,
        last: DeliveryNumber,
        limit: usize,
        mut each: impl FnMut(QueuedMessage),
    ) -> usize {
        let mut taken = 0;
        if self.slots.front().is_some_and(|front| front.number >= first) {
            while taken < limit && self.slots.front().is_some_and(|front| front.number <= last) {
                let Some(slot) = self.slots.pop_front() else { break };
                match slot.message {
                    Some(queued) => {
                        each(queued);
                        taken += 1;
                    }
                    None => self.holes -= 1,
                }
            }
        } else {
            let start = self.slots.partition_point(|slot| slot.number < first);
            for slot in self.slots.range_mut(start..) {
                if slot.number > last || taken == limit {
                    break;
                }
                if let Some(queued) = slot.message.take() {
                    each(queued);
                    taken += 1;
                }
            }
            self.holes += taken;
        }
        self.tidy();
        taken
    }

    /// Deliveries above `after`, ascending.
    pub(crate) fn above(
        &self,
        after: DeliveryNumber,
    ) -> impl Iterator<Item = (DeliveryNumber, QueuedMessage)> + '_ {
        let start = self.slots.partition_point(|slot| slot.number <= after);
        self.slots.range(start..).filter_map(|slot| Some((slot.number, slot.message?)))
    }

    /// The oldest delivery.
    pub(crate) fn oldest(&self) -> Option<QueuedMessage> {
        self.slots.front().and_then(|slot| slot.message)
    }

    pub(crate) fn to_map(&self) -> BTreeMap<DeliveryNumber, QueuedMessage> {
        self.above(DeliveryNumber(0)).collect()
    }

    pub(crate) fn from_map(map: BTreeMap<DeliveryNumber, QueuedMessage>) -> Self {
        let slots = map.into_iter().map(|(number, queued)| Slot { number, message: Some(queued) });
        Self { slots: slots.collect(), holes: 0 }
    }

    /// Releases memory that an earlier burst used.
    pub(crate) fn trim(&mut self) {
        if self.slots.capacity() > 64 && self.slots.capacity() > self.slots.len() * 4 {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    fn tidy(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.message.is_none()) {
            self.slots.pop_front();
            self.holes -= 1;
        }
        while self.slots.back().is_some_and(|slot| slot.message.is_none()) {
            self.slots.pop_back();
            self.holes -= 1;
        }
        if self.holes > HOLES_MIN && self.holes > self.slots.len() / 2 {
            self.slots.retain(|slot| slot.message.is_some());
            self.holes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UnackedSet;
    use crate::record::QueuedMessage;
    use proptest::prelude::*;
    use quorate_types::{DeliveryNumber, Level, LogIndex, MessageId, Timestamp};
    use std::collections::BTreeMap;

    fn queued(number: u64) -> QueuedMessage {
        QueuedMessage {
            message: MessageId { level: Level(0), index: LogIndex(number), position: 0 },
            counts: crate::Counts::default(),
            head: crate::MessageHead::default(),
            enqueued_at: Timestamp(0),
            unacked_since: Timestamp(0),
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_tree(steps in prop::collection::vec((0u64..3, 0u64..400, 0u64..60, 0usize..80), 1..300)) {
            let mut set = UnackedSet::default();
            let mut tree = BTreeMap::new();
            let mut next = 1;
            for (kind, first, length, limit) in steps {
                if kind == 0 {
                    for _ in 0..length {
                        set.push(DeliveryNumber(next), queued(next));
                        tree.insert(DeliveryNumber(next), queued(next));
                        next += 1;
                    }
                } else {
                    let (first, last) = (DeliveryNumber(first), DeliveryNumber(first + length));
                    let mut got = Vec::new();
                    let taken = set.take(first, last, limit, |queued| got.push(queued));
                    let keys: Vec<_> = tree.range(first..=last).take(limit).map(|(k, _)| *k).collect();
                    let expected: Vec<_> = keys.iter().filter_map(|k| tree.remove(k)).collect();
                    prop_assert_eq!(taken, expected.len());
                    prop_assert_eq!(got, expected);
                }
                prop_assert_eq!(set.len(), tree.len());
                prop_assert_eq!(set.is_empty(), tree.is_empty());
                prop_assert_eq!(set.to_map(), tree.clone());
                prop_assert!(set.slots.len() <= 2 * set.len() + 2 * super::HOLES_MIN + 1);
                prop_assert_eq!(set.above(DeliveryNumber(first)).count(), tree.range(DeliveryNumber(first + 1)..).count());
            }
        }
    }
}
