//! The handle of one group for the crates above: propose, read, and the present leader.
//!
//! Two followers are a majority, so entries are committed and applied while the leader's own disk
//! stalls. No other bound limits the entries that wait there to be written (DESIGN §6 bounds only
//! unanswered ones): a soak test showed 300 MiB in 15 s. So a leader proposes nothing more while 32
//! MiB of its group wait for its own log writer.

use crate::{
    aligned_runtime::every,
    catch_up::CatchUp,
    codec::{Position, decode_vote},
    metrics::GroupMetrics,
    purge::Sending,
    read::Rounds,
    replica::{Replica, StateMachine},
    replica_name::{node_of, raft_id},
    settings::Settings,
    standing::{Leadership, Standing},
    type_config::{Proposal, Ticket, TypeConfig, WriteResult, entry_id},
};
use futures::FutureExt;
use openraft::{Raft, async_runtime::WatchReceiver, errors::ClientWriteError};
use parking_lot::Mutex;
use quorate_queue::Machine;
use quorate_rpc::Links;
use quorate_storage::{CommandEntry, EntryId, GroupStore};
use quorate_types::{GroupId, LogIndex, NodeId, ReplicaId, Term};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch},
    task::unconstrained,
    time::{Instant, timeout},
};

pub(crate) type GroupRaft = Raft<TypeConfig, StateMachine>;

/// Unit in which proposals' bytes are counted.
const PERMIT_BYTES: usize = 1024;

/// Maximum of proposals in flight, whatever the settings: fewer than the channel to openraft holds.
const PROPOSALS_MAX: usize = 16_384;

/// Bytes that may wait for this node's log writer before it stops to propose: if its disk is slower
/// than those of a majority, entries are applied long before they are written here.
const UNWRITTEN_BYTES_MAX: usize = 32 << 20;

/// Why a proposal was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This node does not lead the group.
    #[error("this node does not lead the group; the leader is {0:?}")]
    NotLeader(Option<NodeId>),
    /// Too many proposals are in flight (`Settings::proposals_max`, `proposal_bytes_max`), or too
    /// many bytes wait for this node's log writer. The end of each proposal, and each cycle of the
    /// writer, makes room.
    #[error("too many proposals are pending")]
    Full,
    /// The group has ended.
    #[error("the group has stopped")]
    Stopped,
}

/// Why an entry may not have been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The entry was not appended: another node leads (named if it is known), or no majority
    /// answers this one at present (`None`).
    #[error("not appended to the log; the leader is {0:?}")]
    NotLeader(Option<NodeId>),
    /// The entry was appended, and this node has lost the leadership since: it may be applied or
    /// not.
    #[error("this node lost the leadership before the entry was applied")]
    Discarded,
    /// The group has ended.
    #[error("the group has stopped")]
    Stopped,
}

/// Why a group could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader confirmed by a majority was found in time, or this replica did not catch up.
    #[error("no majority of the group answered in time")]
    Timeout,
}

/// One group of this node.
pub struct Group {
    id: GroupId,
    me: ReplicaId,
    queues: Option<Arc<Mutex<Machine>>>,
    raft: GroupRaft,
    replica: Arc<Replica>,
    standing: Arc<Standing>,
    store: GroupStore,
    links: Links,
    metrics: Arc<GroupMetrics>,
    sending: Arc<Sending>,
    proposals: Arc<Semaphore>,
    proposal_permits: Arc<Semaphore>,
    proposal_permits_max: u32,
    rounds: Rounds,
    catch_up: CatchUp,
    raft_heartbeat: Duration,
}

quorate_types::declare_shared!(Group: id, me, queues, raft, replica, standing, store, links,
    metrics, sending, proposals, proposal_permits, proposal_permits_max, rounds, catch_up,
    raft_heartbeat);

/// The parts of a group.
pub(crate) struct Parts {
    pub(crate) me: ReplicaId,
    /// The machine of a queue group; the catalog has none.
    pub(crate) queues: Option<Arc<Mutex<Machine>>>,
    pub(crate) raft: GroupRaft,
    pub(crate) replica: Arc<Replica>,
    pub(crate) standing: Arc<Standing>,
    pub(crate) store: GroupStore,
    pub(crate) links: Links,
    pub(crate) metrics: Arc<GroupMetrics>,
    pub(crate) sending: Arc<Sending>,
}

impl Group {
    pub(crate) fn new(settings: &Settings, parts: Parts) -> Arc<Self> {
        let permits = (settings.proposal_bytes_max / PERMIT_BYTES).clamp(1, 1 << 20);
        Arc::new(Self {
            id: parts.store.group(),
            me: parts.me,
            queues: parts.queues,
            raft: parts.raft,
            replica: parts.replica,
            standing: parts.standing,
            store: parts.store,
            links: parts.links,
            metrics: parts.metrics,
            sending: parts.sending,
            proposals: Arc::new(Semaphore::new(settings.proposals_max.min(PROPOSALS_MAX))),
            proposal_permits: Arc::new(Semaphore::new(permits)),
            proposal_permits_max: permits as u32,
            rounds: Rounds::default(),
            catch_up: CatchUp::default(),
            raft_heartbeat: settings.raft_heartbeat,
        })
    }

    /// Id of the group.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// Proposes an entry, without waiting. Proposals are appended in the order of the calls. `Ok`
    /// does not mean that it is committed (SES 3): later the entry is applied, or
    /// [`GroupSink::proposal_lost`] is called, or the leadership is lost.
    ///
    /// # Errors
    /// Nothing was proposed.
    ///
    /// [`GroupSink::proposal_lost`]: crate::GroupSink::proposal_lost
    pub fn propose(&self, commands: CommandEntry) -> Result<(), ProposeError> {
        self.ensure_elected()?;
        if self.store.unwritten_bytes() > UNWRITTEN_BYTES_MAX {
            return Err(ProposeError::Full);
        }
        let wanted = self.permits(&commands);
        let one = Arc::clone(&self.proposals).try_acquire_owned();
        let bytes = Arc::clone(&self.proposal_permits).try_acquire_many_owned(wanted);
        let (Ok(one), Ok(bytes)) = (one, bytes) else { return Err(ProposeError::Full) };
        let ended = self.begin(&commands, Room { _one: one, _bytes: bytes });
        let standing = Arc::clone(&self.standing);
        let ticket = Ticket::new(move |result: WriteResult| {
            ended.record(result.is_ok());
            drop(ended);
            if result.is_err() {
                standing.proposal_lost();
            }
        });
        let write = self.raft.client_write_ff(Proposal(commands), Some(ticket));
        // The channel to openraft holds many times more than the proposals in flight, so it never
        // has to be awaited; the calling task may have spent its cooperative budget, which must not
        // matter here.
        match unconstrained(write).now_or_never() {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(ProposeError::Stopped),
            None => Err(ProposeError::Full),
        }
    }

    /// Proposes an entry, after waiting while too many are in flight, and waits until it has been
    /// applied here.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub async fn write(&self, commands: CommandEntry) -> Result<EntryId, WriteError> {
        self.ensure_elected().map_err(|_| WriteError::NotLeader(self.leadership().leader))?;
        let wanted = self.permits(&commands);
        let one = Arc::clone(&self.proposals).acquire_owned().await;
        let bytes = Arc::clone(&self.proposal_permits).acquire_many_owned(wanted).await;
        let (Ok(one), Ok(bytes)) = (one, bytes) else { return Err(WriteError::Stopped) };
        let ended = self.begin(&commands, Room { _one: one, _bytes: bytes });
        let (sender, receiver) = oneshot::channel();
        let ticket = Ticket::new(move |result: WriteResult| {
            ended.record(result.is_ok());
            let outcome = result.map(|written| entry_id(&written.log_id)).map_err(write_error);
            // The writer may not wait any more.
            let _ = sender.send(outcome);
        });
        let write = self.raft.client_write_ff(Proposal(commands), Some(ticket)).await;
        write.map_err(|_| WriteError::Stopped)?;
        receiver.await.unwrap_or(Err(WriteError::Discarded))
    }

    fn ensure_elected(&self) -> Result<(), ProposeError> {
        if self.standing.is_elected() {
            return Ok(());
        }
        Err(ProposeError::NotLeader(self.leadership().leader))
    }

    /// Bytes of a proposal in permits; one larger than all permits waits for all other proposals.
    fn permits(&self, commands: &CommandEntry) -> u32 {
        let wanted = u32::try_from(commands.bytes().div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        wanted.clamp(1, self.proposal_permits_max)
    }

    fn begin(&self, commands: &CommandEntry, room: Room) -> Ended {
        self.metrics.proposals.add(1);
        self.metrics.proposal_bytes.add(commands.bytes() as u64);
        self.metrics.in_flight.add(1);
        Ended { metrics: Arc::clone(&self.metrics), started: Instant::now(), _room: room }
    }

    /// The leader and the term; `None` while no leader is known.
    #[must_use]
    pub fn leader(&self) -> Option<(NodeId, Term)> {
        let leadership = self.leadership();
        leadership.leader.map(|leader| (leader, leadership.term))
    }

    /// True if this node leads and has applied the first entry of its own term, so that it performs
    /// effects (STO 7).
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.standing.is_leading()
    }

    /// The term of the last vote of this node, on disk or not; `None` before the first vote, and if
    /// it cannot be decoded.
    #[must_use]
    pub fn voted(&self) -> Option<Term> {
        let vote = decode_vote(&self.store.vote()?).ok()?;
        Some(Term(vote.leader_id.term))
    }

    /// The present leadership.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        self.standing.leadership()
    }

    /// The leadership, as it changes.
    #[must_use]
    pub fn watch_leadership(&self) -> watch::Receiver<Leadership> {
        self.standing.subscribe()
    }

    /// Index of the last entry applied here.
    #[must_use]
    pub fn applied(&self) -> Option<LogIndex> {
        self.replica.applied_index()
    }

    /// How far the replica has to come after the start of the process.
    pub(crate) fn catch_up(&self) -> &CatchUp {
        &self.catch_up
    }

    /// Whether the replica has applied what its group had committed when it heard of a leader first.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        let applied = self.applied().map_or(0, |index| index.0);
        self.leadership().leader == Some(self.me.node) || self.catch_up.is_reached_by(applied)
    }

    /// Waits until the entry at `index` has been applied here.
    ///
    /// # Errors
    /// The time was not enough.
    pub async fn wait_applied(&self, index: LogIndex, deadline: Duration) -> Result<(), ReadError> {
        let mut applied = self.replica.applied();
        let waiting = applied.wait_for(|next| *next > index.0);
        match timeout(deadline, waiting).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ReadError::Timeout),
        }
    }

    /// Rolling digest of all applied entries, and the last of them.
    #[must_use]
    pub fn digest(&self) -> (Option<LogIndex>, u64) {
        self.replica.digest()
    }

    /// Digests at the last applied entry and at fixed indexes before it, which other replicas have
    /// too: replicas that continue to apply are compared at one of those.
    #[must_use]
    pub fn digests(&self) -> BTreeMap<LogIndex, u64> {
        self.replica.digests()
    }

    /// Reads a queue group's machine, which is locked meanwhile: applying waits for it. `None` for
    /// the catalog.
    pub fn read<T>(&self, read: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.queues.as_ref().map(|machine| read(&machine.lock()))
    }

    /// The group's log and messages.
    #[must_use]
    pub fn store(&self) -> &GroupStore {
        &self.store
    }

    /// Counters of the group, kept up to date.
    #[must_use]
    pub fn metrics(&self) -> &GroupMetrics {
        &self.metrics
    }

    /// The nodes of the group's voters, by its log.
    #[must_use]
    pub fn voters(&self) -> Vec<NodeId> {
        let nodes: BTreeSet<NodeId> = self.raft.voter_ids().map(node_of).collect();
        nodes.into_iter().collect()
    }

    /// The nodes that receive the group's log and have no vote, by its log.
    pub(crate) fn learners(&self) -> Vec<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().learner_ids().map(node_of).collect()
    }

    /// The voters of the membership in force; of both if it is a joint one.
    pub(crate) fn voter_sets(&self) -> Vec<BTreeSet<u64>> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_joint_config().clone()
    }

    /// Whether this node's replica votes, by its own log.
    pub(crate) fn is_voter(&self) -> bool {
        self.raft.voter_ids().any(|id| id == self.me())
    }

    /// The newest voter on a node, as openraft names it: an earlier one may be on its way out.
    pub(crate) fn voter_on(&self, node: NodeId) -> Option<u64> {
        self.raft.voter_ids().filter(|id| node_of(*id) == node).max()
    }

    /// The replicas on a node, voters and learners, as openraft names them.
    pub(crate) fn replicas_on(&self, node: NodeId) -> Vec<u64> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let all = metrics.membership_config.membership().nodes().map(|(id, ())| *id);
        all.filter(|id| node_of(*id) == node).collect()
    }

    /// This node's replica.
    #[must_use]
    pub fn name(&self) -> ReplicaId {
        self.me
    }

    /// Waits for the moment at which the next heartbeats are sent.
    pub(crate) async fn next_heartbeat(&self) {
        every(self.raft_heartbeat).tick().await;
    }

    pub(crate) fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    pub(crate) fn me(&self) -> u64 {
        raft_id(self.me)
    }

    pub(crate) fn raft(&self) -> &GroupRaft {
        &self.raft
    }

    pub(crate) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(crate) fn replica(&self) -> &Arc<Replica> {
        &self.replica
    }

    pub(crate) fn sending(&self) -> &Sending {
        &self.sending
    }

    /// The position of this node's log, for an election.
    pub(crate) fn position(&self, may_lead: bool) -> Option<Position> {
        let vote = self.standing.vote()?;
        let may_lead = may_lead && self.is_voter();
        let last = self.raft.data_metrics().borrow_watched().last_log;
        Some(Position { group: self.id, vote, last, may_lead })
    }

    /// Waits until appended entries are flushed and committed ones are applied, at most for `wait`,
    /// and not after the group's Raft has ended.
    pub(crate) async fn quiet(&self, wait: Duration) {
        let mut flushed = self.raft.watch_log_progress();
        let data = self.raft.data_metrics();
        let settled = async {
            loop {
                let (last, settled) = {
                    let data = data.borrow_watched();
                    (data.last_log, data.last_applied >= data.local_committed)
                };
                let on_disk = flushed.get().and_then(|point| point.last_log_id);
                if settled && on_disk >= last {
                    return;
                }
                // A change of either value; the pause covers the one that is not watched.
                if let Ok(Err(_ended)) = timeout(Duration::from_millis(5), flushed.changed()).await
                {
                    return;
                }
            }
        };
        if timeout(wait, settled).await.is_err() {
            tracing::warn!(
                group = %self.id,
                "installing a snapshot before all log entries are written and applied"
            );
        }
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("id", &self.id)
            .field("leadership", &self.leadership())
            .finish_non_exhaustive()
    }
}

/// The permits that a proposal holds until its end.
struct Room {
    _one: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// Counts the end of a proposal, whether its outcome was reported or not.
struct Ended {
    metrics: Arc<GroupMetrics>,
    started: Instant,
    _room: Room,
}

impl Ended {
    fn record(&self, applied: bool) {
        if applied {
            self.metrics.round.add(self.started.elapsed());
        } else {
            self.metrics.proposals_lost.add(1);
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.metrics.in_flight.sub(1);
    }
}

fn write_error(error: ClientWriteError<TypeConfig>) -> WriteError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => {
            WriteError::NotLeader(forward.leader_id.map(node_of))
        }
        ClientWriteError::LogEntryDiscarded(_)
        | ClientWriteError::ChangeMembershipError(_)
        | ClientWriteError::PreconditionFailed(_) => WriteError::Discarded,
    }
}
