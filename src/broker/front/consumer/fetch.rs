//! Bodies of which this node has no usable copy (DLV 1).

use super::{FrontConsumer, FrontState};
use crate::{
    front::{FrontEnd, unwritten::Fetching},
    leader::bodies::Found,
};
use quorate_storage::{MessageRef, StoredMessage};
use quorate_types::DeliveryNumber;
use std::sync::Arc;

/// Most bodies that are asked for together. Another node bounds the bytes of its answer.
const FETCH_MAX: usize = 64;

impl FrontConsumer {
    /// Gets the next bodies from another node: without a replica here, all come from there (MEM 12).
    pub(super) fn fetch(self: &Arc<Self>, front: &Arc<FrontEnd>, state: &mut FrontState) {
        let Some(first) = state.ready.front() else { return };
        let (number, term) = (first.number, state.term);
        let queue = self.about.queue;
        let next = state.ready.iter().take(FETCH_MAX);
        let wanted: Vec<_> = next.map(|next| MessageRef { queue, message: next.message }).collect();
        state.fetching = true;
        let (front, consumer) = (Arc::clone(front), Arc::clone(self));
        let task = Arc::clone(&front);
        task.base.context.spawn(async move {
            let unwritten = &consumer.connection.delivering.unwritten;
            // References of a group whose leader is silent for too long are dropped (DLV 5).
            let is_wanted =
                || front.leader_contact.may_deliver(consumer.home()) && consumer.is_first(number);
            let (found, turn) =
                front.base.bodies.find_in_turn(&wanted, term, unwritten, is_wanted).await;
            let gone = found.first == StoredMessage::Absent;
            consumer.fetched(number, found, turn);
            if gone {
                front.share_room(&consumer.connection, consumer.about.channel);
            }
        });
    }

    fn is_first(&self, number: DeliveryNumber) -> bool {
        self.state.lock().ready.front().is_some_and(|reference| reference.number == number)
    }

    pub(super) fn fetched(self: &Arc<Self>, number: DeliveryNumber, found: Found, turn: Fetching) {
        let mut state = self.state.lock();
        state.fetching = false;
        if state.ready.front().is_some_and(|reference| reference.number == number) {
            match found.first {
                StoredMessage::Here(body) => {
                    let bodies = std::iter::once(body).chain(found.next).collect();
                    let unwritten = &self.connection.delivering.unwritten;
                    state.fetched = Some(unwritten.fetched(bodies, turn));
                }
                // The message has been settled, so nothing is delivered (DLV 1).
                StoredMessage::Absent => drop(state.ready.pop_front()),
                StoredMessage::Unknown => {}
            }
        }
        if state.ready.is_empty() {
            state.unshown = None;
        }
        self.list(&mut state);
    }
}
