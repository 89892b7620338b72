//! This node as a member of its cluster: its starts, the other nodes' failures, who enters, and what
//! operators change of it. The steps are in `failure`, `membership` and `entrance`.

pub(crate) mod alarm;
pub(crate) mod alarm_settings;
pub(crate) mod alarms;
pub(crate) mod applicants;
pub(crate) mod entrance;
pub(crate) mod failure;
pub(crate) mod failures;
pub(crate) mod liveness;
pub(crate) mod maintenance;
pub(crate) mod membership;
pub(crate) mod operations;
pub(crate) mod raise;
pub(crate) mod sink;

use crate::{
    base::Base,
    cluster::{applicants::Applicants, failures::Failures},
    front::clients::Clients,
    leader::Leader,
};
use parking_lot::Mutex;
use quorate_types::GroupId;
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// One node's part in its cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
    pub(crate) leader: Arc<Leader>,
    pub(crate) failures: Arc<Failures>,
    /// Directories that ask for the ids of other ones.
    pub(crate) applicants: Applicants,
    /// Whether this process's session is in force.
    pub(crate) started: watch::Sender<bool>,
    /// Groups whose placement is being reported as reached.
    pub(crate) reporting: Mutex<BTreeSet<GroupId>>,
    /// Held while the links follow the catalog's members, so that the newest ones win.
    pub(crate) following: Mutex<()>,
    /// Held from the check that a node can be forgotten until it is, so that the next check that this node
    /// makes sees it.
    pub(crate) forgetting: tokio::sync::Mutex<()>,
}

impl Cluster {
    /// State of a process whose start has not been announced.
    pub(crate) fn new(
        base: &Base,
        clients: &Arc<Clients>,
        leader: &Arc<Leader>,
        failures: &Arc<Failures>,
    ) -> Self {
        Self {
            base: base.clone(),
            clients: Arc::clone(clients),
            leader: Arc::clone(leader),
            failures: Arc::clone(failures),
            applicants: Applicants::default(),
            started: watch::Sender::new(false),
            reporting: Mutex::default(),
            following: Mutex::default(),
            forgetting: tokio::sync::Mutex::default(),
        }
    }
}
