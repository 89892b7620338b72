//! Whether this node may lead: not while its disk hangs, not while it is drained, and not while it is
//! about to stop.

use std::sync::atomic::{AtomicBool, Ordering};

/// The reasons for which a node may not lead.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    stalled: AtomicBool,
    drained: AtomicBool,
    leaving: AtomicBool,
}

impl Gate {
    /// True if the node may take leaderships.
    pub(crate) fn may_lead(&self) -> bool {
        self.may_lead_at_last() && !self.is_drained()
    }

    /// True if the node may take leaderships that no other node can take: a drained one may.
    pub(crate) fn may_lead_at_last(&self) -> bool {
        !self.stalled.load(Ordering::Acquire) && !self.is_leaving()
    }

    /// Records whether the disk hangs; returns whether that has changed.
    pub(crate) fn set_stalled(&self, stalled: bool) -> bool {
        self.stalled.swap(stalled, Ordering::AcqRel) != stalled
    }

    /// True if the node is drained.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Records whether the node is drained; returns whether that has changed.
    pub(crate) fn set_drained(&self, drained: bool) -> bool {
        self.drained.swap(drained, Ordering::AcqRel) != drained
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
