//! What the leader does next for a task, how fast, and what one step of it takes. Pure.

use quorate_catalog::{TaskRecord, TaskState};
use quorate_queue::{Take, TakeTo, TaskProgress, TaskStep};
use quorate_types::{CatalogIndex, MessageId, TaskId};
use std::time::Duration;

/// Most messages that are under way at a time: as many transfers as a stream may have, twice.
pub(super) const UNDER_WAY_MAX: u64 = 4_096;
/// Most messages that one step takes.
const STEP_MAX: u64 = 512;
/// How often progress is reported to the catalog while it changes.
const REPORT: Duration = Duration::from_secs(1);

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing, until something changes that begins the task's worker again.
    End,
    /// The first step, once the catalog copy is known to be fresh.
    Begin,
    /// Another step, and the number of messages that it may take.
    Step(u64),
    /// The last step: as many messages were taken as were to be.
    Finish,
    /// What is under way has to arrive first.
    Wait,
    /// The catalog does not know the progress; with `done` nothing is left to be done.
    Report { done: bool },
    /// The group need not remember the task any more.
    Forget,
}

/// Targets of the messages of one step, at most about: one entry shall not be too large.
const STEP_TARGETS_MAX: usize = 4_096;

/// Decides what is to be done next. `since_report` is the time since the last report.
pub(super) fn next(
    task: &TaskRecord,
    progress: Option<TaskProgress>,
    since_report: Duration,
) -> Next {
    let Some(TaskProgress { next, counts, .. }) = progress else {
        return if task.state == TaskState::Running { Next::Begin } else { Next::End };
    };
    let has_arrived = counts.under_way == 0;
    let is_known = !counts.is_newer_than(&task.counts);
    if task.state == TaskState::Running && next.is_none() && has_arrived {
        return Next::Report { done: true };
    }
    if !is_known && since_report >= REPORT {
        return Next::Report { done: false };
    }
    match task.state {
        TaskState::Running if next.is_some() => {
            let left = task.order.max.map(|max| max.saturating_sub(counts.taken));
            let room = UNDER_WAY_MAX.saturating_sub(counts.under_way);
            match left {
                Some(0) => Next::Finish,
                // No small steps while much is under way.
                _ if room < STEP_MAX => Next::Wait,
                left => Next::Step(left.unwrap_or(STEP_MAX).min(STEP_MAX)),
            }
        }
        TaskState::Running => Next::Wait,
        TaskState::Paused if has_arrived && is_known => Next::End,
        TaskState::Paused => Next::Wait,
        TaskState::Done | TaskState::Cancelled | TaskState::QueueEnded if !has_arrived => {
            Next::Wait
        }
        TaskState::Done | TaskState::Cancelled | TaskState::QueueEnded if is_known => Next::Forget,
        TaskState::Done | TaskState::Cancelled | TaskState::QueueEnded => {
            Next::Report { done: false }
        }
    }
}

/// How many messages may be taken, by the rate of the task: a bucket that holds a tenth of a second.
#[derive(Debug)]
pub(super) struct Bucket {
    rate: Option<u64>,
    /// Thousandths of a message.
    tokens: u64,
    filled: Duration,
}

impl Bucket {
    /// A full bucket; times are since any fixed moment.
    pub(super) fn new(rate: Option<u32>, now: Duration) -> Self {
        let rate = rate.map(|rate| u64::from(rate.max(1)));
        Self { rate, tokens: rate.map_or(0, Self::capacity), filled: now }
    }

    fn capacity(rate: u64) -> u64 {
        (rate * 100).max(1_000)
    }

    /// The messages that may be taken now, at most `most`; none before the bucket is half full, since
    /// a step costs about the same for one message and for many.
    pub(super) fn allowed(&mut self, most: u64, now: Duration) -> u64 {
        let Some(rate) = self.rate else { return most };
        let since = now.saturating_sub(self.filled);
        let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        // Whole milliseconds; what is left of one counts the next time.
        self.filled += Duration::from_millis(ms);
        let more = ms.saturating_mul(rate);
        self.tokens = self.tokens.saturating_add(more).min(Self::capacity(rate));
        let least = most.saturating_mul(1_000).min(Self::capacity(rate) / 2);
        if self.tokens < least { 0 } else { most.min(self.tokens / 1_000) }
    }

    /// Messages were taken.
    pub(super) fn spend(&mut self, messages: u64) {
        self.tokens = self.tokens.saturating_sub(messages.saturating_mul(1_000));
    }
}

/// What becomes of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is not meant.
    Skip,
    /// It is not there any more.
    Vanished,
    /// It is meant, and nothing takes it.
    NoTarget,
    /// It is taken.
    Take(TakeTo),
}

/// A step under construction.
#[derive(Debug)]
pub(super) struct StepBuilder {
    step: TaskStep,
    taken: u64,
    targets: usize,
    dry_run: bool,
}

impl StepBuilder {
    /// A step of a task from where it is.
    pub(super) fn new(
        task: &TaskRecord,
        progress: TaskProgress,
        from: MessageId,
        at: CatalogIndex,
    ) -> Self {
        let (queue, id): (_, TaskId) = (task.order.queue, task.id);
        let step = TaskStep {
            queue,
            task: id,
            until: progress.until,
            at,
            from,
            next: None,
            skipped: 0,
            no_target: 0,
            matched: 0,
            takes: Vec::new(),
        };
        Self { step, taken: 0, targets: 0, dry_run: task.order.dry_run }
    }

    /// True if nothing more may be added to a step that takes at most `most` messages.
    pub(super) fn is_full(&self, most: u64) -> bool {
        self.taken >= most || self.targets >= STEP_TARGETS_MAX
    }

    /// True if a message without a target is among them.
    pub(super) fn lacks_targets(&self) -> bool {
        self.step.no_target > 0
    }

    /// Adds the next message.
    pub(super) fn add(&mut self, message: MessageId, verdict: Verdict) {
        let to = match verdict {
            Verdict::Vanished => return,
            Verdict::Skip => return self.step.skipped += 1,
            Verdict::NoTarget => return self.step.no_target += 1,
            Verdict::Take(to) => to,
        };
        self.taken += 1;
        if self.dry_run {
            self.step.matched += 1;
            return;
        }
        if let TakeTo::Queues { targets, .. } = &to {
            self.targets += targets.len();
        }
        // Messages that go to the same place one after the other are taken together.
        match self.step.takes.last_mut() {
            Some(last) if last.to == to => last.messages.push(message),
            Some(_) | None => self.step.takes.push(Take { to, messages: vec![message] }),
        }
    }

    /// The step, after which the task goes on at `next`.
    pub(super) fn end(mut self, next: Option<MessageId>) -> TaskStep {
        self.step.next = next;
        self.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{TaskKind, TaskOrder, TaskTarget};
    use quorate_queue::{TaskCounts, Via};
    use quorate_types::{
        GroupId, Home, Level, LogIndex, QueueId, ResourceName, ShortString, WallTime,
    };

    fn task(state: TaskState, max: Option<u64>) -> TaskRecord {
        TaskRecord {
            id: TaskId(5),
            nonce: 1,
            order: TaskOrder {
                kind: TaskKind::Redrive,
                queue: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
                name: ResourceName { vhost: ShortString::EMPTY, name: ShortString::EMPTY },
                to: TaskTarget::Original,
                filter: Vec::new(),
                rate: None,
                max,
                dry_run: false,
            },
            state,
            created_by: ShortString::EMPTY,
            created_at: WallTime(0),
            ended_at: None,
            counts: TaskCounts::default(),
        }
    }

    fn progress(next: bool, taken: u64, under_way: u64) -> TaskProgress {
        let counts =
            TaskCounts { taken, under_way, moved: taken - under_way, ..TaskCounts::default() };
        let next = next.then_some(TaskProgress::START);
        TaskProgress { until: LogIndex(9), next, counts }
    }

    const NOW: Duration = Duration::ZERO;
    const LATE: Duration = Duration::from_secs(2);

    #[test]
    fn a_task_goes_on_until_all_has_arrived_and_is_reported() {
        let running = |max| task(TaskState::Running, max);
        assert_eq!(next(&running(None), None, NOW), Next::Begin);
        assert_eq!(next(&running(None), Some(progress(true, 9, 9)), NOW), Next::Step(512));
        assert_eq!(next(&running(Some(12)), Some(progress(true, 9, 0)), NOW), Next::Step(3));
        assert_eq!(next(&running(Some(9)), Some(progress(true, 9, 9)), NOW), Next::Finish);
        let many = progress(true, 9_000, UNDER_WAY_MAX - STEP_MAX);
        assert_eq!(next(&running(None), Some(many), NOW), Next::Step(STEP_MAX));
        let full = progress(true, 9_000, UNDER_WAY_MAX - STEP_MAX + 1);
        assert_eq!(next(&running(None), Some(full), NOW), Next::Wait);
        assert_eq!(next(&running(None), Some(full), LATE), Next::Report { done: false });
        assert_eq!(next(&running(None), Some(progress(false, 9, 1)), NOW), Next::Wait);
        let arrived = Some(progress(false, 9, 0));
        assert_eq!(next(&running(None), arrived, NOW), Next::Report { done: true });
        let mut done = task(TaskState::Done, None);
        assert_eq!(next(&done, arrived, NOW), Next::Report { done: false });
        done.counts = progress(false, 9, 0).counts;
        assert_eq!(next(&done, arrived, NOW), Next::Forget);
        assert_eq!(next(&done, None, NOW), Next::End);
    }

    #[test]
    fn what_is_under_way_arrives_also_when_the_task_is_paused_or_cancelled() {
        for state in [TaskState::Paused, TaskState::Cancelled] {
            let mut task = task(state, None);
            assert_eq!(next(&task, Some(progress(true, 9, 2)), NOW), Next::Wait);
            assert_eq!(next(&task, Some(progress(true, 9, 2)), LATE), Next::Report { done: false });
            task.counts = progress(true, 9, 0).counts;
            let end = if state == TaskState::Paused { Next::End } else { Next::Forget };
            assert_eq!(next(&task, Some(progress(true, 9, 0)), LATE), end);
            assert_eq!(next(&task, None, NOW), Next::End, "not begun");
        }
    }

    #[test]
    fn a_rate_is_kept_on_the_average_and_never_stored_for_long() {
        let at = Duration::from_millis;
        let mut bucket = Bucket::new(Some(50), at(0));
        let mut taken = 0;
        for ms in (0..=10_000).step_by(7) {
            let now = bucket.allowed(512, at(ms));
            assert!(now <= 5, "more than a tenth of a second");
            bucket.spend(now);
            taken += now;
        }
        assert!((500..=505).contains(&taken), "{taken} in ten seconds");
        let mut slow = Bucket::new(Some(1), at(0));
        assert_eq!(slow.allowed(512, at(0)), 1);
        slow.spend(1);
        assert_eq!((slow.allowed(512, at(999)), slow.allowed(512, at(1_000))), (0, 1));
        assert_eq!(Bucket::new(None, at(0)).allowed(512, at(0)), 512);
    }

    #[test]
    fn messages_of_one_way_are_taken_together_in_their_order() {
        let task = task(TaskState::Running, None);
        let id = |position| MessageId { level: Level(0), index: LogIndex(1), position };
        let to = |key: &'static str| TakeTo::Queues {
            via: Via {
                exchange: ShortString::EMPTY,
                routing_key: Some(ShortString::from_static(key)),
            },
            targets: vec![task.order.queue],
        };
        let build = |dry_run: bool| {
            let mut task = task.clone();
            task.order.dry_run = dry_run;
            let begun = TaskProgress::begun(LogIndex(9));
            let mut step = StepBuilder::new(&task, begun, TaskProgress::START, CatalogIndex(3));
            for (position, verdict) in (0u32..).zip([
                Verdict::Take(to("a")),
                Verdict::Skip,
                Verdict::Take(to("a")),
                Verdict::Vanished,
                Verdict::Take(to("b")),
                Verdict::NoTarget,
                Verdict::Take(to("a")),
            ]) {
                step.add(id(position), verdict);
            }
            assert!(step.lacks_targets());
            step.end(Some(id(7)))
        };
        let step = build(false);
        let groups: Vec<_> = step.takes.iter().map(|take| take.messages.len()).collect();
        assert_eq!(groups, [2, 1, 1]);
        assert_eq!((step.skipped, step.no_target, step.matched), (1, 1, 0));
        let dry = build(true);
        assert_eq!((dry.takes.len(), dry.matched, dry.skipped, dry.no_target), (0, 4, 1, 1));
    }
}
