//! Groups whose names and queues are to be compared.

use crate::leader::reconcile_plan::Schedule;
use parking_lot::Mutex;
use quorate_types::GroupId;

/// Groups to be compared at the next check.
#[derive(Debug, Default)]
pub(crate) struct Reconciler(pub(crate) Mutex<Schedule>);

impl Reconciler {
    /// Records that a leadership of the group has begun.
    pub(crate) fn compare(&self, group: GroupId) {
        self.0.lock().begin(group);
    }
}
