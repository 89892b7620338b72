//! What this node knows of the other nodes' processes: which are dead, and which cannot be reached.
//! `liveness` draws the conclusions.

use crate::cluster::liveness::{Absences, Accusations};
use parking_lot::Mutex;
use quorate_types::NodeId;
use tokio::time::Instant;

/// What this node knows of the other nodes' processes.
#[derive(Debug)]
pub(crate) struct Failures {
    pub(crate) accusations: Mutex<Accusations>,
    pub(crate) absences: Mutex<Absences>,
}

impl Failures {
    /// State of a process that has not been linked with any other.
    pub(crate) fn new(me: NodeId, members: &[NodeId]) -> Self {
        let absences = Absences::new(Instant::now(), me, members);
        Self { accusations: Mutex::default(), absences: Mutex::new(absences) }
    }
}
