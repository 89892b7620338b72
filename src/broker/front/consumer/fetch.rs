//! Bodies of which this node has no usable copy (DLV 1).

use super::{FrontConsumer, FrontState};
use crate::front::{FrontEnd, unwritten::Fetching};
use quorate_storage::{MessageRef, StoredMessage};
use quorate_types::DeliveryNumber;
use std::sync::Arc;

impl FrontConsumer {
    /// Gets the next body from another node.
    pub(super) fn fetch(self: &Arc<Self>, front: &Arc<FrontEnd>, state: &mut FrontState) {
        let Some(first) = state.ready.front() else { return };
        state.fetching = true;
        let wanted = MessageRef { queue: self.about.queue, message: first.message };
        let (number, term) = (first.number, state.term);
        let (front, consumer) = (Arc::clone(front), Arc::clone(self));
        let task = Arc::clone(&front);
        task.base.context.spawn(async move {
            let unwritten = &consumer.connection.delivering.unwritten;
            // References of a group whose leader is silent for too long are dropped (DLV 5).
            let is_wanted =
                || front.leader_contact.may_deliver(consumer.home()) && consumer.is_first(number);
            let (found, turn) =
                front.base.bodies.find_in_turn(wanted, term, unwritten, is_wanted).await;
            let gone = matches!(found, StoredMessage::Absent);
            consumer.fetched(number, found, turn);
            if gone {
                front.share_room(&consumer.connection, consumer.about.channel);
            }
        });
    }

    fn is_first(&self, number: DeliveryNumber) -> bool {
        self.state.lock().ready.front().is_some_and(|reference| reference.number == number)
    }

    pub(super) fn fetched(
        self: &Arc<Self>,
        number: DeliveryNumber,
        found: StoredMessage,
        turn: Fetching,
    ) {
        let mut state = self.state.lock();
        state.fetching = false;
        if state.ready.front().is_some_and(|reference| reference.number == number) {
            match found {
                StoredMessage::Here(body) => {
                    state.fetched = Some(self.connection.delivering.unwritten.fetched(body, turn));
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
