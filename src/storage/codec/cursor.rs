//! Primitives: variable-length integers (LEB128), lengths, ids; written into a buffer, and read by
//! a cursor that never panics and never allocates more than is proportional to the bytes present.

use super::DecodeError;
use bytes::{BufMut, BytesMut};
use quorate_types::{
    ConsumerId, GroupId, Home, NodeId, QueueId, SessionId, ShortString, StartNumber,
};

/// Capacity of a vector before its first element is read; it grows with more elements, so that a
/// wrong count does not reserve memory.
pub(crate) const CAPACITY_MAX: usize = 4096;

/// Appends an integer in seven-bit groups, lowest first.
#[inline]
pub(crate) fn put_int(out: &mut BytesMut, value: u64) {
    if value < 0x80 {
        out.put_u8(value as u8);
        return;
    }
    let mut short = Short::default();
    short.int(value);
    short.put(out);
}

/// A few bytes collected on the stack and appended at once: each append to a buffer is a function
/// call, which is most of the cost of the frequent commands.
#[derive(Default)]
pub(crate) struct Short {
    bytes: [u8; Short::CAPACITY],
    len: usize,
}

impl Short {
    /// Three integers of any length, and some single bytes.
    const CAPACITY: usize = 32;

    #[inline]
    pub(crate) fn u8(&mut self, byte: u8) {
        if let Some(slot) = self.bytes.get_mut(self.len) {
            *slot = byte;
            self.len += 1;
        }
    }

    #[inline]
    pub(crate) fn int(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    #[inline]
    pub(crate) fn put(&self, out: &mut BytesMut) {
        out.extend_from_slice(self.bytes.get(..self.len).unwrap_or_default());
    }
}

/// Appends a count or length.
#[inline]
pub(crate) fn put_len(out: &mut BytesMut, len: usize) {
    put_int(out, len as u64);
}

/// Appends a signed integer; small ones of either sign are short (zigzag).
pub(crate) fn put_signed(out: &mut BytesMut, value: i64) {
    put_int(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

pub(crate) fn put_bool(out: &mut BytesMut, value: bool) {
    out.put_u8(u8::from(value));
}

pub(crate) fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

pub(crate) fn put_short(out: &mut BytesMut, text: &ShortString) {
    // A short string has at most 255 bytes.
    out.put_u8(text.len() as u8);
    out.put_slice(text.as_bytes());
}

/// Appends 0 for `None`, else the value plus one; the highest value has a special form.
pub(crate) fn put_option(out: &mut BytesMut, value: Option<u64>) {
    match value {
        None => put_int(out, 0),
        Some(u64::MAX) => {
            put_int(out, u64::MAX);
            out.put_u8(1);
        }
        Some(value) => {
            put_int(out, value + 1);
            if value + 1 == u64::MAX {
                out.put_u8(0);
            }
        }
    }
}

pub(crate) fn put_queue(out: &mut BytesMut, queue: QueueId) {
    let (kind, home) = match queue.home {
        Home::Group(group) => (0, group.0),
        Home::Node(node) => (1, node.0),
    };
    put_int(out, u64::from(home) << 1 | kind);
    put_int(out, queue.index);
    put_int(out, queue.position);
}

pub(crate) fn put_session(out: &mut BytesMut, session: SessionId) {
    put_int(out, u64::from(session.node.0));
    put_int(out, session.start.0);
}

pub(crate) fn put_consumer(out: &mut BytesMut, consumer: ConsumerId) {
    put_session(out, consumer.session);
    put_int(out, consumer.number);
}

/// Reads forward over bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn int(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Invalid("integer"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Invalid("integer"))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.int()?).map_err(|_| DecodeError::Invalid("32-bit integer"))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        u16::try_from(self.int()?).map_err(|_| DecodeError::Invalid("16-bit integer"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.int()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    pub(crate) fn bool(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("boolean")),
        }
    }

    pub(crate) fn option(&mut self) -> Result<Option<u64>, DecodeError> {
        Ok(match self.int()? {
            0 => None,
            u64::MAX if self.bool()? => Some(u64::MAX),
            value => Some(value - 1),
        })
    }

    pub(crate) fn option_u32(&mut self) -> Result<Option<u32>, DecodeError> {
        let narrow = |value| u32::try_from(value).map_err(|_| DecodeError::Invalid("integer"));
        self.option()?.map(narrow).transpose()
    }

    /// A length, checked against the bytes present.
    pub(crate) fn len(&mut self) -> Result<usize, DecodeError> {
        let len = usize::try_from(self.int()?).map_err(|_| DecodeError::Truncated)?;
        if len > self.remaining() { Err(DecodeError::Truncated) } else { Ok(len) }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.len()?;
        self.take(len)
    }

    /// A text, copied, so that it does not keep a frame in memory.
    pub(crate) fn short(&mut self) -> Result<ShortString, DecodeError> {
        let len = usize::from(self.u8()?);
        let bytes = self.take(len)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("text"))?;
        ShortString::try_from(text).map_err(|_| DecodeError::Invalid("text"))
    }

    pub(crate) fn string(&mut self) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Invalid("text"))?;
        Ok(text.to_owned())
    }

    pub(crate) fn queue(&mut self) -> Result<QueueId, DecodeError> {
        let home = self.int()?;
        let id = u16::try_from(home >> 1).map_err(|_| DecodeError::Invalid("home"))?;
        let home = if home & 1 == 0 { Home::Group(GroupId(id)) } else { Home::Node(NodeId(id)) };
        Ok(QueueId { home, index: self.int()?, position: self.int()? })
    }

    pub(crate) fn session(&mut self) -> Result<SessionId, DecodeError> {
        Ok(SessionId { node: NodeId(self.u16()?), start: StartNumber(self.int()?) })
    }

    pub(crate) fn consumer(&mut self) -> Result<ConsumerId, DecodeError> {
        Ok(ConsumerId { session: self.session()?, number: self.int()? })
    }

    /// A count, then that many elements of at least one byte each.
    pub(crate) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.len()?;
        let mut list = Vec::with_capacity(count.min(CAPACITY_MAX));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    /// Checks the format version at the beginning of a value.
    pub(crate) fn version(&mut self, known: u8) -> Result<(), DecodeError> {
        match self.u8()? {
            version if version == known => Ok(()),
            version => Err(DecodeError::Version(version)),
        }
    }

    /// Checks that no bytes are left.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::LeftOver) }
    }
}
