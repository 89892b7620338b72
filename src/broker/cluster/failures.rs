//! What this node knows of the other nodes' processes: which are dead, and which cannot be reached.
//! `liveness` draws the conclusions.

use crate::{
    cluster::liveness::{Absences, Accusations},
    context::Context,
};
use parking_lot::Mutex;
use quorate_types::NodeId;
use std::time::Duration;
use tokio::time::Instant;

/// A node that cannot be reached for that long may never return.
const GONE_AFTER: Duration = Duration::from_secs(30);

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

    /// True if the node may never return: no process of it has been reached for long.
    pub(crate) fn is_gone(&self, context: &Context, node: NodeId) -> bool {
        let away_for = self.absences.lock().time(Instant::now(), node);
        away_for.is_some_and(|time| time >= GONE_AFTER) && !context.seems_to_live(node)
    }
}
