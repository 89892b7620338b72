//! `Enqueue`: appends a part of one of the entry's runs to its queue (DESIGN §3), except for the
//! messages that a length limit refuses (LEN-07), which may become dead letters (LEN-12).

use crate::{
    apply::Apply,
    command::{MessageHead, Reply},
    death_reason::DeathReason,
    digest::{self, Step},
    expire::Expiry,
    level::{LevelState, Part, Place},
    machine::{Caller, Machine},
    queue::Queue,
    store::StoreError,
};
use quorate_types::Level;

impl Machine {
    /// `Enqueue`. Replies `Taken`; `Refused`, where refused messages are cut out of their run or
    /// become letters; or `Gone`, where the whole part is cut (STO 4).
    pub(crate) fn enqueue(
        &mut self,
        part: Part,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        let Some(run) = apply.entry.runs.get(part.run as usize) else { return Ok(Reply::Gone) };
        let Some(queue) = self.queues.get_mut(&run.queue) else {
            apply.cut(part);
            return Ok(Reply::Gone);
        };
        // Borrowed from the entry, not from `apply`, so that `apply` can be changed below.
        let end = part.first as usize + part.count as usize;
        let Some(messages) = run.messages.get(part.first as usize..end) else {
            return Ok(Reply::Gone);
        };
        queue.touch(apply);
        if caller.session().is_some() {
            queue.traffic.published += u64::from(part.count);
        }
        if queue.has_letters_enough() {
            apply.cut(part);
            return Ok(Reply::Refused(vec![(0, part.count.saturating_sub(1))]));
        }
        if queue.config.refuses_publishes() {
            // Messages whose wait has ended count towards the limits, expired ones do not.
            queue.end_delays(apply);
            queue.expire(Expiry::Over, apply)?;
            let refused = queue.refused(messages);
            if !refused.is_empty() {
                queue.append_between(run.level, part, messages, &refused, apply);
                return Ok(Reply::Refused(refused));
            }
        }
        queue.append(run.level, part, messages, apply);
        Ok(Reply::Taken)
    }
}

impl Queue {
    fn append(
        &mut self,
        level: Level,
        part: Part,
        messages: &[MessageHead],
        apply: &mut Apply<'_>,
    ) {
        let place = Place { queue: self.id, level, served: self.attached > 0 };
        let bytes = self.level_for(level, apply).append(place, part, messages, apply);
        self.arrived += u64::from(part.count);
        let range = u64::from(part.first) << 32 | u64::from(part.count);
        let place = digest::of_queue(self.id) ^ u64::from(level.0);
        apply.digest.step(Step::Enqueue, place, range);
        apply.digest.step(Step::Enqueue, apply.index.0, bytes);
    }

    fn level_for(&mut self, level: Level, apply: &Apply<'_>) -> &mut LevelState {
        let new = || Box::new(LevelState::starting_at(apply.index));
        self.levels.entry(level).or_insert_with(new)
    }

    /// Appends the messages between the refused ranges.
    fn append_between(
        &mut self,
        level: Level,
        part: Part,
        messages: &[MessageHead],
        refused: &[(u32, u32)],
        apply: &mut Apply<'_>,
    ) {
        let mut next = 0;
        for (first, last) in refused.iter().copied().chain([(part.count, part.count)]) {
            let kept = messages.get(next as usize..first as usize).unwrap_or_default();
            if !kept.is_empty() {
                let kept_part =
                    Part { run: part.run, first: part.first + next, count: first - next };
                self.append(level, kept_part, kept, apply);
            }
            if first < part.count {
                let out = messages.get(first as usize..=last as usize).unwrap_or_default();
                let count = last - first + 1;
                let out_part = Part { run: part.run, first: part.first + first, count };
                self.refuse(level, out_part, out, apply);
            }
            next = last + 1;
        }
    }

    /// Cuts refused messages out of their run, unless they become letters (LEN-12).
    fn refuse(
        &mut self,
        level: Level,
        part: Part,
        messages: &[MessageHead],
        apply: &mut Apply<'_>,
    ) {
        if !self.config.dead_letters_refused() {
            apply.cut(part);
            return;
        }
        let dead = self.level_for(level, apply).keep_refused(level, part, messages, apply);
        apply.spend(dead.len());
        for message in dead {
            self.die(message, DeathReason::MaxLength, apply);
        }
    }
}
