//! Outgoing messages, divided into frames.

use crate::{
    lane::FRAME_BYTES_MAX,
    payload::Payload,
    wire::{Frame, Hello, Notice, Part, Request, Response, frame::Body},
};
use bytes::Bytes;

/// The kind of a message.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// The first message of a stream.
    Hello(Hello),
    /// A request, which is answered.
    Request {
        /// Identifies the answer.
        id: u64,
        /// Number of the service.
        service: u32,
        /// Raft group of the request.
        group: u32,
    },
    /// The answer to a request.
    Response {
        /// Id of the request.
        id: u64,
        /// True if the payload is the reason of a refusal.
        refused: bool,
    },
    /// A notice, which has no answer.
    Notice {
        /// Number of the service.
        service: u32,
        /// Raft group of the notice.
        group: u32,
    },
}

/// Bytes that a queued message counts in addition to its payload: roughly those of its head.
const HEAD_BYTES: usize = 32;

/// One message in a lane's queue.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Option<Head>,
    total: usize,
    payload: Payload,
}

impl Outgoing {
    pub(crate) fn new(head: Head, payload: Payload) -> Self {
        Self { head: Some(head), total: payload.len(), payload }
    }

    /// Bytes that the message still has in the queue.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + if self.head.is_some() { HEAD_BYTES } else { 0 }
    }

    /// True if its last frame was taken.
    pub(crate) fn is_sent(&self) -> bool {
        self.head.is_none() && self.payload.is_empty()
    }

    /// Its next frame.
    pub(crate) fn next_frame(&mut self) -> Frame {
        let payload = self.payload.take(FRAME_BYTES_MAX);
        let body = match self.head.take() {
            Some(head) => first_frame(head, self.total, payload),
            None => Body::Part(Part { payload }),
        };
        Frame { body: Some(body) }
    }
}

fn first_frame(head: Head, total: usize, payload: Bytes) -> Body {
    // The sender refuses messages above `MESSAGE_BYTES_MAX`, so the length fits.
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    match head {
        Head::Hello(hello) => Body::Hello(hello),
        Head::Request { id, service, group } => {
            Body::Request(Request { id, service, group, total, payload })
        }
        Head::Response { id, refused } => Body::Response(Response { id, refused, total, payload }),
        Head::Notice { service, group } => Body::Notice(Notice { service, group, total, payload }),
    }
}
