//! A publish that has been routed: its targets and its message.

use crate::{leader::enqueue_options::EnqueueOptions, peers::message::ReplyTo};
use bytes::Bytes;
use quorate_types::QueueId;

/// A publish with its targets, sent at once or kept until its transaction's commit (TX-03). The
/// default has no targets.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedPublish {
    /// The queues that get a copy.
    pub(crate) targets: Vec<QueueId>,
    /// How the message is enqueued in each target: one for each, in the order of `targets`.
    pub(crate) options: Vec<EnqueueOptions>,
    /// Channels that wait for replies (DRT-04).
    pub(crate) replies: Vec<ReplyTo>,
    /// The encoded message, as `quorate_storage::codec::message` writes it.
    pub(crate) message: Bytes,
    /// It is returned to its publisher if it has no target (`mandatory`).
    pub(crate) mandatory: bool,
}

impl RoutedPublish {
    /// Memory that it takes, bytes.
    pub(crate) fn bytes(&self) -> usize {
        let targets = self.targets.len() * (size_of::<QueueId>() + size_of::<EnqueueOptions>());
        self.message.len() + targets + self.replies.len() * size_of::<ReplyTo>()
    }
}
