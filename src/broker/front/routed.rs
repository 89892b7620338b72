//! A publish that is routed: where it goes, and what goes there.

use crate::{leader::way::Way, peers::message::ReplyTo};
use bytes::Bytes;
use quorate_types::QueueId;

/// A publish with its targets, sent at once or kept until its transaction's commit (TX-03). By
/// default, one that goes nowhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedPublish {
    pub(crate) targets: Vec<QueueId>,
    /// As many: how the message goes into each.
    pub(crate) ways: Vec<Way>,
    /// Channels that wait for replies (DRT-04).
    pub(crate) replies: Vec<ReplyTo>,
    /// Encoded.
    pub(crate) message: Bytes,
    pub(crate) mandatory: bool,
}

impl RoutedPublish {
    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let targets = self.targets.len() * (size_of::<QueueId>() + size_of::<Way>());
        self.message.len() + targets + self.replies.len() * size_of::<ReplyTo>()
    }
}
