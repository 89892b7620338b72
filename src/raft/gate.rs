//! Whether this node may lead: not while its disk hangs, and not while it is about to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// What keeps a node from leading.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stalled: AtomicBool,
    leaving: AtomicBool,
}

impl Gate {
    /// Whether leaderships are taken.
    pub(crate) fn may_lead(&self) -> bool {
        !self.stalled.load(Ordering::Acquire) && !self.leaving.load(Ordering::Acquire)
    }

    /// Records whether the disk hangs; returns whether that has changed.
    pub(crate) fn set_stalled(&self, stalled: bool) -> bool {
        self.stalled.swap(stalled, Ordering::AcqRel) != stalled
    }

    /// Whether the node is about to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// The node is about to stop.
    pub(crate) fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }
}
