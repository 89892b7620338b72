//! Primitives of the encodings: big-endian numbers after a format version.

use super::DecodeError;
use crate::type_config::{LogId, Vote, log_id_of, vote};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The one format version of this build.
const VERSION: u8 = 1;

pub(crate) fn begin(capacity: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(capacity + 1);
    out.put_u8(VERSION);
    out
}

pub(crate) fn put_vote(out: &mut BytesMut, vote: &Vote) {
    out.put_u64(vote.leader_id.term);
    out.put_u64(vote.leader_id.voted_for);
    out.put_u8(u8::from(vote.committed));
}

pub(crate) fn put_log_id(out: &mut BytesMut, id: &LogId) {
    out.put_u64(id.leader_id.term);
    out.put_u64(id.index);
}

pub(crate) fn put_option_log_id(out: &mut BytesMut, id: Option<&LogId>) {
    match id {
        None => out.put_u8(0),
        Some(id) => {
            out.put_u8(1);
            put_log_id(out, id);
        }
    }
}

/// Decodes the primitives. Byte strings are slices of the input.
pub(crate) struct Reader(Bytes);

impl Reader {
    pub(crate) fn begin(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut reader = Self(bytes.clone());
        match reader.u8()? {
            VERSION => Ok(reader),
            other => Err(DecodeError::Version(other)),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.0.try_get_u8().map_err(|_| DecodeError::Truncated)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.0.try_get_u16().map_err(|_| DecodeError::Truncated)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.0.try_get_u32().map_err(|_| DecodeError::Truncated)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.0.try_get_u64().map_err(|_| DecodeError::Truncated)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("flag")),
        }
    }

    /// A count of items of at least `least` bytes each, checked against the bytes present, so that
    /// a wrong count does not reserve memory.
    pub(crate) fn count(&mut self, least: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.0.len() / least.max(1) {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<Bytes, DecodeError> {
        if count > self.0.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(self.0.split_to(count))
    }

    pub(crate) fn rest(self) -> Bytes {
        self.0
    }

    pub(crate) fn vote(&mut self) -> Result<Vote, DecodeError> {
        let (term, node) = (self.u64()?, self.u64()?);
        Ok(vote(term, node, self.flag()?))
    }

    pub(crate) fn log_id(&mut self) -> Result<LogId, DecodeError> {
        let (term, index) = (self.u64()?, self.u64()?);
        Ok(log_id_of(term, index))
    }

    pub(crate) fn option_log_id(&mut self) -> Result<Option<LogId>, DecodeError> {
        if self.flag()? { self.log_id().map(Some) } else { Ok(None) }
    }

    pub(crate) fn end(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::LeftOver) }
    }
}
