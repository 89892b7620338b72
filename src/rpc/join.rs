//! Reassembles frames to messages.

use crate::{
    frame::Head,
    lane::MESSAGE_BYTES_MAX,
    wire::{Frame, Part, frame::Body},
};
use bytes::{Bytes, BytesMut};

/// A message as received.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) head: Head,
    pub(crate) payload: Bytes,
}

/// An invalid frame of a peer. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame has no body")]
    Empty,
    #[error("a message has {0} bytes, at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge(usize),
    #[error("a message part belongs to no message")]
    StrayPart,
    #[error("a message begins before the previous one is complete")]
    Interrupted,
    #[error("a message has more bytes than announced")]
    TooLong,
    #[error("a frame has a type that is not allowed in this direction")]
    WrongKind,
}

/// Joins the frames of one stream, which arrive in order.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    head: Head,
    total: usize,
    /// Grows as parts arrive; the announced size is not reserved, so that an announcement alone
    /// takes no memory.
    joined: BytesMut,
}

impl Joiner {
    /// Adds the next frame; returns the message that it completes.
    pub(crate) fn push(&mut self, frame: Frame) -> Result<Option<Incoming>, FrameError> {
        let (head, total, payload) = match frame.body.ok_or(FrameError::Empty)? {
            Body::Part(part) => return self.part(&part),
            Body::Hello(hello) => (Head::Hello(hello), 0, Bytes::new()),
            Body::Request(r) => {
                let head = Head::Request { id: r.id, service: r.service, group: r.group };
                (head, r.total as usize, r.payload)
            }
            Body::Response(r) => {
                (Head::Response { id: r.id, refused: r.refused }, r.total as usize, r.payload)
            }
            Body::Notice(n) => {
                let head = Head::Notice { service: n.service, group: n.group };
                (head, n.total as usize, n.payload)
            }
        };
        if self.open.is_some() {
            return Err(FrameError::Interrupted);
        }
        self.begin(head, total, payload)
    }

    fn begin(
        &mut self,
        head: Head,
        total: usize,
        payload: Bytes,
    ) -> Result<Option<Incoming>, FrameError> {
        if total > MESSAGE_BYTES_MAX {
            return Err(FrameError::TooLarge(total));
        }
        if payload.len() > total {
            return Err(FrameError::TooLong);
        }
        if payload.len() == total {
            return Ok(Some(Incoming { head, payload }));
        }
        self.open = Some(Open { head, total, joined: BytesMut::from(payload.as_ref()) });
        Ok(None)
    }

    fn part(&mut self, part: &Part) -> Result<Option<Incoming>, FrameError> {
        let Some(mut open) = self.open.take() else { return Err(FrameError::StrayPart) };
        open.joined.extend_from_slice(&part.payload);
        if open.joined.len() > open.total {
            return Err(FrameError::TooLong);
        }
        if open.joined.len() == open.total {
            return Ok(Some(Incoming { head: open.head, payload: open.joined.freeze() }));
        }
        self.open = Some(open);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Notice, Request};

    fn frame(body: Body) -> Frame {
        Frame { body: Some(body) }
    }

    fn notice(total: u32, payload: &'static [u8]) -> Frame {
        let payload = Bytes::from_static(payload);
        frame(Body::Notice(Notice { service: 1, group: 1, total, payload }))
    }

    #[test]
    fn what_is_not_a_message_ends_the_connection() {
        let part = || frame(Body::Part(Part { payload: Bytes::from_static(b"cd") }));
        assert_eq!(Joiner::default().push(part()).err(), Some(FrameError::StrayPart));
        assert_eq!(Joiner::default().push(Frame { body: None }).err(), Some(FrameError::Empty));
        assert_eq!(Joiner::default().push(notice(1, b"ab")).err(), Some(FrameError::TooLong));
        let large = u32::MAX;
        assert_eq!(
            Joiner::default().push(notice(large, b"ab")).err(),
            Some(FrameError::TooLarge(large as usize))
        );
        let mut joiner = Joiner::default();
        assert!(matches!(joiner.push(notice(4, b"ab")), Ok(None)));
        let request = Request { id: 1, service: 1, group: 1, total: 0, payload: Bytes::new() };
        assert_eq!(joiner.push(frame(Body::Request(request))).err(), Some(FrameError::Interrupted));
        let mut joiner = Joiner::default();
        assert!(matches!(joiner.push(notice(3, b"ab")), Ok(None)));
        assert_eq!(joiner.push(part()).err(), Some(FrameError::TooLong));
    }
}
