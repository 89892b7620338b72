//! The versions of the replicated machine that hellos carry (MEM 15).

use quorate_types::MachineVersion;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The newest version that this node admits to know, and the cluster's present one. Shared; the
/// present one grows as the catalog is applied.
#[derive(Clone, Debug)]
pub struct MachineCell {
    newest: MachineVersion,
    present: Arc<AtomicU32>,
}

impl MachineCell {
    /// A cell for a node that knows versions up to this one.
    #[must_use]
    pub fn new(newest: MachineVersion) -> Self {
        Self { newest, present: Arc::new(AtomicU32::new(MachineVersion::FIRST.0)) }
    }

    /// The newest version that this node admits to know.
    #[must_use]
    pub fn newest(&self) -> MachineVersion {
        self.newest.max(self.present())
    }

    /// The cluster's present version, as far as this node knows.
    #[must_use]
    pub fn present(&self) -> MachineVersion {
        MachineVersion(self.present.load(Ordering::Acquire))
    }

    /// The cluster has this version now. From now on nodes that do not know it are refused.
    pub fn raise(&self, present: MachineVersion) {
        self.present.fetch_max(present.0, Ordering::AcqRel);
    }
}

impl Default for MachineCell {
    fn default() -> Self {
        Self::new(MachineVersion::NEWEST)
    }
}
