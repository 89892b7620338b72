//! Direct replies between nodes (DRT); their steps are in `reply_to`.

use crate::{base::Base, front::clients::Clients};
use std::sync::Arc;

/// Sends direct replies, and hands those that arrive to the requesters of this node.
#[derive(Debug)]
pub(crate) struct DirectReplies {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
}

impl DirectReplies {
    /// To the clients of this node.
    pub(crate) fn new(base: &Base, clients: &Arc<Clients>) -> Self {
        Self { base: base.clone(), clients: Arc::clone(clients) }
    }
}
