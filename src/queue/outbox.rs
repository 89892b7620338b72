//! Sending a home's dead letters: one routing for each letter, a number for each transfer, answers,
//! and full targets that are tried again in numbered attempts (LET 1 to 4).

use crate::{
    apply::Apply,
    command::{RoutedLetters, Routes, TransferAnswer},
    digest::{self, Step},
    letter::{Letter, Routing, Stage, Transfer, Via},
    machine::Machine,
    output::Change,
    queue::Queue,
    record::Attempt,
    store::StoreError,
    tally::DeadLetterFact,
    transfer_map::TransferMap,
};
use quorate_types::{
    CatalogIndex, Home, LetterHome, LetterNumber, MessageId, QueueId, Sequence, SessionId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum of numbers that one `Retry` assigns (LET 3).
pub const RETRY_MAX: u32 = 5_000;

/// Indexes derived from the letters of all queues. State that cannot be derived is in the group's
/// record.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Queues with letters that wait to be routed.
    pub(crate) waiting: BTreeSet<QueueId>,
    /// Transfers that have a number, by stream.
    pub(crate) streams: BTreeMap<LetterHome, TransferMap>,
    /// For each target, its transfers in flight, and those that wait because it is full.
    pub(crate) targets: BTreeMap<QueueId, Target>,
}

/// The transfer of one letter to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TransferKey {
    pub(crate) queue: QueueId,
    pub(crate) letter: LetterNumber,
    pub(crate) target: QueueId,
}

/// The transfers to one target.
#[derive(Debug, Default)]
pub(crate) struct Target {
    pub(crate) under_way: u64,
    /// Waiting transfers in the order of routing.
    pub(crate) waits: TransferMap,
}

impl Outbox {
    /// Restores the transfers of a letter's routing, from a record.
    pub(crate) fn take_up(&mut self, queue: QueueId, letter: LetterNumber, routing: &Routing) {
        for (target, transfer) in &routing.transfers {
            let key = TransferKey { queue, letter, target: *target };
            match transfer {
                Transfer::UnderWay { number, .. } => self.sent(*number, key),
                Transfer::Waits => self.wait(routing.order, key),
            }
        }
    }

    fn sent(&mut self, number: Sequence, key: TransferKey) {
        self.streams.entry(key.target.letter_home()).or_default().insert(number.0, key);
        self.targets.entry(key.target).or_default().under_way += 1;
    }

    fn wait(&mut self, order: u64, key: TransferKey) {
        self.targets.entry(key.target).or_default().waits.insert(order, key);
    }

    /// Removes the transfers with these numbers, ascending.
    fn take(
        &mut self,
        stream: LetterHome,
        first: Sequence,
        last: Sequence,
    ) -> Vec<(Sequence, TransferKey)> {
        let Some(keys) = self.streams.get_mut(&stream) else { return Vec::new() };
        let answered: Vec<_> =
            keys.range(first.0).take_while(|(number, _)| *number <= last.0).collect();
        for (number, key) in &answered {
            keys.remove(*number);
            if let Some(target) = self.targets.get_mut(&key.target) {
                target.under_way -= 1;
            }
        }
        if keys.is_empty() {
            self.streams.remove(&stream);
        }
        answered.into_iter().map(|(number, key)| (Sequence(number), key)).collect()
    }

    /// Forgets a target without transfers; true if it was forgotten.
    fn tidy(&mut self, target: QueueId) -> bool {
        let idle =
            self.targets.get(&target).is_some_and(|it| it.under_way == 0 && it.waits.is_empty());
        if idle {
            self.targets.remove(&target);
        }
        idle
    }

    /// True if letters have a target among the queues of that start.
    fn has_targets_of(&self, start: SessionId) -> bool {
        let queue =
            |position| QueueId { home: Home::Node(start.node), index: start.start.0, position };
        self.targets.range(queue(0)..=queue(u64::MAX)).next().is_some()
    }
}

impl Machine {
    /// A queue that has or had letters: it lives, or has ended and is removed with its last letter.
    fn with_letters(&mut self, id: QueueId) -> Option<&mut Queue> {
        let queue = self.queues.get_mut(&id).or_else(|| self.ended_queues.get_mut(&id));
        queue.map(Box::as_mut)
    }

    /// `Routed`: commits one routing of letters (LET 1). Letters that were routed since stay as
    /// they are.
    pub(crate) fn routed(
        &mut self,
        id: QueueId,
        at: CatalogIndex,
        via: &Via,
        letters: &[RoutedLetters],
        apply: &mut Apply<'_>,
    ) {
        for RoutedLetters { first, last, routes } in letters {
            let routes = self.without_ended_starts(routes);
            for number in first.0..=last.0 {
                self.route(id, LetterNumber(number), at, via, &routes, apply);
            }
        }
        self.after_routing(id, apply);
        // A routing handles a bounded number of letters, so some may still wait.
        apply.letters_changed |= apply.outbox.waiting.contains(&id);
    }

    /// Removes targets of fenced starts: such a queue accepts nothing (LET 4), and the stream to
    /// its start is forgotten, so it must not begin again with numbers that were used.
    fn without_ended_starts(&self, routes: &Routes) -> Routes {
        let lives = |target: &QueueId| !self.is_over(target.letter_home());
        match routes {
            Routes::To(targets) => Routes::To(targets.iter().copied().filter(lives).collect()),
            Routes::Keep | Routes::Drop | Routes::Cycle => routes.clone(),
        }
    }

    fn route(
        &mut self,
        id: QueueId,
        number: LetterNumber,
        at: CatalogIndex,
        via: &Via,
        routes: &Routes,
        apply: &mut Apply<'_>,
    ) {
        let Some(queue) = self.with_letters(id) else { return };
        if !queue.letters.take_unrouted(number) {
            return;
        }
        apply.spend(1);
        apply.digest.step(Step::Route, digest::of_queue(id), number.0);
        match routes {
            Routes::To(targets) if targets.is_empty() => {
                queue.letters.set_stage(number, Stage::Waiting { after: at });
                apply.letters_changed = true;
            }
            Routes::To(targets) => {
                apply.group.letters.routings += 1;
                let order = apply.group.letters.routings;
                let transfers = targets
                    .iter()
                    .map(|target| {
                        let key = TransferKey { queue: id, letter: number, target: *target };
                        (*target, start(key, order, apply))
                    })
                    .collect();
                let via = via.clone();
                let task = None;
                let routing = Routing { via, at, order, taken: false, transfers, task };
                queue.letters.set_stage(number, Stage::Routed(Box::new(routing)));
            }
            Routes::Keep => queue.letters.set_stage(number, Stage::Kept),
            Routes::Drop => queue.end_letter(number, DeadLetterFact::Unroutable, apply),
            Routes::Cycle => queue.end_letter(number, DeadLetterFact::Cycle, apply),
        }
    }

    /// Records the changes after a routing: the queue is written, its waiting letters are indexed,
    /// and an ended queue without letters is removed.
    fn after_routing(&mut self, id: QueueId, apply: &mut Apply<'_>) {
        let Some(queue) = self.with_letters(id) else { return };
        queue.note_letters(apply);
        if queue.letters.is_waiting() {
            apply.outbox.waiting.insert(id);
        } else {
            apply.outbox.waiting.remove(&id);
        }
        self.remove_ended_if_done(id, apply);
    }

    /// Removes an ended queue without letters.
    fn remove_ended_if_done(&mut self, id: QueueId, apply: &mut Apply<'_>) {
        if !self.ended_queues.get(&id).is_some_and(|queue| queue.letters.is_empty()) {
            return;
        }
        let Some(queue) = self.ended_queues.remove(&id) else { return };
        apply.ended.push(id);
        apply.digest.step(Step::RemoveEndedQueue, digest::of_queue(id), 0);
        apply.out.changes.extend(queue.keys().map(Change::Record));
        apply.out.changes.push(Change::QueueRemoved { queue: id });
    }

    /// `DeadLettered`: commits the answers to transfers with these numbers, `Taken` except for
    /// those in `other` (LET 2). A number that is not in flight any more was answered before.
    pub(crate) fn dead_lettered(
        &mut self,
        stream: LetterHome,
        first: Sequence,
        last: Sequence,
        other: &[(Sequence, TransferAnswer)],
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let mut queues = BTreeSet::new();
        let mut targets = BTreeSet::new();
        for (number, key) in apply.outbox.take(stream, first, last) {
            let answer = other
                .binary_search_by_key(&number, |(number, _)| *number)
                .ok()
                .and_then(|place| other.get(place))
                .map_or(TransferAnswer::Taken, |(_, answer)| *answer);
            apply.spend(1);
            apply.digest.step(Step::Answer, digest::of_queue(key.target), number.0);
            apply.digest.step(Step::Answer, key.letter.0, answer as u64);
            self.answered(key, answer, apply)?;
            queues.insert(key.queue);
            targets.insert(key.target);
        }
        queues.into_iter().for_each(|queue| self.after_routing(queue, apply));
        for target in targets {
            settle_target(target, apply);
        }
        if let LetterHome::Start(start) = stream
            && self.is_fenced(start)
        {
            forget_streams(start, start, apply);
        }
        Ok(())
    }

    fn answered(
        &mut self,
        key: TransferKey,
        answer: TransferAnswer,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let Some(queue) = self.with_letters(key.queue) else { return Ok(()) };
        let Some(routing) = queue.letters.routing_mut(key.letter) else { return Ok(()) };
        match answer {
            TransferAnswer::Taken => {
                routing.taken = true;
                routing.transfers.remove(&key.target);
            }
            TransferAnswer::Gone => {
                routing.transfers.remove(&key.target);
                apply.group.letters.attempts.remove(&key.target);
            }
            TransferAnswer::Full => {
                routing.transfers.insert(key.target, Transfer::Waits);
                apply.outbox.wait(routing.order, key);
                apply.group.letters.attempts.entry(key.target).or_default().refused = true;
            }
        }
        if !routing.transfers.is_empty() {
            return Ok(());
        }
        let (taken, after) = (routing.taken, routing.at);
        if let Some(of) = routing.task {
            return queue.end_taken(key.letter, of, taken, apply);
        }
        if taken {
            queue.end_letter(key.letter, DeadLetterFact::Confirmed, apply);
        } else {
            queue.letters.set_stage(key.letter, Stage::Waiting { after });
            apply.letters_changed = true;
        }
        Ok(())
    }

    /// `Retry`: assigns numbers of the next attempt to the first `count` transfers that wait for a
    /// full target (LET 3). No effect if a transfer to it is in flight.
    pub(crate) fn retry(&mut self, id: QueueId, count: u32, apply: &mut Apply<'_>) {
        let Some(target) = apply.outbox.targets.get_mut(&id) else { return };
        if target.under_way > 0 || target.waits.is_empty() {
            return;
        }
        let attempt = apply.group.letters.attempts.entry(id).or_default();
        attempt.number += 1;
        attempt.refused = false;
        let number = attempt.number;
        apply.digest.step(Step::Retry, digest::of_queue(id), u64::from(number));
        for _ in 0..count.min(RETRY_MAX) {
            let next = apply.outbox.targets.get_mut(&id).and_then(|it| it.waits.pop_first());
            let Some((_, key)) = next else { break };
            let transfer = give_number(key, apply);
            apply.spend(1);
            if let Some(queue) = self.with_letters(key.queue) {
                if let Some(routing) = queue.letters.routing_mut(key.letter) {
                    routing.transfers.insert(id, transfer);
                }
                queue.note_letters(apply);
            }
        }
    }
}

/// Forgets the streams to these fenced starts once no transfer to them is in flight: nothing is
/// sent to them again.
pub(crate) fn forget_streams(first: SessionId, last: SessionId, apply: &mut Apply<'_>) {
    let Apply { group, outbox, .. } = apply;
    let ended = LetterHome::Start(first)..=LetterHome::Start(last);
    group.letters.streams.retain(|stream, _| match stream {
        LetterHome::Start(start) if ended.contains(stream) => outbox.has_targets_of(*start),
        LetterHome::Start(_) | LetterHome::Group(_) => true,
    });
}

/// Begins the transfer of a letter to a target: with a number, or behind those that wait for the
/// target (LET 3).
pub(crate) fn start(key: TransferKey, order: u64, apply: &mut Apply<'_>) -> Transfer {
    let waits = apply.outbox.targets.get(&key.target).is_some_and(|it| !it.waits.is_empty());
    let refused =
        apply.group.letters.attempts.get(&key.target).is_some_and(|attempt| attempt.refused);
    if !waits && !refused {
        return give_number(key, apply);
    }
    apply.outbox.wait(order, key);
    Transfer::Waits
}

fn give_number(key: TransferKey, apply: &mut Apply<'_>) -> Transfer {
    let stream = key.target.letter_home();
    let last = apply.group.letters.streams.entry(stream).or_default();
    last.0 += 1;
    let number = *last;
    let attempt = apply.group.letters.attempts.get(&key.target).map_or(1, |attempt| attempt.number);
    apply.outbox.sent(number, key);
    apply.letters_changed = true;
    Transfer::UnderWay { number, attempt }
}

/// A target has no transfer in flight, and letters wait for it: it can be tried again (LET 3).
pub(crate) fn settle_target(id: QueueId, apply: &mut Apply<'_>) {
    let refused = apply.group.letters.attempts.get(&id).is_some_and(|attempt| attempt.refused);
    if apply.outbox.tidy(id) && !refused {
        // The target has accepted a letter of the present attempt, or has ended: it refuses no
        // attempt of this home any more, so attempts are counted from the beginning again.
        apply.group.letters.attempts.remove(&id);
    }
    let Some(target) = apply.outbox.targets.get(&id) else { return };
    if target.under_way == 0 && !target.waits.is_empty() {
        apply.letters_changed = true;
    }
}

impl Queue {
    /// Drops the letters kept as unroutable; returns their number.
    pub(crate) fn forget_kept(&mut self, apply: &mut Apply<'_>) -> u64 {
        let kept = self.letters.take_kept();
        for letter in &kept {
            self.settle_letter(letter, apply);
        }
        kept.len() as u64
    }

    /// Drops the messages that a delayed exchange keeps; returns their number.
    pub(crate) fn forget_delayed(&mut self, apply: &mut Apply<'_>) -> u64 {
        let delayed = self.letters.delayed();
        for number in &delayed {
            self.forget_letter(*number, apply);
        }
        delayed.len() as u64
    }

    /// Ends a letter, and counts the outcome.
    fn end_letter(&mut self, number: LetterNumber, how: DeadLetterFact, apply: &mut Apply<'_>) {
        apply.count(&self.config, how);
        self.forget_letter(number, apply);
    }

    /// Removes a letter and its message.
    pub(crate) fn forget_letter(&mut self, number: LetterNumber, apply: &mut Apply<'_>) {
        if let Some(letter) = self.letters.remove(number) {
            self.settle_letter(&letter, apply);
        }
    }

    fn settle_letter(&mut self, letter: &Letter, apply: &mut Apply<'_>) {
        apply.digest.step(Step::Answer, digest::of_message(letter.message), 0);
        self.settle_message(letter.message, apply);
    }

    /// Removes a message that was taken from its level.
    pub(crate) fn settle_message(&mut self, message: MessageId, apply: &mut Apply<'_>) {
        if let Some(level) = self.levels.get_mut(&message.level) {
            level.living.subtract(message.index, 1);
            if level.refused_letters.end((message.index, message.position)) {
                apply.cut_letter(self.id, message);
            }
        }
    }
}

impl Default for Attempt {
    fn default() -> Self {
        Self { number: 1, refused: false }
    }
}
