//! Tasks of the catalog that take ready messages out of a queue: to put dead letters back, to move
//! messages, or to delete them. The leader looks for the messages and routes them; `TaskStep`
//! commits one step: what was looked at, and what is taken from where.
//!
//! A message that is taken becomes a letter whose routing is decided already, so that it goes
//! through the same transfers as a dead letter, and arrives exactly once (LET 1 to 4). If all its
//! targets have ended by then, it goes back to its place in the queue.
//!
//! How far a task has come is part of the queue's record, so a new leader goes on from there.

use crate::{
    apply::Apply,
    command::{Take, TakeTo, TaskStep},
    death_reason::DeathReason,
    digest::{self, Step},
    letter::{Letter, Routing, Stage, Taken, Via},
    level::{Place, stored_message},
    machine::Machine,
    outbox::{self, TransferKey},
    queue::Queue,
    record::QueuedMessage,
    store::{RunHead, StoreError},
    walk::Walk,
};
use quorate_types::{
    CatalogIndex, LetterNumber, Level, LogIndex, MessageId, QueueId, TaskId, Timestamp,
};
use std::{cmp::Ordering, collections::BTreeMap};

/// Maximum of tasks that one queue has at a time.
pub const TASKS_OF_QUEUE_MAX: usize = 16;

/// How far a task has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskProgress {
    /// Only messages of entries below this index are looked at: what arrives while the task runs,
    /// for example since it died again, is left alone.
    pub until: LogIndex,
    /// The place at which the next step begins; `None`: all messages were looked at.
    pub next: Option<MessageId>,
    /// What has become of the messages.
    pub counts: TaskCounts,
}

/// What has become of the messages that a task has looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Messages that were taken from the queue, those that came back included; in a dry run, those
    /// that would be taken.
    pub taken: u64,
    /// Messages that have arrived in all their targets, or were deleted; in a dry run as `taken`.
    pub moved: u64,
    /// Messages that do not match the filter or are not dead letters.
    pub skipped: u64,
    /// Messages without a target; they are in the queue.
    pub no_target: u64,
    /// Taken messages that not all targets have accepted yet.
    pub under_way: u64,
}

impl TaskCounts {
    /// A number that never falls while a task goes on.
    #[must_use]
    pub fn looked_at(&self) -> u64 {
        self.taken.saturating_add(self.skipped).saturating_add(self.no_target)
    }

    /// True if these counts of a task were taken after those.
    #[must_use]
    pub fn is_newer_than(&self, other: &Self) -> bool {
        match self.looked_at().cmp(&other.looked_at()) {
            Ordering::Greater => true,
            Ordering::Equal => self.under_way < other.under_way,
            Ordering::Less => false,
        }
    }
}

impl TaskProgress {
    /// Before the first message of a queue: the highest level comes first.
    pub const START: MessageId =
        MessageId { level: Level(u8::MAX), index: LogIndex(0), position: 0 };

    /// The progress of a task that has not begun.
    #[must_use]
    pub fn begun(until: LogIndex) -> Self {
        Self { until, next: Some(Self::START), counts: TaskCounts::default() }
    }
}

impl Machine {
    /// How far a task of a queue has come; `None` if it has not begun here, or was forgotten.
    #[must_use]
    pub fn task(&self, queue: QueueId, task: TaskId) -> Option<TaskProgress> {
        self.queues.get(&queue)?.tasks.get(&task).copied()
    }

    /// The tasks that have begun, with their queues, of the walk's next part.
    #[must_use]
    pub fn tasks(&self, walk: &mut Walk) -> Vec<(QueueId, TaskId)> {
        let of_queue = |queue: &Queue| queue.tasks.keys().map(|task| (queue.id, *task)).collect();
        self.next_queues(walk).flat_map::<Vec<_>, _>(of_queue).collect()
    }

    /// `TaskStep`: no effect if the task is not where the step begins, so that a repeat is
    /// harmless.
    pub(crate) fn task_step(
        &mut self,
        step: &TaskStep,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let lives = |target: &QueueId| !self.is_over(target.letter_home());
        let takes: Vec<Take> = step.takes.iter().map(|take| take.retain(lives)).collect();
        let Some(queue) = self.queues.get_mut(&step.queue) else { return Ok(()) };
        let Some(mut progress) = queue.progress_at(step) else { return Ok(()) };
        queue.touch(apply);
        apply.digest.step(Step::Task, digest::of_queue(step.queue), step.task.0);
        progress.next = step.next;
        progress.counts.skipped += step.skipped;
        progress.counts.no_target += step.no_target;
        progress.counts.taken += step.matched;
        progress.counts.moved += step.matched;
        for take in &takes {
            queue.take_all(step, take, &mut progress.counts, apply)?;
        }
        apply.digest.step(
            Step::Task,
            step.next.map_or(0, digest::of_message),
            progress.counts.taken,
        );
        queue.tasks.insert(step.task, progress);
        Ok(())
    }

    /// `ForgetTask`: the task has ended. Letters of it that are under way are not counted any more.
    pub(crate) fn forget_task(&mut self, queue: QueueId, task: TaskId, apply: &mut Apply<'_>) {
        if let Some(queue) = self.queues.get_mut(&queue)
            && queue.tasks.remove(&task).is_some()
        {
            apply.digest.step(Step::Task, digest::of_queue(queue.id), !task.0);
            queue.touch(apply);
        }
    }
}

impl Take {
    /// The same, with those of its targets that may accept messages.
    fn retain(&self, lives: impl Fn(&QueueId) -> bool) -> Self {
        let mut take = self.clone();
        if let TakeTo::Queues { targets, .. } = &mut take.to {
            targets.retain(lives);
        }
        take
    }
}

impl Queue {
    /// The progress of the step's task, if the step begins there.
    fn progress_at(&self, step: &TaskStep) -> Option<TaskProgress> {
        let known = self.tasks.get(&step.task).copied();
        let may_begin = self.tasks.len() < TASKS_OF_QUEUE_MAX;
        let progress = known.or_else(|| may_begin.then(|| TaskProgress::begun(step.until)))?;
        (progress.next == Some(step.from)).then_some(progress)
    }

    /// Taken messages that have not arrived yet.
    pub(crate) fn under_way(&self) -> u64 {
        self.tasks.values().map(|progress| progress.counts.under_way).sum()
    }

    fn take_all(
        &mut self,
        step: &TaskStep,
        take: &Take,
        counts: &mut TaskCounts,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        if let TakeTo::Queues { targets, .. } = &take.to
            && targets.is_empty()
        {
            counts.no_target += take.messages.len() as u64;
            return Ok(());
        }
        // All messages of a step are in the same level most of the time, and in few runs.
        let mut run = (Level(0), None);
        for message in &take.messages {
            // A consumer may have taken it, or it has expired.
            let Some(queued) = self.take_ready(*message, &mut run, apply)? else { continue };
            apply.spend(1);
            apply.digest.step(Step::Take, digest::of_message(*message), step.task.0);
            counts.taken += 1;
            match &take.to {
                TakeTo::Nowhere => {
                    self.settle_message(*message, apply);
                    counts.moved += 1;
                }
                TakeTo::Queues { via, targets } => {
                    let of = Taken { task: step.task, counts: queued.counts };
                    self.send_taken(queued, of, (step.at, via, targets), apply);
                    counts.under_way += 1;
                }
            }
        }
        Ok(())
    }

    /// Takes a message if it is ready; it then counts as living.
    fn take_ready(
        &mut self,
        message: MessageId,
        (level, run): &mut (Level, Option<RunHead>),
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        let place = self.place(message);
        if std::mem::replace(level, message.level) != message.level {
            *run = None;
        }
        match self.levels.get_mut(&message.level) {
            Some(state) => state.take_at(place, (message.index, message.position), run, apply),
            None => Ok(None),
        }
    }

    fn place(&self, message: MessageId) -> Place {
        Place { queue: self.id, level: message.level, served: self.attached > 0 }
    }

    /// Makes a letter of a message that was taken, and numbers its transfers (LET 1).
    fn send_taken(
        &mut self,
        queued: QueuedMessage,
        of: Taken,
        (at, via, targets): (CatalogIndex, &Via, &[QueueId]),
        apply: &mut Apply<'_>,
    ) {
        apply.group.letters.routings += 1;
        let order = apply.group.letters.routings;
        let letter = LetterNumber(self.letters.last().0 + 1);
        let transfer = |target: &QueueId| {
            let key = TransferKey { queue: self.id, letter, target: *target };
            (*target, outbox::start(key, order, apply))
        };
        let transfers: BTreeMap<_, _> = targets.iter().map(transfer).collect();
        let via = via.clone();
        let routing = Routing { via, at, order, taken: false, transfers, task: Some(of) };
        self.letters.push(Letter {
            message: queued.message,
            body_bytes: queued.head.body_bytes,
            reason: DeathReason::Redriven,
            died_at: apply.group.wall,
            stage: Stage::Routed(Box::new(routing)),
        });
    }

    /// Ends the letter of a taken message: a target has accepted it, or all have ended.
    pub(crate) fn end_taken(
        &mut self,
        number: LetterNumber,
        of: Taken,
        accepted: bool,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        if accepted || self.ended {
            self.forget_letter(number, apply);
        } else if let Some(letter) = self.letters.remove(number) {
            self.give_back(letter.message, of, apply)?;
        }
        // Letters of a forgotten task do not count.
        if let Some(progress) = self.tasks.get_mut(&of.task).filter(|it| it.counts.under_way > 0) {
            let counts = &mut progress.counts;
            counts.under_way -= 1;
            let end = if accepted { &mut counts.moved } else { &mut counts.no_target };
            *end += 1;
        }
        Ok(())
    }

    /// Puts a taken message back at its place: it is ready again.
    fn give_back(
        &mut self,
        message: MessageId,
        of: Taken,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let place = self.place(message);
        let stored = stored_message(place, (message.index, message.position), &mut None, apply)?;
        let Some(mut queued) = stored else {
            // Its run is kept for the letter, so it is there (STO 3).
            let id = self.id;
            return Err(StoreError(format!("message {message:?} of queue {id} is not stored")));
        };
        (queued.counts, queued.unacked_since) = (of.counts, Timestamp(0));
        self.touch(apply);
        apply.digest.step(Step::GiveBack, digest::of_message(message), of.task.0);
        self.arrived += 1;
        if let Some(state) = self.levels.get_mut(&message.level) {
            state.give_back(queued);
        }
        Ok(())
    }
}
