//! Answers to a session's batches, as the leader sends them to the session's node (SES 4).

use super::{
    DecodeError,
    cursor::{Cursor, put_int, put_len, put_session},
    letter::{letter_home, put_letter_home, put_transfer_answers, transfer_answers},
    reply,
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_queue::Answer;
use quorate_types::Sequence;

const VERSION: u8 = 1;
const ANSWERED: u8 = 0;
const WANT: u8 = 1;
const FENCED: u8 = 2;
const TRANSFERRED: u8 = 3;
const TRANSFERS_WANTED: u8 = 4;

/// Encodes an answer.
#[must_use]
pub fn encode_answer(answer: &Answer) -> Bytes {
    let mut out = BytesMut::with_capacity(64);
    out.put_u8(VERSION);
    match answer {
        Answer::Answered { session, first, last, other } => {
            out.put_u8(ANSWERED);
            put_session(&mut out, *session);
            put_int(&mut out, first.0);
            put_int(&mut out, last.0);
            put_len(&mut out, other.len());
            for (sequence, reply) in other {
                put_int(&mut out, sequence.0);
                reply::put_reply(reply, &mut out);
            }
        }
        Answer::Want { session, want } => {
            out.put_u8(WANT);
            put_session(&mut out, *session);
            put_int(&mut out, want.0);
        }
        Answer::Fenced { session } => {
            out.put_u8(FENCED);
            put_session(&mut out, *session);
        }
        Answer::Transferred { from, by, first, last, other } => {
            out.put_u8(TRANSFERRED);
            put_letter_home(*from, &mut out);
            put_letter_home(*by, &mut out);
            put_int(&mut out, first.0);
            put_int(&mut out, last.0);
            put_transfer_answers(other, &mut out);
        }
        Answer::TransfersWanted { from, by, want } => {
            out.put_u8(TRANSFERS_WANTED);
            put_letter_home(*from, &mut out);
            put_letter_home(*by, &mut out);
            put_int(&mut out, want.0);
        }
    }
    out.freeze()
}

/// Decodes an answer.
///
/// # Errors
/// The bytes are not an answer.
pub fn decode_answer(bytes: &[u8]) -> Result<Answer, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let answer = match cursor.u8()? {
        ANSWERED => Answer::Answered {
            session: cursor.session()?,
            first: Sequence(cursor.int()?),
            last: Sequence(cursor.int()?),
            other: cursor.list(|cursor| Ok((Sequence(cursor.int()?), reply::reply(cursor)?)))?,
        },
        WANT => Answer::Want { session: cursor.session()?, want: Sequence(cursor.int()?) },
        FENCED => Answer::Fenced { session: cursor.session()? },
        TRANSFERRED => Answer::Transferred {
            from: letter_home(&mut cursor)?,
            by: letter_home(&mut cursor)?,
            first: Sequence(cursor.int()?),
            last: Sequence(cursor.int()?),
            other: transfer_answers(&mut cursor)?,
        },
        TRANSFERS_WANTED => Answer::TransfersWanted {
            from: letter_home(&mut cursor)?,
            by: letter_home(&mut cursor)?,
            want: Sequence(cursor.int()?),
        },
        _ => return Err(DecodeError::Invalid("answer")),
    };
    cursor.end()?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use quorate_queue::{Reply, TransferAnswer};
    use quorate_types::{GroupId, LetterHome, NodeId, SessionId, StartNumber};

    #[test]
    fn answers_round_trip() {
        let session = SessionId { node: NodeId(3), start: StartNumber(700) };
        let (from, by) = (LetterHome::Group(GroupId(700)), LetterHome::Start(session));
        let other = vec![(Sequence(4), Reply::Gone), (Sequence(9), Reply::Refused(vec![(1, 3)]))];
        for answer in [
            Answer::Answered { session, first: Sequence(3), last: Sequence(9), other },
            Answer::Want { session, want: Sequence(12) },
            Answer::Fenced { session },
            Answer::Transferred {
                from,
                by,
                first: Sequence(1),
                last: Sequence(400),
                other: vec![
                    (Sequence(2), TransferAnswer::Full),
                    (Sequence(300), TransferAnswer::Gone),
                ],
            },
            Answer::TransfersWanted { from: by, by: from, want: Sequence(7) },
        ] {
            let bytes = encode_answer(&answer);
            assert_eq!(decode_answer(&bytes), Ok(answer));
            for end in 0..bytes.len() {
                assert!(decode_answer(&bytes[..end]).is_err());
            }
        }
    }
}
