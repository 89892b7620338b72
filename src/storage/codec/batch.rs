//! Batches as a node's proposer sends them to the group's leader, and how the leader merges them
//! into one entry.

use super::{
    DecodeError,
    chain::Chain,
    command::commands,
    cursor::{Cursor, put_int, put_len, put_queue, put_session},
    letter::{letter_home, put_letter_home},
    queue::{NOBODY, head, put_commands, put_head},
};
use crate::RunBodies;
use bytes::{BufMut, Bytes, BytesMut};
use quorate_queue::{Batch, Command, Entry, MessageHead, Origin, Run};
use quorate_types::{LetterHome, Level, QueueId, Sequence, SessionId, Stamp};
use std::collections::HashMap;

const VERSION: u8 = 1;

/// The sender of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A node's proposer, in its session.
    Session(SessionId),
    /// A home that sends dead letters, in its stream (LET 1).
    Letters(LetterHome),
}

/// Commands of one sender with the messages that they enqueue. `Enqueue.run` names a run of this
/// batch; its enqueues cover each run exactly once, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedBatch {
    /// The sender of the batch.
    pub sender: Sender,
    /// Number of the first command (SES 2).
    pub first: Sequence,
    /// Lowest number whose answer the sender has not received (SES 3).
    pub mark: Sequence,
    /// Runs, at most one for each (queue, level).
    pub runs: Vec<ProposedRun>,
    /// The commands, in the order of their numbers.
    pub commands: Vec<Command>,
}

/// The messages of one batch for one queue and level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedRun {
    /// Queue that the messages are for.
    pub queue: QueueId,
    /// Priority level of the messages.
    pub level: Level,
    /// Head of each message, in order.
    pub heads: Vec<MessageHead>,
    /// The encoded messages, one for each head ([`super::message`]).
    pub messages: Vec<Bytes>,
}

/// Encodes a batch as a chain of buffers whose concatenation is the frame; large messages are not
/// copied.
#[must_use]
pub fn encode_batch(batch: &ProposedBatch) -> Vec<Bytes> {
    let mut chain = Chain::default();
    let out = chain.small();
    out.put_u8(VERSION);
    match batch.sender {
        Sender::Session(session) => {
            out.put_u8(0);
            put_session(out, session);
        }
        Sender::Letters(from) => {
            out.put_u8(1);
            put_letter_home(from, out);
        }
    }
    put_int(out, batch.first.0);
    put_int(out, batch.mark.0);
    put_len(out, batch.runs.len());
    for run in &batch.runs {
        put_run(run, out);
    }
    put_commands(&batch.commands, own(batch.sender), out);
    for message in batch.runs.iter().flat_map(|run| &run.messages) {
        chain.push(message);
    }
    chain.finish()
}

fn put_run(run: &ProposedRun, out: &mut BytesMut) {
    put_queue(out, run.queue);
    out.put_u8(run.level.0);
    put_len(out, run.heads.len());
    for (head, message) in run.heads.iter().zip(&run.messages) {
        put_head(*head, out);
        put_len(out, message.len());
    }
}

/// Decodes a batch; its messages are slices of `bytes`.
///
/// # Errors
/// The bytes are not a batch, or its enqueues do not cover the runs.
pub fn decode_batch(bytes: &Bytes) -> Result<ProposedBatch, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let sender = match cursor.u8()? {
        0 => Sender::Session(cursor.session()?),
        1 => Sender::Letters(letter_home(&mut cursor)?),
        _ => return Err(DecodeError::Invalid("sender")),
    };
    let (first, mark) = (Sequence(cursor.int()?), Sequence(cursor.int()?));
    let runs = cursor.list(|cursor| {
        let (queue, level) = (cursor.queue()?, Level(cursor.u8()?));
        let messages = cursor.list(|cursor| Ok((head(cursor)?, cursor.int()?)))?;
        Ok((queue, level, messages))
    })?;
    let commands = commands(&mut cursor, own(sender))?;
    let mut proposed = Vec::with_capacity(runs.len());
    for (queue, level, lengths) in runs {
        let mut run = ProposedRun { queue, level, heads: Vec::new(), messages: Vec::new() };
        run.heads.reserve(lengths.len());
        run.messages.reserve(lengths.len());
        for (head, length) in lengths {
            let length = usize::try_from(length).map_err(|_| DecodeError::Truncated)?;
            run.heads.push(head);
            run.messages.push(bytes.slice_ref(cursor.take(length)?));
        }
        proposed.push(run);
    }
    cursor.end()?;
    let batch = ProposedBatch { sender, first, mark, runs: proposed, commands };
    check(&batch)?;
    Ok(batch)
}

/// The session whose holders are encoded without the session.
fn own(sender: Sender) -> SessionId {
    match sender {
        Sender::Session(session) => session,
        Sender::Letters(_) => NOBODY,
    }
}

/// Checks that the enqueues cover each run once, in order, since apply relies on it.
fn check(batch: &ProposedBatch) -> Result<(), DecodeError> {
    let mut covered = vec![0u32; batch.runs.len()];
    for command in &batch.commands {
        if let Some((run, first, count)) = part_of(command) {
            let covered =
                covered.get_mut(run as usize).ok_or(DecodeError::Invalid("run of an enqueue"))?;
            if count == 0 || *covered != first {
                return Err(DecodeError::Invalid("positions of an enqueue"));
            }
            *covered = first.checked_add(count).ok_or(DecodeError::Invalid("count"))?;
        }
    }
    let whole = covered.iter().zip(&batch.runs).all(|(covered, run)| {
        *covered as usize == run.messages.len() && run.heads.len() == run.messages.len()
    });
    let mut places: Vec<_> = batch.runs.iter().map(|run| (run.queue, run.level)).collect();
    places.sort_unstable();
    let distinct = places.windows(2).all(|pair| pair.first() != pair.last());
    if whole && distinct { Ok(()) } else { Err(DecodeError::Invalid("runs of a batch")) }
}

/// The run, first position and count of a command that enqueues messages.
pub(crate) fn part_of(command: &Command) -> Option<(u32, u32, u32)> {
    if let Command::Enqueue { run, first, count } = command {
        Some((*run, *first, *count))
    } else if let Command::Transfer { run, first, .. } = command {
        Some((*run, *first, 1))
    } else {
        None
    }
}

/// Merges batches into one entry, in their order: runs of the same queue and level become one, and
/// the enqueues are renumbered, so that they again cover each run once and in order.
#[must_use]
pub fn merge(batches: Vec<ProposedBatch>, stamp: Stamp) -> (Entry, Vec<RunBodies>) {
    let mut entry = Entry { stamp, runs: Vec::new(), batches: Vec::with_capacity(batches.len()) };
    let mut bodies: Vec<RunBodies> = Vec::new();
    let mut places: HashMap<(QueueId, Level), usize> = HashMap::new();
    for mut batch in batches {
        // For each run of the batch: its run in the entry, and the offset of its positions.
        let mut moved = Vec::with_capacity(batch.runs.len());
        for run in batch.runs {
            let place = *places.entry((run.queue, run.level)).or_insert(entry.runs.len());
            if place == entry.runs.len() {
                let (queue, level) = (run.queue, run.level);
                entry.runs.push(Run { queue, level, messages: Vec::new() });
                bodies.push(RunBodies::default());
            }
            moved.push((place as u32, join(run, place, &mut entry.runs, &mut bodies)));
        }
        for command in &mut batch.commands {
            if let Command::Enqueue { run, first, .. } | Command::Transfer { run, first, .. } =
                command
                && let Some((place, by)) = moved.get(*run as usize)
            {
                *run = *place;
                *first += by;
            }
        }
        let (first, mark) = (batch.first, batch.mark);
        let origin = match batch.sender {
            Sender::Session(session) => Origin::Session { session, first, mark },
            Sender::Letters(from) => Origin::Letters { from, first, mark },
        };
        entry.batches.push(Batch { origin, commands: batch.commands });
    }
    (entry, bodies)
}

/// Appends a run to the one at `place`; returns the new position of its first message.
fn join(run: ProposedRun, place: usize, runs: &mut [Run], bodies: &mut [RunBodies]) -> u32 {
    let (Some(heads), Some(bodies)) = (runs.get_mut(place), bodies.get_mut(place)) else {
        return 0;
    };
    let by = heads.messages.len() as u32;
    heads.messages.extend(run.heads);
    bodies.messages.extend(run.messages.into_iter().map(Some));
    by
}
