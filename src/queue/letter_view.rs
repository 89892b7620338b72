//! The dead-letter worker's view of the letters: those to be routed, and those to be sent.

use crate::{
    config::DeadLetter,
    death_reason::DeathReason,
    letter::{Letter, LetterReader, Stage, Transfer, Via},
    machine::Machine,
    outbox::TransferKey,
    output::Effect,
    queue::Queue,
    transfer_map::TransferMap,
    walk::Walk,
};
use quorate_types::{
    CatalogIndex, LetterHome, LetterNumber, MessageId, QueueId, ResourceName, Sequence, WallTime,
};
use std::collections::BTreeMap;

/// A letter that waits to be routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetterView {
    /// Number of the letter in its home.
    pub number: LetterNumber,
    /// Message that died.
    pub message: MessageId,
    /// Why it died.
    pub reason: DeathReason,
    /// The catalog copy must have a version above this one (LET 4).
    pub after: CatalogIndex,
}

/// A transfer in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferView {
    /// Number in its stream.
    pub number: Sequence,
    /// Queue that the transfer goes to.
    pub target: QueueId,
    /// Number of the attempt to send to this target.
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
    /// The dead-letter settings by which it was routed.
    pub via: Via,
}

/// A target of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetView {
    /// Queue that transfers wait for.
    pub target: QueueId,
    /// Number of letters that wait because it is full.
    pub waits: u64,
    /// Number of transfers to it in flight.
    pub under_way: u64,
    /// It has refused letters of the present attempt.
    pub refused: bool,
}

impl Machine {
    pub(crate) fn letters_of(&self, id: QueueId) -> Option<&Queue> {
        self.queues.get(&id).or_else(|| self.ended_queues.get(&id)).map(Box::as_ref)
    }

    /// The effects owed for the machine's own letters, and for refused letters of other homes (LET
    /// 3).
    pub(crate) fn owed_letters(&self, effects: &mut Vec<Effect>) {
        let has_idle_target = self.targets().any(|target| target.under_way == 0);
        let has_transfers = self.streams().next().is_some();
        if !self.outbox.waiting.is_empty() || has_transfers || has_idle_target {
            effects.push(Effect::DeadLettersChanged);
        }
        self.queues.values().for_each(|queue| queue.owed_room(effects));
    }

    /// The notices of room owed to homes whose letters the queues have refused (LET 3), of the walk's
    /// next part.
    #[must_use]
    pub fn owed_room(&self, walk: &mut Walk) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.next_queues(walk).for_each(|queue| queue.owed_room(&mut effects));
        effects
    }

    /// Queues with letters that wait to be routed.
    pub fn queues_with_letters(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.outbox.waiting.iter().copied()
    }

    /// Queues with letters kept as unroutable, and their dead-letter settings, of the walk's next part;
    /// of a queue that has ended its last ones.
    #[must_use]
    pub fn queues_with_kept(&self, walk: &mut Walk) -> Vec<(QueueId, Option<DeadLetter>)> {
        let kept = self.next_with_ended(walk).filter(|queue| queue.letters.has_kept());
        kept.map(|queue| (queue.id, queue.config.dead_letter.clone())).collect()
    }

    /// Name and dead-letter settings of a queue with letters; if the queue has ended, its last
    /// ones.
    #[must_use]
    pub fn letter_settings(&self, id: QueueId) -> Option<(ResourceName, Option<DeadLetter>)> {
        let queue = self.letters_of(id)?;
        Some((queue.name.clone(), queue.config.dead_letter.clone()))
    }

    /// Letters of a queue that wait to be routed, or with `kept` the kept ones, from a number on.
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

    /// Streams with transfers in flight.
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

    /// Transfers of a stream in flight, from a number on, ascending.
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
    /// Targets of letters.
    pub fn targets(&self) -> impl Iterator<Item = TargetView> + '_ {
        self.outbox.targets.iter().map(|(target, state)| TargetView {
            target: *target,
            waits: state.waits.len(),
            under_way: state.under_way,
            refused: self.group.letters.attempts.get(target).is_some_and(|attempt| attempt.refused),
        })
    }

    /// Number of letters of all queues, and number of those whose queue has ended.
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
