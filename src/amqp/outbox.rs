//! Bytes that wait to be written to a socket: small pieces are copied into one buffer, large bodies
//! are kept as they are, and all are written in few, large, vectored writes.

use crate::codec::{
    content::{piece_bytes_max, put_content_header},
    frame::{END, Kind, put_header},
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::{collections::VecDeque, io::IoSlice};

/// Pieces of a body up to this size are copied; larger ones are written in place.
const COPIED_BYTES_MAX: usize = 16 * 1024;

/// Maximum of slices in one write.
pub(crate) const SLICES_MAX: usize = 64;

/// Smallest and largest initial size of a buffer.
const BUFFER_BYTES: (usize, usize) = (512, 256 * 1024);

/// Bytes waiting to be written.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Segments in order, before `tail`.
    segments: VecDeque<Bytes>,
    segments_bytes: usize,
    tail: BytesMut,
    /// Initial capacity of the next buffer: the size of the last one.
    begin_bytes: usize,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            segments: VecDeque::new(),
            segments_bytes: 0,
            tail: BytesMut::new(),
            begin_bytes: BUFFER_BYTES.0,
        }
    }

    /// Bytes that wait to be written.
    pub(crate) fn len(&self) -> usize {
        self.segments_bytes + self.tail.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffer to append a frame to.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        if self.tail.capacity() == 0 {
            self.tail.reserve(self.begin_bytes);
        }
        &mut self.tail
    }

    /// Appends a content's header and body (FRM-10).
    pub(crate) fn content(
        &mut self,
        channel: u16,
        properties: &[u8],
        body: &Bytes,
        frame_max: u32,
    ) {
        let body_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        put_content_header(self.buffer(), channel, body_bytes, properties);
        let piece_bytes = piece_bytes_max(frame_max);
        let mut rest = body.clone();
        while !rest.is_empty() {
            self.piece(channel, rest.split_to(piece_bytes.min(rest.len())));
        }
    }

    fn piece(&mut self, channel: u16, piece: Bytes) {
        let tail = self.buffer();
        if piece.len() <= COPIED_BYTES_MAX {
            tail.reserve(piece.len() + 8);
            put_header(tail, Kind::Body, channel, piece.len());
            tail.put_slice(&piece);
        } else {
            put_header(tail, Kind::Body, channel, piece.len());
            self.seal();
            self.segments_bytes += piece.len();
            self.segments.push_back(piece);
        }
        self.buffer().put_u8(END);
    }

    /// Moves the buffer behind the segments.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.segments_bytes += self.tail.len();
            self.segments.push_back(self.tail.split().freeze());
        }
    }

    /// The slices to be written next.
    pub(crate) fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        if self.segments.len() < SLICES_MAX {
            self.begin_bytes = self.tail.len().clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
            self.seal();
        }
        for (slot, segment) in slices.iter_mut().zip(&self.segments) {
            *slot = IoSlice::new(segment);
        }
        self.segments.len().min(SLICES_MAX)
    }

    /// Removes the first `written` bytes, which have been written.
    pub(crate) fn advance(&mut self, mut written: usize) {
        self.segments_bytes = self.segments_bytes.saturating_sub(written);
        while written > 0 {
            let Some(first) = self.segments.front_mut() else { return };
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.segments.pop_front();
        }
        if self.is_empty() {
            // An idle connection holds no buffer.
            self.tail = BytesMut::new();
        }
    }

    /// Everything that waits, in one piece.
    pub(crate) fn take_all(&mut self) -> BytesMut {
        let mut all = BytesMut::with_capacity(self.len());
        self.seal();
        self.segments.drain(..).for_each(|segment| all.put_slice(&segment));
        self.segments_bytes = 0;
        all
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::codec::{content, frame};

    fn body(bytes: usize) -> Bytes {
        (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn a_content_is_the_same_however_it_is_kept() {
        for bytes in [0, 1, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 131_064, 131_065, 500_000] {
            let mut outbox = Outbox::new();
            let mut expected = BytesMut::new();
            frame::put_heartbeat(outbox.buffer());
            outbox.content(7, &[0, 0], &body(bytes), 131_072);
            frame::put_heartbeat(outbox.buffer());
            frame::put_heartbeat(&mut expected);
            content::put(&mut expected, 7, &[0, 0], &body(bytes), 131_072);
            frame::put_heartbeat(&mut expected);
            assert_eq!(outbox.len(), expected.len());
            assert_eq!(outbox.take_all(), expected);
        }
    }

    #[test]
    fn writes_of_any_size_lose_nothing() {
        for step in [1, 3, 1000, 70_000] {
            let mut outbox = Outbox::new();
            outbox.content(1, &[0, 0], &body(200_000), 131_072);
            let mut expected = BytesMut::new();
            content::put(&mut expected, 1, &[0, 0], &body(200_000), 131_072);
            let mut written = Vec::new();
            while !outbox.is_empty() {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = outbox.slices(&mut slices);
                let bytes = slices[..count].iter().flat_map(|slice| slice.iter().copied());
                let before = written.len();
                written.extend(bytes.take(step));
                outbox.advance(written.len() - before);
            }
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn a_large_body_is_not_copied() {
        let body = body(100_000);
        let mut outbox = Outbox::new();
        outbox.content(1, &[0, 0], &body, 131_072);
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = outbox.slices(&mut slices);
        assert!(slices[..count].iter().any(|slice| slice.as_ptr() == body.as_ptr()));
    }
}
