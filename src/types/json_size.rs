//! How much JSON is written for bytes that a client chose.

use crate::Properties;
use bytes::Bytes;

/// Bytes that JSON needs for a text, at most: it writes a control character with six.
#[must_use]
pub fn json_bytes_max(text: &[u8]) -> usize {
    let written = |byte: &u8| match byte {
        0..=0x1f => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.iter().map(written).sum()
}

/// Bytes that one decoded header value occupies in memory, without its text. The encoded value may be a
/// single byte.
const VALUE_BYTES: usize = 48;

/// Bytes that the encoded properties of a message take as JSON, in memory too, at most.
#[must_use]
pub fn properties_json_bytes_max(raw: &Bytes) -> usize {
    let values = Properties::parse(raw.clone()).map_or(0, |properties| properties.header_values);
    json_bytes_max(raw).saturating_add(values.saturating_mul(VALUE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut, BytesMut};

    #[test]
    fn control_characters_quotes_and_backslashes_are_written_with_more_bytes() {
        assert_eq!(json_bytes_max(b"a\"b\\"), 6);
        assert_eq!(json_bytes_max(&[0, 0x1f, 0x20, 0x7f, 0xff]), 15);
    }
    #[test]
    fn a_header_of_many_small_values_counts_as_what_they_take() {
        let properties = |values: u32| {
            let mut raw = BytesMut::new();
            raw.put_u16(1 << 13);
            // A table with one field: an array of values without content.
            raw.put_u32(2 + 1 + 4 + values);
            raw.put_slice(b"\x01aA");
            raw.put_u32(values);
            raw.put_bytes(b'V', values as usize);
            properties_json_bytes_max(&raw.freeze())
        };
        assert!(properties(1) < 200);
        assert!(properties(4_000) > 4_000 * VALUE_BYTES);
    }
}
