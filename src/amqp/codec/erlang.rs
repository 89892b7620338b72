//! Bytes in the notation of RabbitMQ's error texts, which clients log and tests compare.

use std::fmt::Write as _;

/// Bytes shown of a value that cannot be decoded: reply texts are cut at 255 anyway (CONN-24).
const SHOWN_MAX: usize = 255;

/// Bytes shown of a frame (FRM-02).
const FRAME_SHOWN_MAX: usize = 16;

/// `<<"abcd">>` if all bytes are printable, else `<<1,2,3>>`.
pub(crate) fn binary(bytes: &[u8]) -> String {
    let bytes = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    let mut text = String::from("<<");
    if !bytes.is_empty() && bytes.iter().all(|&byte| printable(byte)) {
        text.push('"');
        bytes.iter().for_each(|&byte| push_escaped(&mut text, byte));
        text.push('"');
    } else {
        for (at, byte) in bytes.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}{byte}", if at == 0 { "" } else { "," });
        }
    }
    text.push_str(">>");
    text
}

/// `type 1, all octets = <<…>>: reason` (FRM-01 to FRM-05).
pub(crate) fn frame(kind: u8, payload: &[u8], reason: &str) -> String {
    let (which, shown) = match payload.get(..FRAME_SHOWN_MAX) {
        Some(first) if payload.len() > FRAME_SHOWN_MAX => ("first 16 octets", first),
        Some(_) | None => ("all octets", payload),
    };
    let separator = if reason.is_empty() { "" } else { ": " };
    format!("type {kind}, {which} = {}{separator}{reason}", binary(shown))
}

/// A quoted string.
pub(crate) fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.chars() {
        if matches!(byte, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(byte);
    }
    quoted.push('"');
    quoted
}

fn printable(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e | b'\n' | b'\r' | b'\t')
}

fn push_escaped(text: &mut String, byte: u8) {
    match byte {
        b'\n' => text.push_str("\\n"),
        b'\r' => text.push_str("\\r"),
        b'\t' => text.push_str("\\t"),
        b'"' => text.push_str("\\\""),
        b'\\' => text.push_str("\\\\"),
        other => text.push(char::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::{binary, frame, string};

    #[test]
    fn bytes_print_as_erlang_prints_them() {
        assert_eq!(binary(b""), "<<>>");
        assert_eq!(binary(b"ab\"c"), "<<\"ab\\\"c\">>");
        assert_eq!(binary(&[0, 50, 200]), "<<0,50,200>>");
        assert_eq!(string("a\"b"), "\"a\\\"b\"");
    }

    /// FRM-02: the error text contains at most the first sixteen bytes of the payload.
    #[test]
    fn of_a_long_payload_sixteen_bytes_are_shown() {
        assert_eq!(frame(1, b"abcd", "x"), "type 1, all octets = <<\"abcd\">>: x");
        assert_eq!(
            frame(3, b"0123456789abcdef", ""),
            "type 3, all octets = <<\"0123456789abcdef\">>"
        );
        assert_eq!(
            frame(1, b"0123456789abcdefg", "x"),
            "type 1, first 16 octets = <<\"0123456789abcdef\">>: x"
        );
    }
}
