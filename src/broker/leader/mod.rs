//! The leader: what a node does for the groups that it leads. The steps are in `executor`, `lead`,
//! `liveness` and `reconcile`.

pub(crate) mod bodies;
pub(crate) mod clock;
pub(crate) mod dead_letter;
pub(crate) mod enqueue_options;
pub(crate) mod executor;
pub(crate) mod lead;
pub(crate) mod leaderships;
pub(crate) mod led_homes;
pub(crate) mod local;
pub(crate) mod reconcile;
pub(crate) mod reconcile_plan;
pub(crate) mod reconciler;
pub(crate) mod redrive;
pub(crate) mod sequencer;
pub(crate) mod spill;
pub(crate) mod timer;

use crate::{
    base::Base,
    cluster::failures::Failures,
    leader::{dead_letter::DeadLetters, reconciler::Reconciler, timer::Timer},
    names::queues::Queues,
};
use parking_lot::Mutex;
use quorate_types::{GroupId, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What a node needs as a leader.
#[derive(Debug)]
pub(crate) struct Leader {
    pub(crate) base: Base,
    pub(crate) letters: Arc<DeadLetters>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) failures: Arc<Failures>,
    pub(crate) reconciler: Reconciler,
    /// Leaderships that were reported before the broker was started, with their terms.
    pub(crate) early: Mutex<BTreeMap<GroupId, Term>>,
    /// Groups in which this node will soon announce its leadership again.
    pub(crate) reannouncing: Mutex<BTreeSet<GroupId>>,
}

impl Leader {
    /// State of a node that leads no group.
    pub(crate) fn new(
        base: &Base,
        letters: &Arc<DeadLetters>,
        timer: &Arc<Timer>,
        queues: &Arc<Queues>,
        failures: &Arc<Failures>,
    ) -> Self {
        Self {
            base: base.clone(),
            letters: Arc::clone(letters),
            timer: Arc::clone(timer),
            queues: Arc::clone(queues),
            failures: Arc::clone(failures),
            reconciler: Reconciler::default(),
            early: Mutex::default(),
            reannouncing: Mutex::default(),
        }
    }
}
