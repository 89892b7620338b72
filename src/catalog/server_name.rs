//! Names that the server gives to queues: `amq.gen-` and 22 characters of URL-safe base64 (QUE-06).
//! Any node can compute the queue's id from the name, without a catalog entry (NAM 8).
//!
//! The name is a capability: whoever knows it may reach the queue, within its virtual host. It
//! holds 64 random bits, and the id is a hash of these bits and of the virtual host in which the
//! name is used. A name that is guessed, changed, or used in another virtual host gives an id for
//! which the home has no queue.
//!
//! The name also holds the node and its start. The position of the queue's id is 64 bits of the
//! hash. So this protection covers all uses of ids: publishes, dead letters and bindings. The
//! position of an exclusive queue that the client has named is 64 random bits.

use bytes::{BufMut, BytesMut};
use quorate_types::{Home, NodeId, QueueId, SessionId, ShortString, VhostName};
use sha2::{Digest, Sha256};

const PREFIX: &[u8] = b"amq.gen-";
/// Node, start number (a catalog index, of which 48 bits are enough), random number.
const BYTES: usize = 2 + 6 + 8;
const CHARACTERS: usize = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name of a connection-bound queue of that start of a node, whose id has the position
/// [`bound_position`] of the same `chance`.
#[must_use]
pub fn server_given_name(session: SessionId, chance: u64) -> ShortString {
    let word = u128::from(session.node.0) << 112
        | u128::from(session.start.0 & 0xffff_ffff_ffff) << 64
        | u128::from(chance);
    let mut name = BytesMut::with_capacity(PREFIX.len() + CHARACTERS);
    name.put_slice(PREFIX);
    for place in 0..CHARACTERS {
        name.put_u8(character(word, place));
    }
    // 30 bytes of ASCII fit into a short string.
    ShortString::from_bytes(name.freeze()).unwrap_or_default()
}

/// Position of the id of a connection-bound queue that the server names. `chance` cannot be
/// computed from it, so a name of one virtual host does not reveal a name of another.
#[must_use]
pub fn bound_position(vhost: &VhostName, chance: u64) -> u64 {
    let digest = Sha256::new().chain_update(chance.to_be_bytes()).chain_update(vhost.as_bytes());
    let digest = digest.finalize();
    digest.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Six bits of the word, from the front; the last character holds two bits and four zeros.
fn character(word: u128, place: usize) -> u8 {
    let bits = (BYTES * 8).checked_sub((place + 1) * 6);
    let value = match bits {
        Some(right) => word >> right,
        None => word << 4,
    };
    ALPHABET.get((value & 63) as usize).copied().unwrap_or(b'A')
}

/// The id of the queue with this name in a virtual host, if [`server_given_name`] can have made the
/// name; `None` for any other name. Only the queue's node knows whether the queue exists.
#[must_use]
pub fn server_named_queue(vhost: &VhostName, name: &ShortString) -> Option<QueueId> {
    let text = name.as_bytes().strip_prefix(PREFIX)?;
    if text.len() != CHARACTERS {
        return None;
    }
    let mut word = 0u128;
    for (place, byte) in text.iter().enumerate() {
        let value = value(*byte)?;
        if place + 1 < CHARACTERS {
            word = word << 6 | u128::from(value);
        } else if value & 15 == 0 {
            word = word << 2 | u128::from(value >> 4);
        } else {
            return None;
        }
    }
    let part = |right: u32, mask: u128| (word >> right) & mask;
    let chance = u64::try_from(part(0, u128::from(u64::MAX))).ok()?;
    Some(QueueId {
        home: Home::Node(NodeId(u16::try_from(part(112, 0xffff)).ok()?)),
        index: u64::try_from(part(64, 0xffff_ffff_ffff)).ok()?,
        position: bound_position(vhost, chance),
    })
}

fn value(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use proptest::prelude::*;
    use quorate_types::StartNumber;

    fn vhost(name: &'static str) -> VhostName {
        VhostName::from(ShortString::from_static(name))
    }

    proptest! {
        /// NAM 8, QUE-06: the id can be computed from the name, which has RabbitMQ's format.
        #[test]
        fn a_server_given_name_stands_for_the_id(node: u16, start in 0u64..1 << 48, chance: u64) {
            let session = SessionId { node: NodeId(node), start: StartNumber(start) };
            let name = server_given_name(session, chance);
            prop_assert_eq!(name.len(), 30);
            prop_assert!(name.as_str().starts_with("amq.gen-"));
            let position = bound_position(&vhost("a"), chance);
            let id = QueueId { home: Home::Node(NodeId(node)), index: start, position };
            prop_assert_eq!(server_named_queue(&vhost("a"), &name), Some(id));
        }

        /// In another virtual host a name gives another id, and a change of any bit gives another
        /// id.
        #[test]
        fn a_name_is_of_one_virtual_host_and_every_bit_of_it_counts(chance: u64, bit in 0u32..64) {
            let session = SessionId { node: NodeId(1), start: StartNumber(2) };
            let name = server_given_name(session, chance);
            let id = server_named_queue(&vhost("a"), &name);
            prop_assert_ne!(server_named_queue(&vhost("b"), &name), id);
            let other = server_given_name(session, chance ^ 1 << bit);
            prop_assert_ne!(server_named_queue(&vhost("a"), &other), id);
        }

        /// Any text from a client is decoded or rejected without a panic, and a decoded text is a
        /// name that the server could have given.
        #[test]
        fn any_text_is_read_or_refused(text in "(amq\\.gen-)?[A-Za-z0-9_-]{20,24}") {
            let name = ShortString::try_from(text).unwrap();
            if let Some(id) = server_named_queue(&vhost("a"), &name) {
                let Home::Node(node) = id.home else { panic!("{id:?}") };
                let again = server_given_name(SessionId { node, start: StartNumber(id.index) }, 0);
                prop_assert_eq!(&again.as_bytes()[..18], &name.as_bytes()[..18]);
            }
        }
    }
}
