//! Field tables (AMQP 0-9-1, section 4.2.5.5, with RabbitMQ's types, FRM-14): decoding with a
//! bounded depth, encoding, and the few look-ups that the broker makes.

use crate::ShortString;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How deep tables and arrays may be nested. One deeper is refused, since a table comes before
/// authentication and must not cost stack (ENGINEERING, AMQP codec).
pub const TABLE_DEPTH_MAX: usize = 16;

/// A field value (FRM-14).
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum FieldValue {
    Bool(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    Decimal { scale: u8, value: u32 },
    LongString(Bytes),
    Array(Vec<FieldValue>),
    Timestamp(u64),
    Table(FieldTable),
    Void,
    ByteArray(Bytes),
}

impl Eq for FieldValue {}

/// A field table: names and values in the order of the wire, duplicates kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldTable(pub Vec<(ShortString, FieldValue)>);

/// How large a table is in memory, what is nested in it included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSize {
    /// Values, those of nested tables and arrays included.
    pub values: usize,
    /// Bytes, about: a value of one byte on the wire takes some forty.
    pub bytes: usize,
}

/// Why bytes are no field table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldTableError {
    /// The bytes end within a field.
    #[error("field table ends within a field")]
    Truncated,
    /// A type letter that FRM-14 does not name.
    #[error("field table has unknown type {0:#04x}")]
    UnknownType(u8),
    /// Nested deeper than [`TABLE_DEPTH_MAX`].
    #[error("field table is nested deeper than {TABLE_DEPTH_MAX}")]
    TooDeep,
    /// A field's name is not UTF-8.
    #[error("field name is not valid UTF-8")]
    Name,
}

impl FieldValue {
    /// RabbitMQ's name of the wire type, as its error texts print it (EQV-04).
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::I8(_) => "byte",
            Self::U8(_) => "unsignedbyte",
            Self::I16(_) => "short",
            Self::U16(_) => "unsignedshort",
            Self::I32(_) => "signedint",
            Self::U32(_) => "unsignedint",
            Self::I64(_) => "long",
            Self::F32(_) => "float",
            Self::F64(_) => "double",
            Self::Decimal { .. } => "decimal",
            Self::LongString(_) => "longstr",
            Self::Array(_) => "array",
            Self::Timestamp(_) => "timestamp",
            Self::Table(_) => "table",
            Self::Void => "void",
            Self::ByteArray(_) => "binary",
        }
    }

    /// The integer, of any integer type (ARG-10).
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::I8(value) => Some(i64::from(value)),
            Self::U8(value) => Some(i64::from(value)),
            Self::I16(value) => Some(i64::from(value)),
            Self::U16(value) => Some(i64::from(value)),
            Self::I32(value) => Some(i64::from(value)),
            Self::U32(value) => Some(i64::from(value)),
            Self::I64(value) => Some(value),
            Self::Bool(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal { .. }
            | Self::LongString(_)
            | Self::Array(_)
            | Self::Timestamp(_)
            | Self::Table(_)
            | Self::Void
            | Self::ByteArray(_) => None,
        }
    }

    /// The whole number that the value is or means: an integer, or, as some client libraries send one, text or a
    /// floating-point number without a fraction.
    #[must_use]
    pub fn as_whole_number(&self) -> Option<i64> {
        let of_float = |value: f64| {
            // Integers of up to 2^53 are exact.
            let is_exact = value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0;
            is_exact.then_some(value as i64)
        };
        if let Self::LongString(text) = self {
            return std::str::from_utf8(text).ok()?.parse().ok();
        }
        if let Self::F32(value) = *self {
            return of_float(f64::from(value));
        }
        if let Self::F64(value) = *self { of_float(value) } else { self.as_integer() }
    }

    /// The long string's bytes.
    #[must_use]
    pub fn as_long_string(&self) -> Option<&Bytes> {
        if let Self::LongString(bytes) = self { Some(bytes) } else { None }
    }

    fn add_size(&self, size: &mut TableSize) {
        size.values += 1;
        size.bytes += size_of::<Self>();
        match self {
            Self::LongString(bytes) | Self::ByteArray(bytes) => size.bytes += bytes.len(),
            Self::Array(values) => values.iter().for_each(|value| value.add_size(size)),
            Self::Table(table) => table.add_size(size),
            Self::Bool(_)
            | Self::I8(_)
            | Self::U8(_)
            | Self::I16(_)
            | Self::U16(_)
            | Self::I32(_)
            | Self::U32(_)
            | Self::I64(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::Decimal { .. }
            | Self::Timestamp(_)
            | Self::Void => {}
        }
    }

    /// A long string of a text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::LongString(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl FieldTable {
    /// The first value of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&FieldValue> {
        self.0.iter().find(|(key, _)| key.as_bytes() == name.as_bytes()).map(|(_, value)| value)
    }

    /// True if there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How large it is in memory.
    #[must_use]
    pub fn size(&self) -> TableSize {
        let mut size = TableSize::default();
        self.add_size(&mut size);
        size
    }

    fn add_size(&self, size: &mut TableSize) {
        for (name, value) in &self.0 {
            size.bytes += size_of::<ShortString>() + name.len();
            value.add_size(size);
        }
    }

    /// A copy that does not keep the frame alive that it was cut from.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut bytes = BytesMut::new();
        self.encode_content(&mut bytes);
        Self::decode_content(bytes.freeze()).unwrap_or_else(|_| self.clone())
    }

    /// Decodes a table's content, without its length.
    ///
    /// # Errors
    /// What [`FieldTableError`] names.
    pub fn decode_content(bytes: Bytes) -> Result<Self, FieldTableError> {
        table_content(bytes, 0)
    }

    /// Takes a table (length and content) off the front of `bytes`.
    ///
    /// # Errors
    /// What [`FieldTableError`] names; `bytes` is then of no further use.
    pub fn decode(bytes: &mut Bytes) -> Result<Self, FieldTableError> {
        table_content(take_long(bytes)?, 0)
    }

    /// Appends length and content.
    pub fn encode(&self, out: &mut BytesMut) {
        with_length(out, |out| self.encode_content(out));
    }

    /// Appends the content without its length.
    pub fn encode_content(&self, out: &mut BytesMut) {
        for (name, value) in &self.0 {
            // A short string has at most 255 bytes.
            out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.put_slice(name.as_bytes());
            encode_value(value, out);
        }
    }
}

fn table_content(mut bytes: Bytes, depth: usize) -> Result<FieldTable, FieldTableError> {
    if depth >= TABLE_DEPTH_MAX {
        return Err(FieldTableError::TooDeep);
    }
    let mut fields = Vec::new();
    while bytes.has_remaining() {
        let length = usize::from(take_u8(&mut bytes)?);
        let name = ShortString::from_bytes(take(&mut bytes, length)?)
            .map_err(|_| FieldTableError::Name)?;
        fields.push((name, value(&mut bytes, depth)?));
    }
    Ok(FieldTable(fields))
}

fn value(bytes: &mut Bytes, depth: usize) -> Result<FieldValue, FieldTableError> {
    let truncated = |_| FieldTableError::Truncated;
    let kind = take_u8(bytes)?;
    Ok(match kind {
        b't' => FieldValue::Bool(take_u8(bytes)? != 0),
        b'b' => FieldValue::I8(bytes.try_get_i8().map_err(truncated)?),
        b'B' => FieldValue::U8(take_u8(bytes)?),
        b's' => FieldValue::I16(bytes.try_get_i16().map_err(truncated)?),
        b'u' => FieldValue::U16(bytes.try_get_u16().map_err(truncated)?),
        b'I' => FieldValue::I32(bytes.try_get_i32().map_err(truncated)?),
        b'i' => FieldValue::U32(bytes.try_get_u32().map_err(truncated)?),
        b'l' | b'L' => FieldValue::I64(bytes.try_get_i64().map_err(truncated)?),
        b'f' => FieldValue::F32(bytes.try_get_f32().map_err(truncated)?),
        b'd' => FieldValue::F64(bytes.try_get_f64().map_err(truncated)?),
        b'D' => FieldValue::Decimal {
            scale: take_u8(bytes)?,
            value: bytes.try_get_u32().map_err(truncated)?,
        },
        b'S' => FieldValue::LongString(take_long(bytes)?),
        b'x' => FieldValue::ByteArray(take_long(bytes)?),
        b'T' => FieldValue::Timestamp(bytes.try_get_u64().map_err(truncated)?),
        b'V' => FieldValue::Void,
        b'A' => FieldValue::Array(array(take_long(bytes)?, depth + 1)?),
        b'F' => FieldValue::Table(table_content(take_long(bytes)?, depth + 1)?),
        unknown => return Err(FieldTableError::UnknownType(unknown)),
    })
}

fn array(mut bytes: Bytes, depth: usize) -> Result<Vec<FieldValue>, FieldTableError> {
    if depth >= TABLE_DEPTH_MAX {
        return Err(FieldTableError::TooDeep);
    }
    let mut values = Vec::new();
    while bytes.has_remaining() {
        values.push(value(&mut bytes, depth)?);
    }
    Ok(values)
}

fn take(bytes: &mut Bytes, length: usize) -> Result<Bytes, FieldTableError> {
    if bytes.remaining() < length {
        return Err(FieldTableError::Truncated);
    }
    Ok(bytes.split_to(length))
}

fn take_u8(bytes: &mut Bytes) -> Result<u8, FieldTableError> {
    bytes.try_get_u8().map_err(|_| FieldTableError::Truncated)
}

fn take_long(bytes: &mut Bytes) -> Result<Bytes, FieldTableError> {
    let length = bytes.try_get_u32().map_err(|_| FieldTableError::Truncated)?;
    take(bytes, usize::try_from(length).map_err(|_| FieldTableError::Truncated)?)
}

fn with_length(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_u32(0);
    content(out);
    // A table comes from a frame or from a policy, both far below 4 GiB.
    let length = u32::try_from(out.len() - at - 4).unwrap_or(u32::MAX);
    if let Some(slot) = out.get_mut(at..at + 4) {
        slot.copy_from_slice(&length.to_be_bytes());
    }
}

fn put_long(bytes: &[u8], out: &mut BytesMut) {
    with_length(out, |out| out.put_slice(bytes));
}

fn encode_value(value: &FieldValue, out: &mut BytesMut) {
    match value {
        FieldValue::Bool(value) => put(out, b't', &[u8::from(*value)]),
        FieldValue::I8(value) => put(out, b'b', &value.to_be_bytes()),
        FieldValue::U8(value) => put(out, b'B', &value.to_be_bytes()),
        FieldValue::I16(value) => put(out, b's', &value.to_be_bytes()),
        FieldValue::U16(value) => put(out, b'u', &value.to_be_bytes()),
        FieldValue::I32(value) => put(out, b'I', &value.to_be_bytes()),
        FieldValue::U32(value) => put(out, b'i', &value.to_be_bytes()),
        // Both 64-bit letters are written as `l` (FRM-15).
        FieldValue::I64(value) => put(out, b'l', &value.to_be_bytes()),
        FieldValue::F32(value) => put(out, b'f', &value.to_be_bytes()),
        FieldValue::F64(value) => put(out, b'd', &value.to_be_bytes()),
        FieldValue::Decimal { scale, value } => {
            put(out, b'D', &[*scale]);
            out.put_u32(*value);
        }
        FieldValue::LongString(bytes) => {
            out.put_u8(b'S');
            put_long(bytes, out);
        }
        FieldValue::ByteArray(bytes) => {
            out.put_u8(b'x');
            put_long(bytes, out);
        }
        FieldValue::Timestamp(seconds) => put(out, b'T', &seconds.to_be_bytes()),
        FieldValue::Void => out.put_u8(b'V'),
        FieldValue::Array(values) => {
            out.put_u8(b'A');
            with_length(out, |out| values.iter().for_each(|value| encode_value(value, out)));
        }
        FieldValue::Table(table) => {
            out.put_u8(b'F');
            table.encode(out);
        }
    }
}

fn put(out: &mut BytesMut, kind: u8, bytes: &[u8]) {
    out.put_u8(kind);
    out.put_slice(bytes);
}
