//! The front end: what a client's node does with what it sends to the homes of queues, and with what
//! their leaders send back. The steps are in `from_leaders`, `ask`, `consume`, `settle` and `turns`.

pub(crate) mod access;
pub(crate) mod ack_timeout;
pub(crate) mod ask;
pub(crate) mod batch;
pub(crate) mod channel_room;
pub(crate) mod client_handle;
pub(crate) mod clients;
pub(crate) mod commit;
pub(crate) mod confirm;
pub(crate) mod connection;
pub(crate) mod connection_state;
pub(crate) mod consume;
pub(crate) mod consumer;
pub(crate) mod counts;
pub(crate) mod direct_replies;
pub(crate) mod exchanges;
pub(crate) mod from_leaders;
pub(crate) mod front_end;
pub(crate) mod get_answer;
pub(crate) mod held_publishes;
pub(crate) mod in_flight;
pub(crate) mod leader_contact;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod mailbox;
pub(crate) mod pressure;
pub(crate) mod proposer;
pub(crate) mod proposers;
pub(crate) mod publish;
pub(crate) mod publish_access;
pub(crate) mod publisher;
pub(crate) mod refusals;
pub(crate) mod relief;
pub(crate) mod replies;
pub(crate) mod reply_to;
pub(crate) mod route_held;
pub(crate) mod routed;
pub(crate) mod settle;
pub(crate) mod spread;
pub(crate) mod tally;
pub(crate) mod timed_out;
pub(crate) mod trace;
pub(crate) mod tracer;
pub(crate) mod transaction;
pub(crate) mod turns;
pub(crate) mod unfinished;
pub(crate) mod unwritten;

use crate::{
    base::Base,
    front::{clients::Clients, leader_contact::LeaderContact, publisher::Publisher},
    leader::dead_letter::DeadLetters,
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
    pub(crate) leader_contact: LeaderContact,
}

impl FrontEnd {
    /// State of a node that no leader has contacted.
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
            leader_contact: LeaderContact::new(
                base.led.queue_groups().map(Home::Group),
                base.context.settings.unreachable_node_timeout_ms,
            ),
        }
    }
}
