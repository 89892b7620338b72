//! Contents: the header and body frames that follow a method with a content (FRM-07 to FRM-10).
//!
//! A content header can be larger than a consumer's frame-max, because the header `x-death` grows
//! with each death of a message. Such a header is sent nevertheless, as RabbitMQ does. The smallest
//! frame-max is 8,192 bytes and headers are bounded. To drop the message would also take it from
//! clients with a larger frame-max.

use crate::codec::{
    frame::{self, END, Kind, OVERHEAD_BYTES, put_header},
    method::BASIC,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a content header before its properties: class, weight, body size.
const FIXED_BYTES: usize = 12;

/// Properties of a message that has none: no flag is set.
const NO_PROPERTIES: [u8; 2] = [0, 0];

/// A content header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentHeader {
    /// Class; only 60 has contents.
    pub class: u16,
    /// Bytes of the body.
    pub body_bytes: u64,
    /// Property flags and properties as on the wire.
    pub properties: Bytes,
}

impl ContentHeader {
    /// Decodes a header frame's payload; `None` if it is too short.
    #[must_use]
    pub fn decode(mut payload: Bytes) -> Option<Self> {
        let class = payload.try_get_u16().ok()?;
        // The weight is unused.
        payload.try_get_u16().ok()?;
        let body_bytes = payload.try_get_u64().ok()?;
        Some(Self { class, body_bytes, properties: payload })
    }
}

/// Appends a header frame.
pub fn put_content_header(out: &mut BytesMut, channel: u16, body_bytes: u64, properties: &[u8]) {
    let properties = if properties.len() < 2 { &NO_PROPERTIES } else { properties };
    let payload_bytes = FIXED_BYTES + properties.len();
    out.reserve(OVERHEAD_BYTES + payload_bytes);
    put_header(out, Kind::Header, channel, payload_bytes);
    out.put_u16(BASIC);
    out.put_u16(0);
    out.put_u64(body_bytes);
    out.put_slice(properties);
    out.put_u8(END);
}

/// Bytes of body that fit one frame (FRM-10).
#[must_use]
pub fn piece_bytes_max(frame_max: u32) -> usize {
    let frame_max = usize::try_from(frame_max).unwrap_or(usize::MAX);
    frame_max.saturating_sub(OVERHEAD_BYTES).max(1)
}

/// Appends header and body, cut to frames of `frame_max`.
pub fn put(out: &mut BytesMut, channel: u16, properties: &[u8], body: &[u8], frame_max: u32) {
    // usize is never wider than 64 bits.
    put_content_header(out, channel, u64::try_from(body.len()).unwrap_or(u64::MAX), properties);
    for piece in body.chunks(piece_bytes_max(frame_max)) {
        frame::put(out, Kind::Body, channel, piece);
    }
}

/// More bytes than the header announced (FRM-08).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("content body frame exceeds remaining content size")]
pub struct Excess;

/// A body that is assembled from its frames. A body in one frame is not copied; a longer one is
/// copied once, into a buffer that grows with the bytes received, not with the size announced.
#[derive(Debug)]
pub struct Assembly {
    missing: u64,
    body: Parts,
}

#[derive(Debug)]
enum Parts {
    None,
    One(Bytes),
    Many(BytesMut),
    /// Counted, not kept.
    Dropped,
}

impl Assembly {
    /// A body of `body_bytes`, kept, or only counted.
    #[must_use]
    pub fn new(body_bytes: u64, keep: bool) -> Self {
        Self { missing: body_bytes, body: if keep { Parts::None } else { Parts::Dropped } }
    }

    /// True if no byte is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// True if the body is kept, false if it is only counted.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !matches!(self.body, Parts::Dropped)
    }

    /// Copies the body so far, so that it does not keep the read buffer in memory.
    pub fn detach(&mut self) {
        if let Parts::One(first) = &self.body {
            let mut body = BytesMut::new();
            self.grow(&mut body, first.len());
            body.put_slice(first);
            self.body = Parts::Many(body);
        }
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        match &self.body {
            Parts::None | Parts::Dropped => 0,
            Parts::One(body) => body.len(),
            Parts::Many(body) => body.len(),
        }
    }

    /// Takes a body frame's payload.
    ///
    /// # Errors
    /// [`Excess`], and nothing is taken.
    pub fn push(&mut self, piece: Bytes) -> Result<(), Excess> {
        let piece_bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.missing = self.missing.checked_sub(piece_bytes).ok_or(Excess)?;
        if piece.is_empty() {
            return Ok(());
        }
        self.body = match std::mem::replace(&mut self.body, Parts::Dropped) {
            Parts::None => Parts::One(piece),
            Parts::One(first) => {
                let mut body = BytesMut::new();
                self.grow(&mut body, first.len() + piece.len());
                body.put_slice(&first);
                body.put_slice(&piece);
                Parts::Many(body)
            }
            Parts::Many(mut body) => {
                self.grow(&mut body, piece.len());
                body.put_slice(&piece);
                Parts::Many(body)
            }
            Parts::Dropped => Parts::Dropped,
        };
        Ok(())
    }

    /// Grows the buffer for `more` bytes, and doubles it if that many bytes are still missing.
    fn grow(&self, body: &mut BytesMut, more: usize) {
        if body.capacity() - body.len() < more {
            let ahead = (body.len() + more).min(usize::try_from(self.missing).unwrap_or(more));
            body.reserve(more + ahead);
        }
    }

    /// The whole body, joined if it came in several frames.
    #[must_use]
    pub fn finish(self) -> Bytes {
        match self.body {
            Parts::None | Parts::Dropped => Bytes::new(),
            Parts::One(body) => body,
            Parts::Many(body) => body.freeze(),
        }
    }
}
