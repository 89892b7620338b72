//! Encoding of dead letters: their commands, records and answers (LET).

use super::{
    DecodeError,
    cursor::{Cursor, put_bool, put_int, put_len, put_option, put_queue, put_session, put_short},
    task::{put_taken, taken},
};
use bytes::{BufMut, BytesMut};
use quorate_queue::{
    Attempt, Command, DeathReason, Letter, LettersRecord, RoutedLetters, Routes, Routing, Stage,
    Taken, Transfer, TransferAnswer, Via,
};
use quorate_types::{
    CatalogIndex, GroupId, LetterHome, LetterNumber, Level, LogIndex, MessageId, QueueId, Sequence,
    Timestamp, WallTime,
};
use std::collections::BTreeMap;

pub(crate) fn put_letter_home(home: LetterHome, out: &mut BytesMut) {
    match home {
        LetterHome::Group(group) => {
            out.put_u8(0);
            put_int(out, u64::from(group.0));
        }
        LetterHome::Start(session) => {
            out.put_u8(1);
            put_session(out, session);
        }
    }
}

pub(crate) fn letter_home(cursor: &mut Cursor<'_>) -> Result<LetterHome, DecodeError> {
    match cursor.u8()? {
        0 => Ok(LetterHome::Group(GroupId(cursor.u16()?))),
        1 => Ok(LetterHome::Start(cursor.session()?)),
        _ => Err(DecodeError::Invalid("source of dead letters")),
    }
}

/// Answers other than `Taken`, by their numbers.
pub(crate) fn put_transfer_answers(other: &[(Sequence, TransferAnswer)], out: &mut BytesMut) {
    put_len(out, other.len());
    for (number, answer) in other {
        put_int(out, number.0);
        out.put_u8(*answer as u8);
    }
}

pub(crate) fn transfer_answers(
    cursor: &mut Cursor<'_>,
) -> Result<Vec<(Sequence, TransferAnswer)>, DecodeError> {
    cursor.list(|cursor| {
        let number = Sequence(cursor.int()?);
        let answer = match cursor.u8()? {
            1 => TransferAnswer::Taken,
            2 => TransferAnswer::Full,
            3 => TransferAnswer::Gone,
            _ => return Err(DecodeError::Invalid("answer to a transfer of dead letters")),
        };
        Ok((number, answer))
    })
}

pub(crate) fn put_via(via: &Via, out: &mut BytesMut) {
    put_short(out, &via.exchange);
    put_bool(out, via.routing_key.is_some());
    if let Some(key) = &via.routing_key {
        put_short(out, key);
    }
}

pub(crate) fn via(cursor: &mut Cursor<'_>) -> Result<Via, DecodeError> {
    let exchange = cursor.short()?;
    let routing_key = if cursor.bool()? { Some(cursor.short()?) } else { None };
    Ok(Via { exchange, routing_key })
}

/// Encodes `Routed` without its tag.
pub(crate) fn put_routed(
    queue: QueueId,
    at: CatalogIndex,
    by: &Via,
    letters: &[RoutedLetters],
    out: &mut BytesMut,
) {
    put_queue(out, queue);
    put_int(out, at.0);
    put_via(by, out);
    put_len(out, letters.len());
    for RoutedLetters { first, last, routes } in letters {
        put_int(out, first.0);
        put_int(out, last.0);
        match routes {
            Routes::To(targets) => {
                out.put_u8(0);
                put_len(out, targets.len());
                targets.iter().for_each(|target| put_queue(out, *target));
            }
            Routes::Keep => out.put_u8(1),
            Routes::Drop => out.put_u8(2),
            Routes::Cycle => out.put_u8(3),
        }
    }
}

pub(crate) fn routed(cursor: &mut Cursor<'_>) -> Result<Command, DecodeError> {
    Ok(Command::Routed {
        queue: cursor.queue()?,
        at: CatalogIndex(cursor.int()?),
        via: via(cursor)?,
        letters: cursor.list(|cursor| {
            let (first, last) = (LetterNumber(cursor.int()?), LetterNumber(cursor.int()?));
            let routes = match cursor.u8()? {
                0 => Routes::To(cursor.list(Cursor::queue)?),
                1 => Routes::Keep,
                2 => Routes::Drop,
                3 => Routes::Cycle,
                _ => return Err(DecodeError::Invalid("routes of dead letters")),
            };
            Ok(RoutedLetters { first, last, routes })
        })?,
    })
}

/// Encodes `DeadLettered` without its tag.
pub(crate) fn put_dead_lettered(
    stream: LetterHome,
    (first, last): (Sequence, Sequence),
    other: &[(Sequence, TransferAnswer)],
    out: &mut BytesMut,
) {
    put_letter_home(stream, out);
    put_int(out, first.0);
    put_int(out, last.0);
    put_transfer_answers(other, out);
}

pub(crate) fn dead_lettered(cursor: &mut Cursor<'_>) -> Result<Command, DecodeError> {
    Ok(Command::DeadLettered {
        stream: letter_home(cursor)?,
        first: Sequence(cursor.int()?),
        last: Sequence(cursor.int()?),
        other: transfer_answers(cursor)?,
    })
}

/// Encodes the part of a group's record that its letters share.
pub(crate) fn put_letters_record(record: &LettersRecord, out: &mut BytesMut) {
    put_int(out, record.routings);
    put_len(out, record.streams.len());
    for (stream, last) in &record.streams {
        put_letter_home(*stream, out);
        put_int(out, last.0);
    }
    put_len(out, record.attempts.len());
    for (target, attempt) in &record.attempts {
        put_queue(out, *target);
        put_int(out, u64::from(attempt.number));
        put_bool(out, attempt.refused);
    }
}

pub(crate) fn letters_record(cursor: &mut Cursor<'_>) -> Result<LettersRecord, DecodeError> {
    let routings = cursor.int()?;
    let streams = cursor.list(|cursor| Ok((letter_home(cursor)?, Sequence(cursor.int()?))))?;
    let attempts = cursor.list(|cursor| {
        let target = cursor.queue()?;
        Ok((target, Attempt { number: cursor.u32()?, refused: cursor.bool()? }))
    })?;
    let (streams, attempts) = (streams.into_iter().collect(), attempts.into_iter().collect());
    Ok(LettersRecord { routings, streams, attempts })
}

/// Encodes a page of a queue's letters.
pub(crate) fn put_letters(letters: &BTreeMap<LetterNumber, Letter>, out: &mut BytesMut) {
    put_len(out, letters.len());
    for (number, letter) in letters {
        put_int(out, number.0);
        out.put_u8(letter.message.level.0);
        put_int(out, letter.message.index.0);
        put_int(out, u64::from(letter.message.position));
        put_int(out, u64::from(letter.body_bytes));
        out.put_u8(letter.reason as u8);
        put_int(out, letter.died_at.0);
        match &letter.stage {
            Stage::Waiting { after } => {
                out.put_u8(0);
                put_int(out, after.0);
            }
            Stage::Kept => out.put_u8(1),
            Stage::Routed(routing) => match routing.task {
                None => {
                    out.put_u8(2);
                    put_routing(routing, out);
                }
                // Only from machine version 3 on (MEM 15).
                Some(taken) => {
                    out.put_u8(4);
                    put_taken(taken, out);
                    put_routing(routing, out);
                }
            },
            Stage::Delayed { until } => {
                out.put_u8(3);
                put_int(out, until.0);
            }
        }
    }
}

pub(crate) fn letters(
    cursor: &mut Cursor<'_>,
) -> Result<BTreeMap<LetterNumber, Letter>, DecodeError> {
    let letters = cursor.list(|cursor| {
        let number = LetterNumber(cursor.int()?);
        let message = MessageId {
            level: Level(cursor.u8()?),
            index: LogIndex(cursor.int()?),
            position: cursor.u32()?,
        };
        let letter = Letter {
            message,
            body_bytes: cursor.u32()?,
            reason: reason(cursor)?,
            died_at: WallTime(cursor.int()?),
            stage: match cursor.u8()? {
                0 => Stage::Waiting { after: CatalogIndex(cursor.int()?) },
                1 => Stage::Kept,
                2 => Stage::Routed(Box::new(routing(cursor, None)?)),
                4 => {
                    let task = Some(taken(cursor)?);
                    Stage::Routed(Box::new(routing(cursor, task)?))
                }
                3 => Stage::Delayed { until: Timestamp(cursor.int()?) },
                _ => return Err(DecodeError::Invalid("stage of a dead letter")),
            },
        };
        Ok((number, letter))
    })?;
    Ok(letters.into_iter().collect())
}

fn reason(cursor: &mut Cursor<'_>) -> Result<DeathReason, DecodeError> {
    Ok(match cursor.u8()? {
        1 => DeathReason::Rejected,
        2 => DeathReason::Expired,
        3 => DeathReason::MaxLength,
        4 => DeathReason::DeliveryLimit,
        5 => DeathReason::Delayed,
        6 => DeathReason::Redriven,
        _ => return Err(DecodeError::Invalid("reason of a dead letter")),
    })
}

fn put_routing(routing: &Routing, out: &mut BytesMut) {
    put_via(&routing.via, out);
    put_int(out, routing.at.0);
    put_int(out, routing.order);
    put_bool(out, routing.taken);
    put_len(out, routing.transfers.len());
    for (target, transfer) in &routing.transfers {
        put_queue(out, *target);
        match transfer {
            Transfer::UnderWay { number, attempt } => {
                put_option(out, Some(number.0));
                put_int(out, u64::from(*attempt));
            }
            Transfer::Waits => put_option(out, None),
        }
    }
}

fn routing(cursor: &mut Cursor<'_>, task: Option<Taken>) -> Result<Routing, DecodeError> {
    Ok(Routing {
        task,
        via: via(cursor)?,
        at: CatalogIndex(cursor.int()?),
        order: cursor.int()?,
        taken: cursor.bool()?,
        transfers: cursor
            .list(|cursor| {
                let target = cursor.queue()?;
                let transfer = match cursor.option()? {
                    Some(number) => {
                        Transfer::UnderWay { number: Sequence(number), attempt: cursor.u32()? }
                    }
                    None => Transfer::Waits,
                };
                Ok((target, transfer))
            })?
            .into_iter()
            .collect(),
    })
}
