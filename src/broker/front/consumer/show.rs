//! Delivering to a client what its consumer has been assigned, as far as the room allows
//! (DLV 3, 4, 6).

use super::{CREDIT_WINDOW, FrontConsumer, FrontState, Reference};
use crate::{
    client::Delivered,
    front::{FrontEnd, channel_room},
};
use bytes::Bytes;
use quorate_queue::Command;
use quorate_storage::{MessageRef, StoredMessage, codec::message};
use quorate_types::{DeliveryNumber, Holder};
use std::sync::{Arc, atomic::Ordering};

/// References that are read together.
const TAKE_MAX: usize = 256;

/// The result of taking deliveries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    /// More deliveries are ready.
    pub(crate) more: bool,
    /// References within the channel's limit were dropped, so other consumers may have their room.
    pub(crate) freed: bool,
    /// The channel's limit is reached.
    full: bool,
}

impl FrontConsumer {
    /// Takes what may be delivered now, about `bytes_max` bytes of it.
    pub(crate) fn take(
        self: &Arc<Self>,
        front: &Arc<FrontEnd>,
        bytes_max: usize,
        into: &mut Vec<Delivered>,
    ) -> Taken {
        let mut commands = Vec::new();
        let taken = {
            let mut state = self.state.lock();
            let may_deliver = || front.leader_contact.may_deliver(self.home());
            let read = |state: &mut _, count| self.read(front, state, count, bytes_max);
            let (taken, is_missing) = self.show(&mut state, may_deliver, read, into, &mut commands);
            if is_missing {
                self.fetch(front, &mut state);
            }
            taken
        };
        // Submitted without the lock: the queue may answer at once with another delivery.
        for command in commands {
            // Settles for a client that does not acknowledge, and credits (DLV 6).
            let credit = || {
                let gated = self.gated.load(Ordering::Relaxed);
                matches!(command, Command::Credit { .. }) && !gated
            };
            if matches!(command, Command::Ack { .. }) || credit() {
                front.base.proposers.submit_ahead(self.home(), command);
            } else {
                front.base.proposers.submit(self.home(), command);
            }
        }
        if taken.full {
            channel_room::wait_for_room(self);
        }
        if taken.freed {
            front.share_room(&self.connection, self.about.channel);
        }
        taken
    }

    /// Shows what may be shown of what `read` finds, up to a count. True if the body of the next one has
    /// to be fetched from another node.
    pub(super) fn show(
        &self,
        state: &mut FrontState,
        may_deliver: impl FnOnce() -> bool,
        read: impl FnOnce(&mut FrontState, usize) -> Vec<StoredMessage>,
        into: &mut Vec<Delivered>,
        commands: &mut Vec<Command>,
    ) -> (Taken, bool) {
        state.listed = false;
        if state.ended {
            return (Taken::default(), false);
        }
        if !may_deliver() {
            let freed = state.drop_unshown();
            return (Taken { freed, ..Taken::default() }, false);
        }
        let room = channel_room::room(self);
        let share =
            room.map_or(usize::MAX, |room| usize::try_from(room.share).unwrap_or(usize::MAX));
        let first = into.len();
        let (mut bytes, mut is_missing) = (0, false);
        for message in read(state, share) {
            let StoredMessage::Here(message) = message else {
                is_missing = true;
                break;
            };
            let Some(reference) = state.ready.pop_front() else { break };
            state.progress.shown = reference.number;
            bytes += message.len();
            into.extend(self.delivered(&reference, &message));
        }
        let shown = into.get(first..).unwrap_or_default();
        let (count, redelivered) =
            (shown.len(), shown.iter().filter(|one| one.redelivered).count());
        self.note_shown(state, count, commands);
        if count > 0 {
            let deliveries = self.connection.counters.deliveries(self.about.queue_type);
            deliveries.consumed(count as u64, redelivered as u64, self.about.no_ack);
        }
        let full = room.is_some_and(|room| room.free == count as u64);
        if full {
            channel_room::close_gate(self, state, commands);
        }
        if state.ready.is_empty() {
            state.unshown = None;
        }
        let more = !state.ready.is_empty() && !state.fetching && !is_missing;
        state.listed = more;
        (Taken { bytes, more, full, freed: false }, is_missing)
    }

    /// Reads bodies of the first references: about `bytes_max` bytes, at least one if there is any.
    fn read(
        &self,
        front: &FrontEnd,
        state: &mut FrontState,
        count_max: usize,
        bytes_max: usize,
    ) -> Vec<StoredMessage> {
        let queue = self.about.queue;
        let first = state.ready.iter().take(TAKE_MAX.min(count_max));
        let wanted: Vec<_> =
            first.map(|reference| MessageRef { queue, message: reference.message }).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        match state.fetched.take() {
            Some(fetched) => {
                let mut bytes = 0;
                let fits = |body: &&Bytes| {
                    let begins_within = bytes < bytes_max.max(1);
                    bytes += body.len();
                    begins_within
                };
                let bodies = fetched.bodies.iter().take(wanted.len()).take_while(fits);
                bodies.cloned().map(StoredMessage::Here).collect()
            }
            None => front.base.bodies.read_messages(queue, &wanted, Some(state.term), bytes_max),
        }
    }

    fn delivered(&self, reference: &Reference, bytes: &Bytes) -> Option<Delivered> {
        let message = match message::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                tracing::error!(queue = %self.about.queue, %error, "cannot decode a stored message");
                return None;
            }
        };
        Some(Delivered {
            channel: self.about.channel,
            consumer: self.about.id,
            tag: self.about.tag.clone(),
            holder: self.holder(),
            number: reference.number,
            no_ack: self.about.no_ack,
            redelivered: reference.counts.acquired > 0,
            counts: (self.about.shows_counts() && reference.counts.acquired > 0)
                .then_some(reference.counts),
            message,
        })
    }

    /// Settles for a client that does not acknowledge, and renews the window (DLV 6).
    fn note_shown(&self, state: &mut FrontState, count: usize, commands: &mut Vec<Command>) {
        if count == 0 {
            return;
        }
        if self.about.no_ack {
            // Gaps below the last number shown are settled already, so a range does no harm.
            let first = DeliveryNumber(state.progress.settled.0 + 1);
            state.progress.settled = state.progress.shown;
            let holder = Holder::Consumer(self.about.id);
            commands.push(Command::Ack { holder, numbers: vec![(first, state.progress.shown)] });
        } else {
            state.unsettled += count as u64;
            if let Some(channel) = self.connection.held.lock().channels.get_mut(&self.about.channel)
            {
                channel.unsettled += count as u64;
                channel.turns += 1;
                self.turn.store(channel.turns, Ordering::Relaxed);
            }
        }
        if self.about.windowed
            && !state.leaving
            && state.progress.up_to.0 < state.progress.shown.0 + CREDIT_WINDOW / 2
            && channel_room::room(self).is_none()
        {
            state.progress.up_to = DeliveryNumber(state.progress.shown.0 + CREDIT_WINDOW);
            commands.push(Command::Credit { consumer: self.about.id, up_to: state.progress.up_to });
        }
    }
}
