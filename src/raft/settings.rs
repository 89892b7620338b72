//! Settings with which the groups of a node are started.

use openraft::{Config, ConfigError, SnapshotPolicy};
use quorate_types::{NodeId, ReplicaNumber};
use std::{collections::BTreeSet, time::Duration};

/// Default number of queue groups of a new cluster (DESIGN §2).
pub const QUEUE_GROUPS: u16 = 12;

/// Settings of the groups.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of this node.
    pub me: NodeId,
    /// The nodes of the cluster, this one among them; the same on every node. They have an effect
    /// only when a group is formed: later its membership is in its log.
    pub members: BTreeSet<NodeId>,
    /// Number of the replica of the catalog with which this node joins a formed cluster (MEM 3). `None`:
    /// it founds the cluster, or its directory says what it has.
    pub first: Option<ReplicaNumber>,
    /// The nodes whose replicas the first entries of all groups name, if this node writes them: those
    /// of the charter, whose directories have agreed on that (MEM 2). None: it does not found.
    pub founders: BTreeSet<NodeId>,
    /// Queue groups, numbered from 1.
    pub queue_groups: u16,
    /// Interval between two heartbeats of a leader.
    pub raft_heartbeat: Duration,
    /// Shortest random time that a follower waits, after its leader's lease has run out, before it
    /// begins an election (DESIGN §8).
    pub election_min: Duration,
    /// Longest such time, and the lease: how long a follower believes in a leader that is silent.
    pub election_max: Duration,
    /// Bytes of all groups' logs together that are kept for lagging followers.
    pub log_tail_bytes: u64,
    /// Longest time between two checkpoints of changed state (DESIGN §3).
    pub checkpoint: Duration,
    /// Bytes of changed state of a group that trigger its next checkpoint early.
    pub checkpoint_bytes: usize,
    /// Maximum of proposals in flight in one group; at this limit proposers wait.
    pub proposals_max: usize,
    /// Maximum of their bytes; at this limit proposers wait. A larger proposal waits for all
    /// others.
    pub proposal_bytes_max: usize,
    /// Leaderships move to the preferred nodes (DESIGN §2).
    pub balance: bool,
}

impl Settings {
    /// The defaults of DESIGN §2 and §8. The lowest member founds.
    #[must_use]
    pub fn new(me: NodeId, members: impl IntoIterator<Item = NodeId>) -> Self {
        let members: BTreeSet<NodeId> = members.into_iter().collect();
        let founds = members.first() == Some(&me);
        Self {
            me,
            founders: if founds { members.clone() } else { BTreeSet::new() },
            members,
            first: None,
            queue_groups: QUEUE_GROUPS,
            raft_heartbeat: Duration::from_millis(125),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(450),
            log_tail_bytes: 64 * 1024 * 1024,
            checkpoint: Duration::from_millis(100),
            checkpoint_bytes: 4 * 1024 * 1024,
            proposals_max: 64,
            proposal_bytes_max: 32 * 1024 * 1024,
            balance: true,
        }
    }

    /// The part of the settings that openraft takes.
    pub(crate) fn raft(&self) -> Result<Config, ConfigError> {
        let config = Config {
            cluster_name: "quorate".to_owned(),
            heartbeat_interval: ms(self.raft_heartbeat),
            // This crate sends them, for all groups together.
            enable_heartbeat: false,
            election_timeout_min: ms(self.election_min),
            election_timeout_max: ms(self.election_max),
            // This crate decides about snapshots and purges (openraft's issue 2116).
            snapshot_policy: SnapshotPolicy::Never,
            max_in_snapshot_log_to_keep: u64::MAX,
            // A proposal is an entry with hundreds of commands; bytes bound an append.
            max_payload_entries: 256,
            max_append_entries: Some(256),
            // A restarted process must be elected again: a term names one process's leadership
            // (SES 5, STO 7).
            enable_leader_restore: Some(false),
            enable_pre_vote: Some(true),
            backoff: "50ms 50ms 50ms".to_owned(),
            ..Config::default()
        };
        config.validate()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
