//! The front end: what a client's node does with what it sends to the homes of queues, and with what
//! their leaders send back. The steps are in `from_leaders`, `ask`, `consume`, `settle` and `turns`.

use crate::{
    base::Base, clients::Clients, dead_letter::DeadLetters, hearing::Hearing, publisher::Publisher,
};
use quorate_types::Home;
use std::sync::Arc;

/// The front end of one node.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) base: Base,
    pub(crate) clients: Arc<Clients>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) letters: Arc<DeadLetters>,
    pub(crate) hearing: Hearing,
}

impl FrontEnd {
    /// Nothing has been heard of any leader.
    pub(crate) fn new(
        base: &Base,
        clients: &Arc<Clients>,
        publisher: &Arc<Publisher>,
        letters: &Arc<DeadLetters>,
    ) -> Self {
        Self {
            base: base.clone(),
            clients: Arc::clone(clients),
            publisher: Arc::clone(publisher),
            letters: Arc::clone(letters),
            hearing: Hearing::new(
                base.led.queue_groups().map(Home::Group),
                base.context.settings.consumer_disconnected_timeout_ms,
            ),
        }
    }
}
