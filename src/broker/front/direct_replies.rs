//! Direct replies between nodes (DRT); their steps are in `reply_to`.

use crate::{base::Base, front::clients::Clients};
use std::sync::Arc;

/// Sends direct replies to other nodes, and delivers those that arrive to this node's requesters.
#[derive(Debug)]
pub(crate) struct DirectReplies {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
}

impl DirectReplies {
    /// The connections of this node's clients.
    pub(crate) fn new(base: &Base, clients: &Arc<Clients>) -> Self {
        Self { base: base.clone(), clients: Arc::clone(clients) }
    }
}
