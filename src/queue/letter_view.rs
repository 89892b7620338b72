//! What the dead-letter worker sees of the letters: what is to be routed, what is to be sent.

use crate::{
    config::DeadLetter,
    death_reason::DeathReason,
    letter::{Letter, LetterReader, Stage, Transfer, Via},
    machine::Machine,
    outbox::TransferKey,
    output::Effect,
    queue::Queue,
    transfer_map::TransferMap,
};
use quorate_types::{
    CatalogIndex, LetterHome, LetterNumber, MessageId, QueueId, ResourceName, Sequence, WallTime,
};
use std::collections::BTreeMap;

/// A letter that is to be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterView {
    /// Number of the letter in its home.
    pub number: LetterNumber,
    /// Message that died.
    pub message: MessageId,
    /// Why it died.
    pub reason: DeathReason,
    /// A catalog copy of a higher version than this one is wanted (LET 4).
    pub after: CatalogIndex,
}

/// A transfer that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferView {
    /// Number in its stream.
    pub number: Sequence,
    /// Queue that the transfer goes to.
    pub target: QueueId,
    /// Attempt of the target's.
    pub attempt: u32,
    /// Queue that the message died in.
    pub queue: QueueId,
    /// That queue's name.
    pub name: ResourceName,
    /// Message that died.
    pub message: MessageId,
    /// Why it died.
    pub reason: DeathReason,
    /// When it died, by the group's clock.
    pub died_at: WallTime,
    /// By what it was routed.
    pub via: Via,
}

/// A target that letters are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Queue that transfers wait for.
    pub target: QueueId,
    /// Letters that wait since it is full.
    pub waits: u64,
    /// Transfers to it under way.
    pub under_way: u64,
    /// It has refused letters in its present attempt.
    pub refused: bool,
}

impl Machine {
    pub(crate) fn letters_of(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(&id).or_else(|| self.ended_queues.get(&id)).map(Box::as_ref)
    }

    /// What is owed for letters: theirs, and to those whose letters were refused (LET 3).
    pub(crate) fn owed_letters(&self, effects: &mut Vec<Effect>) {
        let has_idle_target = self.targets().any(|target| target.under_way == 0);
        let has_transfers = self.streams().next().is_some();
        if !self.outbox.waiting.is_empty() || has_transfers || has_idle_target {
            effects.push(Effect::DeadLettersChanged);
        }
        self.owed_room(effects);
    }

    /// What queues owe to those whose letters they have refused, and have room for now (LET 3).
    pub fn owed_room(&self, effects: &mut Vec<Effect>) {
        self.queues.values().for_each(|queue| queue.owed_room(effects));
    }

    /// Queues with letters that are to be routed.
    pub fn queues_with_letters(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.outbox.waiting.iter().copied()
    }

    /// Queues with letters kept as unroutable.
    pub fn queues_with_kept(&self) -> impl Iterator<Item = QueueId> + '_ {
        let all = self.queues.iter().chain(&self.ended_queues);
        all.filter(|(_, queue)| queue.letters.has_kept()).map(|(id, _)| *id)
    }

    /// Name and dead-letter settings of a queue with letters; of one that has ended, its last ones.
    #[must_use]
    pub fn letter_settings(&self, id: QueueId) -> Option<(ResourceName, Option<DeadLetter>)> {
        let queue = self.letters_of(id)?;
        Some((queue.name.clone(), queue.config.dead_letter.clone()))
    }

    /// Letters of a queue that are to be routed, or with `kept` those kept, from a number on.
    #[must_use]
    pub fn unrouted(
        &self,
        id: QueueId,
        kept: bool,
        from: LetterNumber,
        limit: usize,
    ) -> Vec<LetterView> {
        let Some(queue) = self.letters_of(id) else { return Vec::new() };
        let view = |(number, letter): (LetterNumber, Letter)| LetterView {
            number,
            message: letter.message,
            reason: letter.reason,
            after: match letter.stage {
                Stage::Waiting { after } => after,
                Stage::Kept | Stage::Routed(_) | Stage::Delayed { .. } => CatalogIndex(0),
            },
        };
        queue.letters.unrouted(kept, from).take(limit).map(view).collect()
    }

    /// Streams with transfers under way.
    pub fn streams(&self) -> impl Iterator<Item = LetterHome> + '_ {
        self.outbox.streams.keys().copied()
    }

    /// The stream's mark: the lowest number whose answer has not been applied (LET 2).
    #[must_use]
    pub fn stream_mark(&self, stream: LetterHome) -> Sequence {
        let last = self.group.letters.streams.get(&stream).map_or(0, |last| last.0);
        let first = self.outbox.streams.get(&stream).and_then(TransferMap::first_key);
        Sequence(first.unwrap_or(last + 1))
    }

    /// Transfers of a stream that are under way, from a number on, ascending.
    #[must_use]
    pub fn transfers(&self, stream: LetterHome, from: Sequence, limit: usize) -> Vec<TransferView> {
        let keys = self.outbox.streams.get(&stream).into_iter().flat_map(|keys| keys.range(from.0));
        let mut readers: BTreeMap<QueueId, LetterReader<'_>> = BTreeMap::new();
        let mut found = Vec::new();
        for (number, key) in keys.take(limit) {
            let Some(queue) = self.letters_of(key.queue) else { continue };
            let reader =
                readers.entry(key.queue).or_insert_with(|| LetterReader::new(&queue.letters));
            let letter = reader.get(key.letter);
            found.extend(letter.and_then(|it| transfer_view(Sequence(number), key, queue, it)));
        }
        found
    }
    /// Targets that letters are for.
    pub fn targets(&self) -> impl Iterator<Item = TargetView> + '_ {
        self.outbox.targets.iter().map(|(target, state)| TargetView {
            target: *target,
            waits: state.waits.len(),
            under_way: state.under_way,
            refused: self.group.letters.attempts.get(target).is_some_and(|attempt| attempt.refused),
        })
    }

    /// Letters of all queues, and of those how many are of queues that have ended.
    #[must_use]
    pub fn letter_counts(&self) -> (u64, u64) {
        let of = |queues: &BTreeMap<QueueId, Box<Queue>>| -> u64 {
            queues.values().map(|queue| queue.letters.len()).sum()
        };
        let ended = of(&self.ended_queues);
        (of(&self.queues) + ended, ended)
    }
}

fn transfer_view(
    number: Sequence,
    key: TransferKey,
    queue: &Queue,
    letter: &Letter,
) -> Option<TransferView> {
    let Stage::Routed(routing) = &letter.stage else { return None };
    let Transfer::UnderWay { attempt, .. } = routing.transfers.get(&key.target)? else {
        return None;
    };
    Some(TransferView {
        number,
        target: key.target,
        attempt: *attempt,
        queue: key.queue,
        name: queue.name.clone(),
        message: letter.message,
        reason: letter.reason,
        died_at: letter.died_at,
        via: routing.via.clone(),
    })
}
