//! The returned messages of one level that wait (RQU-08), in pages: a change writes the records of
//! few messages, however many wait.

use crate::record::{DelayedRecord, QueuedMessage};
use quorate_types::{LogIndex, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Messages of so many consecutive log indexes (a power of two) are stored together.
const PAGE_INDEXES: u64 = 32;

/// Returned messages that wait, by position and by time.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    messages: BTreeMap<(LogIndex, u32), (Timestamp, QueuedMessage)>,
    /// The times at which they become ready. Derived.
    due: BTreeSet<(Timestamp, LogIndex, u32)>,
    /// Pages that have changed since the last entry.
    changed: BTreeSet<u64>,
}

fn page_of(index: LogIndex) -> u64 {
    index.0 / PAGE_INDEXES
}

impl Retries {
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message that is ready at that time.
    pub(crate) fn insert(&mut self, until: Timestamp, queued: QueuedMessage) {
        let (index, position) = (queued.message.index, queued.message.position);
        let replaced = self.messages.insert((index, position), (until, queued));
        debug_assert!(replaced.is_none(), "a message was delayed twice");
        self.due.insert((until, index, position));
        self.changed.insert(page_of(index));
    }

    /// The messages from a place on, ascending, and until when they wait.
    pub(crate) fn from(
        &self,
        start: (LogIndex, u32),
    ) -> impl Iterator<Item = (QueuedMessage, Timestamp)> + '_ {
        self.messages.range(start..).map(|(_, (until, queued))| (*queued, *until))
    }

    /// When the first message becomes ready.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, ..)| *until)
    }

    /// Removes the message that becomes ready first.
    pub(crate) fn pop_first(&mut self) -> Option<QueuedMessage> {
        let (_, index, position) = self.due.pop_first()?;
        let (_, queued) = self.messages.remove(&(index, position))?;
        self.changed.insert(page_of(index));
        Some(queued)
    }

    /// Lets no message wait longer than until that time.
    pub(crate) fn end_by(&mut self, latest: Timestamp) {
        let later = self.due.split_off(&(Timestamp(latest.0.saturating_add(1)), LogIndex(0), 0));
        for (_, index, position) in later {
            if let Some((until, _)) = self.messages.get_mut(&(index, position)) {
                *until = latest;
            }
            self.due.insert((latest, index, position));
            self.changed.insert(page_of(index));
        }
    }

    /// Removes all messages; returns the indexes of their entries.
    pub(crate) fn clear(&mut self) -> impl ExactSizeIterator<Item = LogIndex> + use<> {
        self.due.clear();
        let messages = std::mem::take(&mut self.messages);
        self.changed.extend(messages.keys().map(|(index, _)| page_of(*index)));
        messages.into_keys().map(|(index, _)| index)
    }

    /// Ends the entry; returns the changed pages.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.changed)
    }

    /// All pages that have messages, and those that have changed.
    pub(crate) fn pages(&self) -> BTreeSet<u64> {
        let present = self.messages.keys().map(|(index, _)| page_of(*index));
        present.chain(self.changed.iter().copied()).collect()
    }

    /// The messages of a page; `None` if there are none.
    pub(crate) fn page(&self, page: u64) -> Option<DelayedRecord> {
        let first = page.saturating_mul(PAGE_INDEXES);
        let last = first.saturating_add(PAGE_INDEXES - 1);
        let range = (LogIndex(first), 0)..=(LogIndex(last), u32::MAX);
        let messages: BTreeMap<_, _> =
            self.messages.range(range).map(|(place, waiting)| (*place, *waiting)).collect();
        (!messages.is_empty()).then_some(DelayedRecord { messages })
    }

    /// Adds a stored page.
    pub(crate) fn load(&mut self, record: DelayedRecord) {
        for ((index, position), (until, _)) in &record.messages {
            self.due.insert((*until, *index, *position));
        }
        self.messages.extend(record.messages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MessageHead, level};
    use quorate_types::{Level, MessageId};

    fn message(index: u64) -> QueuedMessage {
        let message = MessageId { level: Level(0), index: LogIndex(index), position: 0 };
        level::fresh(message, MessageHead::default(), Timestamp(0))
    }

    #[test]
    fn rqu_08_a_change_names_its_page_and_a_page_is_loaded_as_it_was() {
        let mut retries = Retries::default();
        for (index, until) in [(31, 500), (32, 300), (70, 400)] {
            retries.insert(Timestamp(until), message(index));
        }
        assert_eq!(retries.take_changed(), [0, 1, 2].into());
        assert_eq!(retries.pop_first(), Some(message(32)));
        assert_eq!((retries.take_changed(), retries.page(1)), ([1].into(), None));
        let mut loaded = Retries::default();
        retries.pages().into_iter().filter_map(|page| retries.page(page)).for_each(|page| {
            loaded.load(page);
        });
        assert_eq!((loaded.len(), loaded.next()), (2, Some(Timestamp(400))));
        assert!(loaded.take_changed().is_empty());
        loaded.end_by(Timestamp(450));
        assert_eq!(loaded.take_changed(), [0].into());
        assert_eq!(loaded.pop_first(), Some(message(70)));
        assert_eq!((loaded.next(), loaded.pop_first()), (Some(Timestamp(450)), Some(message(31))));
        assert_eq!(retries.clear().collect::<Vec<_>>(), [LogIndex(31), LogIndex(70)]);
        assert_eq!((retries.take_changed(), retries.next()), ([0, 2].into(), None));
    }
}
