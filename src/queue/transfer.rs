//! The target's side of a dead letter's transfer: `Transfer`, numbered by the home that sends it,
//! and the notices of room that a full queue owes to the sources that it has refused (LET 2, 3,
//!
//!
//! A fenced start sends and accepts nothing more, so no data about it stays in a group (SES 6, LET
//! 4). The transfers that it sent and its refusals are forgotten with its fence, and so is the
//! stream to it once no transfer is in flight. Later letters of such a start are refused without an
//! answer, and letters get no numbers towards it. The attempt of a target begins again when all
//! letters for the target have been accepted, because the target then refuses none any more (LET
//! 3).

use crate::{
    apply::Apply,
    command::{MessageHead, Reply, TransferAnswer},
    digest::{self, Step},
    level::Part,
    machine::{Caller, Machine},
    output::{Effect, RecordKey},
    queue::Queue,
    store::StoreError,
};
use quorate_types::{Home, LetterHome, Overflow, SessionId};
use std::collections::BTreeMap;

/// A source whose letters the queue has refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// The highest refused attempt; lower ones are refused too.
    pub(crate) attempt: u32,
    /// The source has been notified of room since. Not part of the state: a new leader notifies again.
    notified: bool,
}

impl Refusal {
    pub(crate) fn from_record(record: BTreeMap<LetterHome, u32>) -> BTreeMap<LetterHome, Self> {
        record
            .into_iter()
            .map(|(from, attempt)| (from, Self { attempt, notified: false }))
            .collect()
    }
}

impl Machine {
    /// This machine, as the address for letters of other homes.
    #[must_use]
    pub fn letter_home(&self) -> LetterHome {
        match self.home {
            Home::Group(group) => LetterHome::Group(group),
            Home::Node(node) => LetterHome::Start(SessionId { node, start: self.start }),
        }
    }

    /// True if the home is a fenced start of a node (SES 6).
    pub(crate) fn is_over(&self, home: LetterHome) -> bool {
        match home {
            LetterHome::Group(_) => false,
            LetterHome::Start(session) => self.is_fenced(session),
        }
    }

    /// Deletes the records of transfers from these fenced starts, which send no more (SES 6).
    pub(crate) fn forget_sources(
        &mut self,
        first: SessionId,
        last: SessionId,
        apply: &mut Apply<'_>,
    ) {
        let starts = LetterHome::Start(first)..=LetterHome::Start(last);
        let ended: Vec<_> = self.sources.range(starts.clone()).map(|(from, _)| *from).collect();
        if ended.is_empty() {
            // Without transfers there are no refusals either.
            return;
        }
        for from in ended {
            self.sources.remove(&from);
            apply.change(RecordKey::Source(from));
        }
        for queue in self.queues.values_mut() {
            let refused = queue.refusals.len();
            queue.refusals.retain(|from, _| !starts.contains(from));
            if queue.refusals.len() < refused {
                queue.touch(apply);
            }
        }
    }

    /// `Transfer`: replies `Taken`, `Full` or `Gone`; if not taken, the message is cut out of its
    /// run (STO 4).
    pub(crate) fn transfer(
        &mut self,
        part: Part,
        attempt: u32,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        let run = apply.entry.runs.get(part.run as usize);
        let (Some(run), Caller::Letters(from)) = (run, caller) else { return Ok(Reply::Gone) };
        let Some(queue) = self.queues.get_mut(&run.queue) else {
            apply.cut(part);
            return Ok(Reply::Gone);
        };
        if queue.config.refuses_publishes() {
            // Before the look for room: the enqueue, which does the same, must not refuse after it.
            queue.touch(apply);
            queue.end_delays(apply);
        }
        let head = run.messages.get(part.first as usize).copied().unwrap_or_default();
        let refused = queue.refusals.get(&from).map(|refusal| refusal.attempt);
        if refused.is_some_and(|refused| attempt <= refused) || !queue.has_room_for(head) {
            let attempt = refused.unwrap_or_default().max(attempt);
            queue.refusals.insert(from, Refusal { attempt, notified: false });
            apply.digest.step(Step::Refuse, digest::of_letter_home(from), u64::from(attempt));
            queue.touch(apply);
            apply.cut(part);
            return Ok(Reply::Full);
        }
        if refused.is_some() {
            // A higher attempt shows that the source has received the notice of room (LET 3).
            queue.refusals.remove(&from);
            apply.digest.step(Step::Refuse, digest::of_letter_home(from), 0);
        }
        self.enqueue(part, caller, apply)
    }
}

/// The answer to the source for the reply to a transfer.
pub(crate) fn answer_of(reply: &Reply) -> TransferAnswer {
    match reply {
        Reply::Taken => TransferAnswer::Taken,
        Reply::Full | Reply::Refused(_) => TransferAnswer::Full,
        Reply::Created(_)
        | Reply::Gone
        | Reply::Alive(_)
        | Reply::Ended { .. }
        | Reply::InUse
        | Reply::NotEmpty
        | Reply::ExclusiveInUse
        | Reply::Got(_)
        | Reply::Empty
        | Reply::Purged { .. } => TransferAnswer::Gone,
    }
}

impl Queue {
    /// True if a letter may be enqueued: a queue that refuses publishes refuses letters too.
    fn has_room_for(&self, head: MessageHead) -> bool {
        let fits = !self.config.refuses_publishes() || self.refused(&[head]).is_empty();
        fits && !self.has_letters_enough()
    }

    /// True if so many letters wait that the queue accepts nothing more. Messages that tasks
    /// have taken do not count: two queues whose messages move to each other would wait for ever.
    pub(crate) fn has_letters_enough(&self) -> bool {
        let (letters, most) = (self.letters.len(), self.config.letters_max);
        letters >= most && letters.saturating_sub(self.under_way()) >= most
    }

    /// Approximate number of messages that there is room for; 0 if there is none.
    fn room(&self) -> u32 {
        if self.has_letters_enough() {
            return 0;
        }
        if self.config.overflow == Overflow::DropHead {
            return u32::MAX;
        }
        let (ready, ready_bytes) = (self.ready(), self.ready_bytes());
        let length = self.config.length_max.map_or(u64::MAX, |most| most.saturating_sub(ready));
        let bytes = self.config.length_bytes_max.map_or(u64::MAX, |most| {
            let size = ready_bytes.checked_div(ready).unwrap_or(0).max(1);
            // Rounded up: one message is tried while there is any room, whatever its size.
            most.saturating_sub(ready_bytes).div_ceil(size)
        });
        u32::try_from(length.min(bytes)).unwrap_or(u32::MAX)
    }

    /// Notifies the refused sources, once each, when there is room again (LET 3).
    pub(crate) fn notify_room(&mut self, apply: &mut Apply<'_>) {
        if self.refusals.is_empty() {
            return;
        }
        let room = self.room();
        if room == 0 {
            return;
        }
        for (to, refusal) in &mut self.refusals {
            if !std::mem::replace(&mut refusal.notified, true) {
                apply.effect(Effect::Room { queue: self.id, to: *to, messages: room });
            }
        }
    }

    /// The notices of room that a leader repeats to all refused sources, after an election or later.
    pub(crate) fn owed_room(&self, effects: &mut Vec<Effect>) {
        let messages = if self.refusals.is_empty() { 0 } else { self.room() };
        if messages > 0 {
            let to = self.refusals.keys();
            effects.extend(to.map(|to| Effect::Room { queue: self.id, to: *to, messages }));
        }
    }
}
