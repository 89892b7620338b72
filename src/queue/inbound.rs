//! Numbered batches of a session, or of another home that sends dead letters: new commands are
//! applied in order, repeats are answered from stored answers, and gaps are requested again (SES 1
//! to 7, LET 2).

use crate::{
    apply::Apply,
    command::{Batch, Command, Origin, Reply, TransferAnswer},
    digest::{self, Step},
    machine::{Caller, Machine},
    output::{Answer, RecordKey},
    record::SessionRecord,
    store::StoreError,
    transfer::answer_of,
};
use quorate_types::{Home, LetterHome, PlantedBug, Sequence, SessionId, StartNumber};

/// A sender that numbers its commands to this machine.
#[derive(Clone, Copy, Debug)]
enum Sender {
    /// A node's front end.
    Session(SessionId),
    /// A home that sends dead letters for queues of this home (LET 1).
    Letters(LetterHome),
}

/// A numbered batch.
struct Numbered<'a> {
    sender: Sender,
    /// Number of the first command.
    first: Sequence,
    /// The sender has received every answer below this number.
    mark: Sequence,
    commands: &'a [Command],
}

impl Machine {
    /// Applies one batch.
    pub(crate) fn batch(&mut self, batch: &Batch, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        let commands = &batch.commands;
        let (sender, first, mark) = match batch.origin {
            Origin::Leader => {
                for command in commands {
                    self.command(command, Caller::Leader, apply)?;
                }
                return Ok(());
            }
            Origin::Session { session, first, mark } => (Sender::Session(session), first, mark),
            Origin::Letters { from, first, mark } => (Sender::Letters(from), first, mark),
        };
        self.numbered(&Numbered { sender, first, mark, commands }, apply)
    }

    fn numbered(&mut self, batch: &Numbered<'_>, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        let Numbered { sender, first, mark, commands } = *batch;
        if self.is_sender_over(sender) {
            refuse_over(sender, commands, apply);
            return Ok(());
        }
        if let (Sender::Letters(from), Some(by)) = (sender, self.other_start(commands, apply)) {
            refuse(commands, apply);
            apply.out.answers.extend(all_gone(from, by, first, commands.len()));
            return Ok(());
        }
        if let Sender::Session(SessionId { node, start }) = sender {
            // A batch of a higher start fences all earlier starts of the node (SES 6).
            self.fence(node, StartNumber(start.0.saturating_sub(1)), apply)?;
            self.stabilize(apply)?;
        }
        let last = self.last_received(sender, mark);
        if first.0 > last.0 + 1 && !PlantedBug::NoGapRefusal.is_in() {
            refuse(commands, apply);
            let (want, by) = (Sequence(last.0 + 1), self.letter_home());
            apply.out.answers.push(match sender {
                Sender::Session(session) => Answer::Want { session, want },
                Sender::Letters(from) => Answer::TransfersWanted { from, by, want },
            });
            return Ok(());
        }
        let (done, other) = self.apply_new(batch, last, apply)?;
        self.keep(batch, last, done, other, apply);
        // A command of this batch may have ended its session.
        let rest = commands.get(done..).unwrap_or_default();
        if !rest.is_empty() {
            refuse_over(sender, rest, apply);
        }
        Ok(())
    }

    /// Applies the commands above `last`, and looks up the stored answers of the others. Returns
    /// the number of commands handled (all, unless one of them fenced the sender) and the answers
    /// other than `Taken`.
    fn apply_new(
        &mut self,
        batch: &Numbered<'_>,
        last: Sequence,
        apply: &mut Apply<'_>,
    ) -> Result<(usize, Vec<(Sequence, Reply)>), StoreError> {
        let (sender, mut done, mut other) = (batch.sender, 0, Vec::new());
        for (number, command) in (batch.first.0..).map(Sequence).zip(batch.commands) {
            if number <= last && !PlantedBug::NoProducerSession.is_in() {
                refuse(std::slice::from_ref(command), apply);
                let kept = self.received(sender).and_then(|record| record.answers.get(&number));
                other.extend(kept.map(|reply| (number, reply.clone())));
            } else if self.is_sender_over(sender) {
                break;
            } else {
                let reply = self.command(command, sender.caller(number), apply)?;
                if reply != Reply::Taken {
                    other.push((number, reply));
                }
            }
            done += 1;
        }
        Ok((done, other))
    }

    /// Answers the first `count` commands. Stores the answers to those above `before`, from the
    /// mark on, for repeats (SES 3).
    fn keep(
        &mut self,
        batch: &Numbered<'_>,
        before: Sequence,
        count: usize,
        other: Vec<(Sequence, Reply)>,
        apply: &mut Apply<'_>,
    ) {
        let Numbered { sender, first, mark, .. } = *batch;
        let last = Sequence((first.0 + count as u64).saturating_sub(1));
        if !self.is_sender_over(sender) {
            let record = match sender {
                Sender::Session(session) => self.sessions.entry(session).or_default(),
                Sender::Letters(from) => self.sources.entry(from).or_default(),
            };
            record.last = before.max(last);
            record.forget_below(mark);
            let new = other.iter().filter(|(number, _)| *number > before && *number >= record.mark);
            record.answers.extend(new.cloned());
            let (step, name, key) = sender.names();
            apply.digest.step(step, name, record.last.0);
            apply.digest.step(step, record.mark.0, record.answers.len() as u64);
            apply.change(key);
        }
        if count > 0 {
            let by = self.letter_home();
            apply.out.answers.push(match sender {
                Sender::Session(session) => Answer::Answered { session, first, last, other },
                Sender::Letters(from) => {
                    let answer = |(number, reply)| (number, answer_of(&reply));
                    let other = other.into_iter().map(answer).collect();
                    Answer::Transferred { from, by, first, last, other }
                }
            });
        }
    }

    /// The start of this node that letters are for, if it is not the present one. The queues of a former
    /// start have ended, and one that there has not been yet has none. Each start has a stream of its own,
    /// so these letters count nothing in the stream to the present one (LET 1, NAM 8).
    fn other_start(&self, commands: &[Command], apply: &Apply<'_>) -> Option<LetterHome> {
        let (Home::Node(_), Some(Command::Transfer { run, .. })) = (self.home, commands.first())
        else {
            return None;
        };
        let stream = apply.entry.runs.get(*run as usize)?.queue.letter_home();
        (stream != self.letter_home()).then_some(stream)
    }

    /// True if the sender is fenced, so that its commands are refused (SES 6).
    fn is_sender_over(&self, sender: Sender) -> bool {
        match sender {
            Sender::Session(session) => self.is_fenced(session),
            Sender::Letters(from) => self.is_over(from),
        }
    }

    /// The highest number received from the sender.
    ///
    /// A session goes on when another node starts anew, but that node's connection-bound queues are
    /// gone and with them the record of the session. Its commands below the mark have been answered,
    /// by an earlier start of the node or because that start had ended (SES 3, NAM 8).
    ///
    /// Letters below the mark have been answered too. A home lacks what it has answered only after the last
    /// resort, which ends the sessions of all sources (MEM 14): the first batch of the next one begins at its
    /// mark. Asking for what is below would stop the stream for ever.
    fn last_received(&self, sender: Sender, mark: Sequence) -> Sequence {
        let last = self.received(sender).map_or(Sequence(0), |record| record.last);
        match (self.home, sender) {
            (Home::Node(_), Sender::Session(_)) | (_, Sender::Letters(_)) => {
                last.max(Sequence(mark.0.saturating_sub(1)))
            }
            (Home::Group(_), Sender::Session(_)) => last,
        }
    }

    /// The record of the commands received from the sender.
    fn received(&self, sender: Sender) -> Option<&SessionRecord> {
        match sender {
            Sender::Session(session) => self.sessions.get(&session),
            Sender::Letters(from) => self.sources.get(&from),
        }
    }
}

impl Sender {
    fn caller(self, number: Sequence) -> Caller {
        match self {
            Self::Session(session) => Caller::Session { session, number },
            Self::Letters(from) => Caller::Letters(from),
        }
    }

    /// The sender's kind and word for the digest, and the key of its record.
    fn names(self) -> (Step, u64, RecordKey) {
        match self {
            Self::Session(session) => {
                (Step::Session, digest::of_session(session), RecordKey::Session(session))
            }
            Self::Letters(from) => {
                (Step::Source, digest::of_letter_home(from), RecordKey::Source(from))
            }
        }
    }
}

impl SessionRecord {
    /// Deletes the answers below the mark, which the sender has received.
    fn forget_below(&mut self, mark: Sequence) {
        if mark <= self.mark {
            return;
        }
        self.mark = mark;
        if self.answers.keys().next().is_some_and(|first| *first < mark) {
            self.answers = self.answers.split_off(&mark);
        }
    }
}

/// The answer to `count` letters of the stream to a start that is not the present one (LET 4).
fn all_gone(from: LetterHome, by: LetterHome, first: Sequence, count: usize) -> Option<Answer> {
    let last = Sequence(first.0 + (count as u64).checked_sub(1)?);
    let other = (first.0..=last.0).map(|number| (Sequence(number), TransferAnswer::Gone)).collect();
    Some(Answer::Transferred { from, by, first, last, other })
}

/// Refuses commands of a fenced sender. Letters of an ended start are not answered, since nobody
/// waits for the answer.
fn refuse_over(sender: Sender, commands: &[Command], apply: &mut Apply<'_>) {
    refuse(commands, apply);
    match sender {
        Sender::Session(session) => apply.out.answers.push(Answer::Fenced { session }),
        Sender::Letters(_) => {}
    }
}

/// Refuses commands: their enqueues are cut, and their positions are counted (NAM 1, STO 4).
fn refuse(commands: &[Command], apply: &mut Apply<'_>) {
    for command in commands {
        apply.cut_enqueue(command);
        apply.position += 1;
    }
}
