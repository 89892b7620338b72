//! The methods of every message, coded by hand: without allocation; names and bodies are slices of
//! the read buffer.

use crate::codec::{
    frame::{END, Kind, OVERHEAD_BYTES, put_header},
    method::{BASIC, IDS_BYTES, MethodId},
    reader::{FieldError, Reader, put_short_string},
};
use bytes::{BufMut, BytesMut};
use quorate_types::ShortString;

/// Arguments of `basic.publish`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// Exchange; empty is the default exchange.
    pub exchange: ShortString,
    /// Routing key, at most 255 bytes.
    pub routing_key: ShortString,
    /// Return it if no queue takes it.
    pub mandatory: bool,
    /// Not implemented by any RabbitMQ since 3.0 (PUB-01).
    pub immediate: bool,
}

/// Arguments of `basic.return`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Return {
    /// Reply code, such as 312 NO_ROUTE.
    pub code: u16,
    /// Reply text for people.
    pub text: ShortString,
    /// Exchange, as published.
    pub exchange: ShortString,
    /// Routing key, as published.
    pub routing_key: ShortString,
}

/// Arguments of `basic.deliver`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliver {
    /// Consumer tag, as the client knows the consumer.
    pub consumer_tag: ShortString,
    /// Delivery tag (ACK-01).
    pub delivery_tag: u64,
    /// `redelivered`: the message may have been delivered before.
    pub redelivered: bool,
    /// Exchange, as published.
    pub exchange: ShortString,
    /// Routing key, as published.
    pub routing_key: ShortString,
}

/// Arguments of `basic.get-ok`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GetOk {
    /// Delivery tag (ACK-01).
    pub delivery_tag: u64,
    /// `redelivered`: the message may have been delivered before.
    pub redelivered: bool,
    /// Exchange, as published.
    pub exchange: ShortString,
    /// Routing key, as published.
    pub routing_key: ShortString,
    /// Ready messages left.
    pub message_count: u32,
}

/// `basic.ack`: a client acknowledges deliveries, a server publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ack {
    /// Delivery tag, or number of the publish.
    pub delivery_tag: u64,
    /// All numbers up to this one too.
    pub multiple: bool,
}

/// `basic.nack`: a client rejects deliveries, a server publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nack {
    /// Delivery tag, or number of the publish.
    pub delivery_tag: u64,
    /// All numbers up to this one too.
    pub multiple: bool,
    /// Whether the message is requeued.
    pub requeue: bool,
}

/// Arguments of `basic.reject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reject {
    /// Delivery tag, counted within the channel.
    pub delivery_tag: u64,
    /// Whether the message is requeued.
    pub requeue: bool,
}

fn open(out: &mut BytesMut, channel: u16, id: MethodId, fields_bytes: usize) {
    let payload_bytes = IDS_BYTES + fields_bytes;
    out.reserve(OVERHEAD_BYTES + payload_bytes);
    put_header(out, Kind::Method, channel, payload_bytes);
    out.put_u16(id.class);
    out.put_u16(id.method);
}

impl Publish {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 40 };

    /// Copies the names, so that they do not keep the read buffer in memory.
    pub(crate) fn detach(&mut self) {
        self.exchange = self.exchange.detached();
        self.routing_key = self.routing_key.detached();
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        // Tickets are ignored everywhere (CHN-09).
        reader.u16()?;
        Ok(Self {
            exchange: reader.short_string()?,
            routing_key: reader.short_string()?,
            mandatory: reader.bit()?,
            immediate: reader.bit()?,
        })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        open(out, channel, Self::ID, 5 + self.exchange.len() + self.routing_key.len());
        out.put_u16(0);
        put_short_string(out, &self.exchange);
        put_short_string(out, &self.routing_key);
        out.put_u8(u8::from(self.mandatory) | u8::from(self.immediate) << 1);
        out.put_u8(END);
    }
}

impl Return {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 50 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            code: reader.u16()?,
            text: reader.short_string()?,
            exchange: reader.short_string()?,
            routing_key: reader.short_string()?,
        })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        let names = self.text.len() + self.exchange.len() + self.routing_key.len();
        open(out, channel, Self::ID, 5 + names);
        out.put_u16(self.code);
        put_short_string(out, &self.text);
        put_short_string(out, &self.exchange);
        put_short_string(out, &self.routing_key);
        out.put_u8(END);
    }
}

impl Deliver {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 60 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            consumer_tag: reader.short_string()?,
            delivery_tag: reader.u64()?,
            redelivered: reader.bit()?,
            exchange: reader.short_string()?,
            routing_key: reader.short_string()?,
        })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        let names = self.consumer_tag.len() + self.exchange.len() + self.routing_key.len();
        open(out, channel, Self::ID, 12 + names);
        put_short_string(out, &self.consumer_tag);
        out.put_u64(self.delivery_tag);
        out.put_u8(u8::from(self.redelivered));
        put_short_string(out, &self.exchange);
        put_short_string(out, &self.routing_key);
        out.put_u8(END);
    }
}

impl GetOk {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 71 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            delivery_tag: reader.u64()?,
            redelivered: reader.bit()?,
            exchange: reader.short_string()?,
            routing_key: reader.short_string()?,
            message_count: reader.u32()?,
        })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        open(out, channel, Self::ID, 15 + self.exchange.len() + self.routing_key.len());
        out.put_u64(self.delivery_tag);
        out.put_u8(u8::from(self.redelivered));
        put_short_string(out, &self.exchange);
        put_short_string(out, &self.routing_key);
        out.put_u32(self.message_count);
        out.put_u8(END);
    }
}

impl Ack {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 80 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self { delivery_tag: reader.u64()?, multiple: reader.bit()? })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        open(out, channel, Self::ID, 9);
        out.put_u64(self.delivery_tag);
        out.put_u8(u8::from(self.multiple));
        out.put_u8(END);
    }
}

impl Nack {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 120 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self { delivery_tag: reader.u64()?, multiple: reader.bit()?, requeue: reader.bit()? })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        open(out, channel, Self::ID, 9);
        out.put_u64(self.delivery_tag);
        out.put_u8(u8::from(self.multiple) | u8::from(self.requeue) << 1);
        out.put_u8(END);
    }
}

impl Reject {
    /// Class and method.
    pub const ID: MethodId = MethodId { class: BASIC, method: 90 };

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, FieldError> {
        Ok(Self { delivery_tag: reader.u64()?, requeue: reader.bit()? })
    }

    /// Appends the frame.
    pub fn put(&self, out: &mut BytesMut, channel: u16) {
        open(out, channel, Self::ID, 9);
        out.put_u64(self.delivery_tag);
        out.put_u8(u8::from(self.requeue));
        out.put_u8(END);
    }
}
