//! Connection-bound queues of this node (NAM 8). The steps are in `exclusive` and `delete`.

use super::queues::Queues;
use crate::base::Base;
use std::sync::Arc;

/// The connection-bound queues of one node, by name.
#[derive(Debug)]
pub(crate) struct ExclusiveQueues {
    pub(crate) base: Base,
    pub(crate) queues: Arc<Queues>,
    /// Another node got the answer that a connection-bound queue of this node is gone.
    pub(crate) gone: tokio::sync::Notify,
}

impl ExclusiveQueues {
    /// There is none yet.
    pub(crate) fn new(base: &Base, queues: &Arc<Queues>) -> Self {
        Self { base: base.clone(), queues: Arc::clone(queues), gone: tokio::sync::Notify::new() }
    }
}
