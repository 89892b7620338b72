//! Messages on their way out, cut into frames.

use crate::{
    lane::FRAME_BYTES_MAX,
    payload::Payload,
    wire::{Frame, Hello, Notice, Part, Request, Response, frame::Body},
};
use bytes::Bytes;

/// What a message is.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// The first message of a stream.
    Hello(Hello),
    /// Asks for an answer.
    Request {
        /// Names the answer.
        id: u64,
        /// Number of the service that is asked.
        service: u32,
        /// Raft group that is asked.
        group: u32,
    },
    /// The answer to a request.
    Response {
        /// Id of the request.
        id: u64,
        /// The payload says why there is none.
        refused: bool,
    },
    /// A notice, which has no answer.
    Notice {
        /// Number of the service that the notice is for.
        service: u32,
        /// Raft group that the notice is for.
        group: u32,
    },
}

/// What a queued message counts beside its payload, bytes: its head, roughly.
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

    /// Bytes that it still takes up in the queue.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + if self.head.is_some() { HEAD_BYTES } else { 0 }
    }

    /// Whether its last frame has been taken.
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
    // The sender refuses messages of more than `MESSAGE_BYTES_MAX`, which fits.
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
