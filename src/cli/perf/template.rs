//! The frames of a publish, made once: a publish then costs one copy and a few changed bytes.

use super::client::put;
use super::message::HEAD_BYTES;
use amq_protocol::frame::{AMQPContentHeader, AMQPFrame};
use amq_protocol::protocol::{AMQPClass, BasicProperties, basic};
use amq_protocol::types::ShortString;
use quorate_amqp::codec::{content, frame};

/// All frames of a publish to one queue.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    frames: Vec<u8>,
    /// Where the body begins, and how many bytes of the head it has room for.
    body_at: usize,
    head_bytes: usize,
}

/// The properties that all messages of a run share.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) body_bytes: usize,
    pub(crate) persistent: bool,
    pub(crate) mandatory: bool,
}

impl Template {
    /// The frames of a publish through the default exchange to `queue`.
    pub(crate) fn new(queue: &ShortString, channel: u16, shape: &Shape, frame_max: u32) -> Self {
        let publish = basic::Publish {
            routing_key: queue.clone(),
            mandatory: shape.mandatory,
            ..basic::Publish::default()
        };
        let delivery_mode = if shape.persistent { 2 } else { 1 };
        let header = AMQPContentHeader {
            class_id: publish.get_amqp_class_id(),
            body_size: shape.body_bytes as u64,
            properties: BasicProperties::default().with_delivery_mode(delivery_mode),
        };
        let publish = AMQPClass::Basic(basic::AMQPMethod::Publish(publish));
        let mut frames = Vec::new();
        put(&mut frames, &AMQPFrame::Method(channel, publish));
        put(&mut frames, &AMQPFrame::Header(channel, header));
        let body_at = frames.len() + frame::HEADER_BYTES;
        let body = vec![b'x'; shape.body_bytes];
        for piece in body.chunks(content::piece_bytes_max(frame_max)) {
            put(&mut frames, &AMQPFrame::Body(channel, piece.to_vec()));
        }
        Self { frames, body_at, head_bytes: HEAD_BYTES.min(shape.body_bytes) }
    }

    /// Appends a publish whose body begins with `head`.
    pub(crate) fn append(&self, out: &mut Vec<u8>, head: &[u8; HEAD_BYTES]) {
        let at = out.len() + self.body_at;
        out.extend_from_slice(&self.frames);
        let slot = out.get_mut(at..at + self.head_bytes);
        if let Some((slot, head)) = slot.zip(head.get(..self.head_bytes)) {
            slot.copy_from_slice(head);
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use crate::cli::perf::message::Head;
    use bytes::BytesMut;
    use quorate_amqp::codec::method::Method;

    /// The body and the routing key, as a server decodes them.
    fn read(bytes: &[u8], frame_max: u32) -> (String, Vec<u8>) {
        let mut input = BytesMut::from(bytes);
        let method = frame::take(&mut input, frame_max).unwrap().unwrap();
        let Method::Publish(publish) = Method::decode(method.payload).unwrap() else {
            panic!("no publish");
        };
        let header = frame::take(&mut input, frame_max).unwrap().unwrap();
        let header = content::ContentHeader::decode(header.payload).unwrap();
        assert_eq!(header.properties.as_ref(), [0x10, 0, 2]);
        let mut body = Vec::new();
        while let Some(piece) = frame::take(&mut input, frame_max).unwrap() {
            body.extend_from_slice(&piece.payload);
        }
        assert_eq!(body.len() as u64, header.body_bytes);
        assert!(input.is_empty());
        (publish.routing_key.to_string(), body)
    }

    #[test]
    fn a_server_reads_what_the_template_wrote() {
        let queue = ShortString::from("perf-1");
        let head = Head { sent_ns: 1, run: 2, publisher: 3, number: 4 };
        for body_bytes in [0, 3, 8, 19, 20, 1024, 9000, 20_000] {
            let shape = Shape { body_bytes, persistent: true, mandatory: false };
            let template = Template::new(&queue, 1, &shape, 8192);
            let mut out = vec![7];
            template.append(&mut out, &head.bytes());
            assert_eq!(out.len(), 1 + template.frames.len());
            let (key, body) = read(out.get(1..).unwrap(), 8192);
            assert_eq!((key.as_str(), body.len()), ("perf-1", body_bytes));
            if body_bytes >= HEAD_BYTES {
                assert_eq!(Head::read(&body), Some(head));
            }
        }
    }
}
