//! The room that a channel's limit leaves to one of its consumers, and how a consumer waits for
//! room (QOS-06, DLV 6). `turns` decides which consumer gets the room.

use crate::front::consumer::{CREDIT_WINDOW, FrontConsumer, FrontState};
use quorate_queue::Command;
use quorate_types::DeliveryNumber;
use std::sync::{Arc, atomic::Ordering};

/// Room that a channel's limit leaves to one of its consumers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Number of deliveries that the limit allows.
    pub(crate) free: u64,
    /// Deliveries among them that the consumer may get in one turn, so that each consumer gets its
    /// turn.
    pub(crate) share: u64,
}

/// The room that the channel's limit leaves to the consumer; `None` without a limit. A consumer
/// that does not acknowledge takes no room, but gets nothing while no room is left (QOS-06).
pub(crate) fn room(consumer: &FrontConsumer) -> Option<Room> {
    let held = consumer.connection.held.lock();
    let channel = held.channels.get(&consumer.about.channel)?;
    let free = channel.room()?;
    let share = free.div_ceil((channel.consumers.len() as u64).max(1));
    (free == 0 || !consumer.about.no_ack).then_some(Room { free, share })
}

/// The channel's limit is reached: pauses this consumer and releases its references beyond the
/// limit (DLV 6). The channel's other consumers of that queue are paused first, so that the queue
/// does not assign these messages to them. Consumers of other queues are paused when they have a
/// delivery ready.
pub(crate) fn close_gate(
    consumer: &FrontConsumer,
    state: &mut FrontState,
    commands: &mut Vec<Command>,
) {
    for other in others_of_queue(consumer) {
        let holder = other.holder().holder;
        commands.push(Command::Release { holder, numbers: Vec::new() });
    }
    let numbers = state.ready.drain(..).map(|reference| (reference.number, reference.number));
    let holder = consumer.holder().holder;
    commands.push(Command::Release { holder, numbers: numbers.collect() });
    state.give_back(consumer.about.no_ack);
}

/// Marks the consumers as waiting, after the commands of [`close_gate`] have been submitted. If it
/// were marked before, a credit submitted in between would count as one that came later.
pub(crate) fn wait_for_room(consumer: &FrontConsumer) {
    let others = others_of_queue(consumer);
    for consumer in std::iter::once(consumer).chain(others.iter().map(Arc::as_ref)) {
        consumer.waits.store(true, Ordering::Relaxed);
        consumer.gated.store(true, Ordering::Relaxed);
    }
}

/// The channel's other consumers of the queue.
fn others_of_queue(consumer: &FrontConsumer) -> Vec<Arc<FrontConsumer>> {
    let held = consumer.connection.held.lock();
    let consumers = held.channels.get(&consumer.about.channel).map(|channel| &channel.consumers);
    let others = consumers.into_iter().flat_map(|consumers| consumers.values());
    let of_queue = |other: &&Arc<FrontConsumer>| {
        other.about.queue == consumer.about.queue && other.about.id != consumer.about.id
    };
    others.filter(of_queue).cloned().collect()
}

/// Whether the consumer waits for room: it had a delivery ready when its channel was at the limit,
/// or it has received all that its credit allows.
pub(crate) fn waits(consumer: &FrontConsumer) -> bool {
    let state = consumer.state.lock();
    let waits =
        consumer.waits.load(Ordering::Relaxed) || state.progress.up_to <= state.progress.received;
    waits && state.ready.is_empty() && !state.ended && !state.leaving
}

/// Number of ready deliveries that the channel's limit will count.
pub(crate) fn claims(consumer: &FrontConsumer) -> u64 {
    if consumer.about.no_ack { 0 } else { consumer.state.lock().ready.len() as u64 }
}

/// The consumer's new credit after a change of the channel's limit or of what counts against it: at
/// most `share` of the room (DLV 6). `None` while nothing may be assigned.
pub(crate) fn credit(consumer: &FrontConsumer, share: u64) -> Option<Command> {
    let room = room(consumer);
    let mut state = consumer.state.lock();
    let up_to = match room {
        Some(Room { free: 0, .. }) => return None,
        _ if state.ended || state.leaving => return None,
        Some(Room { free, .. }) => state.progress.received.0 + free.min(share),
        None if consumer.about.windowed => state.progress.shown.0 + CREDIT_WINDOW,
        None => u64::MAX,
    };
    if !consumer.waits.swap(false, Ordering::Relaxed) && state.progress.up_to.0 == up_to {
        // The queue already has this credit.
        return None;
    }
    state.progress.up_to = DeliveryNumber(up_to);
    // This credit waits behind publishes: no later credit may overtake it.
    consumer.gated.store(true, Ordering::Relaxed);
    Some(Command::Credit { consumer: consumer.about.id, up_to: state.progress.up_to })
}
