//! Tasks of the catalog that put dead letters back, move messages or delete them: carried out by
//! the leader of the queue's group, step by step. A step is looked for, filtered and routed here,
//! and committed in the group as `TaskStep`; what it takes goes the way of a dead letter (LET), so
//! the dead-letter worker sends it.
//!
//! Each task has a worker on the node that leads the group. A worker remembers only its rate: what
//! is to be done is in the catalog, and how far it has come in the group.

mod aim;
mod course;
mod look;

use crate::{
    base::Base,
    context::Context,
    leader::{
        bodies::Bodies,
        dead_letter::route::merged_properties,
        led_homes::{LedHomes, walk},
    },
    names::{CatalogClient, CatalogCopy, RoutingLease},
};
use aim::Aim;
use course::{Bucket, Next, StepBuilder, Verdict};
use look::WithBody;
use parking_lot::Mutex;
use quorate_catalog::{
    Catalog, CatalogCommand, RouteRequest, TaskCommand, TaskKind, TaskOrder, TaskRecord, TaskState,
    filter_of,
};
use quorate_queue::{Command, Machine, TakeTo, TaskProgress, TaskStep};
use quorate_rpc::chance;
use quorate_storage::codec::message;
use quorate_types::{
    Home, MachineVersion, Message, MessageFilter, MessageId, Properties, QueueId, TaskId, Term,
};
use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior, sleep, timeout};

/// Longest time until a task that is to be carried out here gets a worker.
const TICK: Duration = Duration::from_millis(250);
/// A worker that has nothing to do looks again after this time.
const PAUSE: Duration = Duration::from_millis(20);
/// A proposed step without an effect within this time is proposed again.
const STEP_LOST: Duration = Duration::from_secs(1);
/// How often groups are searched for tasks that the catalog does not have any more.
const SEARCH: Duration = Duration::from_secs(10);

/// The workers of the tasks that this node carries out.
#[derive(Debug)]
pub(crate) struct Tasks {
    this: Weak<Tasks>,
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    catalog_client: Arc<CatalogClient>,
    lease: Arc<RoutingLease>,
    led: Arc<LedHomes>,
    bodies: Arc<Bodies>,
    is_short: IsShort,
    /// Tasks that have a worker.
    working: Mutex<BTreeSet<TaskId>>,
}

/// Whether an alarm is on, so that nothing may be published (ALM-04).
pub(crate) struct IsShort(pub(crate) Box<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for IsShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IsShort").field(&(self.0)()).finish()
    }
}

/// What a worker remembers.
struct Worker {
    bucket: Bucket,
    /// The origin of the bucket's time.
    began: Instant,
    reported: Instant,
}

impl Tasks {
    /// No task has a worker.
    pub(crate) fn new(base: &Base, is_short: IsShort) -> Arc<Self> {
        let Base { context, catalog, lease, catalog_client, led, bodies, .. } = base.clone();
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            context,
            catalog,
            catalog_client,
            lease,
            led,
            bodies,
            is_short,
            working: Mutex::default(),
        })
    }

    /// Begins workers for the tasks of the groups that this node leads; runs until the node stops.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut searched = Instant::now();
        loop {
            tokio::select! {
                _ = versions.changed() => {}
                _ = ticks.tick() => {}
            }
            for task in self.tasks_with_work() {
                self.begin(task);
            }
            if searched.elapsed() >= SEARCH {
                searched = Instant::now();
                self.forget_unknown().await;
            }
        }
    }

    /// Tasks of groups that this node leads for which something is to be done.
    fn tasks_with_work(&self) -> Vec<TaskId> {
        let tasks: Vec<TaskRecord> = {
            let catalog = self.catalog.read();
            if catalog.machine() < MachineVersion::RETRIES {
                return Vec::new();
            }
            catalog.tasks().filter(|task| self.leads(task.order.queue)).cloned().collect()
        };
        let has_work = |task: &TaskRecord| {
            course::next(task, self.progress(task), Duration::ZERO) != Next::End
        };
        tasks.into_iter().filter(has_work).map(|task| task.id).collect()
    }

    fn leads(&self, queue: QueueId) -> bool {
        matches!(queue.home, Home::Group(_)) && self.led.leading(queue.home).is_some()
    }

    fn progress(&self, task: &TaskRecord) -> Option<TaskProgress> {
        let queue = task.order.queue;
        self.led.with_machine(queue.home, |machine| machine.task(queue, task.id)).flatten()
    }

    fn begin(&self, id: TaskId) {
        let Some(this) = self.this.upgrade() else { return };
        if self.working.lock().insert(id) {
            self.context.spawn(async move {
                this.carry_out(id).await;
                this.working.lock().remove(&id);
            });
        }
    }

    /// Carries out a task while this node leads its group and something is to be done.
    async fn carry_out(&self, id: TaskId) {
        let Some(task) = self.catalog.read().task(id).cloned() else { return };
        let now = Instant::now();
        let bucket = Bucket::new(task.order.rate, Duration::ZERO);
        let mut worker = Worker { bucket, began: now, reported: now };
        let home = task.order.queue.home;
        while let Some(term) = self.led.leading(home) {
            let Some(task) = self.catalog.read().task(id).cloned() else { return };
            let progress = self.progress(&task);
            let next = course::next(&task, progress, worker.reported.elapsed());
            match (next, progress) {
                (Next::End, _) => return,
                (Next::Begin, _) => {
                    if self.is_still_to_begin(id).await {
                        self.first_step(&task, term, &mut worker).await;
                    }
                }
                (Next::Step(most), Some(progress)) => {
                    self.step(&task, progress, (term, most), &mut worker).await;
                }
                (Next::Finish, Some(progress)) => self.finish(&task, progress).await,
                (Next::Report { done }, Some(progress)) => {
                    self.report(&task, progress, done, &mut worker).await;
                }
                (Next::Forget, _) => {
                    let command = Command::ForgetTask { queue: task.order.queue, task: id };
                    self.commit(home, command, |machine| {
                        machine.task(task.order.queue, id).is_none()
                    })
                    .await;
                }
                (Next::Wait | Next::Step(_) | Next::Finish | Next::Report { .. }, _) => {
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Whether the task is running by a linearizable read of the catalog: one that has ended was
    /// forgotten by its group, and must not begin anew.
    async fn is_still_to_begin(&self, id: TaskId) -> bool {
        if !self.catalog_client.read().await {
            sleep(PAUSE).await;
            return false;
        }
        let catalog = self.catalog.read();
        catalog.task(id).is_some_and(|task| task.state == TaskState::Running)
    }

    async fn first_step(&self, task: &TaskRecord, term: Term, worker: &mut Worker) {
        let Home::Group(group) = task.order.queue.home else { return };
        let applied = self.context.group(group).and_then(|group| group.applied());
        // The queue may be new, and its creation not yet applied here.
        let exists = |machine: &Machine| machine.has_queue(task.order.queue);
        let exists = self.led.with_machine(task.order.queue.home, exists).unwrap_or(false);
        let Some(applied) = applied.filter(|_| exists) else {
            return sleep(PAUSE).await;
        };
        let progress = TaskProgress::begun(applied.next());
        if let Next::Step(most) = course::next(task, Some(progress), Duration::ZERO) {
            self.step(task, progress, (term, most), worker).await;
        }
    }

    /// True while a node is short of memory or disk space, and the task would write messages.
    fn must_wait(&self, order: &TaskOrder) -> bool {
        (self.is_short.0)() && !order.dry_run && order.kind != TaskKind::Delete
    }

    /// Looks for the messages of the next step, and commits it.
    async fn step(
        &self,
        task: &TaskRecord,
        progress: TaskProgress,
        (term, most): (Term, u64),
        worker: &mut Worker,
    ) {
        let Some(from) = progress.next else { return };
        let now = worker.began.elapsed();
        let most = worker.bucket.allowed(most, now);
        if most == 0 || !self.lease.is_held() || self.must_wait(&task.order) {
            return sleep(PAUSE).await;
        }
        let limit = look::limit(most);
        let looked = self.look(task.order.queue, from, progress.until, limit);
        let looked = match looked {
            Ok(Some(looked)) => looked,
            Ok(None) => return sleep(PAUSE).await,
            Err(error) => {
                tracing::error!(task = %task.id, %error, "messages of a task cannot be looked at");
                return sleep(STEP_LOST).await;
            }
        };
        let (messages, next) = self.read_bodies(task.order.queue, looked, term).await;
        // What was looked at as another leader, or between two terms, is not known to be complete.
        let leads = || self.led.leading(task.order.queue.home) == Some(term);
        if !leads() {
            return;
        }
        let begun = || (task, progress, from);
        let (mut step, lacks_targets) = self.build(begun(), &messages, next, most);
        // Before a message counts as one that nothing takes, the copy is brought up to date (LET 5).
        if lacks_targets {
            if !self.catalog_client.read().await || !self.lease.is_held() {
                return sleep(PAUSE).await;
            }
            (step, _) = self.build(begun(), &messages, next, most);
        }
        // The task may have been done and forgotten since, under another leader. Without the lease a binding
        // may be gone that the messages were routed by (NAM 5).
        if !leads() || !self.lease.is_held() {
            return;
        }
        let taken = step.takes.iter().map(|take| take.messages.len() as u64).sum::<u64>();
        worker.bucket.spend(taken + step.matched);
        self.commit_step(task, progress, step).await;
    }

    /// The step that takes at most `most` of these messages, and whether some lack a target. If the
    /// filter cannot be read, of which its creator has made sure, it is the last one.
    fn build(
        &self,
        (task, progress, from): (&TaskRecord, TaskProgress, MessageId),
        messages: &[WithBody],
        next: Option<MessageId>,
        most: u64,
    ) -> (TaskStep, bool) {
        let filter = match filter_of(&task.order.filter) {
            Ok(filter) => filter,
            Err(error) => {
                tracing::error!(task = %task.id, %error, "a task ends: its filter cannot be read");
                let at = self.catalog.read().version();
                return (StepBuilder::new(task, progress, from, at).end(None), false);
            }
        };
        let now = self.led.clock(task.order.queue.home).unwrap_or_default();
        let at = self.catalog.read().version();
        let mut builder = StepBuilder::new(task, progress, from, at);
        for (queued, bytes) in messages {
            if builder.is_full(most) {
                let lacks_targets = builder.lacks_targets();
                return (builder.end(Some(queued.message)), lacks_targets);
            }
            let age_ms = now.ms_since(queued.enqueued_at);
            let verdict = match bytes {
                Some(bytes) => self.verdict(&task.order, &filter, bytes, age_ms),
                None => Verdict::Vanished,
            };
            builder.add(queued.message, verdict);
        }
        let lacks_targets = builder.lacks_targets();
        (builder.end(next), lacks_targets)
    }

    fn verdict(
        &self,
        order: &TaskOrder,
        filter: &MessageFilter,
        bytes: &bytes::Bytes,
        age_ms: u64,
    ) -> Verdict {
        let Ok(message) = message::decode(bytes) else { return Verdict::Skip };
        if !filter.matches(&message, age_ms) {
            return Verdict::Skip;
        }
        match aim::aim(order, &message) {
            Aim::Skip => Verdict::Skip,
            Aim::Nowhere => Verdict::Take(TakeTo::Nowhere),
            Aim::To { exchange, keys, via } => {
                let catalog = self.catalog.read();
                let targets = self.targets(&catalog, order, &message, (&exchange, &keys));
                if targets.is_empty() {
                    Verdict::NoTarget
                } else {
                    Verdict::Take(TakeTo::Queues { via, targets })
                }
            }
        }
    }

    /// The queues that a message is routed to. Its history is no obstacle: an operator wants it
    /// there, and it goes there once.
    fn targets(
        &self,
        catalog: &Catalog,
        order: &TaskOrder,
        message: &Message,
        (exchange, (routing_key, further_keys)): (
            &quorate_types::ShortString,
            &(quorate_types::ShortString, Vec<quorate_types::ShortString>),
        ),
    ) -> Vec<QueueId> {
        let Ok(properties) = Properties::parse(message.properties.clone()) else {
            return Vec::new();
        };
        let headers = properties.decode_headers().ok().flatten();
        let properties = merged_properties(properties, headers, &message.annotations);
        let request = RouteRequest {
            vhost: &order.name.vhost,
            exchange,
            routing_key,
            further_keys,
            properties: &properties,
            chance: chance::random,
            locality: &self.led.leaderships,
            by_broker: true,
        };
        let mut targets = Vec::new();
        // Without the exchange, or the queue of a delayed one, nothing takes the message.
        if catalog.route(&request, &mut targets).is_err() {
            targets.clear();
        }
        targets
    }

    /// Ends the look: as many messages were taken as were to be.
    async fn finish(&self, task: &TaskRecord, progress: TaskProgress) {
        let Some(from) = progress.next else { return };
        let at = self.catalog.read().version();
        let step = StepBuilder::new(task, progress, from, at).end(None);
        self.commit_step(task, progress, step).await;
    }

    async fn commit_step(&self, task: &TaskRecord, before: TaskProgress, step: TaskStep) {
        let (queue, id) = (task.order.queue, task.id);
        let is_applied = |machine: &Machine| {
            machine.task(queue, id).is_some_and(|progress| progress.next != before.next)
                || !machine.has_queue(queue)
        };
        self.commit(queue.home, Command::TaskStep(Box::new(step)), is_applied).await;
    }

    /// Proposes a command, and waits until it is applied; not for ever, since it may be lost.
    async fn commit(&self, home: Home, command: Command, is_applied: impl Fn(&Machine) -> bool) {
        let Some(mut progress) = self.led.progress(home) else { return };
        let term = self.led.leading(home);
        self.led.propose_to(home, vec![command]);
        let applied = async {
            while self.led.leading(home) == term
                && !self.led.with_machine(home, &is_applied).unwrap_or(true)
            {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        };
        drop(timeout(STEP_LOST, applied).await);
    }

    /// Reports how far the task has come.
    async fn report(
        &self,
        task: &TaskRecord,
        progress: TaskProgress,
        done: bool,
        worker: &mut Worker,
    ) {
        worker.reported = Instant::now();
        let done = done.then(|| self.context.settings.wall.now());
        let command = TaskCommand::Report { task: task.id, counts: progress.counts, done };
        let reported = self.catalog_client.propose(CatalogCommand::Tasks(command)).await;
        if let Err(error) = reported {
            tracing::debug!(task = %task.id, %error, "the progress of a task is not reported yet");
            sleep(STEP_LOST).await;
        }
    }

    /// Lets groups forget tasks that the catalog does not have any more.
    async fn forget_unknown(&self) {
        let unknown = |queues: Vec<(QueueId, TaskId)>| {
            let catalog = self.catalog.read();
            let known = |task: &TaskId| catalog.task(*task).is_some();
            queues.into_iter().filter(|(_, task)| !known(task)).collect::<Vec<_>>()
        };
        let homes = self.led.groups().into_iter().map(Home::Group);
        let found = unknown(homes.flat_map(|home| walk(&self.led, home, Machine::tasks)).collect());
        // The copy may be older than the task.
        if found.is_empty() || !self.catalog_client.read().await {
            return;
        }
        for (queue, task) in unknown(found) {
            self.led.propose_to(queue.home, vec![Command::ForgetTask { queue, task }]);
        }
    }
}
