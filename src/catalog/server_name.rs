//! Names that the server gives to queues: `amq.gen-` and 22 characters of URL-safe base64 (QUE-06)
//! that contain the queue's id, so that any node knows where it is without a catalog entry (NAM 8).

use bytes::{BufMut, BytesMut};
use quorate_types::{Home, NodeId, QueueId, ShortString};

const PREFIX: &[u8] = b"amq.gen-";
/// Node, start number (a catalog index, of which 48 bits are enough), count, chance.
const OCTETS: usize = 2 + 6 + 4 + 4;
const CHARACTERS: usize = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name of a connection-bound queue; `chance` makes it one that cannot be guessed from the
/// names before. `None` for an id of another kind of queue.
#[must_use]
pub fn server_given_name(id: QueueId, chance: u32) -> Option<ShortString> {
    let Home::Node(node) = id.home else { return None };
    let word = u128::from(node.0) << 112
        | u128::from(id.index & 0xffff_ffff_ffff) << 64
        | u128::from(id.position) << 32
        | u128::from(chance);
    let mut name = BytesMut::with_capacity(PREFIX.len() + CHARACTERS);
    name.put_slice(PREFIX);
    for place in 0..CHARACTERS {
        name.put_u8(character(word, place));
    }
    ShortString::from_bytes(name.freeze()).ok()
}

/// Six bits of the word, from the front; the last character holds two, and four zeros.
fn character(word: u128, place: usize) -> u8 {
    let bits = (OCTETS * 8).checked_sub((place + 1) * 6);
    let value = match bits {
        Some(right) => word >> right,
        None => word << 4,
    };
    ALPHABET.get((value & 63) as usize).copied().unwrap_or(b'A')
}

/// The id in a name that [`server_given_name`] made; `None` for any other name. Whether there is,
/// or was, a queue of that very name its node knows.
#[must_use]
pub fn server_named_queue(name: &ShortString) -> Option<QueueId> {
    let text = name.as_bytes().strip_prefix(PREFIX)?;
    if text.len() != CHARACTERS {
        return None;
    }
    let mut word = 0u128;
    for (place, octet) in text.iter().enumerate() {
        let value = value(*octet)?;
        if place + 1 < CHARACTERS {
            word = word << 6 | u128::from(value);
        } else if value & 15 == 0 {
            word = word << 2 | u128::from(value >> 4);
        } else {
            return None;
        }
    }
    let part = |right: u32, mask: u128| (word >> right) & mask;
    Some(QueueId {
        home: Home::Node(NodeId(u16::try_from(part(112, 0xffff)).ok()?)),
        index: u64::try_from(part(64, 0xffff_ffff_ffff)).ok()?,
        position: u32::try_from(part(32, 0xffff_ffff)).ok()?,
    })
}

fn value(octet: u8) -> Option<u8> {
    match octet {
        b'A'..=b'Z' => Some(octet - b'A'),
        b'a'..=b'z' => Some(octet - b'a' + 26),
        b'0'..=b'9' => Some(octet - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// NAM 8, QUE-06: the id comes back out of the name, which has RabbitMQ's shape.
        #[test]
        fn a_server_given_name_contains_the_id(node: u16, index in 0u64..1 << 48, position: u32, chance: u32) {
            let id = QueueId { home: Home::Node(NodeId(node)), index, position };
            let name = server_given_name(id, chance).unwrap();
            prop_assert_eq!(name.len(), 30);
            prop_assert!(name.as_str().starts_with("amq.gen-"));
            prop_assert_eq!(server_named_queue(&name), Some(id));
        }

        /// Whatever a client uses as a name is read or not, but never a panic, and what is read is
        /// what its name was made of.
        #[test]
        fn any_text_is_read_or_refused(text in "(amq\\.gen-)?[A-Za-z0-9_-]{20,24}", chance: u32) {
            let name = ShortString::try_from(text).unwrap();
            if let Some(id) = server_named_queue(&name) {
                let again = server_given_name(id, chance).unwrap();
                prop_assert_eq!(&again.as_bytes()[..24], &name.as_bytes()[..24]);
            }
        }
    }
}
