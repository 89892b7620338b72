//! Groups whose names and queues are to be compared.

use parking_lot::Mutex;
use quorate_types::GroupId;
use std::collections::BTreeSet;

/// Groups whose names are to be compared at the next look.
#[derive(Debug, Default)]
pub(crate) struct Reconciler(pub(crate) Mutex<BTreeSet<GroupId>>);

impl Reconciler {
    /// A leadership of the group has begun.
    pub(crate) fn compare(&self, group: GroupId) {
        self.0.lock().insert(group);
    }
}
