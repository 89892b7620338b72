//! How much JSON is written for bytes that a client chose.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_quotes_and_backslashes_are_written_with_more_bytes() {
        assert_eq!(json_bytes_max(b"a\"b\\"), 6);
        assert_eq!(json_bytes_max(&[0, 0x1f, 0x20, 0x7f, 0xff]), 15);
    }
}
