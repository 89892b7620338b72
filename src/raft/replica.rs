//! One replica of a group: applies the log to the machine, and makes checkpoints.

use crate::{
    codec::{decode_stored_membership, encode_stored_membership},
    digests::Digests,
    machine::{GroupMachine, MachineError},
    metrics::GroupMetrics,
    sink::{FatalHook, GroupSink},
    snapshot::{self, Builder, Snapshot, SnapshotData},
    standing::Standing,
    type_config::{
        Entry, LogId, Proposal, SnapshotMeta, StoredMembership, TypeConfig, entry_id, log_id,
    },
};
use futures::{Stream, StreamExt};
use openraft::{
    EntryPayload, OptionalSend,
    storage::{EntryResponder, RaftStateMachine},
};
use parking_lot::Mutex;
use quorate_storage::{Done, GroupStore, ReceivedSnapshot, StorageError};
use quorate_types::LogIndex;
use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// One replica, shared by openraft's apply task, the checkpoint timer and the group's handle.
pub(crate) struct Replica {
    store: GroupStore,
    standing: Arc<Standing>,
    sink: Arc<dyn GroupSink>,
    fatal: FatalHook,
    metrics: Arc<GroupMetrics>,
    /// Bytes of dirty state at which a checkpoint is written at once (DESIGN §3).
    dirty_bytes_max: usize,
    state: Mutex<State>,
    /// The last entry that a written checkpoint covers.
    durable: Mutex<Option<SnapshotMeta>>,
    /// The group runs. Before that no snapshot is sent.
    running: AtomicBool,
    /// Index of the last entry applied, plus one; 0 if none was.
    applied: watch::Sender<u64>,
}

struct State {
    machine: Box<dyn GroupMachine>,
    applied: Option<LogId>,
    membership: StoredMembership,
    /// The last entry of the last checkpoint that was begun.
    checkpointed: Option<LogId>,
    /// A snapshot is being installed: no checkpoints are made (STO 6).
    installing: bool,
    /// An entry could not be applied, so the state belongs to no index: no checkpoints are made (STO 3).
    failed: bool,
    /// The replica is being removed: nothing is written any more (MEM 9).
    ended: bool,
    digests: Digests,
}

impl Replica {
    /// Loads the last checkpoint.
    pub(crate) fn load(
        store: GroupStore,
        mut machine: Box<dyn GroupMachine>,
        standing: Arc<Standing>,
        sink: Arc<dyn GroupSink>,
        fatal: FatalHook,
        metrics: Arc<GroupMetrics>,
        dirty_bytes_max: usize,
    ) -> Result<Arc<Self>, MachineError> {
        let (applied, membership) = load(&store, machine.as_mut())?;
        metrics.applied.set(applied.map_or(0, |id| id.index));
        metrics.checkpointed.set(applied.map_or(0, |id| id.index));
        let durable = covered(applied, &membership);
        let next = applied.map_or(0, |id| id.index + 1);
        let state = State {
            machine,
            applied,
            membership,
            checkpointed: applied,
            installing: false,
            failed: false,
            ended: false,
            digests: Digests::default(),
        };
        Ok(Arc::new(Self {
            store,
            standing,
            sink,
            fatal,
            metrics,
            dirty_bytes_max,
            state: Mutex::new(state),
            durable: Mutex::new(durable),
            running: AtomicBool::new(false),
            applied: watch::Sender::new(next),
        }))
    }

    /// Records that the group runs.
    pub(crate) fn run(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// The last entry that a written checkpoint covers; `None` without a checkpoint.
    pub(crate) fn durable(&self) -> Option<SnapshotMeta> {
        self.durable.lock().clone()
    }

    /// Index of the last entry applied, plus one, as it changes.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// Index of the last entry applied.
    pub(crate) fn applied_index(&self) -> Option<LogIndex> {
        self.applied.borrow().checked_sub(1).map(LogIndex)
    }

    /// Rolling digest of all applied entries, and the last of them.
    pub(crate) fn digest(&self) -> (Option<LogIndex>, u64) {
        let state = self.state.lock();
        (state.applied.map(|id| LogIndex(id.index)), state.machine.digest())
    }

    /// Digests at the last entry applied and at fixed indexes before it, by index.
    pub(crate) fn digests(&self) -> BTreeMap<LogIndex, u64> {
        let state = self.state.lock();
        let now = state.applied.map(|id| (LogIndex(id.index), state.machine.digest()));
        // While a snapshot is being installed the machine's state belongs to no index.
        let now = now.filter(|_| !state.installing);
        state.digests.all().chain(now).collect()
    }

    /// Applies one entry, and reports the leader if it is the first entry of its term.
    fn apply(self: &Arc<Self>, entry: &Entry) -> Result<(), MachineError> {
        let mut state = self.state.lock();
        let id = entry_id(&entry.log_id);
        if let Some(applied) = &state.applied {
            let (index, term) = (applied.index, applied.leader_id.term);
            // openraft's test suite of stores leaves entries out.
            assert!(index < id.index.0, "STO 3: entries are applied in order: {index}, {id:?}");
            assert!(entry.log_id.leader_id.term >= term, "terms of applied entries ascend: {term}");
        }
        let leading = self.standing.is_leading();
        match &entry.payload {
            EntryPayload::Normal(Proposal(commands)) => {
                // Until it has succeeded, a checkpoint would store a part of the entry's changes.
                state.failed = true;
                state.machine.apply(id, commands, leading)?;
                state.failed = false;
            }
            EntryPayload::Blank => state.machine.advance(id),
            EntryPayload::Membership(membership) => {
                state.machine.advance(id);
                state.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
            }
        }
        state.applied = Some(entry.log_id);
        let State { digests, machine, .. } = &mut *state;
        digests.applied(LogIndex(entry.log_id.index), || machine.digest());
        if state.machine.dirty_bytes() >= self.dirty_bytes_max {
            self.write_checkpoint(&mut state)?;
        }
        drop(state);
        self.standing.applied(entry.log_id.leader_id.term);
        self.metrics.applied.set(entry.log_id.index);
        self.metrics.entries_applied.add(1);
        self.applied.send_replace(entry.log_id.index + 1);
        Ok(())
    }

    /// Writes a checkpoint if anything has been applied since the last one (DESIGN §3). Does not
    /// wait for the disk.
    pub(crate) fn checkpoint(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.failed || state.installing || state.applied == state.checkpointed {
            return;
        }
        if let Err(error) = self.write_checkpoint(&mut state) {
            (self.fatal)(self.store.group(), &error.to_string());
        }
    }

    /// Writes nothing any more: the replica's data are removed, and what is written later would be taken
    /// for the state of the next replica (MEM 9). openraft's task that applies entries and installs
    /// snapshots goes on for a while after the group has been shut down.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
    }

    fn write_checkpoint(self: &Arc<Self>, state: &mut State) -> Result<(), MachineError> {
        let Some(applied) = state.applied.filter(|_| !state.ended) else { return Ok(()) };
        let begun = Instant::now();
        let meta = encode_stored_membership(&state.membership);
        let checkpoint = state.machine.checkpoint(entry_id(&applied), meta)?;
        state.checkpointed = Some(applied);
        let covers = covered(Some(applied), &state.membership);
        let this = Arc::clone(self);
        let done: Done = Box::new(move |result| match result {
            Ok(()) => {
                this.metrics.checkpointed.set(applied.index);
                this.metrics.checkpoint.add(begun.elapsed());
                *this.durable.lock() = covers;
            }
            // The node is stopping; the next start replays the rest from the log.
            Err(StorageError::Closed) => {}
            Err(error) => {
                (this.fatal)(this.store.group(), &format!("cannot write a checkpoint: {error}"));
            }
        });
        self.store.checkpoint(checkpoint, done);
        Ok(())
    }

    /// Makes a received snapshot this replica's state (STO 6).
    async fn install(&self, meta: &SnapshotMeta, received: ReceivedSnapshot) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        let done: Done = Box::new(move |result| {
            // During a shutdown of the group the receiver may be gone.
            let _ = sender.send(result);
        });
        {
            let mut state = self.state.lock();
            if state.ended {
                return Err(io::Error::other("the replica has been removed"));
            }
            let (before, at) = (state.applied.map(|id| id.index), received.applied().index.0);
            assert!(
                before < Some(at),
                "STO 6: a snapshot is newer than the state: {before:?}, {at}"
            );
            state.installing = true;
            state.machine.clear();
            state.digests.clear();
            // Begun under the lock: the removal of a replica's data comes before it or after it.
            self.store.install(received, done);
        }
        let installed = receiver
            .await
            .map_err(|_| io::Error::other("the log writer dropped an installation"))?;
        installed.map_err(io::Error::other)?;
        self.installed(meta).map_err(io::Error::other)
    }

    fn installed(&self, meta: &SnapshotMeta) -> Result<(), MachineError> {
        let mut state = self.state.lock();
        if state.ended {
            return Ok(());
        }
        let (applied, membership) = load(&self.store, state.machine.as_mut())?;
        if applied != meta.last_log_id {
            let reason =
                format!("installing snapshot {:?} resulted in {applied:?}", meta.last_log_id);
            return Err(MachineError::Records(reason));
        }
        (state.applied, state.checkpointed) = (applied, applied);
        *self.durable.lock() = covered(applied, &membership);
        state.membership = membership;
        state.installing = false;
        drop(state);
        if let Some(applied) = applied {
            self.metrics.applied.set(applied.index);
            self.metrics.checkpointed.set(applied.index);
            self.metrics.snapshots_installed.add(1);
            self.applied.send_replace(applied.index + 1);
            self.sink.installed(self.store.group(), entry_id(&applied));
        }
        Ok(())
    }
}

/// The entry and membership that a checkpoint covers.
fn covered(applied: Option<LogId>, membership: &StoredMembership) -> Option<SnapshotMeta> {
    let last_log_id = Some(applied?);
    Some(SnapshotMeta { last_log_id, last_membership: membership.clone() })
}

fn load(
    store: &GroupStore,
    machine: &mut dyn GroupMachine,
) -> Result<(Option<LogId>, StoredMembership), MachineError> {
    let loaded = store.load()?;
    let applied = loaded.applied.map(log_id);
    let membership = match loaded.applied {
        Some(_) => decode_stored_membership(&loaded.meta)
            .map_err(|error| MachineError::Records(error.to_string()))?,
        None => StoredMembership::default(),
    };
    machine.load(loaded)?;
    Ok((applied, membership))
}

/// The replica, as openraft uses it.
pub(crate) struct StateMachine(pub(crate) Arc<Replica>);

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let state = self.0.state.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.0.apply(&entry).map_err(io::Error::other)?;
            if let Some(responder) = responder {
                responder.send(());
            }
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Builder> {
        Some(Builder(Arc::clone(&self.0)))
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder(Arc::clone(&self.0))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: SnapshotData,
    ) -> io::Result<()> {
        match snapshot {
            SnapshotData::Received(received) => self.0.install(meta, *received).await,
            // openraft passes the data that `install_full_snapshot` was given, which was received.
            // At a start, before anything is applied, it passes the current snapshot if that is
            // newer than the applied state. It cannot be newer: until the group runs, `load` has
            // read both.
            SnapshotData::Left | SnapshotData::Outgoing(_) => {
                Err(io::Error::other("cannot install a snapshot that was not received"))
            }
        }
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        if self.0.running.load(Ordering::Acquire) {
            return snapshot::outgoing(&self.0.store);
        }
        let meta = self.0.durable();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: SnapshotData::Left }))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        log_store::tests::{Deaf, Nothing},
        type_config::log_id_of,
    };
    use quorate_storage::{CommandEntry, Database, Options};
    use quorate_types::{GroupId, Incarnation, NodeId};

    fn loaded(store: &GroupStore, fails: bool, dirty_bytes_max: usize) -> Arc<Replica> {
        let sink = Arc::new(Deaf);
        let standing = Standing::new(GroupId(1), NodeId(1), sink.clone(), None, Arc::default());
        let (machine, fatal) = (Box::new(Nothing { fails }), Arc::new(|_, _: &str| {}));
        let (store, metrics) = (store.clone(), Arc::default());
        Replica::load(store, machine, standing, sink, fatal, metrics, dirty_bytes_max).unwrap()
    }

    /// MEM 9: openraft's task may still apply entries after the replica has ended. A checkpoint of them
    /// would become the state of the next replica.
    #[test]
    fn mem_09_a_replica_that_has_ended_writes_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), Options::new(NodeId(1), Incarnation(1))).unwrap();
        let store = database.group(GroupId(1)).unwrap();
        // Every entry makes enough dirty state for a checkpoint.
        let replica = loaded(&store, false, 0);
        let apply = |index| {
            let entry = Entry { log_id: log_id_of(1, index), payload: EntryPayload::Blank };
            replica.apply(&entry).unwrap();
            replica.state.lock().checkpointed.map(|id| id.index)
        };
        assert_eq!(apply(1), Some(1));
        replica.end();
        assert_eq!(apply(2), Some(1));
        replica.checkpoint();
        assert_eq!(replica.state.lock().checkpointed.map(|id| id.index), Some(1));
    }

    /// STO 3: an entry that could not be applied has changed a part of the state, which belongs to no
    /// index.
    #[test]
    fn sto_03_after_a_failed_apply_there_is_no_checkpoint() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), Options::new(NodeId(1), Incarnation(1))).unwrap();
        let store = database.group(GroupId(1)).unwrap();
        for fails in [false, true] {
            let replica = loaded(&store, fails, 1 << 20);
            let entry = |index, payload| Entry { log_id: log_id_of(1, index), payload };
            let begun = 2 * u64::from(fails) + 1;
            replica.apply(&entry(begun, EntryPayload::Blank)).unwrap();
            let commands = EntryPayload::Normal(Proposal(CommandEntry::default()));
            assert_eq!(replica.apply(&entry(begun + 1, commands)).is_err(), fails);
            replica.checkpoint();
            let checkpointed = replica.state.lock().checkpointed.map(|id| id.index);
            let unfailed = Some(2);
            assert_eq!(checkpointed, unfailed, "fails: {fails}");
            while replica.durable().and_then(|meta| Some(meta.last_log_id?.index)) != unfailed {
                std::thread::yield_now();
            }
        }
    }
}
