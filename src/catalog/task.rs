//! Tasks: what the leader of a queue's group is to do with messages of the queue, besides
//! delivering them: put dead letters back, move messages, delete them. From machine version 3 on.
//!
//! The catalog says what is to be done, and whether it is to be done now. How far it has come is
//! part of the queue's state in its group; the record here is a copy of that, at most some seconds
//! old while the task runs.

use crate::{
    command::CatalogReply,
    denial::TaskDenial,
    digest::{Digest, Feed},
    machine::Catalog,
    output::CatalogOutput,
    record::CatalogKey,
};
use quorate_queue::TaskCounts;
use quorate_types::{
    FilterError, MachineVersion, MessageFilter, QueueId, ResourceName, ShortString, TaskId,
    WallTime,
};
use std::{collections::BTreeMap, fmt};

/// Ended tasks that are kept for lists, at most.
pub const ENDED_TASKS_MAX: usize = 100;

/// What is done with the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Dead letters are put back; other messages are left alone.
    Redrive,
    /// Messages are moved.
    Move,
    /// Messages are deleted.
    Delete,
}

/// Where the messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskTarget {
    /// Nowhere: they are deleted.
    Nowhere,
    /// Each into the queue in which it died last.
    Original,
    /// Into the queue of this name.
    Queue(ShortString),
    /// To the exchange of this name, with the routing key of their publisher.
    Exchange(ShortString),
}

/// What a task is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskOrder {
    /// What is done with the messages.
    pub kind: TaskKind,
    /// The queue that they are in.
    pub queue: QueueId,
    /// Its name.
    pub name: ResourceName,
    /// Where they go.
    pub to: TaskTarget,
    /// Which messages: names and values of the parts of a filter.
    pub filter: Vec<(ShortString, String)>,
    /// Messages a second, at most.
    pub rate: Option<u32>,
    /// Messages in all, at most.
    pub max: Option<u64>,
    /// The messages are only counted.
    pub dry_run: bool,
}

/// Whether a task is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// The leader of the queue's group carries it out.
    Running,
    /// It waits to be resumed; what is under way arrives.
    Paused,
    /// It has looked at all messages, or has taken as many as it was to take.
    Done,
    /// It was cancelled. What was under way arrives.
    Cancelled,
    /// The queue has ended. What was under way arrives, and is not reported any more.
    QueueEnded,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Its id.
    pub id: TaskId,
    /// Drawn by the proposer; identifies a repeat.
    pub nonce: u64,
    /// What is to be done.
    pub order: TaskOrder,
    /// Whether it is done now.
    pub state: TaskState,
    /// The user that created it.
    pub created_by: ShortString,
    /// When it was created.
    pub created_at: WallTime,
    /// When it ended.
    pub ended_at: Option<WallTime>,
    /// What had become of the messages, at its last report.
    pub counts: TaskCounts,
}

/// A change of a task that an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskControl {
    /// Nothing more is taken until it is resumed.
    Pause,
    /// A paused task goes on.
    Resume,
    /// Nothing more is taken.
    Cancel,
}

/// A change of tasks. A repeat of each is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskCommand {
    /// Creates a task.
    Create {
        /// Drawn by the proposer; identifies a repeat.
        nonce: u64,
        /// What is to be done.
        order: TaskOrder,
        /// The user.
        by: ShortString,
        /// When.
        at: WallTime,
    },
    /// Pauses, resumes or cancels a task.
    Control {
        /// The task.
        task: TaskId,
        /// What is asked for.
        control: TaskControl,
        /// When.
        at: WallTime,
    },
    /// The leader of the queue's group reports how far the task has come.
    Report {
        /// The task.
        task: TaskId,
        /// What has become of the messages.
        counts: TaskCounts,
        /// When the task ended, if nothing is left to be done.
        done: Option<WallTime>,
    },
}

impl TaskKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Redrive, Self::Move, Self::Delete];

    /// Its name, in requests and lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Move => "move",
            Self::Delete => "delete",
        }
    }
}

impl TaskState {
    /// All states.
    pub const ALL: [Self; 5] =
        [Self::Running, Self::Paused, Self::Done, Self::Cancelled, Self::QueueEnded];

    /// Its name in lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
            Self::QueueEnded => "queue_deleted",
        }
    }

    /// True if the task is or will be carried out.
    #[must_use]
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TaskControl {
    /// All changes.
    pub const ALL: [Self; 3] = [Self::Pause, Self::Resume, Self::Cancel];

    /// Its name in requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
        }
    }
}

impl fmt::Display for TaskTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("nowhere"),
            Self::Original => f.write_str("original"),
            Self::Queue(name) => write!(f, "queue:{name}"),
            Self::Exchange(name) => write!(f, "exchange:{name}"),
        }
    }
}

/// The filter of these parts.
///
/// # Errors
/// The part that is wrong.
pub fn filter_of(parts: &[(ShortString, String)]) -> Result<MessageFilter, FilterError> {
    let mut filter = MessageFilter::default();
    parts.iter().try_for_each(|(part, value)| filter.add(part.as_str(), value))?;
    Ok(filter)
}

impl TaskCommand {
    /// The object that the command changes, as errors name it.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            Self::Create { order, .. } => format!("task of queue {}", order.name),
            Self::Control { task, .. } | Self::Report { task, .. } => format!("task {task}"),
        }
    }
}

impl Catalog {
    /// All tasks, by id.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.values()
    }

    /// A task.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&TaskRecord> {
        self.tasks.get(&id)
    }

    /// The task that a proposer created with this nonce.
    #[must_use]
    pub fn task_of_nonce(&self, nonce: u64) -> Option<&TaskRecord> {
        self.tasks.values().rev().find(|task| task.nonce == nonce)
    }

    /// Before machine version 3 no command has an effect, so that all binaries keep the same state
    /// (MEM 15).
    pub(crate) fn task_command(
        &mut self,
        command: &TaskCommand,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let machine = self.machine;
        let done = if machine < MachineVersion::RETRIES {
            Err(TaskDenial::TooEarly { machine })
        } else {
            self.change_tasks(command, out)
        };
        done.map_or_else(|denial| CatalogReply::Denied(denial.into()), |()| CatalogReply::Done)
    }

    fn change_tasks(
        &mut self,
        command: &TaskCommand,
        out: &mut CatalogOutput,
    ) -> Result<(), TaskDenial> {
        match command {
            TaskCommand::Create { nonce, order, by, at } => {
                self.create_task(*nonce, order, (by, *at), out)
            }
            TaskCommand::Control { task, control, at } => {
                self.control_task(*task, *control, *at, out)
            }
            TaskCommand::Report { task, counts, done } => {
                self.report_task(*task, *counts, *done, out);
                Ok(())
            }
        }
    }

    fn create_task(
        &mut self,
        nonce: u64,
        order: &TaskOrder,
        (by, at): (&ShortString, WallTime),
        out: &mut CatalogOutput,
    ) -> Result<(), TaskDenial> {
        if self.task_of_nonce(nonce).is_some() {
            return Ok(());
        }
        self.check_task(order)?;
        let mut id = TaskId(self.version().0);
        while self.tasks.contains_key(&id) {
            id.0 += 1;
        }
        let record = TaskRecord {
            id,
            nonce,
            order: order.detached(),
            state: TaskState::Running,
            created_by: by.detached(),
            created_at: at,
            ended_at: None,
            counts: TaskCounts::default(),
        };
        self.tasks.insert(id, record);
        self.changed(CatalogKey::Task(id), out);
        Ok(())
    }

    fn control_task(
        &mut self,
        id: TaskId,
        control: TaskControl,
        at: WallTime,
        out: &mut CatalogOutput,
    ) -> Result<(), TaskDenial> {
        let state = self.tasks.get(&id).ok_or(TaskDenial::NoTask { task: id })?.state;
        let to = match control {
            TaskControl::Pause => TaskState::Paused,
            TaskControl::Resume => TaskState::Running,
            TaskControl::Cancel => TaskState::Cancelled,
        };
        if state == to {
            return Ok(());
        }
        if !state.is_active() {
            return Err(TaskDenial::Ended { task: id, state });
        }
        self.set_task_state(id, to, at, out);
        Ok(())
    }

    fn report_task(
        &mut self,
        id: TaskId,
        counts: TaskCounts,
        done: Option<WallTime>,
        out: &mut CatalogOutput,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // A report of an earlier leader may arrive late.
        if counts.is_newer_than(&task.counts) {
            task.counts = counts;
            self.changed(CatalogKey::Task(id), out);
        }
        let is_active = self.tasks.get(&id).is_some_and(|task| task.state.is_active());
        if let Some(at) = done.filter(|_| is_active) {
            self.set_task_state(id, TaskState::Done, at, out);
        }
    }

    fn set_task_state(
        &mut self,
        id: TaskId,
        state: TaskState,
        at: WallTime,
        out: &mut CatalogOutput,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = state;
        task.ended_at = (!state.is_active()).then_some(at);
        self.changed(CatalogKey::Task(id), out);
        self.remove_old_tasks(out);
    }

    /// Removes ended tasks beyond the number that is kept: the oldest of the virtual host that has
    /// most of them, so that nobody's are removed because of others'.
    fn remove_old_tasks(&mut self, out: &mut CatalogOutput) {
        let mut ended = BTreeMap::<_, Vec<_>>::new();
        for task in self.tasks.values().filter(|task| !task.state.is_active()) {
            let of_vhost = ended.entry(task.order.name.vhost.clone()).or_default();
            of_vhost.push((task.ended_at, task.id));
        }
        ended.values_mut().for_each(|of_vhost| of_vhost.sort_unstable_by(|a, b| b.cmp(a)));
        let count = ended.values().map(Vec::len).sum::<usize>();
        for _ in ENDED_TASKS_MAX..count {
            let most = ended.values_mut().max_by_key(|of_vhost| of_vhost.len());
            let Some((_, id)) = most.and_then(Vec::pop) else { return };
            self.tasks.remove(&id);
            self.changed(CatalogKey::Task(id), out);
        }
    }

    /// Ends the tasks of a queue that has ended.
    pub(crate) fn end_tasks_of(&mut self, queue: QueueId, out: &mut CatalogOutput) {
        let is_of = |task: &&TaskRecord| task.order.queue == queue && task.state.is_active();
        let ended = self.tasks.values().filter(is_of);
        let ended: Vec<_> = ended.map(|task| (task.id, task.created_at)).collect();
        // The command has no time of its own.
        for (id, at) in ended {
            self.set_task_state(id, TaskState::QueueEnded, at, out);
        }
    }
}

impl TaskOrder {
    /// A copy that does not keep the command's buffer in memory.
    fn detached(&self) -> Self {
        let to = match &self.to {
            TaskTarget::Queue(name) => TaskTarget::Queue(name.detached()),
            TaskTarget::Exchange(name) => TaskTarget::Exchange(name.detached()),
            TaskTarget::Nowhere | TaskTarget::Original => self.to.clone(),
        };
        let name =
            ResourceName { vhost: self.name.vhost.detached(), name: self.name.name.detached() };
        let part = |(part, value): &(ShortString, String)| (part.detached(), value.clone());
        let filter = self.filter.iter().map(part).collect();
        Self { to, name, filter, ..self.clone() }
    }
}

/// The tasks, by id.
pub(crate) type Tasks = BTreeMap<TaskId, TaskRecord>;

impl Feed for TaskId {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.0);
    }
}

impl Feed for TaskOrder {
    fn feed(&self, digest: &mut Digest) {
        digest.bytes(self.kind.name().as_bytes());
        self.queue.feed(digest);
        self.name.feed(digest);
        digest.bytes(self.to.to_string().as_bytes());
        digest.word(self.filter.len() as u64);
        for (part, value) in &self.filter {
            part.feed(digest);
            digest.bytes(value.as_bytes());
        }
        digest.word(self.rate.map_or(0, |rate| u64::from(rate) + 1));
        digest.word(self.max.map_or(0, |max| max.saturating_add(1)));
        self.dry_run.feed(digest);
    }
}

impl Feed for TaskRecord {
    fn feed(&self, digest: &mut Digest) {
        let Self { id: _, nonce, order, state, created_by, created_at, ended_at, counts } = self;
        digest.word(*nonce);
        order.feed(digest);
        digest.bytes(state.name().as_bytes());
        created_by.feed(digest);
        digest.word(created_at.0);
        digest.word(ended_at.map_or(0, |at| at.0));
        let TaskCounts { taken, moved, skipped, no_target, under_way } = *counts;
        [taken, moved, skipped, no_target, under_way].iter().for_each(|it| digest.word(*it));
    }
}
