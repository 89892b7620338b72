//! Runs with cut messages whose checkpoint is not written yet (STO 4). The apply task of a group records
//! them; every read of the group's run heads shows them.

use crate::codec::key::RunKey;
use parking_lot::Mutex;
use quorate_queue::RunHead;
use quorate_types::{Level, QueueId};
use std::{collections::BTreeMap, sync::Arc};

/// A run's head without what was cut; `None`: all messages were cut.
pub(crate) type CutHead = Option<Arc<RunHead>>;

/// The cut runs of one group.
#[derive(Default)]
pub(crate) struct Cuts(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    runs: BTreeMap<RunKey, Cut>,
    /// How often runs were forgotten because their checkpoint is written.
    forgotten: u64,
}

struct Cut {
    head: CutHead,
    /// Checkpoint that contains the cut; `None`: the next one.
    checkpoint: Option<u64>,
}

impl Cuts {
    /// Records a cut, which the next checkpoint contains.
    pub(crate) fn insert(&self, run: RunKey, head: CutHead) {
        self.0.lock().runs.insert(run, Cut { head, checkpoint: None });
    }

    /// The head of a run with cuts; `None`: it has none.
    pub(crate) fn get(&self, run: RunKey) -> Option<CutHead> {
        self.0.lock().runs.get(&run).map(|cut| cut.head.clone())
    }

    /// What [`Cuts::show`] must be given, read before the heads.
    pub(crate) fn forgotten(&self) -> u64 {
        self.0.lock().forgotten
    }

    /// Heads as reads show them, without runs that were cut completely. `None`: cuts were forgotten since
    /// `forgotten`, so the heads may have been read before they were written, and must be read again.
    pub(crate) fn show(
        &self,
        (queue, level): (QueueId, Level),
        heads: Vec<Arc<RunHead>>,
        forgotten: u64,
    ) -> Option<Vec<RunHead>> {
        let cuts = self.0.lock();
        if cuts.forgotten != forgotten {
            return None;
        }
        let shown = heads.into_iter().filter_map(|head| {
            match cuts.runs.get(&RunKey { queue, level, index: head.index }) {
                Some(Cut { head: None, .. }) => None,
                Some(Cut { head: Some(cut), .. }) => Some(RunHead::clone(cut)),
                None => Some(Arc::unwrap_or_clone(head)),
            }
        });
        Some(shown.collect())
    }

    /// The runs that checkpoint `made` contains first. Those of checkpoints up to `written` are forgotten.
    pub(crate) fn take(&self, made: u64, written: u64) -> Vec<(RunKey, CutHead)> {
        let mut cuts = self.0.lock();
        let before = cuts.runs.len();
        cuts.runs.retain(|_, cut| cut.checkpoint.is_none_or(|number| number > written));
        cuts.forgotten += u64::from(cuts.runs.len() < before);
        let mut taken = Vec::new();
        for (run, cut) in &mut cuts.runs {
            if cut.checkpoint.is_none() {
                cut.checkpoint = Some(made);
                taken.push((*run, cut.head.clone()));
            }
        }
        taken
    }

    /// True if checkpoints contain all of them.
    pub(crate) fn are_taken(&self) -> bool {
        self.0.lock().runs.values().all(|cut| cut.checkpoint.is_some())
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().runs.len()
    }

    /// Forgets all: the state begins from a checkpoint or a snapshot.
    pub(crate) fn clear(&self) {
        let mut cuts = self.0.lock();
        cuts.runs.clear();
        cuts.forgotten += 1;
    }
}
