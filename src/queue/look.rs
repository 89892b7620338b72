//! A queue's messages as somebody looks at them: read on any replica, and nothing is consumed,
//! counted, marked or moved by it. Every look is bounded, since the machine is locked meanwhile.
//!
//! Messages are looked at in the order of delivery: the highest level first, and within a level by
//! log index and position. The machine has requeued, delayed, unacked and dead messages one by one; fresh
//! ones are only counted here, and their heads are read from the store without the machine.

use crate::{letter::Letter, machine::Machine, queue::Queue, record::QueuedMessage};
use quorate_types::{
    ConsumerId, DeliveryNumber, Holder, LetterNumber, Level, LogIndex, MessageId, QueueId,
    Sequence, SessionId, Timestamp,
};
use std::ops::Bound;

/// A place within a level: log index, and position in the run.
pub type MessagePlace = (LogIndex, u32);

/// An unacked message's place among those of its queue: who holds it, and as which delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeldPlace {
    /// A delivery to a consumer.
    Consumer(ConsumerId, DeliveryNumber),
    /// The message of a get.
    Get(SessionId, Sequence),
}

impl HeldPlace {
    /// Who holds it.
    #[must_use]
    pub fn holder(self) -> Holder {
        match self {
            Self::Consumer(consumer, _) => Holder::Consumer(consumer),
            Self::Get(session, sequence) => Holder::Get(session, sequence),
        }
    }
}

/// One level, from a place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelLook {
    /// The level.
    pub level: Level,
    /// Requeued messages, ascending; at most as many as were asked for.
    pub requeued: Vec<QueuedMessage>,
    /// Returned messages that wait (RQU-08), and until when; ascending, at most as many as were asked
    /// for.
    pub delayed: Vec<(QueuedMessage, Timestamp)>,
    /// The first place that a fresh message may have; `None` if the level has no fresh message.
    pub fresh_from: Option<MessagePlace>,
    /// Places from there on that look like those of fresh messages, but belong to letters (LEN-12);
    /// ascending, at most as many as were asked for.
    pub refused: Vec<MessagePlace>,
}

/// Where the ready message of a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankPlace {
    /// There.
    At(MessageId),
    /// So many fresh messages of this level come before it.
    Fresh {
        /// The level.
        level: Level,
        /// Number of fresh messages before it.
        before: u64,
    },
}

impl Machine {
    /// Unacked messages of a queue behind `after`, in the order of their places, at most `limit`.
    #[must_use]
    pub fn held(
        &self,
        id: QueueId,
        after: Option<HeldPlace>,
        limit: usize,
    ) -> Vec<(HeldPlace, QueuedMessage)> {
        let Some(queue) = self.queues.get(&id) else { return Vec::new() };
        let of_consumers = match after {
            Some(HeldPlace::Get(..)) => None,
            Some(HeldPlace::Consumer(consumer, number)) => Some(Some((consumer, number))),
            None => Some(None),
        };
        let of_consumers =
            of_consumers.into_iter().flat_map(|after| queue.held_by_consumers(after));
        let of_gets = match after {
            Some(HeldPlace::Get(session, sequence)) => Some((session, sequence)),
            Some(HeldPlace::Consumer(..)) | None => None,
        };
        of_consumers.chain(queue.held_by_gets(of_gets)).take(limit).collect()
    }

    /// The level at or below that of `from`, from there on; `None` if there is none. Of requeued
    /// and delayed messages and places of letters at most `limit` each.
    #[must_use]
    pub fn look(&self, id: QueueId, from: MessageId, limit: usize) -> Option<LevelLook> {
        let queue = self.queues.get(&id)?;
        let (level, state) = queue.levels.range(..=from.level).next_back()?;
        let start = if *level == from.level {
            (from.index, from.position)
        } else {
            MessagePlace::default()
        };
        let head = (state.record.head_index, state.record.head_position);
        let fresh_from = start.max(head);
        Some(LevelLook {
            level: *level,
            requeued: state.requeued.range(start..).take(limit).map(|(_, it)| *it).collect(),
            delayed: state.delayed.from(start).take(limit).collect(),
            fresh_from: (state.record.fresh > 0).then_some(fresh_from),
            refused: state.refused_letters.from(fresh_from).take(limit).collect(),
        })
    }

    /// Where the ready message of a rank is, counted from 1 in the order of delivery; `None` if the
    /// queue has fewer.
    #[must_use]
    pub fn rank_place(&self, id: QueueId, rank: u64) -> Option<RankPlace> {
        let queue = self.queues.get(&id)?;
        let mut before = rank.checked_sub(1)?;
        for (level, state) in queue.levels.iter().rev() {
            let requeued = state.requeued.len() as u64;
            if before < requeued {
                let nth = usize::try_from(before).ok()?;
                return state.requeued.values().nth(nth).map(|it| RankPlace::At(it.message));
            }
            if before < state.ready() {
                return Some(RankPlace::Fresh { level: *level, before: before - requeued });
            }
            before -= state.ready();
        }
        None
    }

    /// Number of ready messages that are delivered before that of this level and place, without the
    /// fresh ones of the same level.
    #[must_use]
    pub fn ready_before(&self, id: QueueId, message: MessageId) -> u64 {
        let Some(queue) = self.queues.get(&id) else { return 0 };
        let place = (message.index, message.position);
        let levels = queue.levels.range(message.level..).map(|(level, state)| {
            if *level > message.level {
                return state.ready();
            }
            state.requeued.range(..place).count() as u64
        });
        levels.sum()
    }

    /// Letters of a queue from a number on, at most `limit`, ascending.
    #[must_use]
    pub fn letters_from(
        &self,
        id: QueueId,
        from: LetterNumber,
        limit: usize,
    ) -> Vec<(LetterNumber, Letter)> {
        self.letters_of(id).map(|queue| queue.letters.from(from, limit)).unwrap_or_default()
    }

    /// Since when the queue has not been used, so that its TTL runs, or would run if it had one
    /// `None` if it is in use.
    #[must_use]
    pub fn unused_since(&self, id: QueueId) -> Option<Timestamp> {
        let queue = self.queues.get(&id)?;
        (!queue.is_used()).then_some(queue.used_at)
    }
}

impl Queue {
    fn held_by_consumers(
        &self,
        after: Option<(ConsumerId, DeliveryNumber)>,
    ) -> impl Iterator<Item = (HeldPlace, QueuedMessage)> + '_ {
        let first = after.map_or(Bound::Unbounded, |(consumer, _)| Bound::Included(consumer));
        self.consumers.range((first, Bound::Unbounded)).flat_map(move |(consumer, state)| {
            let number = after.filter(|(first, _)| first == consumer).map(|(_, number)| number);
            let held = state.unacked.above(number.unwrap_or_default());
            held.map(|(number, queued)| (HeldPlace::Consumer(*consumer, number), queued))
        })
    }

    fn held_by_gets(
        &self,
        after: Option<(SessionId, Sequence)>,
    ) -> impl Iterator<Item = (HeldPlace, QueuedMessage)> + '_ {
        let first = after.map_or(Bound::Unbounded, |(session, _)| Bound::Included(session));
        self.gets.range((first, Bound::Unbounded)).flat_map(move |(session, gets)| {
            let number = after.filter(|(first, _)| first == session).map(|(_, number)| number);
            let above = number.map_or(Bound::Unbounded, Bound::Excluded);
            let held = gets.unacked.range((above, Bound::Unbounded));
            held.map(|(sequence, queued)| (HeldPlace::Get(*session, *sequence), *queued))
        })
    }
}
