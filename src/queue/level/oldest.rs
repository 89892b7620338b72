//! How old the oldest ready message of a level is, for lists.

use super::{LevelState, Place};
use crate::store::MessageStore;
use quorate_types::{LogIndex, Timestamp};

impl LevelState {
    /// When the oldest ready message was enqueued, without a read of the store: if its head is not in
    /// memory, the time of the message before it, which is a little earlier. `None`: there is no
    /// message, or its time is not known.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        if let Some((_, queued)) = self.requeued.first_key_value() {
            return Some(queued.enqueued_at);
        }
        let head = self.window.front().or(self.first.as_ref()).map(|queued| queued.enqueued_at);
        head.or(self.passed).filter(|_| self.record.fresh > 0)
    }

    /// Reads for [`LevelState::oldest`] when the first fresh message was enqueued, after a start.
    pub(crate) fn learn_oldest(&mut self, place: Place, store: &dyn MessageStore) {
        if self.record.fresh > 0 {
            let (first, last) = (self.record.head_index, LogIndex(u64::MAX - 1));
            // A fault of the disk is found when the message is needed.
            let runs = store.runs(place.queue, place.level, first, last, 1).unwrap_or_default();
            self.passed = runs.first().map(|run| run.time);
        }
    }
}
