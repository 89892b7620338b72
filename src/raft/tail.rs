//! How many octets of a group's log lie behind which index, for the purge: roughly, by marks.

use parking_lot::Mutex;
use std::collections::VecDeque;

/// Octets between two marks.
const MARK_BYTES: u64 = 256 * 1024;

/// Marks in one group's log. What was there before the process started is not counted.
#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<Marks>);

#[derive(Debug, Default)]
struct Marks {
    /// Index of an entry, and octets appended up to it.
    marks: VecDeque<(u64, u64)>,
    appended: u64,
}

impl Tail {
    /// The entry at `index` has been appended.
    pub(crate) fn appended(&self, index: u64, bytes: usize) {
        let mut state = self.0.lock();
        state.appended += bytes as u64;
        let last = state.marks.back().map_or(0, |(_, appended)| *appended);
        if state.appended - last >= MARK_BYTES {
            let appended = state.appended;
            state.marks.push_back((index, appended));
        }
    }

    /// The entries above `index` have been taken away.
    pub(crate) fn truncated(&self, index: Option<u64>) {
        let mut state = self.0.lock();
        while let Some((mark, appended)) = state.marks.back().copied() {
            if index.is_some_and(|index| mark <= index) {
                break;
            }
            // What lay between this mark and the one before is counted again when it returns.
            state.appended = appended.saturating_sub(MARK_BYTES);
            state.marks.pop_back();
        }
    }

    /// The highest index up to which the log can go so that about `keep` octets stay.
    pub(crate) fn purge_index(&self, keep: u64) -> Option<u64> {
        let mut state = self.0.lock();
        let limit = state.appended.checked_sub(keep)?;
        let mut found = None;
        while let Some((index, appended)) = state.marks.front().copied() {
            if appended > limit {
                break;
            }
            found = Some(index);
            state.marks.pop_front();
        }
        if let Some(index) = found {
            // Kept, so that a purge that is not carried out now is asked for again.
            state.marks.push_front((index, limit));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_octets_stay_as_are_to_be_kept() {
        let tail = Tail::default();
        assert_eq!(tail.purge_index(0), None);
        for index in 1..=1000 {
            tail.appended(index, 64 * 1024);
        }
        // 64 MB in all; 16 MiB are 256 entries.
        let index = tail.purge_index(16 << 20);
        assert!(index.is_some_and(|index| (740..=744).contains(&index)), "{index:?}");
        assert_eq!(tail.purge_index(16 << 20), index, "asked for again");
        assert_eq!(tail.purge_index(1 << 30), None);
        tail.truncated(Some(800));
        assert!(tail.purge_index(0).is_some_and(|index| index <= 800));
        tail.truncated(None);
        assert_eq!(tail.purge_index(0), None);
    }
}
