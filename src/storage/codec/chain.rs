//! Frames as chains of buffers: small parts are copied together, large ones are shared.

use bytes::{Bytes, BytesMut};

/// From this size on a buffer is shared instead of copied: a separate slice costs a reference count
/// and a write to the socket, about as much as copying this many bytes.
const SHARE_BYTES_MIN: usize = 4096;

/// A frame under construction.
#[derive(Default)]
pub(crate) struct Chain {
    parts: Vec<Bytes>,
    open: BytesMut,
}

impl Chain {
    /// The buffer for small parts.
    pub(crate) fn small(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Appends bytes; large ones without a copy.
    pub(crate) fn push(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_BYTES_MIN {
            self.open.extend_from_slice(bytes);
            return;
        }
        if !self.open.is_empty() {
            self.parts.push(self.open.split().freeze());
        }
        self.parts.push(bytes.clone());
    }

    /// The frame, as a list of its buffers.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.open.is_empty() {
            self.parts.push(self.open.freeze());
        }
        self.parts
    }
}
