//! Messages as they are stored and sent: decoded without a copy, with the body last.
//!
//! Layout: version, exchange, routing key, further keys, properties, annotations, body. Since the
//! body extends to the end, nothing before it depends on its length.

use super::{
    DecodeError,
    cursor::{Cursor, put_bytes, put_len, put_short},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{FieldTable, Message, ShortString};

const VERSION: u8 = 1;

/// Appends the encoded message to `out`; returns its bytes. Many messages are encoded into one
/// buffer and then split off, so that they share one allocation.
pub fn encode_into(message: &Message, out: &mut BytesMut) -> usize {
    let start = out.len();
    out.reserve(message.body.len() + message.properties.len() + 64);
    out.put_u8(VERSION);
    put_short(out, &message.exchange);
    put_short(out, &message.routing_key);
    put_len(out, message.further_keys.len());
    for key in &message.further_keys {
        put_short(out, key);
    }
    put_bytes(out, &message.properties);
    put_annotations(&message.annotations, out);
    out.put_slice(&message.body);
    out.len() - start
}

fn put_annotations(annotations: &FieldTable, out: &mut BytesMut) {
    if annotations.is_empty() {
        put_len(out, 0);
        return;
    }
    let mut content = BytesMut::new();
    annotations.encode_content(&mut content);
    put_bytes(out, &content);
}

/// Encodes one message.
#[must_use]
pub fn encode(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    encode_into(message, &mut out);
    out.freeze()
}

/// Decodes a message; its parts are slices of `bytes`.
///
/// # Errors
/// The bytes are not a message.
pub fn decode(bytes: &Bytes) -> Result<Message, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let exchange = short(bytes, &mut cursor)?;
    let routing_key = short(bytes, &mut cursor)?;
    let further_keys = cursor.list(|cursor| short(bytes, cursor))?;
    let properties = bytes.slice_ref(cursor.bytes()?);
    let annotations = match cursor.bytes()? {
        [] => FieldTable::default(),
        content => FieldTable::decode_content(bytes.slice_ref(content))
            .map_err(|_| DecodeError::Invalid("annotations"))?,
    };
    let body = bytes.slice(cursor.position()..);
    Ok(Message { exchange, routing_key, further_keys, properties, annotations, body })
}

fn short(bytes: &Bytes, cursor: &mut Cursor<'_>) -> Result<ShortString, DecodeError> {
    let len = usize::from(cursor.u8()?);
    ShortString::from_bytes(bytes.slice_ref(cursor.take(len)?))
        .map_err(|_| DecodeError::Invalid("text"))
}
