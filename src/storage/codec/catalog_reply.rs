//! Replies to catalog commands, as the catalog's leader sends them to the node that proposed.

use super::{
    DecodeError,
    catalog_access::{denial, put_denial},
    cursor::{Cursor, put_bytes, put_int, put_len, put_queue},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_catalog::CatalogReply;
use quorate_types::{Exception, ReplyCode, StartNumber};

const VERSION: u8 = 1;
const DONE: u8 = 0;
const REFUSED: u8 = 1;
const STARTED: u8 = 2;
const NAME_TAKEN: u8 = 3;
const FENCED: u8 = 4;
const DENIED: u8 = 5;

/// Encodes the replies to one proposal.
#[must_use]
pub fn encode_replies(replies: &[CatalogReply]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(VERSION);
    put_len(&mut out, replies.len());
    for reply in replies {
        match reply {
            CatalogReply::Done => out.put_u8(DONE),
            CatalogReply::Refused(exception) => {
                out.put_u8(REFUSED);
                out.put_u16(exception.code.number());
                put_bytes(&mut out, exception.explanation.as_bytes());
            }
            CatalogReply::Started(start) => {
                out.put_u8(STARTED);
                put_int(&mut out, start.0);
            }
            CatalogReply::NameTaken { by } => {
                out.put_u8(NAME_TAKEN);
                put_queue(&mut out, *by);
            }
            CatalogReply::Fenced => out.put_u8(FENCED),
            CatalogReply::Denied(denial) => {
                out.put_u8(DENIED);
                put_denial(denial, &mut out);
            }
        }
    }
    out.freeze()
}

/// Decodes replies.
///
/// # Errors
/// The bytes are not replies.
pub fn decode_replies(bytes: &[u8]) -> Result<Vec<CatalogReply>, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let replies = cursor.list(reply)?;
    cursor.end()?;
    Ok(replies)
}

fn reply(cursor: &mut Cursor<'_>) -> Result<CatalogReply, DecodeError> {
    Ok(match cursor.u8()? {
        DONE => CatalogReply::Done,
        REFUSED => {
            let number = u16::from_be_bytes(cursor.array()?);
            let code = ReplyCode::of(number).ok_or(DecodeError::Invalid("reply code"))?;
            CatalogReply::Refused(Exception::new(code, cursor.string()?))
        }
        STARTED => CatalogReply::Started(StartNumber(cursor.int()?)),
        NAME_TAKEN => CatalogReply::NameTaken { by: cursor.queue()? },
        FENCED => CatalogReply::Fenced,
        DENIED => CatalogReply::Denied(denial(cursor)?),
        _ => return Err(DecodeError::Invalid("catalog reply")),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use quorate_catalog::Denial;
    use quorate_types::{GroupId, Home, MachineVersion, QueueId, ShortString};

    #[test]
    fn replies_round_trip() {
        let by = QueueId { home: Home::Group(GroupId(3)), index: 70_000, position: 2 };
        let replies = vec![
            CatalogReply::Done,
            CatalogReply::Refused(Exception::new(ReplyCode::NotFound, "no queue 'q' in vhost '/'")),
            CatalogReply::Started(StartNumber(12)),
            CatalogReply::NameTaken { by },
            CatalogReply::Fenced,
            CatalogReply::Denied(Denial::NoSuchUser(ShortString::from_static("u"))),
            CatalogReply::Denied(Denial::UserExists(ShortString::from_static("u"))),
            CatalogReply::Denied(Denial::NoSuchVhost(ShortString::from_static("v"))),
            CatalogReply::Denied(Denial::InvalidPattern {
                pattern: "(".to_owned(),
                reason: "missing )".to_owned(),
                at: 1,
            }),
            CatalogReply::Denied(Denial::TooManyTags { most: 64, received: 65 }),
            CatalogReply::Denied(Denial::VhostProtected(ShortString::from_static("v"))),
            CatalogReply::Denied(Denial::ProtectionTooEarly { machine: MachineVersion(2) }),
        ];
        let bytes = encode_replies(&replies);
        assert_eq!(decode_replies(&bytes), Ok(replies));
        for end in 0..bytes.len() {
            assert!(decode_replies(&bytes[..end]).is_err());
        }
    }
}
