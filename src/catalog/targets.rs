//! The destinations of the bindings under one key of a direct exchange, one pattern of a topic
//! exchange, or a whole fanout exchange: each queue and exchange once, however many bindings name
//! it (BND-03, RTE-10).

use crate::{named::NameHash, objects::Destination};
use quorate_types::{QueueId, ShortString};
use std::{collections::HashMap, hash::Hash};

/// Above this number of items a list has an index by item, so that adding and removing stay cheap.
const INDEXED_ABOVE: usize = 16;
/// Below this number the index is dropped again.
const UNINDEXED_BELOW: usize = 8;

/// The destinations under one key, pattern or exchange.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Targets {
    queues: Counted<QueueId>,
    exchanges: Counted<ShortString>,
}

impl Targets {
    /// Adds a binding to the destination.
    pub(crate) fn add(&mut self, destination: &Destination) {
        match destination {
            Destination::Queue { id, .. } => self.queues.add(*id),
            Destination::Exchange(name) => self.exchanges.add(name.clone()),
        }
    }

    /// Removes a binding to the destination.
    pub(crate) fn remove(&mut self, destination: &Destination) {
        match destination {
            Destination::Queue { id, .. } => self.queues.remove(id),
            Destination::Exchange(name) => self.exchanges.remove(name),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.items.is_empty() && self.exchanges.items.is_empty()
    }

    /// Queues, each once, in no particular order.
    pub(crate) fn queues(&self) -> impl ExactSizeIterator<Item = QueueId> {
        self.queues.items.iter().map(|(queue, _)| *queue)
    }

    /// Exchanges, each once, in no particular order.
    pub(crate) fn exchanges(&self) -> impl ExactSizeIterator<Item = &ShortString> {
        self.exchanges.items.iter().map(|(name, _)| name)
    }
}

/// Items with the number of bindings to each. Reads use the plain list; writes to a large list use
/// an index too.
#[derive(Clone, Debug)]
struct Counted<T> {
    items: Vec<(T, u32)>,
    #[expect(clippy::box_collection, reason = "most lists are small: 8 bytes instead of 32")]
    places: Option<Box<HashMap<T, usize, NameHash>>>,
}

impl<T> Default for Counted<T> {
    fn default() -> Self {
        Self { items: Vec::new(), places: None }
    }
}

impl<T: Clone + Ord> PartialEq for Counted<T> {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |items: &[(T, u32)]| {
            let mut items = items.to_vec();
            items.sort();
            items
        };
        self.items.len() == other.items.len() && sorted(&self.items) == sorted(&other.items)
    }
}

impl<T: Clone + Eq + Hash> Counted<T> {
    fn add(&mut self, item: T) {
        if let Some((_, count)) = self.place(&item).and_then(|place| self.items.get_mut(place)) {
            *count += 1;
            return;
        }
        if let Some(places) = &mut self.places {
            places.insert(item.clone(), self.items.len());
        }
        self.items.push((item, 1));
        if self.places.is_none() && self.items.len() > INDEXED_ABOVE {
            let places =
                self.items.iter().enumerate().map(|(place, (item, _))| (item.clone(), place));
            self.places = Some(Box::new(places.collect()));
        }
    }

    fn remove(&mut self, item: &T) {
        let Some(place) = self.place(item) else { return };
        let Some((_, count)) = self.items.get_mut(place) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.items.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(item);
            if let Some((moved, _)) = self.items.get(place) {
                places.insert(moved.clone(), place);
            }
        }
        if self.items.len() < UNINDEXED_BELOW {
            self.places = None;
        }
        if self.items.is_empty() {
            self.items = Vec::new();
        }
    }

    fn place(&self, item: &T) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(item).copied(),
            None => self.items.iter().position(|(present, _)| present == item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// After any additions and removals the list holds each item once with its count, and the
        /// index of a large list agrees with it.
        #[test]
        fn counted_list_agrees_with_a_map(steps in prop::collection::vec((0u16..40, any::<bool>()), 0..400)) {
            let mut list = Counted::default();
            let mut model = BTreeMap::<u16, u32>::new();
            for (item, add) in steps {
                if add {
                    list.add(item);
                    *model.entry(item).or_default() += 1;
                } else {
                    list.remove(&item);
                    if let Some(count) = model.get_mut(&item) {
                        *count -= 1;
                    }
                    model.retain(|_, count| *count > 0);
                }
                let mut items = list.items.clone();
                items.sort_unstable();
                prop_assert_eq!(items, model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
                if let Some(places) = &list.places {
                    prop_assert_eq!(places.len(), list.items.len());
                    for (place, (item, _)) in list.items.iter().enumerate() {
                        prop_assert_eq!(places[item], place);
                    }
                }
            }
        }
    }
}
