//! `Enqueue`: a part of one of the entry's runs joins its queue (DESIGN §3).

use crate::{
    apply::Apply,
    command::Reply,
    digest::{self, Step},
    level::{LevelState, Part, Place},
    machine::Machine,
};

impl Machine {
    /// `Enqueue`: `Taken`, or `Gone`, and the part is then cut out of its run (STO 4).
    pub(crate) fn enqueue(&mut self, part: Part, apply: &mut Apply<'_>) -> Reply {
        let Some(run) = apply.entry.runs.get(part.run as usize) else { return Reply::Gone };
        let Some(queue) = self.queues.get_mut(&run.queue) else {
            apply.cut(part);
            return Reply::Gone;
        };
        // Borrowed from the entry, not from `apply`.
        let end = part.first as usize + part.count as usize;
        let Some(messages) = run.messages.get(part.first as usize..end) else { return Reply::Gone };
        queue.touch(apply);
        let place = Place { queue: run.queue, level: run.level, served: queue.attached > 0 };
        let new = || Box::new(LevelState::starting_at(apply.index));
        let level = queue.levels.entry(run.level).or_insert_with(new);
        let bytes = level.append(place, part, messages, apply);
        let range = u64::from(part.first) << 32 | u64::from(part.count);
        let place = digest::of_queue(run.queue) ^ u64::from(run.level.0);
        apply.digest.step(Step::Enqueue, place, range);
        apply.digest.step(Step::Enqueue, apply.index.0, bytes);
        Reply::Taken
    }
}
