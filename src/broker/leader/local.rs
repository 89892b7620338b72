//! Connection-bound queues: the same machine as a group's, on their connection's node (DESIGN §2,
//! NAM 8). Entries are applied as they come; nothing is replicated.

use crate::leader::{
    clock::WallClock,
    spill::{Bodies, Kept},
};
use parking_lot::{Mutex, RwLock};
use quorate_catalog::QueueEntry;
use quorate_queue::{
    Answer, Batch, Change, Command, Entry, Machine, MessageStore, Origin, Output, Reply, RunHead,
    StoreError,
};
use quorate_storage::{
    MessageRef, RunBodies, StoredMessage,
    codec::batch::{self, ProposedBatch},
};
use quorate_types::{
    Level, LogIndex, NodeId, QueueId, ResourceName, Stamp, StartNumber, Timestamp,
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    time::Duration,
};
use tokio::time::Instant;

/// This node's connection-bound queues.
#[derive(Debug)]
pub(crate) struct LocalQueues {
    inbox: Mutex<Inbox>,
    state: Mutex<Option<State>>,
    /// The catalog entries of these queues, also of those that are not in the replicated catalog.
    pub(crate) entries: RwLock<BTreeMap<ResourceName, QueueEntry>>,
    began: Instant,
    wall: WallClock,
    spill: SpillSettings,
}

/// Memory for bodies, and the place for the rest.
#[derive(Clone, Debug)]
pub struct SpillSettings {
    /// Bytes kept in memory, of all connection-bound queues together.
    pub exclusive_memory_bytes: u64,
    /// Folder of the nameless files for the rest.
    pub data_dir: PathBuf,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The start of this node whose machine takes what is queued; `None` before the first one.
    start: Option<StartNumber>,
    batches: VecDeque<ProposedBatch>,
    commands: Vec<Command>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    store: LocalStore,
    index: LogIndex,
    output: Output,
}

/// The unsettled bodies of a run.
type KeptRun = Vec<Option<Kept>>;

/// The runs, with their bodies.
#[derive(Debug)]
struct LocalStore {
    runs: BTreeMap<(QueueId, Level, LogIndex), (RunHead, KeptRun)>,
    bodies: Bodies,
}

impl LocalQueues {
    /// State without queues; queues can be created after [`LocalQueues::begin`].
    pub(crate) fn new(spill: SpillSettings, wall: WallClock) -> Self {
        Self {
            spill,
            wall,
            inbox: Mutex::default(),
            state: Mutex::new(None),
            entries: RwLock::default(),
            began: Instant::now(),
        }
    }

    /// Begins a session of the node: the queues of its previous session are dropped.
    pub(crate) fn begin(&self, node: NodeId, start: StartNumber) {
        *self.inbox.lock() = Inbox { start: Some(start), ..Inbox::default() };
        self.entries.write().clear();
        let SpillSettings { exclusive_memory_bytes, data_dir } = self.spill.clone();
        let exclusive_memory_bytes = usize::try_from(exclusive_memory_bytes).unwrap_or(usize::MAX);
        let bodies = Bodies::new(data_dir, exclusive_memory_bytes);
        *self.state.lock() = Some(State {
            machine: Machine::new_local(node, start),
            store: LocalStore { runs: BTreeMap::new(), bodies },
            index: LogIndex(0),
            output: Output::default(),
        });
    }

    /// Bytes of the bodies that are kept in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.state.lock().as_ref().map_or(0, |state| state.store.bodies.memory_bytes() as u64)
    }

    /// Queues a batch for [`LocalQueues::run_one`].
    pub(crate) fn push(&self, batch: ProposedBatch) {
        self.inbox.lock().batches.push_back(batch);
    }

    /// Queues a command of the leader's own for [`LocalQueues::run_one`].
    pub(crate) fn command(&self, command: Command) {
        self.inbox.lock().commands.push(command);
    }

    /// Queues a command for one start of this node only; it is dropped if that is not the present start.
    pub(crate) fn command_of(&self, start: StartNumber, command: Command) {
        let mut inbox = self.inbox.lock();
        if inbox.start == Some(start) {
            inbox.commands.push(command);
        }
    }

    /// Applies what has been queued as one entry. Only one task may call this, so that outputs are
    /// performed in order.
    pub(crate) fn run_one(&self, perform: impl FnOnce(&Output)) {
        if let Some(output) = self.apply_next() {
            perform(&output);
            if let Some(state) = self.state.lock().as_mut() {
                state.output = output;
            }
        }
    }

    /// Removes a queue's catalog entry; false if there was none.
    pub(crate) fn forget(&self, id: QueueId) -> bool {
        let mut entries = self.entries.write();
        let before = entries.len();
        entries.retain(|_, entry| entry.id != id);
        entries.len() < before
    }

    /// Whether something is queued and not applied.
    pub(crate) fn has_work(&self) -> bool {
        let inbox = self.inbox.lock();
        !inbox.batches.is_empty() || !inbox.commands.is_empty()
    }

    fn apply_next(&self) -> Option<Output> {
        let (batches, commands) = {
            let mut inbox = self.inbox.lock();
            (inbox.batches.drain(..).collect::<Vec<_>>(), std::mem::take(&mut inbox.commands))
        };
        if batches.is_empty() && commands.is_empty() {
            return None;
        }
        let stamp = Stamp { time: self.now(), wall: self.wall.now() };
        let (mut entry, bodies) = batch::merge(batches, stamp);
        if !commands.is_empty() {
            entry.batches.push(Batch { origin: Origin::Leader, commands });
        }
        let mut state = self.state.lock();
        state.as_mut()?.apply(&entry, bodies)
    }

    /// Messages in the order asked for, up to `bytes_max` bytes together, at least one if any is
    /// wanted.
    pub(crate) fn messages(&self, wanted: &[MessageRef], bytes_max: usize) -> Vec<StoredMessage> {
        let state = self.state.lock();
        let Some(state) = state.as_ref() else { return Vec::new() };
        let mut found = Vec::with_capacity(wanted.len());
        let mut bytes = 0;
        for wanted in wanted {
            let kept = state.store.kept(*wanted);
            bytes += kept.map_or(0, Kept::bytes);
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(kept.map_or(StoredMessage::Absent, |kept| state.store.bodies.read(kept)));
        }
        found
    }

    /// Index of the last entry applied.
    pub(crate) fn applied(&self) -> LogIndex {
        self.state.lock().as_ref().map(|state| state.index).unwrap_or_default()
    }

    /// Run heads of a queue's level, as [`MessageStore::runs`] has them.
    ///
    /// # Errors
    /// None: they are in memory.
    pub(crate) fn runs(
        &self,
        queue: QueueId,
        level: Level,
        (from, through): (LogIndex, LogIndex),
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        let state = self.state.lock();
        let Some(state) = state.as_ref() else { return Ok(Vec::new()) };
        state.store.runs(queue, level, from, through, limit)
    }

    /// The present time of the clock of these queues.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The instant at which the clock of these queues shows that time.
    pub(crate) fn moment(&self, time: Timestamp) -> Option<Instant> {
        self.began.checked_add(Duration::from_millis(time.0))
    }

    /// Reads the machine.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Machine) -> T) -> Option<T> {
        self.state.lock().as_ref().map(|state| read(&state.machine))
    }
}

/// Whether a command named a queue that has ended. Its name may still exist and must then be
/// removed.
pub(crate) fn says_gone(output: &Output) -> bool {
    output.answers.iter().any(|answer| match answer {
        Answer::Answered { other, .. } => other.iter().any(|(_, reply)| *reply == Reply::Gone),
        Answer::Want { .. }
        | Answer::Fenced { .. }
        | Answer::Transferred { .. }
        | Answer::TransfersWanted { .. } => false,
    })
}

impl State {
    fn apply(&mut self, entry: &Entry, bodies: Vec<RunBodies>) -> Option<Output> {
        self.index = self.index.next();
        for (run, bodies) in entry.runs.iter().zip(bodies) {
            let messages = run.messages.iter().copied().map(Some).collect();
            let head = RunHead { index: self.index, time: entry.stamp.time, messages };
            let bodies = self.store.keep(bodies);
            self.store.runs.insert((run.queue, run.level, self.index), (head, bodies));
        }
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        if let Err(error) = self.machine.apply(self.index, entry, &self.store, &mut output) {
            // The store is in memory and cannot fail; an error means a broken machine.
            tracing::error!(%error, "cannot apply commands to exclusive queues");
            return None;
        }
        for change in output.changes.drain(..) {
            self.store.change(change);
        }
        Some(output)
    }
}

impl LocalStore {
    fn keep(&mut self, run: RunBodies) -> KeptRun {
        let kept = run.messages.iter().map(|body| body.as_ref().map(|body| self.bodies.keep(body)));
        kept.collect()
    }

    fn kept(&self, wanted: MessageRef) -> Option<&Kept> {
        let key = (wanted.queue, wanted.message.level, wanted.message.index);
        let (_, bodies) = self.runs.get(&key)?;
        bodies.get(wanted.message.position as usize)?.as_ref()
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Record(_) => {}
            Change::Removed { queue, level, first, last } => {
                self.remove((queue, level, first), (queue, level, last));
            }
            Change::Cut { queue, level, index, first, last } => {
                let Some((head, bodies)) = self.runs.get_mut(&(queue, level, index)) else {
                    return;
                };
                for place in first as usize..=last as usize {
                    head.messages.get_mut(place).map(Option::take);
                    let cut = bodies.get_mut(place).and_then(Option::take);
                    cut.into_iter().for_each(|kept| self.bodies.forget(kept));
                }
                if head.messages.iter().all(Option::is_none) {
                    self.runs.remove(&(queue, level, index));
                }
            }
            Change::QueueRemoved { queue } => self.remove(
                (queue, Level(0), LogIndex(0)),
                (queue, Level(u8::MAX), LogIndex(u64::MAX)),
            ),
        }
    }

    fn remove(&mut self, first: (QueueId, Level, LogIndex), last: (QueueId, Level, LogIndex)) {
        let keys: Vec<_> = self.runs.range(first..=last).map(|(key, _)| *key).collect();
        for key in keys {
            let Some((_, bodies)) = self.runs.remove(&key) else { continue };
            bodies.into_iter().flatten().for_each(|kept| self.bodies.forget(kept));
        }
    }
}

impl MessageStore for LocalStore {
    fn runs(
        &self,
        queue: QueueId,
        level: Level,
        from: LogIndex,
        through: LogIndex,
        limit: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        if from > through {
            return Ok(Vec::new());
        }
        let range = self.runs.range((queue, level, from)..=(queue, level, through));
        Ok(range.take(limit).map(|(_, (head, _))| head.clone()).collect())
    }
}

#[cfg(test)]
mod tests;
