//! The read buffer of a connection.

use super::scan::{self, Frame, ScanError};

/// Bytes read at once, in addition to an incomplete frame.
const READ_BYTES: usize = 256 * 1024;

/// Bytes that were read and not yet parsed, in a buffer that never grows.
#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    payload_max: usize,
}

impl Inbox {
    /// A buffer for frames of up to `frame_max` bytes.
    pub(crate) fn new(frame_max: usize) -> Self {
        Self { buffer: vec![0; frame_max + READ_BYTES], start: 0, end: 0, payload_max: frame_max }
    }

    /// Free space to read into: never empty, since an incomplete frame leaves room.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Records that bytes were read.
    pub(crate) fn filled(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.buffer.len());
    }

    /// The next complete frame.
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, ScanError> {
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        match scan::first(bytes, self.payload_max)? {
            None => Ok(None),
            Some((frame, bytes)) => {
                self.start += bytes;
                Ok(Some(frame))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn frames_come_whole_however_they_were_read() {
        let frame = |channel: u8, bytes: usize| {
            let mut frame = vec![3, 0, channel, 0, 0, 0, bytes as u8];
            frame.extend(vec![channel; bytes]);
            frame.push(0xce);
            frame
        };
        let stream: Vec<u8> = (1..=40).flat_map(|channel| frame(channel, 30)).collect();
        for step in [1, 7, 38, 100] {
            let mut inbox = Inbox::new(64);
            let mut seen = Vec::new();
            for piece in stream.chunks(step) {
                inbox.room()[..piece.len()].copy_from_slice(piece);
                inbox.filled(piece.len());
                while let Some(frame) = inbox.next().unwrap() {
                    assert_eq!(frame.payload.len(), 30);
                    seen.push(frame.channel);
                }
            }
            assert_eq!(seen, (1..=40).collect::<Vec<u16>>());
        }
    }
}
