//! Batches: who may speak, what is a repeat, what a gap, and which answers are kept (SES 1 to 7).

use crate::{
    apply::Apply,
    command::{Batch, Command, Origin, Reply},
    digest::{self, Step},
    machine::{Caller, Machine},
    output::{Answer, RecordKey},
    record::SessionRecord,
    store::StoreError,
};
use quorate_types::{Sequence, SessionId, StartNumber};

impl Machine {
    /// Applies one batch.
    pub(crate) fn batch(&mut self, batch: &Batch, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        match batch.origin {
            Origin::Leader => {
                for command in &batch.commands {
                    self.command(command, Caller::Leader, apply)?;
                }
                Ok(())
            }
            Origin::Session { session, first, mark } => {
                self.session_batch(session, first, mark, &batch.commands, apply)
            }
            Origin::Letters { from, .. } if self.is_over(from) => {
                // Nobody waits for an answer any more.
                refuse(&batch.commands, apply);
                Ok(())
            }
            Origin::Letters { from, first, mark } => {
                self.letters_batch(from, first, mark, batch, apply)
            }
        }
    }

    fn session_batch(
        &mut self,
        session: SessionId,
        first: Sequence,
        mark: Sequence,
        commands: &[Command],
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        if self.is_fenced(session) {
            refuse(commands, apply);
            apply.out.answers.push(Answer::Fenced { session });
            return Ok(());
        }
        // A start is fenced by the first sight of a higher one (SES 6).
        let lower = StartNumber(session.start.0.saturating_sub(1));
        self.fence(session.node, lower, apply)?;
        self.settle_down(apply)?;
        let last = self.sessions.get(&session).map_or(Sequence(0), |record| record.last);
        if first.0 > last.0 + 1 {
            refuse(commands, apply);
            let want = Sequence(last.0 + 1);
            apply.out.answers.push(Answer::Want { session, want });
            return Ok(());
        }
        let (done, other) = self.run(session, first, last, commands, apply)?;
        self.keep(session, first, mark, done, &other, apply);
        // The batch itself may have ended its session.
        let rest = commands.get(done..).unwrap_or_default();
        if !rest.is_empty() {
            refuse(rest, apply);
            apply.out.answers.push(Answer::Fenced { session });
        }
        Ok(())
    }

    /// Applies the commands that are new and looks up what the others were answered. Returns how
    /// many that were (all, unless one of them fenced the session) and the answers other than
    /// `Taken`.
    fn run(
        &mut self,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        commands: &[Command],
        apply: &mut Apply<'_>,
    ) -> Result<(usize, Vec<Answered>), StoreError> {
        let (mut done, mut other) = (0, Vec::new());
        for (number, command) in (first.0..).map(Sequence).zip(commands) {
            if number <= last {
                refuse(std::slice::from_ref(command), apply);
                let kept = self.sessions.get(&session).and_then(|it| it.answers.get(&number));
                let answered =
                    |reply: &Reply| Answered { number, reply: reply.clone(), new: false };
                other.extend(kept.map(answered));
            } else if self.is_fenced(session) {
                break;
            } else {
                let reply = self.command(command, Caller::Session { session, number }, apply)?;
                if reply != Reply::Taken {
                    other.push(Answered { number, reply, new: true });
                }
            }
            done += 1;
        }
        Ok((done, other))
    }

    /// Answers the batch, and keeps for a repeat what was answered, from the mark on (SES 3).
    fn keep(
        &mut self,
        session: SessionId,
        first: Sequence,
        mark: Sequence,
        count: usize,
        other: &[Answered],
        apply: &mut Apply<'_>,
    ) {
        let last = Sequence((first.0 + count as u64).saturating_sub(1));
        if !self.is_fenced(session) {
            let record = self.sessions.entry(session).or_default();
            record.last = record.last.max(last);
            record.forget_below(mark);
            let new = other.iter().filter(|it| it.new && it.number >= record.mark);
            record.answers.extend(new.map(|it| (it.number, it.reply.clone())));
            apply.digest.step(Step::Session, digest::of_session(session), record.last.0);
            apply.digest.step(Step::Session, record.mark.0, record.answers.len() as u64);
            apply.change(RecordKey::Session(session));
        }
        if count > 0 {
            let other = other.iter().map(|it| (it.number, it.reply.clone())).collect();
            apply.out.answers.push(Answer::Answered { session, first, last, other });
        }
    }
}

/// An answer other than `Taken`.
struct Answered {
    number: Sequence,
    reply: Reply,
    new: bool,
}

impl SessionRecord {
    /// The sender has had every answer below the mark.
    pub(crate) fn forget_below(&mut self, mark: Sequence) {
        if mark <= self.mark {
            return;
        }
        self.mark = mark;
        if self.answers.keys().next().is_some_and(|first| *first < mark) {
            self.answers = self.answers.split_off(&mark);
        }
    }
}

/// Commands that are not applied: their enqueues are cut, their places counted (NAM 1, STO 4).
pub(crate) fn refuse(commands: &[Command], apply: &mut Apply<'_>) {
    for command in commands {
        apply.cut_enqueue(command);
        apply.position += 1;
    }
}
