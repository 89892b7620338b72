//! The state machine of one group: dispatches each command to the file that owns it, then
//! stabilizes the queues that the command touched (ends queues, assigns ready messages).

use crate::{
    apply::{Apply, Holders, MESSAGES_MAX},
    command::{Command, Entry, Reply},
    death_reason::DeathReason,
    digest::{Digest, Step},
    level::Part,
    outbox::Outbox,
    output::{Effect, Output, RecordKey},
    queue::Queue,
    record::{GroupRecord, NodeRecord, SessionRecord},
    settle::Fate,
    store::{MessageStore, StoreError},
    tally::Tally,
    traffic::Waits,
};
use quorate_types::{
    Holder, Home, LetterHome, LogIndex, NodeId, PlantedBug, QueueId, Sequence, SessionId,
    StartNumber,
};
use std::collections::BTreeMap;

/// After this number of entries one more queue releases memory that it no longer needs.
const TRIM_EVERY: u64 = 64;

/// All queues of one group, or all connection-bound queues of one node.
#[derive(Debug)]
pub struct Machine {
    pub(crate) home: Home,
    /// For a node's machine: the node's start (NAM 8).
    pub(crate) start: StartNumber,
    pub(crate) group: GroupRecord,
    pub(crate) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(crate) sessions: BTreeMap<SessionId, SessionRecord>,
    /// Boxed, because a tree's nodes are half empty and there may be 100,000 queues.
    pub(crate) queues: BTreeMap<QueueId, Box<Queue>>,
    /// Queues that have ended and are kept for their letters.
    pub(crate) ended_queues: BTreeMap<QueueId, Box<Queue>>,
    /// The records of other homes that send letters (LET 1).
    pub(crate) sources: BTreeMap<LetterHome, SessionRecord>,
    pub(crate) outbox: Outbox,
    pub(crate) holders: Holders,
    /// Empty lists, kept to reuse their memory.
    lists: (Vec<QueueId>, Vec<QueueId>),
    /// The queue that was trimmed last. It concerns memory only, so it is not part of the state.
    trimmed: Option<QueueId>,
    applied: u64,
    /// For metrics; no part of the state.
    pub(crate) waits: Waits,
}

/// The sender of the present command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A session, with the number of its command.
    Session {
        session: SessionId,
        number: Sequence,
    },
    /// Another home that sends letters.
    Letters(LetterHome),
    Leader,
}

impl Caller {
    pub(crate) fn session(self) -> Option<SessionId> {
        match self {
            Self::Session { session, .. } => Some(session),
            Self::Letters(_) | Self::Leader => None,
        }
    }
}

impl Machine {
    /// An empty machine. For a node it has start 0; see [`Machine::new_local`].
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self {
            home,
            start: StartNumber(0),
            group: GroupRecord::default(),
            nodes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            queues: BTreeMap::new(),
            ended_queues: BTreeMap::new(),
            sources: BTreeMap::new(),
            outbox: Outbox::default(),
            holders: Holders::default(),
            lists: (Vec::new(), Vec::new()),
            trimmed: None,
            applied: 0,
            waits: Waits::default(),
        }
    }

    /// An empty machine for a node's connection-bound queues: their ids are (node, start, a number
    /// that the command contains) (NAM 8). It is never stored, since these queues end with their
    /// connections. The caller applies entries with ascending indexes from 1.
    #[must_use]
    pub fn new_local(node: NodeId, start: StartNumber) -> Self {
        Self { start, ..Self::new(Home::Node(node)) }
    }

    /// Applies the entry at `index`. The output is appended to `out`; the caller clears it.
    ///
    /// # Errors
    /// A read of the store has failed; the machine cannot be used any more.
    pub fn apply(
        &mut self,
        index: LogIndex,
        entry: &Entry,
        store: &dyn MessageStore,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let mut apply = self.begin(index, entry, store, out);
        for batch in &entry.batches {
            self.batch(batch, &mut apply)?;
        }
        self.finish(apply)
    }

    fn begin<'a>(
        &mut self,
        index: LogIndex,
        entry: &'a Entry,
        store: &'a dyn MessageStore,
        out: &'a mut Output,
    ) -> Apply<'a> {
        let mut group = std::mem::take(&mut self.group);
        // The clock never moves backwards (DESIGN §4, *Time*).
        group.time = group.time.max(entry.stamp.time).plus_ms(PlantedBug::own_clock_ms());
        group.wall = entry.stamp.wall;
        let mut digest = Digest(group.digest);
        digest.step(Step::Entry, index.0, group.time.0);
        let (touched, unstable) = std::mem::take(&mut self.lists);
        Apply {
            index,
            entry,
            store,
            out,
            stamped: entry.stamp.time,
            now: group.time,
            group,
            holders: std::mem::take(&mut self.holders),
            outbox: std::mem::take(&mut self.outbox),
            letters_changed: false,
            tally: Tally::new(),
            waits: self.waits,
            digest,
            budget: MESSAGES_MAX,
            position: 0,
            more: false,
            touched,
            unstable,
            ended: Vec::new(),
        }
    }

    /// Applies one command, and stabilizes the queues that it touched.
    pub(crate) fn command(
        &mut self,
        command: &Command,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        let reply = self.dispatch(command, caller, apply)?;
        self.stabilize(apply)?;
        apply.position += 1;
        Ok(reply)
    }

    #[expect(clippy::too_many_lines, reason = "one arm a command, nothing else")]
    fn dispatch(
        &mut self,
        command: &Command,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        match command {
            Command::CreateQueue { name, config, bound } => {
                return Ok(self.create_queue(name, config, *bound, caller, apply));
            }
            Command::EndQueue { queue, if_unused, if_empty } => {
                return Ok(self.end_queue(*queue, *if_unused, *if_empty, apply));
            }
            Command::Configure { queue, config } => {
                return Ok(self.configure(*queue, config, apply));
            }
            Command::Inspect { queue, renew } => return Ok(self.inspect(*queue, *renew, apply)),
            Command::Enqueue { run, first, count } => {
                let part = Part { run: *run, first: *first, count: *count };
                return self.enqueue(part, caller, apply);
            }
            Command::Attach { queue, consumer, terms } => {
                return Ok(self.attach(*queue, *consumer, terms, caller, apply));
            }
            Command::Get { queue, timeout_default_ms } => {
                return self.get(*queue, *timeout_default_ms, caller, apply);
            }
            Command::Purge { queue } => return Ok(self.purge(*queue, apply)),
            Command::Detach { consumer, shown, how } => {
                self.detach(*consumer, *shown, *how, apply);
            }
            Command::Ack { holder, numbers } => {
                self.settle(*holder, numbers, Fate::Done, apply);
            }
            Command::Discard { holder, numbers } => {
                self.settle(*holder, numbers, Fate::Dies(DeathReason::Rejected), apply);
            }
            Command::Requeue { holder, numbers, cause } => {
                self.requeue(*holder, numbers, *cause, apply);
            }
            Command::Release { holder, numbers } => self.release(*holder, numbers, apply),
            Command::Credit { consumer, up_to } => self.credit(*consumer, *up_to, apply),
            Command::SessionEnded { session } => {
                self.fence(session.node, session.start, apply)?;
            }
            Command::NodeDown { node, start } => self.fence(*node, *start, apply)?,
            Command::NodeSuspected { node } => self.set_suspected(*node, true, apply),
            Command::NodeBack { node } => self.set_suspected(*node, false, apply),
            Command::NodeTimedOut { node } => self.node_timed_out(*node, apply)?,
            Command::ExpireHead { queue } => self.expire_head(*queue, apply),
            Command::Transfer { run, first, attempt } => {
                let part = Part { run: *run, first: *first, count: 1 };
                return self.transfer(part, *attempt, caller, apply);
            }
            Command::Routed { queue, at, via, letters } => {
                self.routed(*queue, *at, via, letters, apply);
            }
            Command::DeadLettered { stream, first, last, other } => {
                self.dead_lettered(*stream, *first, *last, other, apply)?;
            }
            Command::Retry { target, count } => self.retry(*target, *count, apply),
            Command::TaskStep(step) => self.task_step(step, apply)?,
            Command::ForgetTask { queue, task } => self.forget_task(*queue, *task, apply),
            Command::Continue => self.take_up(apply)?,
            Command::NewLife { life } => self.new_life(*life, apply),
            Command::LastResort => self.last_resort(apply),
        }
        Ok(Reply::Taken)
    }

    /// Stabilizes the queues that the command touched: ends them, or assigns their ready messages.
    pub(crate) fn stabilize(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        let mut queues = std::mem::take(&mut apply.unstable);
        for id in queues.drain(..) {
            if self.end_if_abandoned(id, apply) || self.end_if_unused(id, apply) {
                continue;
            }
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.begin_stabilizing();
                queue.stabilize(apply)?;
                queue.notify_room(apply);
            }
        }
        debug_assert!(apply.unstable.is_empty(), "stabilizing touched another queue");
        apply.unstable = queues;
        Ok(())
    }

    /// Ends the entry: returns the keys of changed records, and stores the group's own record.
    fn finish(&mut self, mut apply: Apply<'_>) -> Result<(), StoreError> {
        let mut touched = std::mem::take(&mut apply.touched);
        for id in touched.drain(..) {
            let queue = self.queues.get_mut(&id).or_else(|| self.ended_queues.get_mut(&id));
            if let Some(queue) = queue {
                queue.set_wake(&mut apply)?;
                queue.end_entry(&mut apply);
            }
        }
        apply.change(RecordKey::Group);
        if apply.more && !apply.group.left_over.is_empty() {
            apply.effect(Effect::ContinueSoon);
        }
        apply.wake_dead_letter_worker();
        apply.report_tally();
        debug_assert!(apply.unstable.is_empty(), "a touched queue was not stabilized");
        debug_assert!(
            apply.ended.iter().all(|ended| !apply.holders.name(*ended)),
            "a queue that has ended is still known to have holders"
        );
        let Apply { mut group, holders, outbox, waits, digest, unstable, .. } = apply;
        group.digest = digest.0;
        self.group = group;
        self.holders = holders;
        self.outbox = outbox;
        self.waits = waits;
        self.lists = (touched, unstable);
        self.applied += 1;
        if self.applied.is_multiple_of(TRIM_EVERY) {
            self.trim();
        }
        Ok(())
    }

    /// Releases memory, one queue after the other.
    fn trim(&mut self) {
        let next = match self.trimmed {
            Some(last) => self.queues.range_mut(last..).find(|(id, _)| **id != last),
            None => self.queues.iter_mut().next(),
        };
        self.trimmed = next.map(|(id, queue)| {
            queue.trim();
            *id
        });
    }

    /// The queue whose message the holder has or may have.
    pub(crate) fn queue_of(&mut self, holder: Holder, apply: &Apply<'_>) -> Option<&mut Queue> {
        self.queues.get_mut(&apply.holders.queue_of(holder)?).map(Box::as_mut)
    }
}
