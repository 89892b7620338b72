//! The context in which one entry is applied: the state outside its queue that a command's file may
//! read and write.

use crate::{
    command::{Command, Entry, MessageHead, Run},
    digest::{self, Digest, Step},
    level::Part,
    outbox::Outbox,
    output::{Change, Effect, Output, RecordKey},
    record::{GroupRecord, LeftOver},
    store::MessageStore,
    tally::Tally,
    traffic::Waits,
};
use quorate_types::{
    ConsumerId, Holder, LogIndex, MessageId, QueueId, Sequence, SessionId, StartNumber, Timestamp,
};
use std::collections::BTreeMap;

/// Messages that one apply assigns or requeues on its own account. Work beyond this bound is stored
/// as [`LeftOver`] for `Continue` (DESIGN §4, *Bounded*). The messages that a client names in one
/// command (at most its prefetch) are handled at once, and count too.
pub(crate) const MESSAGES_MAX: u32 = 5_000;

/// The context of one entry that is applied.
pub(crate) struct Apply<'a> {
    pub(crate) index: LogIndex,
    pub(crate) entry: &'a Entry,
    pub(crate) store: &'a dyn MessageStore,
    pub(crate) out: &'a mut Output,
    /// The stamp of this entry, which the heads of its runs carry.
    pub(crate) stamped: Timestamp,
    /// The replicated clock: the highest stamp so far.
    pub(crate) now: Timestamp,
    pub(crate) group: GroupRecord,
    pub(crate) holders: Holders,
    pub(crate) outbox: Outbox,
    /// True if [`Effect::DeadLettersChanged`] is to be emitted.
    pub(crate) letters_changed: bool,
    pub(crate) tally: Tally,
    pub(crate) waits: Waits,
    pub(crate) digest: Digest,
    /// Number of messages that this apply may still handle.
    pub(crate) budget: u32,
    /// Position of the present command, counted over all batches (NAM 1).
    pub(crate) position: u32,
    /// True if work is left over, from this entry or an earlier one.
    pub(crate) more: bool,
    /// Queues that this entry has changed, and queues that the present command has changed.
    pub(crate) touched: Vec<QueueId>,
    pub(crate) unstable: Vec<QueueId>,
    /// Queues that ended in this entry.
    pub(crate) ended: Vec<QueueId>,
}

/// The queue of each holder. Not stored: derived from the records at a start.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) consumers: BTreeMap<ConsumerId, QueueId>,
    pub(crate) gets: BTreeMap<(SessionId, Sequence), QueueId>,
}

impl Holders {
    pub(crate) fn queue_of(&self, holder: Holder) -> Option<QueueId> {
        match holder {
            Holder::Consumer(consumer) => self.consumers.get(&consumer).copied(),
            Holder::Get(session, sequence) => self.gets.get(&(session, sequence)).copied(),
        }
    }

    /// True if some holder refers to the queue. The search is linear, so it is for checks only.
    pub(crate) fn name(&self, queue: QueueId) -> bool {
        self.consumers.values().chain(self.gets.values()).any(|of| *of == queue)
    }

    /// Consumers of the sessions from `first` to `last`, ascending.
    pub(crate) fn consumers_of(
        &self,
        first: SessionId,
        last: SessionId,
    ) -> impl Iterator<Item = (ConsumerId, QueueId)> + '_ {
        let low = ConsumerId { session: first, number: 0 };
        let high = ConsumerId { session: last, number: u64::MAX };
        self.consumers.range(low..=high).map(|(consumer, queue)| (*consumer, *queue))
    }

    /// The sessions from `first` to `last` that have gets with a message, each with the queue of
    /// the message, ascending.
    pub(crate) fn gets_of(
        &self,
        first: SessionId,
        last: SessionId,
    ) -> impl Iterator<Item = (SessionId, QueueId)> + '_ {
        let range = (first, Sequence(0))..=(last, Sequence(u64::MAX));
        self.gets.range(range).map(|((session, _), queue)| (*session, *queue))
    }
}

impl Apply<'_> {
    /// The messages of a part of one of the entry's runs; empty if the part does not exist.
    pub(crate) fn messages(&self, part: Part) -> &[MessageHead] {
        let run = self.entry.runs.get(part.run as usize);
        run.and_then(|run| slice(run, part)).unwrap_or_default()
    }

    pub(crate) fn change(&mut self, record: RecordKey) {
        self.out.changes.push(Change::Record(record));
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Subtracts handled messages from the budget.
    #[inline]
    pub(crate) fn spend(&mut self, messages: usize) {
        self.budget = self.budget.saturating_sub(u32::try_from(messages).unwrap_or(u32::MAX));
    }

    /// Stores work for a later `Continue`.
    pub(crate) fn leave(&mut self, work: LeftOver) {
        let (queue, session) = match work {
            LeftOver::RequeueSession { queue, session, .. } => (queue, digest::of_session(session)),
            LeftOver::CheckOut { queue } => (queue, 0),
        };
        self.digest.step(Step::LeftOver, digest::of_queue(queue), session);
        self.group.left_over.push_back(work);
        self.more = true;
    }

    /// Wakes the dead-letter worker, once for each entry, if the entry has changed letters.
    pub(crate) fn wake_dead_letter_worker(&mut self) {
        if self.letters_changed {
            self.effect(Effect::DeadLettersChanged);
        }
    }

    /// Cuts the messages of a command that is not applied (STO 4).
    pub(crate) fn cut_enqueue(&mut self, command: &Command) {
        if let Command::Enqueue { run, first, count } = command {
            self.cut(Part { run: *run, first: *first, count: *count });
        } else if let Command::Transfer { run, first, .. } = command {
            self.cut(Part { run: *run, first: *first, count: 1 });
        }
    }

    /// Cuts a part out of its run. Adjacent cuts are merged.
    pub(crate) fn cut(&mut self, part: Part) {
        let Some(run) = self.entry.runs.get(part.run as usize) else { return };
        let nothing = slice(run, part).is_none_or(<[MessageHead]>::is_empty);
        // The removal of the queue removes every run up to this index; a later cut would name a
        // removed run.
        if nothing || self.ended.contains(&run.queue) {
            return;
        }
        let first = MessageId { level: run.level, index: self.index, position: part.first };
        self.push_cut(run.queue, first, part.first + (part.count - 1));
    }

    /// Cuts the message of an ended letter out of its run, if the message lies above its level's
    /// head, where removals do not reach (LEN-12).
    pub(crate) fn cut_letter(&mut self, queue: QueueId, message: MessageId) {
        self.push_cut(queue, message, message.position);
    }

    /// Cuts the messages of a run from one message to position `to`.
    fn push_cut(&mut self, of: QueueId, from: MessageId, to: u32) {
        self.digest.step(
            Step::Cut,
            digest::of_queue(of) ^ u64::from(from.level.0),
            u64::from(from.position) << 32 | u64::from(to),
        );
        if let Some(Change::Cut { queue, level, index, last, .. }) = self.out.changes.last_mut()
            && (*queue, *level, *index) == (of, from.level, from.index)
            && last.checked_add(1) == Some(from.position)
        {
            *last = to;
            return;
        }
        let MessageId { level, index, position: first } = from;
        self.out.changes.push(Change::Cut { queue: of, level, index, first, last: to });
    }
}

fn slice(run: &Run, part: Part) -> Option<&[MessageHead]> {
    let first = part.first as usize;
    run.messages.get(first..first.checked_add(part.count as usize)?)
}

/// The lowest and the highest session of a node with starts up to `start`.
pub(crate) fn sessions_of(
    node: quorate_types::NodeId,
    start: StartNumber,
) -> (SessionId, SessionId) {
    (SessionId { node, start: StartNumber(0) }, SessionId { node, start })
}
