//! How old the oldest ready message of a level is, for lists.

use super::{LevelState, Place};
use crate::store::{MessageStore, RunHead};
use quorate_types::{LogIndex, Timestamp};

/// Runs that are read after a start to find the first one that has a fresh message. The runs before it
/// have gaps only, for example letters that were refused on arrival (LEN-12). If none of these runs has
/// a fresh message, the time of the first run is taken, which is earlier.
const RUNS_MAX: usize = 64;

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

    /// Reads for [`LevelState::oldest`] when the first fresh message was enqueued, after a start from a
    /// checkpoint through the entry `applied`. The store may have runs of later entries.
    pub(crate) fn learn_oldest(
        &mut self,
        place: Place,
        store: &dyn MessageStore,
        applied: LogIndex,
    ) {
        if self.record.fresh > 0 {
            let first = self.record.head_index;
            // The first run nearly always has one.
            for most in [1, RUNS_MAX] {
                // A fault of the disk is found when the message is needed.
                let runs = store.runs(place.queue, place.level, first, applied, most);
                let runs = runs.unwrap_or_default();
                let found = runs.iter().find(|run| self.has_fresh(run));
                self.passed = found.or(runs.first()).map(|run| run.time);
                if found.is_some() {
                    break;
                }
            }
        }
    }

    fn has_fresh(&self, run: &RunHead) -> bool {
        let mut messages = (0u32..).zip(&run.messages);
        messages.any(|(position, it)| it.is_some() && self.is_ahead((run.index, position)))
    }
}
