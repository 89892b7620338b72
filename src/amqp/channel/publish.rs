//! `basic.publish` and its content, until it is passed to the broker (PUB-01 to PUB-05, FRM-06 to
//! FRM-10).

use crate::{
    channel::{
        Out, Pending, Returned, Then,
        confirm::{Confirm, Confirms},
        machine::Channel,
        shape::{self, ShapeError},
    },
    codec::{
        content::{Assembly, ContentHeader},
        erlang,
        frame::{Frame, Kind},
        hot,
        method::{BASIC, MethodId},
    },
    connection::close::Fault,
};
use bytes::Bytes;
use quorate_client::{ChannelId, Operation, Publish};
use quorate_types::{Exception, Message, Properties, ReplyCode, ShortString};

/// Largest body that may be announced (FRM-09).
const ANNOUNCED_BYTES_MAX: u64 = 536_870_912;

/// Largest that `max_message_size` can be set to.
const MESSAGE_BYTES_CEILING: u64 = 128 * 1024 * 1024;

/// Incomplete contents that a connection may hold in all its channels, as a multiple of the largest
/// message. Above this the connection is closed with 506, since nothing else would free the memory.
const INCOMPLETE_MESSAGES_MAX: u64 = 2;

/// A body larger than this is large: there must be room for all of it before any of it is read.
/// Smaller bodies arrive in a frame or two.
const LARGE_BYTES: u64 = 128 * 1024;

/// A method that a content follows.
#[derive(Debug)]
pub(crate) enum Carrier {
    Publish(hot::Publish),
    /// A method that only servers may send: refused after its content (FRM-12).
    Refused(MethodId),
}

/// The kind of frame that is due.
#[derive(Debug, Default)]
pub(crate) enum Due {
    #[default]
    Method,
    Header(Carrier),
    Body {
        carrier: Carrier,
        properties: Bytes,
        body_bytes: u64,
        body: Assembly,
    },
}

/// A complete content.
struct Content {
    carrier: Carrier,
    properties: Bytes,
    body_bytes: u64,
    body: Bytes,
}

impl Channel {
    /// A content header is due (FRM-07, FRM-09).
    pub(crate) fn header(
        &mut self,
        carrier: Carrier,
        frame: &Frame,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        let id = carrier.id();
        let expected = |got: &str| {
            let text = format!("expected content header for class {BASIC}, got {got} instead");
            Fault::new(ReplyCode::UnexpectedFrame, text, id)
        };
        if frame.kind != Kind::Header {
            return Err(expected("non content header frame"));
        }
        let Some(header) = ContentHeader::decode(frame.payload.clone()) else {
            let text = erlang::frame(frame.kind as u8, &frame.payload, "unknown_frame");
            return Err(Fault::new(ReplyCode::FrameError, text, MethodId::NONE));
        };
        let ContentHeader { class, body_bytes, properties } = header;
        if class != BASIC {
            return Err(expected(&format!("one for class {class}")));
        }
        if body_bytes > ANNOUNCED_BYTES_MAX {
            let text = format!(
                "content body size {body_bytes} exceeds maximum allowed size {ANNOUNCED_BYTES_MAX}"
            );
            return Err(Fault::new(ReplyCode::FrameError, text, id));
        }
        // The frames of a body that is too large are counted, and the message is refused at its end
        // (PUB-02, FRM-17).
        let keep =
            body_bytes <= out.env.bounds.max_message_size && matches!(carrier, Carrier::Publish(_));
        let body = Assembly::new(body_bytes, keep);
        if body.is_complete() {
            return self
                .content(Content { carrier, properties, body_bytes, body: Bytes::new() }, out);
        }
        if keep && body_bytes > LARGE_BYTES {
            // The size was checked against the largest message, which fits.
            out.effects.announced_bytes += usize::try_from(body_bytes).unwrap_or(usize::MAX);
            out.effects.large.push((self.id.number, out.effects.now_ms));
        }
        self.await_body(Due::Body { carrier, properties, body_bytes, body }, out)
    }

    /// The next frame continues the content.
    fn await_body(&mut self, due: Due, out: &mut Out<'_>) -> Result<(), Fault> {
        let held = due.held_bytes();
        let largest = out.env.bounds.max_message_size.max(1 << 20) + LARGE_BYTES;
        let bound = INCOMPLETE_MESSAGES_MAX.saturating_mul(largest);
        let all = out.effects.content_bytes.saturating_add(held);
        if u64::try_from(all).unwrap_or(u64::MAX) > bound {
            let text = format!("incomplete contents of all channels are larger than {bound}");
            return Err(Fault::new(ReplyCode::ResourceError, text, hot::Publish::ID));
        }
        out.effects.content_bytes = all;
        self.due = due;
        Ok(())
    }

    /// Releases the memory of an incomplete content.
    pub(crate) fn release_content(&self, due: &Due, out: &mut Out<'_>) {
        out.effects.content_bytes -= due.held_bytes();
        if due.is_large() {
            out.effects.large.retain(|(number, _)| *number != self.id.number);
        }
    }

    /// Between two turns: an incomplete content must not keep the read buffer in memory.
    pub(crate) fn detach_content(&mut self) {
        match &mut self.due {
            Due::Method | Due::Header(Carrier::Refused(_)) => {}
            Due::Header(Carrier::Publish(publish)) => publish.detach(),
            Due::Body { carrier, properties, body, .. } => {
                if let Carrier::Publish(publish) = carrier {
                    publish.detach();
                }
                *properties = Bytes::copy_from_slice(properties);
                body.detach();
            }
        }
    }

    /// A body frame is due (FRM-08, FRM-10).
    pub(crate) fn body(&mut self, due: Due, frame: Frame, out: &mut Out<'_>) -> Result<(), Fault> {
        let large = due.is_large();
        out.effects.content_bytes -= due.held_bytes();
        let Due::Body { carrier, properties, body_bytes, mut body } = due else { return Ok(()) };
        let id = carrier.id();
        if frame.kind != Kind::Body {
            let text = "expected content body, got non content body frame instead";
            return Err(Fault::new(ReplyCode::UnexpectedFrame, text, id));
        }
        body.push(frame.payload)
            .map_err(|excess| Fault::new(ReplyCode::FrameError, excess.to_string(), id))?;
        if body.is_complete() {
            if large {
                out.effects.large.retain(|(number, _)| *number != self.id.number);
            }
            let body = body.finish();
            return self.content(Content { carrier, properties, body_bytes, body }, out);
        }
        self.await_body(Due::Body { carrier, properties, body_bytes, body }, out)
    }

    fn content(&mut self, content: Content, out: &mut Out<'_>) -> Result<(), Fault> {
        let Content { carrier, properties, body_bytes, body } = content;
        let publish = match carrier {
            Carrier::Publish(publish) => publish,
            Carrier::Refused(id) => return Err(unimplemented_method(id)),
        };
        let refuse = |code, text: String| Err(Fault::new(code, text, hot::Publish::ID));
        if publish.immediate {
            return refuse(ReplyCode::NotImplemented, "immediate=true".to_owned());
        }
        let bytes_max = out.env.bounds.max_message_size;
        if body_bytes > bytes_max {
            let configured =
                if bytes_max < MESSAGE_BYTES_CEILING { "configured max" } else { "max" };
            let text =
                format!("message size {body_bytes} is larger than {configured} size {bytes_max}");
            return refuse(ReplyCode::PreconditionFailed, text);
        }
        let reply_name = self.consumers.reply_name();
        let checked = Properties::parse(properties)
            .map_err(ShapeError::Malformed)
            .and_then(|properties| shape::check(properties, reply_name));
        match checked {
            Ok(properties) => {
                self.publish(publish, properties, body, out);
                Ok(())
            }
            Err(ShapeError::Refused(exception)) => {
                self.refuse(publish.exchange, exception, out);
                Ok(())
            }
            // A text without the name of a method (FRM-11).
            Err(ShapeError::Malformed(error)) => {
                tracing::debug!(%error, "cannot decode message properties");
                Err(Fault::new(ReplyCode::InternalError, "", MethodId::NONE))
            }
        }
    }

    fn publish(
        &mut self,
        publish: hot::Publish,
        properties: Properties,
        body: Bytes,
        out: &mut Out<'_>,
    ) {
        let hot::Publish { exchange, routing_key, mandatory, immediate: _ } = publish;
        let channel = self.id;
        let confirm = self.confirms.as_mut().map(Confirms::number);
        let returned = mandatory.then(|| {
            Box::new(Returned {
                exchange: exchange.clone(),
                routing_key: routing_key.clone(),
                properties: properties.clone(),
                body: body.clone(),
            })
        });
        self.traffic.published += 1;
        let publish =
            Publish { channel, confirm, exchange, routing_key, properties, body, mandatory };
        if self.transaction.is_some() {
            self.publish_later(publish, returned, out);
            return;
        }
        self.publishing += 1;
        out.effects.pending.push(Pending { channel, confirm, returned });
        out.effects.publishes.push(publish);
    }

    /// Refuses a publish, unless something is wrong with its exchange, which would come first
    /// (PUB-01).
    fn refuse(&mut self, exchange: ShortString, exception: Exception, out: &mut Out<'_>) {
        let operation = Operation::Publishable(exchange);
        self.ask(hot::Publish::ID, false, Then::Refuse(exception), operation, out);
    }

    /// Returns an unroutable publish (PUB-04).
    pub(crate) fn send_return(&mut self, returned: &Returned, out: &mut Out<'_>) {
        self.traffic.returned += 1;
        let properties = shape::as_returned(&returned.properties);
        put_return(self.id, returned.exchange.clone(), returned.routing_key.clone(), out);
        out.outbox.content(self.id.number, &properties, &returned.body, out.env.frame_max);
    }

    /// Returns a publish that the broker found unroutable later on (NAM 6).
    pub(crate) fn send_late_return(&mut self, message: &Message, out: &mut Out<'_>) {
        self.traffic.returned += 1;
        put_return(self.id, message.exchange.clone(), message.routing_key.clone(), out);
        let properties = match Properties::parse(message.properties.clone()) {
            Ok(properties) => shape::as_returned(&properties),
            // The properties were parsed when the message arrived.
            Err(_) => message.properties.clone(),
        };
        out.outbox.content(self.id.number, &properties, &message.body, out.env.frame_max);
    }

    /// Settles publishes that are to be confirmed. True if none waited to be sent before.
    pub(crate) fn confirm(&mut self, first: u64, last: u64, taken: bool) -> bool {
        let Some(confirms) = &mut self.confirms else { return false };
        if taken {
            self.traffic.confirmed += last + 1 - first;
        }
        confirms.settle(first, last, taken)
    }

    /// Sends the publisher acks and nacks for settled publishes (CNF-02).
    pub(crate) fn send_confirms(&mut self, out: &mut Out<'_>) {
        let number = self.id.number;
        let Some(confirms) = self.confirms.as_mut() else { return };
        let buffer = out.outbox.buffer();
        confirms.emit(|Confirm { number: delivery_tag, multiple, taken }| {
            if taken {
                hot::Ack { delivery_tag, multiple }.put(buffer, number);
            } else {
                hot::Nack { delivery_tag, multiple, requeue: false }.put(buffer, number);
            }
        });
    }
}

impl Carrier {
    fn id(&self) -> MethodId {
        match self {
            Self::Publish(_) => hot::Publish::ID,
            Self::Refused(id) => *id,
        }
    }
}

fn put_return(
    channel: ChannelId,
    exchange: ShortString,
    routing_key: ShortString,
    out: &mut Out<'_>,
) {
    let text = ShortString::from_static(ReplyCode::NoRoute.name());
    hot::Return { code: ReplyCode::NoRoute.number(), text, exchange, routing_key }
        .put(out.outbox.buffer(), channel.number);
}

/// The fault for a method that only servers may send (FRM-12).
pub(crate) fn unimplemented_method(id: MethodId) -> Fault {
    Fault::new(ReplyCode::CommandInvalid, "unimplemented method", id)
}

impl Due {
    /// Bytes held by an incomplete content; a large one counts with its full size.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Method | Self::Header(_) => 0,
            Self::Body { properties, body_bytes, .. } if self.is_large() => {
                properties.len().saturating_add(usize::try_from(*body_bytes).unwrap_or(usize::MAX))
            }
            Self::Body { properties, body, .. } => properties.len() + body.held_bytes(),
        }
    }

    /// There must be room for the content before any of it is read.
    fn is_large(&self) -> bool {
        match self {
            Self::Method | Self::Header(_) => false,
            Self::Body { body_bytes, body, .. } => body.is_kept() && *body_bytes > LARGE_BYTES,
        }
    }

    /// True while a content is incomplete.
    pub(crate) fn is_content(&self) -> bool {
        !matches!(self, Self::Method)
    }
}
