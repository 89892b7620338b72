//! Creation, configuration and end of queues: `CreateQueue`, `Configure`, `Inspect`, `EndQueue`,
//! `NewLife`, and the end of an auto-delete queue (NAM 1 to 4, DEL-01, DEL-02, EXQ-05, Q-11).

use crate::{
    apply::Apply,
    command::{QueueReport, Reply},
    config::QueueConfig,
    digest::{self, Step},
    machine::{Caller, Machine},
    output::{Change, Effect},
    queue::{Burial, Queue, Unacked},
    record::QueueRecord,
    service_queue::ServiceQueue,
};
use quorate_types::{DeliveryNumber, Holder, Home, LetterNumber, QueueId, ResourceName};
use std::collections::{BTreeMap, VecDeque};

impl Machine {
    /// `CreateQueue`: replies `Created` with the new id; `Gone` if the queue cannot be created.
    pub(crate) fn create_queue(
        &mut self,
        name: &ResourceName,
        config: &QueueConfig,
        bound: Option<u64>,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Reply {
        let Some(id) = self.new_queue_id(bound, apply) else { return Reply::Gone };
        let record = QueueRecord {
            name: name.clone(),
            config: config.clone(),
            creator: caller.session(),
            life: apply.group.life,
            used_at: apply.now,
            wake_at: None,
            timeout_at: None,
            active: None,
            arrivals: 0,
            had_consumer: false,
            levels: BTreeMap::new(),
            service_queue: VecDeque::new(),
            last_letter: LetterNumber(0),
            refusals: BTreeMap::new(),
            ended: false,
            tasks: BTreeMap::new(),
        };
        let mut queue = Queue::from_record(id, record);
        queue.touch(apply);
        apply.digest.step(Step::Create, digest::of_queue(id), config.resolved_at.0);
        self.queues.insert(id, Box::new(queue));
        Reply::Created(id)
    }

    /// In a group: (log index, position in the entry) (NAM 1). On a node: (start, the number drawn
    /// for the queue). `None` without such a number, or if a queue has the id already (NAM 8).
    fn new_queue_id(&self, bound: Option<u64>, apply: &Apply<'_>) -> Option<QueueId> {
        let (index, position) = match self.home {
            Home::Group(_) => (apply.index.0, u64::from(apply.position)),
            Home::Node(_) => (self.start.0, bound?),
        };
        let id = QueueId { home: self.home, index, position };
        (!self.queues.contains_key(&id) && !self.ended_queues.contains_key(&id)).then_some(id)
    }

    /// `Configure`: replaces the settings unless the new ones were resolved at a lower catalog
    /// index (NAM 2).
    pub(crate) fn configure(
        &mut self,
        id: QueueId,
        config: &QueueConfig,
        apply: &mut Apply<'_>,
    ) -> Reply {
        let Some(queue) = self.queues.get_mut(&id) else { return Reply::Gone };
        if config.resolved_at < queue.config.resolved_at {
            return Reply::Taken;
        }
        queue.touch(apply);
        apply.digest.step(Step::Configure, digest::of_queue(id), config.resolved_at.0);
        let retry_before = queue.config.delayed_retry;
        queue.config = config.clone();
        if queue.config.delayed_retry != retry_before {
            queue.shorten_delays(apply.now);
        }
        queue.arm_timeout();
        Reply::Taken
    }

    /// `Inspect`: the counts of a queue that a declare returns (NAM 3, Q-22).
    pub(crate) fn inspect(&mut self, id: QueueId, renew: bool, apply: &mut Apply<'_>) -> Reply {
        let Some(queue) = self.queues.get_mut(&id) else { return Reply::Gone };
        if renew && queue.used_at != apply.now {
            queue.touch(apply);
            queue.used_at = apply.now;
            apply.digest.step(Step::Use, digest::of_queue(id), apply.now.0);
        }
        Reply::Alive(QueueReport {
            ready: queue.ready(),
            consumers: queue.attached,
            configured_at: queue.config.resolved_at,
        })
    }

    /// `EndQueue`: replies `Ended`, or why not; `Gone` if the queue has ended before.
    pub(crate) fn end_queue(
        &mut self,
        id: QueueId,
        if_unused: bool,
        if_empty: bool,
        apply: &mut Apply<'_>,
    ) -> Reply {
        let Some(queue) = self.queues.get(&id) else { return Reply::Gone };
        let ready = queue.ready();
        if if_unused && queue.attached > 0 {
            return Reply::InUse;
        }
        if if_empty && ready + queue.retries() > 0 {
            return Reply::NotEmpty;
        }
        self.end(id, apply);
        Reply::Ended { ready }
    }

    /// `NewLife`: ends the queues that do not outlive a stop of the whole cluster.
    pub(crate) fn new_life(&mut self, life: u64, apply: &mut Apply<'_>) {
        if life <= apply.group.life {
            return;
        }
        apply.group.life = life;
        apply.digest.step(Step::Life, life, 0);
        let queues = self.queues.values();
        let ends = queues.filter(|queue| !queue.config.durable && queue.life < life);
        let ended: Vec<QueueId> = ends.map(|queue| queue.id).collect();
        for id in ended {
            self.end(id, apply);
        }
        // TTLs of queues begin again after the whole cluster was down.
        for queue in self.queues.values_mut().filter(|queue| queue.config.expires_ms.is_some()) {
            queue.touch(apply);
            queue.used_at = apply.now;
        }
    }

    /// Ends the queue if it is auto-delete and has just lost its last consumer (EXQ-05).
    pub(crate) fn end_if_abandoned(&mut self, id: QueueId, apply: &mut Apply<'_>) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else { return true };
        let abandoned = std::mem::take(&mut queue.abandoned) && queue.attached == 0;
        let ends = abandoned && queue.config.auto_delete;
        if ends {
            self.end(id, apply);
        }
        ends
    }

    /// Removes the queue and all that belongs to it from the state. Its end is not stored: the
    /// reconciler compares the existing queues with the catalog (NAM 7), so no notice is owed for
    /// ever.
    pub(crate) fn end(&mut self, id: QueueId, apply: &mut Apply<'_>) {
        let Some(mut queue) = self.queues.remove(&id) else { return };
        apply.digest.step(Step::End, digest::of_queue(id), queue.ready());
        for (consumer, state) in &queue.consumers {
            apply.holders.consumers.remove(consumer);
            if !state.cancelled {
                apply.digest.step(Step::Forget, digest::of_holder(Holder::Consumer(*consumer)), 0);
                apply.effect(Effect::CancelConsumer { consumer: *consumer });
            }
        }
        for (session, gets) in &queue.gets {
            for sequence in gets.unacked.keys() {
                apply.holders.gets.remove(&(*session, *sequence));
            }
        }
        apply.out.changes.extend(queue.keys().map(Change::Record));
        apply.effect(Effect::QueueEnded { queue: id });
        // Messages that a delayed exchange keeps are removed with its queue (EXC-17).
        if queue.letters.are_all_delayed() {
            apply.ended.push(id);
            apply.out.changes.push(Change::QueueRemoved { queue: id });
        } else {
            queue.leave_letters(apply);
            self.ended_queues.insert(id, queue);
        }
    }
}

impl Queue {
    /// Reduces a queue that has ended with letters to the data that the letters need.
    fn leave_letters(&mut self, apply: &mut Apply<'_>) {
        self.ended = true;
        let mut burial = Burial::default();
        let consumers = std::mem::take(&mut self.consumers);
        for (_, queued) in consumers.values().flat_map(|it| it.unacked.above(DeliveryNumber(0))) {
            burial.add(&mut self.levels, queued.message);
        }
        let gets = std::mem::take(&mut self.gets);
        for queued in gets.values().flat_map(|gets| gets.unacked.values()) {
            burial.add(&mut self.levels, queued.message);
        }
        burial.end(&mut self.levels);
        self.service_queue = ServiceQueue::default();
        (self.attached, self.unacked) = (0, Unacked::default());
        self.refusals.clear();
        for level in self.levels.values_mut() {
            level.purge(apply.index);
            level.forget_retries();
        }
        self.forget_delayed(apply);
        self.note_letters(apply);
    }
}
