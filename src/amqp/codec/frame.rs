//! Frames: type, channel, size, payload, end (AMQP 0-9-1, section 2.3.5; FRM-01 to FRM-05).

use crate::codec::erlang;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The byte that ends a frame.
pub const END: u8 = 0xce;

/// Bytes of a frame before its payload: type, channel, size.
pub const HEADER_BYTES: usize = 7;

/// Bytes of a frame around its payload.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + 1;

/// Smallest `frame_max` that may be negotiated (CONN-17).
pub const FRAME_MAX_LEAST: u32 = 8192;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A frame that carries a method.
    Method = 1,
    /// A content header.
    Header = 2,
    /// A piece of a body.
    Body = 3,
    /// A sign of life.
    Heartbeat = 8,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Method),
            2 => Some(Self::Header),
            3 => Some(Self::Body),
            8 => Some(Self::Heartbeat),
            _ => None,
        }
    }
}

/// A frame; its payload is a slice of the read buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of the frame.
    pub kind: Kind,
    /// Number of the channel; 0 for the connection.
    pub channel: u16,
    /// Bytes between the frame's header and its end byte.
    pub payload: Bytes,
}

/// Bytes that are not a frame. The stream behind them cannot be parsed. The texts are RabbitMQ's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The payload is longer than negotiated; it has not been awaited (FRM-01).
    #[error(
        "{}", erlang::frame(*kind, &[], &format!("{{frame_too_large,{size},{}}}", max.saturating_sub(8)))
    )]
    TooLarge {
        /// First byte of the frame, which may be no known type.
        kind: u8,
        /// Size of the payload that the frame announces, in bytes.
        size: u32,
        /// rabbitmqctl's `frame_max`.
        max: u32,
    },
    /// The frame does not end with [`END`] (FRM-02).
    #[error("{}", erlang::frame(*kind, payload, &format!("{{invalid_frame_end_marker,{end}}}")))]
    End {
        /// First byte of the frame, which may be no known type.
        kind: u8,
        /// Bytes between the frame's header and its end byte.
        payload: Bytes,
        /// The byte in place of the end byte.
        end: u8,
    },
    /// The type is none of AMQP's (FRM-03).
    #[error("{}", erlang::frame(*kind, payload, "unknown_frame"))]
    Kind {
        /// Type of the frame.
        kind: u8,
        /// Bytes between the frame's header and its end byte.
        payload: Bytes,
    },
}

/// Takes one complete frame from the front of `input`; `None` if it is incomplete. The size is
/// checked against `frame_max` as soon as it has arrived, so that `input` never needs to hold more.
///
/// # Errors
/// As [`FrameError`]; `input` cannot be used any more.
pub fn take(input: &mut BytesMut, frame_max: u32) -> Result<Option<Frame>, FrameError> {
    let Some(&[kind, c1, c0, s3, s2, s1, s0]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let size = u32::from_be_bytes([s3, s2, s1, s0]);
    // An excess of 8 over the legal frame_max - 8 is tolerated.
    if size > frame_max {
        return Err(FrameError::TooLarge { kind, size, max: frame_max });
    }
    let payload_bytes = usize::try_from(size).unwrap_or(usize::MAX);
    let Some(&end) = input.get(HEADER_BYTES.saturating_add(payload_bytes)) else {
        return Ok(None);
    };
    let mut payload = input.split_to(OVERHEAD_BYTES + payload_bytes).freeze();
    payload.advance(HEADER_BYTES);
    payload.truncate(payload_bytes);
    if end != END {
        return Err(FrameError::End { kind, payload, end });
    }
    match Kind::of(kind) {
        Some(kind) => Ok(Some(Frame { kind, channel: u16::from_be_bytes([c1, c0]), payload })),
        None => Err(FrameError::Kind { kind, payload }),
    }
}

/// Appends the header of a frame with `payload_bytes`.
pub fn put_header(out: &mut BytesMut, kind: Kind, channel: u16, payload_bytes: usize) {
    // A payload is at most frame_max, which is 32 bits wide.
    let [s3, s2, s1, s0] = u32::try_from(payload_bytes).unwrap_or(u32::MAX).to_be_bytes();
    let [c1, c0] = channel.to_be_bytes();
    out.put_slice(&[kind as u8, c1, c0, s3, s2, s1, s0]);
}

/// Appends a whole frame.
pub fn put(out: &mut BytesMut, kind: Kind, channel: u16, payload: &[u8]) {
    out.reserve(OVERHEAD_BYTES + payload.len());
    put_header(out, kind, channel, payload.len());
    out.put_slice(payload);
    out.put_u8(END);
}

/// Appends a frame whose payload `write` appends.
pub(crate) fn put_with(
    out: &mut BytesMut,
    kind: Kind,
    channel: u16,
    write: impl FnOnce(&mut BytesMut),
) {
    let at = out.len();
    put_header(out, kind, channel, 0);
    write(out);
    let size = u32::try_from(out.len() - at - HEADER_BYTES).unwrap_or(u32::MAX);
    if let Some(slot) = out.get_mut(at + 3..at + HEADER_BYTES) {
        slot.copy_from_slice(&size.to_be_bytes());
    }
    out.put_u8(END);
}

/// Appends a heartbeat.
pub fn put_heartbeat(out: &mut BytesMut) {
    put(out, Kind::Heartbeat, 0, &[]);
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    fn error(bytes: &[u8], frame_max: u32) -> String {
        take(&mut BytesMut::from(bytes), frame_max).unwrap_err().to_string()
    }

    /// FRM-01: a size beyond `frame_max` is refused by the header alone, whether 4 GiB or one byte
    /// too large.
    #[test]
    fn frm_01_an_oversized_frame_is_refused_before_its_payload_comes() {
        assert_eq!(
            error(&[1, 0, 0, 0, 2, 0, 1], 131_072),
            "type 1, all octets = <<>>: {frame_too_large,131073,131064}"
        );
        assert_eq!(
            error(&[3, 0, 1, 0xff, 0xff, 0xff, 0xff], 131_072),
            "type 3, all octets = <<>>: {frame_too_large,4294967295,131064}"
        );
        let mut tolerated = BytesMut::from(&[3, 0, 1, 0, 2, 0, 0][..]);
        assert_eq!(take(&mut tolerated, 131_072), Ok(None));
    }

    /// FRM-02: a frame with another end byte is refused.
    #[test]
    fn frm_02_a_wrong_end_is_refused() {
        assert_eq!(
            error(&[1, 0, 0, 0, 0, 0, 4, b'a', b'b', b'c', b'd', 88], 8192),
            "type 1, all octets = <<\"abcd\">>: {invalid_frame_end_marker,88}"
        );
    }

    /// FRM-03: a frame of an unknown type is refused.
    #[test]
    fn frm_03_an_unknown_type_is_refused() {
        for kind in [0, 4, 5, 6, 7, 9, 255] {
            assert_eq!(
                error(&[kind, 0, 0, 0, 0, 0, 0, END], 8192),
                format!("type {kind}, all octets = <<>>: unknown_frame")
            );
        }
    }

    #[test]
    fn a_frame_arrives_byte_by_byte() {
        let mut whole = BytesMut::new();
        put(&mut whole, Kind::Body, 513, b"hello");
        let mut input = BytesMut::new();
        for &byte in &whole[..whole.len() - 1] {
            input.put_u8(byte);
            assert_eq!(take(&mut input, 8192), Ok(None));
        }
        input.put_u8(END);
        let frame = take(&mut input, 8192).unwrap().unwrap();
        assert_eq!(frame, Frame { kind: Kind::Body, channel: 513, payload: "hello".into() });
        assert!(input.is_empty());
    }
}
