//! The state as records: written by a checkpoint, loaded by a start.

use crate::{
    consumer::Consumer,
    letter::{Letter, Stage},
    level::Place,
    machine::Machine,
    outbox::Outbox,
    output::{Change, RecordKey},
    queue::Queue,
    record::{
        ConsumerRecord, DelayedRecord, GetsRecord, LeftOver, LevelRecord, QueuedMessage, Record,
        RecordError, RequeuedRecord,
    },
    store::MessageStore,
};
use quorate_types::{
    ConsumerId, Home, LetterNumber, Level, LogIndex, MessageId, QueueId, SessionId,
};
use std::collections::BTreeMap;

impl Machine {
    /// A machine from the records of a checkpoint, in any order.
    ///
    /// # Errors
    /// A record contradicts another.
    pub fn load(
        home: Home,
        records: impl IntoIterator<Item = (RecordKey, Record)>,
    ) -> Result<Self, RecordError> {
        let mut machine = Self::new(home);
        let mut parts = Parts::default();
        for (key, record) in records {
            parts.sort(&mut machine, key, record)?;
        }
        parts.join(&mut machine)?;
        for queue in machine.queues.values_mut() {
            queue.in_use = queue.has_ttl_in_use();
        }
        for work in &machine.group.left_over {
            if let LeftOver::CheckOut { queue } = work
                && let Some(queue) = machine.queues.get_mut(queue)
            {
                queue.stabilizing_left = true;
            }
        }
        Ok(machine)
    }

    /// After a load, reads how old the oldest ready messages are, for lists: one run of each priority
    /// level that has any, of `most` levels, since a start must not take long. `applied`: the last entry
    /// that the checkpoint contains.
    pub fn learn_oldest(&mut self, store: &dyn MessageStore, applied: LogIndex, most: usize) {
        let levels = self.queues.values_mut().flat_map(|queue| {
            let id = queue.id;
            queue.levels.iter_mut().map(move |(level, state)| (id, *level, state))
        });
        let backlogs = levels.filter(|(.., state)| state.ready() > 0);
        for (queue, level, state) in backlogs.take(most) {
            state.learn_oldest(Place { queue, level, served: false }, store, applied);
        }
    }

    /// The present record of that key; `None` if it was removed.
    #[must_use]
    pub fn record(&self, key: RecordKey) -> Option<Record> {
        match key {
            RecordKey::Group => Some(Record::Group(self.group.clone())),
            RecordKey::Node(node) => self.nodes.get(&node).copied().map(Record::Node),
            RecordKey::Session(session) => {
                self.sessions.get(&session).cloned().map(Record::Session)
            }
            RecordKey::Queue(id) => Some(Record::Queue(Box::new(self.letters_of(id)?.record()))),
            RecordKey::Consumer(id, consumer) => {
                let consumer = self.queues.get(&id)?.consumers.get(&consumer)?;
                Some(Record::Consumer(consumer.record()))
            }
            RecordKey::Gets(id, session) => {
                Some(Record::Gets(self.queues.get(&id)?.gets.get(&session)?.clone()))
            }
            RecordKey::Requeued(id, level) => {
                let level = self.queues.get(&id)?.levels.get(&level)?;
                level.requeued_record().map(Record::Requeued)
            }
            RecordKey::Delayed(id, level, page) => {
                let level = self.queues.get(&id)?.levels.get(&level)?;
                level.delayed.page(page).map(Record::Delayed)
            }
            RecordKey::Letters(id, page) => {
                self.letters_of(id)?.letters.page(page).map(Record::Letters)
            }
            RecordKey::Source(from) => self.sources.get(&from).cloned().map(Record::Source),
        }
    }

    /// Keys of all records, ascending.
    #[must_use]
    pub fn keys(&self) -> Vec<RecordKey> {
        let mut keys = vec![RecordKey::Group];
        keys.extend(self.nodes.keys().copied().map(RecordKey::Node));
        keys.extend(self.sessions.keys().copied().map(RecordKey::Session));
        keys.extend(
            self.queues.values().chain(self.ended_queues.values()).flat_map(|it| it.keys()),
        );
        keys.extend(self.sources.keys().copied().map(RecordKey::Source));
        keys.sort_unstable();
        keys.retain(|key| self.record(*key).is_some());
        keys
    }

    /// All dead runs below the heads, as removals. A start repeats them, since removals of earlier
    /// entries may have been meant for a later checkpoint (STO 3).
    #[must_use]
    pub fn dead_ranges(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        for queue in self.queues.values().chain(self.ended_queues.values()) {
            for (level, state) in &queue.levels {
                state.dead_ranges(queue.id, *level, &mut changes);
            }
        }
        changes
    }
}

/// Records of a queue's parts, until all queues are loaded.
#[derive(Default)]
struct Parts {
    consumers: Vec<(QueueId, ConsumerId, ConsumerRecord)>,
    gets: Vec<(QueueId, SessionId, GetsRecord)>,
    requeued: Vec<(QueueId, Level, RequeuedRecord)>,
    delayed: Vec<(QueueId, Level, DelayedRecord)>,
    service_queue: Vec<(QueueId, Vec<ConsumerId>)>,
    letters: Vec<(QueueId, BTreeMap<LetterNumber, Letter>)>,
}

impl Parts {
    fn sort(
        &mut self,
        machine: &mut Machine,
        key: RecordKey,
        record: Record,
    ) -> Result<(), RecordError> {
        match (key, record) {
            (RecordKey::Group, Record::Group(record)) => machine.group = record,
            (RecordKey::Node(node), Record::Node(record)) => {
                machine.nodes.insert(node, record);
            }
            (RecordKey::Session(session), Record::Session(record)) => {
                machine.sessions.insert(session, record);
            }
            (RecordKey::Queue(id), Record::Queue(record)) => {
                if !record.service_queue.is_empty() {
                    self.service_queue.push((id, record.service_queue.iter().copied().collect()));
                }
                let queues =
                    if record.ended { &mut machine.ended_queues } else { &mut machine.queues };
                queues.insert(id, Box::new(Queue::from_record(id, *record)));
            }
            (RecordKey::Consumer(id, consumer), Record::Consumer(record)) => {
                self.consumers.push((id, consumer, record));
            }
            (RecordKey::Gets(id, session), Record::Gets(record)) => {
                self.gets.push((id, session, record));
            }
            (RecordKey::Requeued(id, level), Record::Requeued(record)) => {
                self.requeued.push((id, level, record));
            }
            (RecordKey::Delayed(id, level, _), Record::Delayed(record)) => {
                self.delayed.push((id, level, record));
            }
            (RecordKey::Letters(id, _), Record::Letters(letters)) => {
                self.letters.push((id, letters));
            }
            (RecordKey::Source(from), Record::Source(record)) => {
                machine.sources.insert(from, record);
            }
            (key, record) => {
                let text = format!("{key:?} names a record of another kind: {record:?}");
                return Err(RecordError(text));
            }
        }
        Ok(())
    }

    fn join(self, machine: &mut Machine) -> Result<(), RecordError> {
        let Machine { queues, ended_queues, outbox, nodes, holders, .. } = machine;
        for (id, letters) in self.letters {
            let queue = queues.get_mut(&id).or_else(|| ended_queues.get_mut(&id));
            found(queue, id, "a letter")?.join_letters(letters, outbox)?;
        }
        for (id, consumer, record) in self.consumers {
            let node = nodes.get(&consumer.session.node);
            let suspected = node.is_some_and(|node| node.suspected);
            found(queues.get_mut(&id), id, "a consumer")?
                .join_consumer(consumer, record, suspected)?;
            let earlier = holders.consumers.insert(consumer, id);
            check(earlier.is_none(), || format!("consumer {consumer:?} is in two queues"))?;
        }
        for (id, session, record) in self.gets {
            let sequences = record.unacked.keys();
            holders.gets.extend(sequences.map(|sequence| ((session, *sequence), id)));
            found(queues.get_mut(&id), id, "a get")?.join_gets(session, record)?;
        }
        for (id, level, record) in self.requeued {
            found(queues.get_mut(&id), id, "a requeued message")?.join_requeued(level, record)?;
        }
        for (id, level, record) in self.delayed {
            found(queues.get_mut(&id), id, "a delayed message")?.join_delayed(level, record)?;
        }
        for (id, service_queue) in self.service_queue {
            found(queues.get_mut(&id), id, "a turn")?.join_service_queue(&service_queue)?;
        }
        Ok(())
    }
}

fn found<'a>(
    queue: Option<&'a mut Box<Queue>>,
    id: QueueId,
    what: &str,
) -> Result<&'a mut Queue, RecordError> {
    let queue = queue.map(Box::as_mut);
    queue.ok_or_else(|| RecordError(format!("{what} of no queue: {id}")))
}

fn check(holds: bool, fault: impl FnOnce() -> String) -> Result<(), RecordError> {
    if holds { Ok(()) } else { Err(RecordError(fault())) }
}

impl Queue {
    fn join_consumer(
        &mut self,
        id: ConsumerId,
        record: ConsumerRecord,
        suspected: bool,
    ) -> Result<(), RecordError> {
        self.attached += u32::from(!record.cancelled);
        for (number, queued) in &record.unacked {
            check(*number < record.next, || {
                format!("consumer {id:?} holds {number}, not given yet")
            })?;
            self.join_unacked(queued)?;
        }
        self.consumers.insert(id, Box::new(Consumer::from_record(record, suspected)));
        Ok(())
    }

    fn join_gets(&mut self, session: SessionId, record: GetsRecord) -> Result<(), RecordError> {
        for queued in record.unacked.values() {
            self.join_unacked(queued)?;
        }
        check(!record.unacked.is_empty(), || format!("a record of no gets of session {session}"))?;
        self.gets.insert(session, record);
        Ok(())
    }

    fn join_requeued(&mut self, level: Level, record: RequeuedRecord) -> Result<(), RecordError> {
        for queued in record.messages.values() {
            self.join_out(queued.message)?;
        }
        let Some(state) = self.levels.get_mut(&level) else {
            return check(record.messages.is_empty(), || {
                format!("no level {level} in {}", self.id)
            });
        };
        let bytes = record.messages.values().map(|queued| u64::from(queued.head.body_bytes));
        state.requeued_bytes = bytes.sum();
        let expiring = record.messages.values().filter(|it| it.head.expiration_ms.is_some());
        state.requeued_expiring = expiring.count() as u64;
        state.requeued = record.messages;
        Ok(())
    }

    fn join_delayed(&mut self, level: Level, record: DelayedRecord) -> Result<(), RecordError> {
        for (_, queued) in record.messages.values() {
            self.join_out(queued.message)?;
        }
        let state = self.levels.get_mut(&level);
        check(state.is_some() || record.messages.is_empty(), || {
            format!("no level {level} in {}", self.id)
        })?;
        if let Some(state) = state {
            state.delayed.load(record);
        }
        Ok(())
    }

    /// Adds letters to their queue, and restores their transfers.
    fn join_letters(
        &mut self,
        letters: BTreeMap<LetterNumber, Letter>,
        outbox: &mut Outbox,
    ) -> Result<(), RecordError> {
        for (number, letter) in letters {
            self.join_letter(letter.message)?;
            check(number <= self.letters.last(), || format!("letter {number} of {}", self.id))?;
            match &letter.stage {
                Stage::Waiting { .. } => {
                    outbox.waiting.insert(self.id);
                }
                Stage::Kept | Stage::Delayed { .. } => {}
                Stage::Routed(routing) => outbox.take_up(self.id, number, routing),
            }
            self.letters.insert(number, letter);
        }
        // The records of a checkpoint count as unchanged.
        self.letters.take_changed();
        Ok(())
    }

    fn join_service_queue(&mut self, service_queue: &[ConsumerId]) -> Result<(), RecordError> {
        for id in service_queue {
            let consumer = self.consumers.get_mut(id).filter(|consumer| !consumer.in_service_queue);
            let Some(consumer) = consumer else {
                return Err(RecordError(format!(
                    "{id:?} has a turn too many in queue {}",
                    self.id
                )));
            };
            consumer.in_service_queue = true;
            self.service_queue.push(consumer.terms.priority, *id);
        }
        Ok(())
    }

    fn join_unacked(&mut self, queued: &QueuedMessage) -> Result<(), RecordError> {
        self.unacked.add(queued);
        self.join_out(queued.message)
    }

    /// Counts a letter's message: it lies below the head, or was refused on arrival (LEN-12).
    fn join_letter(&mut self, message: MessageId) -> Result<(), RecordError> {
        let place = (message.index, message.position);
        let Some(state) = self.levels.get_mut(&message.level) else {
            return Err(RecordError(format!("{message:?} of queue {} has no level", self.id)));
        };
        if place >= (state.record.head_index, state.record.head_position) {
            state.refused_letters.insert(place);
        }
        state.living.add(message.index);
        Ok(())
    }

    /// Counts a requeued or unacked message: it was taken from the head, so it must lie below the
    /// head.
    fn join_out(&mut self, message: MessageId) -> Result<(), RecordError> {
        let place = (message.index, message.position);
        let below = |record: LevelRecord| place < (record.head_index, record.head_position);
        match self.levels.get_mut(&message.level) {
            Some(state) if below(state.record) => {
                state.living.add(message.index);
                Ok(())
            }
            Some(_) | None => {
                Err(RecordError(format!("{message:?} of queue {} is not below a head", self.id)))
            }
        }
    }
}
