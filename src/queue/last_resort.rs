//! `LastResort`: the group goes on from one replica, as every other group does (MEM 14).
//!
//! A replica that goes on alone may lack the end of the group's log. So two groups need not agree any
//! more on the letters between them: a source that has lost more than a target would give numbers again
//! by which the target has taken other letters, and the target would answer those as repeats (LET 2). The
//! numbers of letters are those of a session, and a session that has ended says nothing about a
//! later one (SES 1, SES 6): with this command the sessions of all sources end. A source sends what is
//! under way in a new one, under the same numbers, which its mark introduces. A letter whose answer the
//! source has lost or not had arrives twice; none is taken for one that was answered before.
//!
//! Every group's log gets the command before any process begins, so no letter of the new sessions can
//! arrive before it.

use crate::{
    apply::Apply,
    digest::{self, Step},
    machine::Machine,
    outbox::settle_target,
    output::RecordKey,
};
use std::mem;

impl Machine {
    pub(crate) fn last_resort(&mut self, apply: &mut Apply<'_>) {
        for from in mem::take(&mut self.sources).into_keys() {
            apply.digest.step(Step::EndSource, digest::of_letter_home(from), 0);
            apply.change(RecordKey::Source(from));
        }
        for queue in self.queues.values_mut().filter(|queue| !queue.refusals.is_empty()) {
            queue.refusals.clear();
            apply.digest.step(Step::Refuse, digest::of_queue(queue.id), 0);
            queue.touch(apply);
        }
        // A target that has forgotten its refusal tells nobody of its room: all are tried again (LET 3).
        let refused = apply.group.letters.attempts.iter_mut().filter(|(_, it)| it.refused);
        let refused: Vec<_> = refused
            .map(|(target, attempt)| {
                attempt.refused = false;
                *target
            })
            .collect();
        for target in refused {
            apply.digest.step(Step::Retry, digest::of_queue(target), 0);
            settle_target(target, apply);
        }
        apply.letters_changed = true;
    }
}
