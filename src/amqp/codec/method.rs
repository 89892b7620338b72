//! Decoding of AMQP methods: frequent ones as themselves, the others boxed; and the errors of
//! decoding (FRM-11, FRM-12, Q-04).

use crate::codec::{
    cold::Cold,
    erlang,
    frame::{Kind, put_with},
    hot::{Ack, Deliver, GetOk, Nack, Publish, Reject, Return},
    reader::{FieldError, Reader},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{Exception, FieldTableError, ReplyCode};
use std::fmt;

/// Class id of `basic`.
pub const BASIC: u16 = 60;

/// Bytes of class and method id.
pub(crate) const IDS_BYTES: usize = 4;

/// Class and method id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MethodId {
    /// Class id of the method.
    pub class: u16,
    /// Method id within the class.
    pub method: u16,
}

impl MethodId {
    /// The ids in a close if no method caused it (CONN-24).
    pub const NONE: MethodId = MethodId { class: 0, method: 0 };

    /// Reads the ids at the front of a payload, which stays as it is.
    #[must_use]
    pub fn peek(payload: &[u8]) -> Option<Self> {
        let &[c1, c0, m1, m0] = payload.first_chunk::<4>()?;
        Some(Self { class: u16::from_be_bytes([c1, c0]), method: u16::from_be_bytes([m1, m0]) })
    }
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.class, self.method)
    }
}

/// A decoded method.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Method {
    Publish(Publish),
    Return(Return),
    Deliver(Deliver),
    GetOk(GetOk),
    Ack(Ack),
    Nack(Nack),
    Reject(Reject),
    /// Any other method, decoded by `cold`.
    Cold(Box<Cold>),
}

/// Bytes that are not a method.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("method {}: {cause}", id.unwrap_or_default())]
pub struct MethodError {
    /// The ids, if they could be read.
    pub id: Option<MethodId>,
    /// The error.
    pub cause: MethodErrorCause,
    /// Payload of the frame, for the log.
    pub payload: Bytes,
}

/// Why bytes are not a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodErrorCause {
    /// A field cannot be read.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Bytes remain behind the last field.
    #[error("bytes are left over")]
    LeftOver,
    /// AMQP 0-9-1 has no such method.
    #[error("unknown method")]
    Unknown,
}

impl Method {
    /// Decodes a method frame's payload.
    ///
    /// # Errors
    /// As [`MethodErrorCause`].
    pub fn decode(payload: Bytes) -> Result<Self, MethodError> {
        let id = MethodId::peek(&payload);
        match Self::read(id, &payload) {
            Ok(method) => Ok(method),
            Err(cause) => Err(MethodError { id, cause, payload }),
        }
    }

    fn read(id: Option<MethodId>, payload: &Bytes) -> Result<Self, MethodErrorCause> {
        let id = id.ok_or(FieldError::Truncated)?;
        let reader = &mut Reader::new(payload, IDS_BYTES);
        let method = match id {
            Publish::ID => Self::Publish(Publish::read(reader)?),
            Deliver::ID => Self::Deliver(Deliver::read(reader)?),
            Ack::ID => Self::Ack(Ack::read(reader)?),
            Nack::ID => Self::Nack(Nack::read(reader)?),
            Reject::ID => Self::Reject(Reject::read(reader)?),
            GetOk::ID => Self::GetOk(GetOk::read(reader)?),
            Return::ID => Self::Return(Return::read(reader)?),
            MethodId { class, method } => {
                // Names and tables may be stored for long, and must not keep the read buffer in
                // memory.
                let fields = Bytes::copy_from_slice(reader.rest());
                let reader = &mut Reader::new(&fields, 0);
                let cold = Cold::read(class, method, reader)?.ok_or(MethodErrorCause::Unknown)?;
                let cold = Self::Cold(Box::new(cold));
                return if reader.is_at_end() { Ok(cold) } else { Err(MethodErrorCause::LeftOver) };
            }
        };
        if reader.is_at_end() { Ok(method) } else { Err(MethodErrorCause::LeftOver) }
    }

    /// Its class and method id.
    #[must_use]
    pub fn id(&self) -> MethodId {
        match self {
            Self::Publish(_) => Publish::ID,
            Self::Return(_) => Return::ID,
            Self::Deliver(_) => Deliver::ID,
            Self::GetOk(_) => GetOk::ID,
            Self::Ack(_) => Ack::ID,
            Self::Nack(_) => Nack::ID,
            Self::Reject(_) => Reject::ID,
            Self::Cold(cold) => cold.id(),
        }
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        match self {
            Self::Publish(publish) => publish.put(out, channel),
            Self::Return(returned) => returned.put(out, channel),
            Self::Deliver(deliver) => deliver.put(out, channel),
            Self::GetOk(get_ok) => get_ok.put(out, channel),
            Self::Ack(ack) => ack.put(out, channel),
            Self::Nack(nack) => nack.put(out, channel),
            Self::Reject(reject) => reject.put(out, channel),
            Self::Cold(cold) => cold.put(out, channel),
        }
    }
}

impl Cold {
    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        put_with(out, Kind::Method, channel, |out| {
            let id = self.id();
            out.put_u16(id.class);
            out.put_u16(id.method);
            self.write(out);
        });
    }
}

impl MethodError {
    /// The exception that closes the connection, and the ids that the close names: 501 if the frame
    /// cannot be parsed, 502 for an illegal value, 540 for an unknown method.
    #[must_use]
    pub fn exception(&self) -> (Exception, MethodId) {
        let id = self.id.unwrap_or_default();
        let undecodable = || {
            let text = format!("cannot decode {}", erlang::binary(&self.payload));
            (Exception::new(ReplyCode::FrameError, text), id)
        };
        match self.cause {
            MethodErrorCause::Field(FieldError::Truncated) | MethodErrorCause::LeftOver => {
                undecodable()
            }
            MethodErrorCause::Field(FieldError::Text) => {
                let text = "Malformed UTF-8 in shortstr";
                (Exception::new(ReplyCode::FrameError, text), MethodId::NONE)
            }
            MethodErrorCause::Field(FieldError::Table(FieldTableError::Truncated)) => undecodable(),
            MethodErrorCause::Field(FieldError::Table(
                error @ (FieldTableError::UnknownType(_)
                | FieldTableError::TooDeep
                | FieldTableError::Name),
            )) => (Exception::new(ReplyCode::SyntaxError, error.to_string()), id),
            MethodErrorCause::Unknown => {
                (Exception::new(ReplyCode::NotImplemented, format!("unknown method {id}")), id)
            }
        }
    }
}
