//! What is known of the other nodes' processes: which are dead, which cannot be reached. The
//! conclusions are `liveness`.

use crate::cluster::liveness::{Absences, Accusations};
use parking_lot::Mutex;
use quorate_types::NodeId;
use tokio::time::Instant;

/// What is known of the other nodes' processes.
#[derive(Debug)]
pub(crate) struct Failures {
    pub(crate) accusations: Mutex<Accusations>,
    pub(crate) absences: Mutex<Absences>,
}

impl Failures {
    /// Of a process that has not been linked with anybody.
    pub(crate) fn new(me: NodeId, members: &[NodeId]) -> Self {
        let absences = Absences::new(Instant::now(), me, members);
        Self { accusations: Mutex::default(), absences: Mutex::new(absences) }
    }
}
