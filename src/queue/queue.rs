//! One queue in memory: its record divided into levels, consumers and gets, and the data derived
//! from them.

use crate::{
    apply::Apply,
    config::QueueConfig,
    consumer::Consumer,
    expire::Expiry,
    letter::Letters,
    level::{LevelState, Place},
    output::RecordKey,
    record::{GetsRecord, QueueRecord, QueuedMessage},
    service_queue::ServiceQueue,
    store::StoreError,
    task::TaskProgress,
    traffic::Traffic,
    transfer::Refusal,
};
use quorate_types::{
    ConsumerId, LetterHome, Level, MessageId, QueueId, ResourceName, SessionId, TaskId, Timestamp,
};
use std::collections::BTreeMap;

/// How much consumers and gets of a queue hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unacked {
    pub(crate) messages: u64,
    pub(crate) body_bytes: u64,
}

impl Unacked {
    pub(crate) fn add(&mut self, queued: &QueuedMessage) {
        self.messages += 1;
        self.body_bytes += u64::from(queued.head.body_bytes);
    }

    pub(crate) fn remove(&mut self, queued: &QueuedMessage) {
        self.messages -= 1;
        self.body_bytes -= u64::from(queued.head.body_bytes);
    }
}

/// A queue: its configuration, ready messages and consumers.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) name: ResourceName,
    pub(crate) config: QueueConfig,
    pub(crate) creator: Option<SessionId>,
    pub(crate) life: u64,
    pub(crate) used_at: Timestamp,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) timeout_at: Option<Timestamp>,
    pub(crate) active: Option<ConsumerId>,
    pub(crate) arrivals: u64,
    pub(crate) had_consumer: bool,
    /// Boxed, like consumers: most queues have one level and few consumers, but a node of the tree
    /// has room for eleven.
    pub(crate) levels: BTreeMap<Level, Box<LevelState>>,
    pub(crate) consumers: BTreeMap<ConsumerId, Box<Consumer>>,
    pub(crate) gets: BTreeMap<SessionId, GetsRecord>,
    pub(crate) service_queue: ServiceQueue,
    pub(crate) letters: Letters,
    pub(crate) refusals: BTreeMap<LetterHome, Refusal>,
    /// The queue has ended, and is removed with its last letter.
    pub(crate) ended: bool,
    pub(crate) tasks: BTreeMap<TaskId, TaskProgress>,
    /// Consumers that are not cancelled. Derived.
    pub(crate) attached: u32,
    /// Messages that consumers and gets hold. Derived.
    pub(crate) unacked: Unacked,
    /// A `CheckOut` of this queue is left over: the queue is not stable yet. Derived.
    pub(crate) stabilizing_left: bool,
    /// The queue has a TTL, and was in use after the last command. Derived.
    pub(crate) in_use: bool,
    /// Number of messages that the present command made ready.
    pub(crate) arrived: u64,
    /// The present command ended the last consumer (EXQ-05).
    pub(crate) abandoned: bool,
    /// The present entry ended the last consumer.
    pub(crate) deserted: bool,
    touched: bool,
    unstable: bool,
    pub(crate) changed_consumers: Vec<ConsumerId>,
    /// For rates; no part of the state.
    pub(crate) traffic: Traffic,
    changed_gets: Vec<SessionId>,
}

impl Queue {
    /// A queue without messages and consumers, from its record.
    pub(crate) fn from_record(id: QueueId, record: QueueRecord) -> Self {
        let levels = record.levels.into_iter();
        let stored = |(level, record)| (level, Box::new(LevelState::stored(record)));
        Self {
            id,
            name: record.name,
            config: record.config,
            creator: record.creator,
            life: record.life,
            used_at: record.used_at,
            wake_at: record.wake_at,
            timeout_at: record.timeout_at,
            active: record.active,
            arrivals: record.arrivals,
            had_consumer: record.had_consumer,
            levels: levels.map(stored).collect(),
            consumers: BTreeMap::new(),
            gets: BTreeMap::new(),
            service_queue: ServiceQueue::default(),
            letters: Letters::after(record.last_letter),
            refusals: Refusal::from_record(record.refusals),
            ended: record.ended,
            tasks: record.tasks,
            attached: 0,
            unacked: Unacked::default(),
            stabilizing_left: false,
            in_use: false,
            arrived: 0,
            abandoned: false,
            deserted: false,
            touched: false,
            unstable: false,
            changed_consumers: Vec::new(),
            traffic: Traffic::default(),
            changed_gets: Vec::new(),
        }
    }

    pub(crate) fn record(&self) -> QueueRecord {
        QueueRecord {
            name: self.name.clone(),
            config: self.config.clone(),
            creator: self.creator,
            life: self.life,
            used_at: self.used_at,
            wake_at: self.wake_at,
            timeout_at: self.timeout_at,
            active: self.active,
            arrivals: self.arrivals,
            had_consumer: self.had_consumer,
            levels: self.levels.iter().map(|(level, state)| (*level, state.record)).collect(),
            service_queue: self.service_queue.to_record(),
            last_letter: self.letters.last(),
            refusals: self.refusals.iter().map(|(from, it)| (*from, it.attempt)).collect(),
            ended: self.ended,
            tasks: self.tasks.clone(),
        }
    }

    pub(crate) fn ready(&self) -> u64 {
        self.levels.values().map(|state| state.ready()).sum()
    }

    pub(crate) fn ready_bytes(&self) -> u64 {
        self.levels.values().map(|state| state.ready_bytes()).sum()
    }

    /// Marks the queue as changed by the present command.
    pub(crate) fn touch(&mut self, apply: &mut Apply<'_>) {
        if !self.touched {
            self.touched = true;
            apply.touched.push(self.id);
        }
        if !self.unstable {
            self.unstable = true;
            apply.unstable.push(self.id);
        }
    }

    /// Marks the queue as changed by letters only, so that it need not be stabilized.
    pub(crate) fn note_letters(&mut self, apply: &mut Apply<'_>) {
        if !self.touched {
            self.touched = true;
            apply.touched.push(self.id);
        }
    }

    /// Begins the stabilization of this queue after the present command.
    pub(crate) fn begin_stabilizing(&mut self) {
        self.unstable = false;
    }

    /// Stabilizes the queue after a command, in this order (DLX-41 to DLX-43).
    pub(crate) fn stabilize(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        self.delay_arrivals(apply)?;
        self.release_due(apply);
        self.end_delays(apply);
        self.time_out(apply);
        self.expire(Expiry::Over, apply)?;
        self.choose_active(apply);
        self.check_out(apply)?;
        self.expire(Expiry::OverOrZero, apply)?;
        if self.drop_head(apply)? {
            self.expire(Expiry::OverOrZero, apply)?;
        }
        self.arrived = 0;
        Ok(())
    }

    pub(crate) fn change_consumer(&mut self, id: ConsumerId) {
        match self.consumers.get_mut(&id) {
            Some(consumer) if consumer.changed => {}
            Some(consumer) => {
                consumer.changed = true;
                self.changed_consumers.push(id);
            }
            None => self.changed_consumers.push(id),
        }
    }

    pub(crate) fn change_gets(&mut self, session: SessionId) {
        if !self.changed_gets.contains(&session) {
            self.changed_gets.push(session);
        }
    }

    /// Takes the first ready message, of the highest level that has one.
    pub(crate) fn take_first(
        &mut self,
        apply: &Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        take_first(&mut self.levels, self.id, self.attached > 0, apply)
    }

    /// Ends the entry for this queue: heads move on, changed records and removals are returned.
    pub(crate) fn end_entry(&mut self, apply: &mut Apply<'_>) {
        self.touched = false;
        apply.change(RecordKey::Queue(self.id));
        for id in self.changed_consumers.drain(..) {
            apply.change(RecordKey::Consumer(self.id, id));
            if let Some(consumer) = self.consumers.get_mut(&id) {
                consumer.changed = false;
            }
        }
        for session in self.changed_gets.drain(..) {
            apply.change(RecordKey::Gets(self.id, session));
        }
        for page in self.letters.take_changed() {
            apply.change(RecordKey::Letters(self.id, page));
        }
        let served = self.attached > 0;
        let shorten = std::mem::take(&mut self.deserted) && !served;
        for (level, state) in &mut self.levels {
            if std::mem::take(&mut state.requeued_changed) {
                apply.change(RecordKey::Requeued(self.id, *level));
            }
            for page in state.delayed.take_changed() {
                apply.change(RecordKey::Delayed(self.id, *level, page));
            }
            state.end_entry(apply.index, served, shorten);
            state.sweep(self.id, *level, &mut apply.out.changes);
        }
    }

    /// The keys of all records of the queue, for its end.
    pub(crate) fn keys(&self) -> impl Iterator<Item = RecordKey> + '_ {
        let id = self.id;
        let pages = self.letters.pages().into_iter();
        let consumers = self.consumers.keys().chain(&self.changed_consumers);
        let gets = self.gets.keys().chain(&self.changed_gets);
        let delayed = self.levels.iter().flat_map(move |(level, state)| {
            let pages = state.delayed.pages().into_iter();
            pages.map(move |page| RecordKey::Delayed(id, *level, page))
        });
        std::iter::once(RecordKey::Queue(id))
            .chain(consumers.map(move |consumer| RecordKey::Consumer(id, *consumer)))
            .chain(gets.map(move |session| RecordKey::Gets(id, *session)))
            .chain(self.levels.keys().map(move |level| RecordKey::Requeued(id, *level)))
            .chain(delayed)
            .chain(pages.map(move |page| RecordKey::Letters(id, page)))
    }

    /// Releases memory that earlier bursts used.
    pub(crate) fn trim(&mut self) {
        for state in self.levels.values_mut() {
            state.trim();
        }
        for consumer in self.consumers.values_mut() {
            consumer.unacked.trim();
        }
    }
}

/// Takes the first ready message of one level.
pub(crate) fn take_first_of(
    levels: &mut BTreeMap<Level, Box<LevelState>>,
    place: Place,
    apply: &Apply<'_>,
) -> Result<Option<QueuedMessage>, StoreError> {
    match levels.get_mut(&place.level) {
        Some(state) => state.take(place, apply),
        None => Ok(None),
    }
}

/// [`Queue::take_first`] for callers that borrow another part of the queue.
#[inline]
pub(crate) fn take_first(
    levels: &mut BTreeMap<Level, Box<LevelState>>,
    queue: QueueId,
    served: bool,
    apply: &Apply<'_>,
) -> Result<Option<QueuedMessage>, StoreError> {
    let first = levels.iter_mut().rev().find(|(_, state)| state.ready() > 0);
    let Some((level, state)) = first else { return Ok(None) };
    state.take(Place { queue, level: *level, served }, apply)
}

/// Counts settled messages, run by run, so that the count of a run is changed once for many
/// consecutive messages.
#[derive(Debug, Default)]
pub(crate) struct Burial {
    last: Option<MessageId>,
    count: u32,
}

impl Burial {
    #[inline]
    pub(crate) fn add(
        &mut self,
        levels: &mut BTreeMap<Level, Box<LevelState>>,
        message: MessageId,
    ) {
        if self.last.is_none_or(|last| (last.level, last.index) != (message.level, message.index)) {
            self.end(levels);
            self.last = Some(message);
        }
        self.count += 1;
    }

    pub(crate) fn end(&mut self, levels: &mut BTreeMap<Level, Box<LevelState>>) {
        if let Some(message) = self.last
            && let Some(state) = levels.get_mut(&message.level)
        {
            state.living.subtract(message.index, self.count);
        }
        self.count = 0;
        self.last = None;
    }
}
