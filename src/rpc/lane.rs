//! One lane: a queue of messages, bounded in bytes, from which the stream takes frames.

use crate::{frame::Outgoing, wire::Frame};
use futures::Stream;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use tokio::sync::Notify;

/// Maximum of payload bytes in one frame, so that large messages let others through (DESIGN §6).
pub const FRAME_BYTES_MAX: usize = 256 * 1024;

/// Maximum of bytes of one message. The sender refuses a larger one; a peer that announces a larger
/// one loses its connection.
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One of the two streams between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Votes, heartbeats, answers, delivery references.
    Control,
    /// Log entries, bodies, snapshot chunks.
    Bulk,
}

impl Lane {
    /// While this number of bytes waits in this lane to one peer, a notice is refused and a call
    /// waits; `bulk` is the number for the bulk lane. The message that fills a lane may be of any
    /// size, so that a large one needs no more room than the small ones that would otherwise always
    /// precede it.
    #[must_use]
    pub(crate) fn bytes_max(self, bulk: usize) -> usize {
        match self {
            Lane::Control => bulk / 4,
            Lane::Bulk => bulk,
        }
    }
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// The connection has ended.
    Closed,
    /// The lane is full.
    Full,
}

/// Messages that wait to be sent on one stream.
#[derive(Debug)]
pub(crate) struct LaneQueue {
    state: Mutex<State>,
    room: Notify,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Outgoing>,
    bytes: usize,
    closed: bool,
    stream: Option<Waker>,
}

impl LaneQueue {
    /// A lane in which this number of bytes may wait.
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), room: Notify::new(), bytes_max })
    }

    /// Queues the message if there is room.
    pub(crate) fn try_push(&self, message: Outgoing) -> Result<(), PushError> {
        let mut state = self.state.lock();
        self.admit(&state)?;
        Self::enqueue(&mut state, message);
        Ok(())
    }

    /// Queues the message, after waiting for room. The order is that of the calls only among
    /// callers that wait one after the other.
    pub(crate) async fn push(&self, message: Outgoing) -> Result<(), PushError> {
        loop {
            let room = self.room.notified();
            {
                let mut state = self.state.lock();
                match self.admit(&state) {
                    Ok(()) => {
                        Self::enqueue(&mut state, message);
                        return Ok(());
                    }
                    Err(PushError::Closed) => return Err(PushError::Closed),
                    Err(PushError::Full) => {}
                }
            }
            room.await;
        }
    }

    fn admit(&self, state: &State) -> Result<(), PushError> {
        if state.closed {
            return Err(PushError::Closed);
        }
        if state.bytes >= self.bytes_max {
            return Err(PushError::Full);
        }
        Ok(())
    }

    /// Queues the message even beyond the bound. This is for answers, whose number the reader
    /// bounds: it does not read while there is no room ([`LaneQueue::wait_for_room`]).
    pub(crate) fn push_beyond(&self, message: Outgoing) {
        let mut state = self.state.lock();
        if !state.closed {
            Self::enqueue(&mut state, message);
        }
    }

    fn enqueue(state: &mut State, message: Outgoing) {
        state.bytes += message.bytes();
        state.messages.push_back(message);
        if let Some(stream) = state.stream.take() {
            stream.wake();
        }
    }

    /// Waits until fewer bytes than the bound are queued, or the queue is closed.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            {
                let state = self.state.lock();
                if state.closed || state.bytes < self.bytes_max {
                    return;
                }
            }
            room.await;
        }
    }

    /// Ends the stream; queued messages are dropped.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.messages.clear();
        state.bytes = 0;
        if let Some(stream) = state.stream.take() {
            stream.wake();
        }
        drop(state);
        self.room.notify_waiters();
    }

    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        let mut state = self.state.lock();
        if state.closed {
            return Poll::Ready(None);
        }
        let before = state.bytes;
        let Some(message) = state.messages.front_mut() else {
            state.stream = Some(context.waker().clone());
            return Poll::Pending;
        };
        let size = message.bytes();
        let frame = message.next_frame();
        let left = message.bytes();
        if message.is_sent() {
            state.messages.pop_front();
        }
        state.bytes = before.saturating_sub(size - left);
        drop(state);
        self.room.notify_waiters();
        Poll::Ready(Some(frame))
    }
}

/// The frames of a lane as the stream that gRPC sends. Dropping it closes the lane.
#[derive(Debug)]
pub(crate) struct LaneFrames(pub(crate) Arc<LaneQueue>);

impl Stream for LaneFrames {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_frame(context)
    }
}

impl Drop for LaneFrames {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{frame::Head, join::Joiner};
    use bytes::Bytes;
    use futures::StreamExt;

    const BYTES_MAX: usize = 16 << 20;

    fn notice(bytes: usize) -> Outgoing {
        let content: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        Outgoing::new(Head::Notice { service: 1, group: 2 }, Bytes::from(content).into())
    }

    #[tokio::test]
    async fn a_large_message_is_cut_into_frames_and_joined_again() {
        let queue = LaneQueue::new(BYTES_MAX);
        let mut frames = LaneFrames(Arc::clone(&queue));
        let mut joiner = Joiner::default();
        for bytes in [0, 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 3 * FRAME_BYTES_MAX + 17] {
            queue.try_push(notice(bytes)).unwrap();
            let mut count = 0;
            let joined = loop {
                let frame = frames.next().await.unwrap();
                count += 1;
                if let Some(message) = joiner.push(frame).unwrap() {
                    break message;
                }
            };
            assert_eq!(count, bytes.div_ceil(FRAME_BYTES_MAX).max(1));
            assert_eq!(joined.payload.len(), bytes);
            assert!(joined.payload.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
        }
    }

    #[tokio::test]
    async fn a_full_lane_refuses_and_takes_again_when_drained() {
        let queue = LaneQueue::new(BYTES_MAX);
        let mut frames = LaneFrames(Arc::clone(&queue));
        let half = BYTES_MAX / 2;
        queue.try_push(notice(half)).unwrap();
        queue.try_push(notice(half)).unwrap();
        let refused = queue.try_push(notice(half));
        assert!(matches!(refused, Err(PushError::Full)));
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.push(notice(half)).await }
        });
        for _ in 0..half.div_ceil(FRAME_BYTES_MAX) {
            assert!(frames.next().await.is_some());
        }
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn the_message_that_fills_a_lane_may_be_of_any_size() {
        let queue = LaneQueue::new(BYTES_MAX);
        assert!(queue.try_push(notice(BYTES_MAX - 200)).is_ok());
        assert!(queue.try_push(notice(BYTES_MAX + 1)).is_ok());
        assert!(queue.try_push(notice(1)).is_err());
    }

    #[tokio::test]
    async fn closing_ends_the_stream_and_those_who_wait() {
        let queue = LaneQueue::new(BYTES_MAX);
        let mut frames = LaneFrames(Arc::clone(&queue));
        queue.try_push(notice(BYTES_MAX)).unwrap();
        let waiting = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.push(notice(1000)).await }
        });
        tokio::task::yield_now().await;
        queue.close();
        assert_eq!(waiting.await.unwrap(), Err(PushError::Closed));
        assert!(frames.next().await.is_none());
    }
}
