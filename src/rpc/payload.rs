//! The bytes of a message, in pieces, so that an entry and its bodies are sent without being
//! concatenated first.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// A message's bytes as a chain of pieces. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Payload {
    /// An empty payload.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// The payload with a piece added at its beginning.
    #[must_use]
    pub fn preceded_by(mut self, piece: Bytes) -> Self {
        self.bytes += piece.len();
        self.pieces.push_front(piece);
        self
    }

    /// Bytes that are left to be sent.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if no bytes are left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes up to `limit` bytes from the front; copied only if they span pieces.
    pub(crate) fn take(&mut self, limit: usize) -> Bytes {
        let wanted = limit.min(self.bytes);
        self.bytes -= wanted;
        let Some(front) = self.pieces.front_mut() else { return Bytes::new() };
        if front.len() > wanted {
            return front.split_to(wanted);
        }
        if front.len() == wanted {
            return self.pieces.pop_front().unwrap_or_default();
        }
        self.gather(wanted)
    }

    fn gather(&mut self, wanted: usize) -> Bytes {
        let mut gathered = BytesMut::with_capacity(wanted);
        while gathered.len() < wanted {
            let Some(front) = self.pieces.front_mut() else { break };
            let missing = wanted - gathered.len();
            if front.len() > missing {
                gathered.extend_from_slice(&front.split_to(missing));
            } else {
                gathered.extend_from_slice(front);
                self.pieces.pop_front();
            }
        }
        gathered.freeze()
    }

    /// All bytes in one piece; copied only if there are several.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        self.take(usize::MAX)
    }
}

impl From<Bytes> for Payload {
    fn from(piece: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(piece);
        payload
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<BytesMut> for Payload {
    fn from(bytes: BytesMut) -> Self {
        bytes.freeze().into()
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut payload = Self::new();
        for piece in pieces {
            payload.push(piece);
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_taken_in_order_whatever_the_cuts() {
        let whole: Vec<u8> = (0..=255).collect();
        for limit in [1, 3, 64, 100, 256, 1000] {
            let mut payload: Payload = whole.chunks(37).map(Bytes::copy_from_slice).collect();
            assert_eq!(payload.len(), 256);
            let mut taken = Vec::new();
            while !payload.is_empty() {
                let part = payload.take(limit);
                assert!(!part.is_empty() && part.len() <= limit);
                taken.extend_from_slice(&part);
            }
            assert_eq!(taken, whole, "cut at {limit}");
        }
    }

    #[test]
    fn one_piece_is_not_copied() {
        let piece = Bytes::from(vec![7_u8; 100]);
        let bytes = Payload::from(piece.clone()).into_bytes();
        assert_eq!(bytes.as_ptr(), piece.as_ptr());
    }
}
