//! A message as it is published, stored and delivered.

use crate::{ShortString, field_table::FieldTable};
use bytes::Bytes;

/// A published message: the content header as received (byte for byte), the body, and where it
/// was published to. Cheap to clone: its parts are slices of one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Exchange that it was published to, as `basic.deliver` shows it (CON-16).
    pub exchange: ShortString,
    /// Its own routing key, as `basic.deliver` shows it.
    pub routing_key: ShortString,
    /// Further routing keys: those of header `CC`, then those of `BCC` (PRP-07, DLX-23).
    pub further_keys: Vec<ShortString>,
    /// Property flags and properties, as on the wire (AMQP 0-9-1, section 4.2.6.1), `BCC` taken
    /// out.
    pub properties: Bytes,
    /// Headers that the broker adds to the client's at delivery, such as `x-death`. Empty for a message
    /// that was never dead-lettered.
    pub annotations: FieldTable,
    /// Body; its bytes are what length limits count.
    pub body: Bytes,
}

/// Why stored bytes cannot be decoded as a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored message cannot be decoded: {0}")]
pub struct MessageError(pub &'static str);
