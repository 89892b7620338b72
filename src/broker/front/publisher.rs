//! The publisher: routes the publishes of this node's clients, and sends the copies to the homes of
//! their queues. Its steps are in `publish`, `spread`, `route_held` and `trace`.

use crate::{
    base::Base,
    cluster::alarms::Alarms,
    front::{clients::Clients, direct_replies::DirectReplies, tracer::Tracer},
    once_per_minute::OncePerMinute,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// The publisher of one node.
#[derive(Debug)]
pub(crate) struct Publisher {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
    pub(crate) replies: Arc<DirectReplies>,
    pub(crate) alarms: Arc<Alarms>,
    pub(crate) tracer: Tracer,
    /// Held while a message to many queues sends its copies: one such message at a time.
    pub(crate) spreading: tokio::sync::Mutex<()>,
    /// When a missing alternate exchange was last reported.
    pub(crate) warned_of_alternate: Mutex<OncePerMinute<()>>,
}

impl Publisher {
    /// State without publishes.
    pub(crate) fn new(
        base: &Base,
        clients: &Arc<Clients>,
        replies: &Arc<DirectReplies>,
        alarms: &Arc<Alarms>,
    ) -> Self {
        Self {
            base: base.clone(),
            clients: Arc::clone(clients),
            replies: Arc::clone(replies),
            alarms: Arc::clone(alarms),
            tracer: Tracer::new(base),
            spreading: tokio::sync::Mutex::default(),
            warned_of_alternate: Mutex::default(),
        }
    }
}
