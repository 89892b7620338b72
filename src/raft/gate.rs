//! Whether this node may lead: not while its disk hangs, and not while it is about to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// The reasons for which a node may not lead.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stalled: AtomicBool,
    leaving: AtomicBool,
}

impl Gate {
    /// True if the node may take leaderships.
    pub(crate) fn may_lead(&self) -> bool {
        !self.stalled.load(Ordering::Acquire) && !self.leaving.load(Ordering::Acquire)
    }

    /// Records whether the disk hangs; returns whether that has changed.
    pub(crate) fn set_stalled(&self, stalled: bool) -> bool {
        self.stalled.swap(stalled, Ordering::AcqRel) != stalled
    }

    /// True if the node is about to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Acquire)
    }

    /// Records that the node is about to stop.
    pub(crate) fn set_leaving(&self) {
        self.leaving.store(true, Ordering::Release);
    }
}
