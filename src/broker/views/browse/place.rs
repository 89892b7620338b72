//! How messages of a queue are named by those who browse it: by a position that a message has for
//! ever, by its rank among the ready ones, or by a cursor.

use quorate_queue::MessagePlace;
use quorate_types::{LetterNumber, Level, LogIndex, MessageId};
use std::{fmt, str::FromStr};

/// Before the letter's number in a cursor.
const LETTER: char = 'd';

/// Where a page of a queue's messages begins. Ready, delayed and unacked messages come first, in the order
/// of delivery, then those that wait as dead letters, in the order of death. A message may move from
/// the first ones to the second ones, never back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At this message, or the first one behind it.
    Message(MessageId),
    /// At this dead letter, or the first one behind it.
    Letter(LetterNumber),
}

impl Cursor {
    /// Before all messages.
    pub(crate) const START: Self = Self::level(Level(u8::MAX));

    /// Before all messages of a level.
    const fn level(level: Level) -> Self {
        Self::Message(MessageId { level, index: LogIndex(0), position: 0 })
    }

    /// Behind a part of a level; `next` is where the level goes on.
    pub(crate) fn behind(level: Level, next: Option<MessagePlace>) -> Self {
        match (next, level.0.checked_sub(1)) {
            (Some((index, position)), _) => Self::Message(MessageId { level, index, position }),
            (None, Some(below)) => Self::level(Level(below)),
            (None, None) => Self::Letter(LetterNumber(0)),
        }
    }
}

/// How a request names one message, or where it begins to browse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// By its position, or a cursor.
    At(Cursor),
    /// By its rank: 1 is delivered next.
    Rank(u64),
}

/// A text names no position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a position: expected LEVEL.INDEX.PLACE as browse shows it, a cursor, or a rank \
     from 1"
)]
pub struct PositionError(String);

/// The position of a message as text: its priority level, log index, and place in the run.
#[derive(Clone, Copy, Debug)]
pub struct Shown(pub MessageId);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MessageId { level, index, position } = self.0;
        write!(f, "{level}.{index}.{position}")
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(id) => Shown(*id).fmt(f),
            Self::Letter(number) => write!(f, "{LETTER}{number}"),
        }
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| PositionError(text.chars().take(64).collect()))
    }
}

fn parse(text: &str) -> Option<Position> {
    if let Some(number) = text.strip_prefix(LETTER) {
        return Some(Position::At(Cursor::Letter(LetterNumber(number.parse().ok()?))));
    }
    let mut parts = text.split('.');
    let first = parts.next()?;
    let (Some(index), Some(position), None) = (parts.next(), parts.next(), parts.next()) else {
        let rank = first.parse().ok().filter(|rank| *rank > 0 && !text.contains('.'));
        return rank.map(Position::Rank);
    };
    let id = MessageId {
        level: Level(first.parse().ok()?),
        index: LogIndex(index.parse().ok()?),
        position: position.parse().ok()?,
    };
    Some(Position::At(Cursor::Message(id)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn read(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn positions_and_cursors_come_back_as_they_were_shown() {
        let id = MessageId { level: Level(4), index: LogIndex(812), position: 3 };
        for cursor in [Cursor::Message(id), Cursor::Letter(LetterNumber(17)), Cursor::START] {
            assert_eq!(read(&cursor.to_string()), Position::At(cursor));
        }
        assert_eq!(Shown(id).to_string(), "4.812.3");
        assert_eq!(read("7"), Position::Rank(7));
    }

    #[test]
    fn what_is_no_position_is_refused_by_name() {
        for wrong in [
            "", "0", "-1", "x", "1.2", "1.2.3.4", "256.1.1", "1.2.x", "d", "dx", "1.", " 1", "1..2",
        ] {
            let error = wrong.parse::<Position>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("'{wrong}' is not a position")));
        }
        let long = "9".repeat(10_000).parse::<Position>().unwrap_err();
        assert!(long.to_string().len() < 200);
    }

    #[test]
    fn a_part_leads_to_the_next_one() {
        let place = Some((LogIndex(5), 2));
        let next = MessageId { level: Level(1), index: LogIndex(5), position: 2 };
        assert_eq!(Cursor::behind(Level(1), place), Cursor::Message(next));
        assert_eq!(Cursor::behind(Level(1), None), Cursor::level(Level(0)));
        assert_eq!(Cursor::behind(Level(0), None), Cursor::Letter(LetterNumber(0)));
    }
}
