//! Decodes and encodes a method's fields one after the other (AMQP 0-9-1, section 4.2.5).

use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{FieldTable, FieldTableError, ShortString};

/// Why a field cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The bytes end within a field.
    #[error("a field is cut short")]
    Truncated,
    /// A short string is not UTF-8.
    #[error("a short string is not valid UTF-8")]
    Text,
    /// A field table cannot be read.
    #[error(transparent)]
    Table(#[from] FieldTableError),
}

/// Takes fields from the front of a payload; strings become slices of it. Consecutive bits share a
/// byte.
pub(crate) struct Reader<'a> {
    payload: &'a Bytes,
    rest: &'a [u8],
    bits: u8,
    bits_left: u8,
}

impl<'a> Reader<'a> {
    /// A reader that begins after the first `skip` bytes.
    pub(crate) fn new(payload: &'a Bytes, skip: usize) -> Self {
        Self { payload, rest: payload.get(skip..).unwrap_or_default(), bits: 0, bits_left: 0 }
    }

    /// The bytes that have not been read.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True if every byte has been read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(FieldError::Truncated)?;
        self.rest = rest;
        self.bits_left = 0;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FieldError> {
        self.take().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, FieldError> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FieldError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FieldError> {
        self.take().map(u64::from_be_bytes)
    }

    pub(crate) fn bit(&mut self) -> Result<bool, FieldError> {
        if self.bits_left == 0 {
            self.bits = self.u8()?;
            self.bits_left = 8;
        }
        let bit = self.bits & 1 != 0;
        self.bits >>= 1;
        self.bits_left -= 1;
        Ok(bit)
    }

    pub(crate) fn short_string(&mut self) -> Result<ShortString, FieldError> {
        let length = usize::from(self.u8()?);
        ShortString::from_bytes(self.bytes(length)?).map_err(|_| FieldError::Text)
    }

    pub(crate) fn long_string(&mut self) -> Result<Bytes, FieldError> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).map_err(|_| FieldError::Truncated)?)
    }

    pub(crate) fn table(&mut self) -> Result<FieldTable, FieldError> {
        let mut rest = self.payload.slice_ref(self.rest);
        let table = FieldTable::decode(&mut rest)?;
        self.rest = self.rest.get(self.rest.len() - rest.len()..).unwrap_or_default();
        self.bits_left = 0;
        Ok(table)
    }

    fn bytes(&mut self, length: usize) -> Result<Bytes, FieldError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(FieldError::Truncated)?;
        self.rest = rest;
        // An empty slice keeps no buffer in memory.
        Ok(self.payload.slice_ref(bytes))
    }
}

/// Appends fields to a payload.
pub(crate) struct Writer<'a> {
    out: &'a mut BytesMut,
    bits_used: u8,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut BytesMut) -> Self {
        Self { out, bits_used: 0 }
    }

    /// The buffer, for a field that is not a bit.
    pub(crate) fn bytes(&mut self) -> &mut BytesMut {
        self.bits_used = 0;
        self.out
    }

    pub(crate) fn bit(&mut self, bit: bool) {
        if self.bits_used == 0 || self.bits_used == 8 {
            self.out.put_u8(0);
            self.bits_used = 0;
        }
        if let Some(last) = self.out.last_mut() {
            *last |= u8::from(bit) << self.bits_used;
        }
        self.bits_used += 1;
    }

    pub(crate) fn short_string(&mut self, text: &ShortString) {
        put_short_string(self.bytes(), text);
    }

    pub(crate) fn long_string(&mut self, bytes: &[u8]) {
        // A long string fits its frame, whose size is 32 bits wide.
        self.bytes().put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.bytes().put_slice(bytes);
    }
}

/// Appends a short string.
pub(crate) fn put_short_string(out: &mut BytesMut, text: &ShortString) {
    // A short string has at most 255 bytes.
    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.put_slice(text.as_bytes());
}
