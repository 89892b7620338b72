//! Calls in progress over one connection, and their outcomes.

use bytes::Bytes;
use parking_lot::Mutex;
use quorate_types::NodeId;
use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::oneshot;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The node is not linked; nothing was sent.
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    /// The message is larger than the maximum; nothing was sent.
    #[error("a message of {0} bytes is too large")]
    TooLarge(usize),
    /// The deadline passed. The call may have been carried out.
    #[error("node {0} did not answer in time")]
    Timeout(NodeId),
    /// The connection ended. The call may have been carried out.
    #[error("the connection to node {0} ended before the answer")]
    Lost(NodeId),
    /// The node refused the call; the bytes contain the reason, encoded by the service.
    #[error("node {node} refused the call")]
    Refused {
        /// Node that refused.
        node: NodeId,
        /// The reason.
        reason: Bytes,
    },
}

/// Why a notice was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// The node is not linked.
    #[error("node {0} is not connected")]
    NotConnected(NodeId),
    /// The lane is full.
    #[error("the send queue to node {0} is full")]
    Full(NodeId),
    /// The message is larger than the maximum.
    #[error("a message of {0} bytes is too large")]
    TooLarge(usize),
}

type Answer = Result<Bytes, CallError>;

/// Calls of one connection that wait for their answers.
#[derive(Debug)]
pub(crate) struct Calls {
    node: NodeId,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    closed: bool,
    /// Used for look-ups by id only.
    answers: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Calls {
    pub(crate) fn new(node: NodeId) -> Arc<Self> {
        Arc::new(Self { node, state: Mutex::default() })
    }

    /// Registers a call; its id goes with the request.
    pub(crate) fn begin(self: &Arc<Self>) -> (u64, PendingCall) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        if !state.closed {
            state.answers.insert(id, sender);
        }
        (id, PendingCall { id, receiver, calls: Arc::clone(self) })
    }

    /// Passes an answer to the caller that waits for it; if none waits any more, it is dropped.
    pub(crate) fn answer(&self, id: u64, refused: bool, payload: Bytes) {
        let sender = self.state.lock().answers.remove(&id);
        if let Some(sender) = sender {
            let reason = payload;
            let answer = if refused {
                Err(CallError::Refused { node: self.node, reason })
            } else {
                Ok(reason)
            };
            // The caller may have given up just now.
            let _ = sender.send(answer);
        }
    }

    /// The connection has ended: no more answers will arrive.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.answers.clear();
    }
}

/// A call whose request is queued: a future of its answer. A drop cancels the wait.
#[derive(Debug)]
pub struct PendingCall {
    id: u64,
    receiver: oneshot::Receiver<Answer>,
    calls: Arc<Calls>,
}

impl Future for PendingCall {
    type Output = Result<Bytes, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.receiver).poll(context) {
            Poll::Ready(Ok(answer)) => Poll::Ready(answer),
            Poll::Ready(Err(_)) => Poll::Ready(Err(CallError::Lost(self.calls.node))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        self.calls.state.lock().answers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_find_their_calls_and_the_end_of_the_connection_answers_the_rest() {
        let calls = Calls::new(NodeId(2));
        let (first_id, first) = calls.begin();
        let (second_id, second) = calls.begin();
        let (_, third) = calls.begin();
        calls.answer(second_id, false, Bytes::from_static(b"2"));
        calls.answer(first_id, true, Bytes::from_static(b"no"));
        calls.answer(99, false, Bytes::new());
        assert_eq!(second.await, Ok(Bytes::from_static(b"2")));
        let reason = Bytes::from_static(b"no");
        assert_eq!(first.await, Err(CallError::Refused { node: NodeId(2), reason }));
        calls.close();
        assert_eq!(third.await, Err(CallError::Lost(NodeId(2))));
        let (_, late) = calls.begin();
        assert_eq!(late.await, Err(CallError::Lost(NodeId(2))));
    }

    #[tokio::test]
    async fn a_call_given_up_leaves_nothing_behind() {
        let calls = Calls::new(NodeId(2));
        drop(calls.begin());
        assert!(calls.state.lock().answers.is_empty());
    }
}
