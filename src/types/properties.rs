//! Content properties of class basic (AMQP 0-9-1, section 4.2.6.1): read one by one from
//! their raw bytes, and encoded again only if one has to change.

use crate::{FieldTable, FieldTableError, ShortString};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Why bytes cannot be read as properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertiesError {
    /// The bytes end within a property.
    #[error("properties end within a property")]
    Truncated,
    /// Bytes are left over behind the last property.
    #[error("bytes are left over behind the properties")]
    LeftOver,
    /// A short string property is not UTF-8.
    #[error("property is not valid UTF-8")]
    Text,
    /// The headers are no field table.
    #[error("headers: {0}")]
    Headers(#[from] FieldTableError),
}

/// A property, in the order of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Property {
    ContentType = 15,
    ContentEncoding = 14,
    Headers = 13,
    DeliveryMode = 12,
    Priority = 11,
    CorrelationId = 10,
    ReplyTo = 9,
    Expiration = 8,
    MessageId = 7,
    Timestamp = 6,
    Type = 5,
    UserId = 4,
    AppId = 3,
    ClusterId = 2,
}

const ORDER: [Property; 14] = [
    Property::ContentType,
    Property::ContentEncoding,
    Property::Headers,
    Property::DeliveryMode,
    Property::Priority,
    Property::CorrelationId,
    Property::ReplyTo,
    Property::Expiration,
    Property::MessageId,
    Property::Timestamp,
    Property::Type,
    Property::UserId,
    Property::AppId,
    Property::ClusterId,
];

/// The properties that the broker reads, as slices of the raw bytes; the others are skipped
/// over. `raw` is what is stored and delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Flags and properties as received.
    pub raw: Bytes,
    /// Content of the headers table without its length; decoded only when someone asks.
    pub headers: Option<Bytes>,
    /// The headers are as they are delivered: in order of their names, each name once (PRP-02),
    /// 64-bit integers under the letter `l` (FRM-15). Also true without headers.
    pub headers_canonical: bool,
    /// Values in the headers, nested ones included.
    pub header_values: usize,
    /// `delivery-mode`, as sent.
    pub delivery_mode: Option<u8>,
    /// `priority`, as sent.
    pub priority: Option<u8>,
    /// `reply-to`: where the client wants replies.
    pub reply_to: Option<ShortString>,
    /// `expiration`, as sent.
    pub expiration: Option<ShortString>,
    /// `user-id`, which has to be the user of the connection.
    pub user_id: Option<ShortString>,
}

impl Properties {
    /// Reads the properties of a content header, from its flags on. The headers' fields are
    /// checked for shape.
    ///
    /// # Errors
    /// What [`PropertiesError`] names.
    pub fn parse(raw: Bytes) -> Result<Self, PropertiesError> {
        let mut found = Self { raw: raw.clone(), headers_canonical: true, ..Self::default() };
        let mut rest = raw;
        let flags = rest.try_get_u16().map_err(|_| PropertiesError::Truncated)?;
        for property in ORDER {
            if flags & (1 << property as u16) != 0 {
                found.take(property, &mut rest)?;
            }
        }
        if rest.has_remaining() { Err(PropertiesError::LeftOver) } else { Ok(found) }
    }

    fn take(&mut self, property: Property, rest: &mut Bytes) -> Result<(), PropertiesError> {
        match property {
            Property::Headers => {
                let length = rest.try_get_u32().map_err(|_| PropertiesError::Truncated)?;
                let content = take(rest, usize::try_from(length).unwrap_or(usize::MAX))?;
                let table = FieldTable::decode_content(content.clone())?;
                // An `L` that is part of a text does no harm: the headers are written once more.
                self.headers_canonical =
                    table.0.is_sorted_by(|(a, _), (b, _)| a < b) && !content.contains(&b'L');
                self.header_values = table.size().values;
                self.headers = Some(content);
            }
            Property::DeliveryMode => self.delivery_mode = Some(byte(rest)?),
            Property::Priority => self.priority = Some(byte(rest)?),
            Property::Timestamp => drop(take(rest, 8)?),
            Property::ReplyTo => self.reply_to = Some(short(rest)?),
            Property::Expiration => self.expiration = Some(short(rest)?),
            Property::UserId => self.user_id = Some(short(rest)?),
            Property::ContentType
            | Property::ContentEncoding
            | Property::CorrelationId
            | Property::MessageId
            | Property::Type
            | Property::AppId
            | Property::ClusterId => drop(short(rest)?),
        }
        Ok(())
    }

    /// The headers, decoded; `None` if the message has none.
    ///
    /// # Errors
    /// As [`Properties::parse`], which has seen them before.
    pub fn decode_headers(&self) -> Result<Option<FieldTable>, PropertiesError> {
        self.headers.clone().map(FieldTable::decode_content).transpose().map_err(Into::into)
    }

    /// The bytes of a property as they are on the wire, for what is looked at too rarely to be
    /// a field here; `None` if the message does not have it.
    #[must_use]
    pub fn bytes_of(&self, wanted: Property) -> Option<Bytes> {
        let mut rest = self.raw.clone();
        let flags = rest.try_get_u16().ok()?;
        let present = |property: &Property| flags & (1 << *property as u16) != 0;
        if !present(&wanted) {
            return None;
        }
        for property in ORDER.into_iter().filter(|property| *property > wanted).filter(present) {
            Self::default().take(property, &mut rest).ok()?;
        }
        let behind = rest.clone();
        Self::default().take(wanted, &mut rest).ok()?;
        Some(behind.slice(..behind.len() - rest.len()))
    }

    /// The raw bytes with other headers (`None`: without), everything else as it was.
    ///
    /// # Errors
    /// As [`Properties::parse`].
    pub fn with_headers(&self, headers: Option<&FieldTable>) -> Result<Bytes, PropertiesError> {
        self.replaced(
            Property::Headers,
            headers.map(|table| |out: &mut BytesMut| table.encode(out)),
        )
    }

    /// The raw bytes with another `expiration` (`None`: without).
    ///
    /// # Errors
    /// As [`Properties::parse`].
    pub fn with_expiration(&self, text: Option<&ShortString>) -> Result<Bytes, PropertiesError> {
        self.with_text(Property::Expiration, text)
    }

    /// The raw bytes with another `reply-to`.
    ///
    /// # Errors
    /// As [`Properties::parse`].
    pub fn with_reply_to(&self, name: &ShortString) -> Result<Bytes, PropertiesError> {
        self.with_text(Property::ReplyTo, Some(name))
    }

    fn with_text(
        &self,
        which: Property,
        text: Option<&ShortString>,
    ) -> Result<Bytes, PropertiesError> {
        self.replaced(
            which,
            text.map(|text| {
                |out: &mut BytesMut| {
                    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
                    out.put_slice(text.as_bytes());
                }
            }),
        )
    }

    fn replaced(
        &self,
        which: Property,
        write: Option<impl FnOnce(&mut BytesMut)>,
    ) -> Result<Bytes, PropertiesError> {
        let mut rest = self.raw.clone();
        let flags = rest.try_get_u16().map_err(|_| PropertiesError::Truncated)?;
        let bit = 1u16 << which as u16;
        let mut out = BytesMut::with_capacity(self.raw.len() + 64);
        out.put_u16(if write.is_some() { flags | bit } else { flags & !bit });
        for property in ORDER.into_iter().filter(|&property| property > which) {
            copy(flags, property, &mut rest, &mut out)?;
        }
        copy(flags, which, &mut rest, &mut BytesMut::new())?;
        if let Some(write) = write {
            write(&mut out);
        }
        out.put_slice(&rest);
        Ok(out.freeze())
    }
}

fn copy(
    flags: u16,
    property: Property,
    rest: &mut Bytes,
    out: &mut BytesMut,
) -> Result<(), PropertiesError> {
    if flags & (1 << property as u16) == 0 {
        return Ok(());
    }
    let before = rest.clone();
    Properties::default().take(property, rest)?;
    out.put_slice(before.get(..before.len() - rest.len()).unwrap_or_default());
    Ok(())
}

fn take(rest: &mut Bytes, length: usize) -> Result<Bytes, PropertiesError> {
    if rest.remaining() < length {
        return Err(PropertiesError::Truncated);
    }
    Ok(rest.split_to(length))
}

fn byte(rest: &mut Bytes) -> Result<u8, PropertiesError> {
    rest.try_get_u8().map_err(|_| PropertiesError::Truncated)
}

fn short(rest: &mut Bytes) -> Result<ShortString, PropertiesError> {
    let length = usize::from(byte(rest)?);
    ShortString::from_bytes(take(rest, length)?).map_err(|_| PropertiesError::Text)
}
