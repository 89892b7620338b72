//! A consumer on its front end: references from the queue's leader, what was delivered to the
//! client, and what may be assigned (DLV).
//!
//! A leader sends deliveries only to consumers that have asked for them in its term, and a new
//! consumer asks after its `Attach` is answered. This costs one more hop for each consume, but
//! there is one rule for new consumers and for changes of leaders.
//!
//! A consumer whose `Attach` is unanswered does not re-attach to a leader that announces itself
//! (DLV 2). That leader may not know the consumer yet. It would answer that the consumer is gone,
//! and the client would be cancelled.
//!
//! References are sent by number and gaps are accepted, so a reference that was lost with a
//! connection would not be missed. Each re-attachment therefore has a number of its own, and
//! references that were sent for an earlier one are ignored.

mod fetch;
mod show;
#[cfg(test)]
mod tests;

use crate::{
    client::{ChannelId, Event, HolderRef},
    front::{
        ack_timeout::acknowledgement_timeout, channel_room, connection_state::ConnectionState,
        unwritten::Fetched,
    },
    peers::message::Attachment,
};
use parking_lot::Mutex;
use quorate_queue::{Command, Delivery};
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, FieldTable, Holder, Home, MessageId, QueueId, QueueType,
    ShortString, Term,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use tokio::sync::oneshot;

/// Deliveries that may be ahead of the client for a consumer without a prefetch of its queue
/// (DLV 6).
pub(crate) const CREDIT_WINDOW: u64 = 2_000;

/// A consumer of a client of this node.
#[derive(Debug)]
pub(crate) struct FrontConsumer {
    pub(crate) about: ConsumerProperties,
    pub(crate) connection: Arc<ConnectionState>,
    /// The number of its last delivery in the order of its channel: the consumer with the lowest is
    /// next (QOS-06).
    pub(crate) turn: AtomicU64,
    /// The queue has been asked to pause it, because its channel reached the limit.
    pub(crate) waits: AtomicBool,
    /// A pause or a credit for it waits behind publishes: no credit may overtake that.
    pub(crate) gated: AtomicBool,
    pub(crate) state: Mutex<FrontState>,
}

/// The mutable state of a consumer.
#[derive(Debug)]
pub(crate) struct FrontState {
    /// Term of the leader that it re-attached to; references of other terms are ignored (DLV 1).
    term: Term,
    /// Its queue has attached it.
    attached: bool,
    /// Number of its attachment; references that were sent for an earlier one are ignored.
    attachment: u32,
    pub(crate) progress: Progress,
    /// Number of deliveries that the client has not settled.
    unsettled: u64,
    pub(crate) ready: VecDeque<Reference>,
    /// It is in its connection's list of ready consumers.
    listed: bool,
    pub(crate) ended: bool,
    /// A body is being fetched from another node.
    fetching: bool,
    /// Its client is cancelling it: it asks for no more deliveries.
    pub(crate) leaving: bool,
    /// Dropped when nothing is left to deliver to a client that cancels.
    unshown: Option<oneshot::Sender<()>>,
    /// Bodies of the first ones of `ready`, fetched because this node has no usable copies.
    pub(crate) fetched: Option<Fetched>,
}

/// Progress of a consumer's deliveries, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// The last one that came from the queue's leader.
    pub(crate) received: DeliveryNumber,
    /// The last one that was delivered to the client.
    pub(crate) shown: DeliveryNumber,
    /// For a client that does not acknowledge: settled up to this number.
    settled: DeliveryNumber,
    /// The queue may assign deliveries up to here.
    pub(crate) up_to: DeliveryNumber,
    /// The client has been notified that deliveries up to this number timed out.
    timed_out: DeliveryNumber,
}

impl FrontState {
    /// Marks undelivered references as given back: they are neither settled by a range nor
    /// requested again, though the queue may not have released them yet.
    pub(crate) fn give_back(&mut self, no_ack: bool) {
        self.progress.shown = self.progress.received;
        if no_ack {
            self.progress.settled = self.progress.shown;
        }
        self.fetched = None;
    }

    /// Drops references that have not been delivered.
    fn clear(&mut self) {
        self.ready.clear();
        self.fetched = None;
        self.unshown = None;
    }

    /// Drops the references, and what was sent to the present attachment. True if there were any.
    fn drop_unshown(&mut self) -> bool {
        let had_any = !self.ready.is_empty();
        self.clear();
        self.progress.received = self.progress.shown;
        self.attachment += 1;
        had_any
    }
}

/// A reference that came from the leader.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) number: DeliveryNumber,
    message: MessageId,
    counts: Counts,
}

/// The immutable properties of a consumer.
#[derive(Debug)]
pub(crate) struct ConsumerProperties {
    pub(crate) id: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) queue_type: QueueType,
    pub(crate) has_delivery_limit: bool,
    pub(crate) channel: ChannelId,
    pub(crate) tag: ShortString,
    pub(crate) no_ack: bool,
    /// The flag of `basic.consume`, for lists.
    pub(crate) prefetch: u16,
    /// The prefetch of `basic.consume`, for lists.
    pub(crate) exclusive: bool,
    /// Its queue sets no limit, so `Credit` applies (DLV 6).
    pub(crate) windowed: bool,
    pub(crate) arguments: FieldTable,
    /// Room that its channel's limit left when it began; `None` without a limit.
    pub(crate) room: Option<u64>,
}

impl ConsumerProperties {
    /// Delivery counts are shown as headers.
    pub(crate) fn shows_counts(&self) -> bool {
        self.queue_type == QueueType::Quorum || self.has_delivery_limit
    }
}

impl Drop for FrontConsumer {
    fn drop(&mut self) {
        self.connection.consumers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl FrontConsumer {
    pub(crate) fn new(new: ConsumerProperties, connection: Arc<ConnectionState>) -> Self {
        connection.consumers.fetch_add(1, Ordering::Relaxed);
        let (windowed, room) = (new.windowed, new.room);
        let up_to = if let Some(room) = room {
            DeliveryNumber(room)
        } else if windowed {
            DeliveryNumber(CREDIT_WINDOW)
        } else {
            DeliveryNumber(u64::MAX)
        };
        Self {
            about: new,
            connection,
            turn: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            gated: AtomicBool::new(false),
            state: Mutex::new(FrontState {
                term: Term(0),
                attached: false,
                attachment: 0,
                progress: Progress { up_to, ..Progress::default() },
                unsettled: 0,
                ready: VecDeque::new(),
                listed: false,
                ended: false,
                fetching: false,
                leaving: false,
                unshown: None,
                fetched: None,
            }),
        }
    }

    pub(crate) fn home(&self) -> Home {
        self.about.queue.home
    }

    pub(crate) fn holder(&self) -> HolderRef {
        HolderRef { home: self.about.queue.home, holder: Holder::Consumer(self.about.id) }
    }

    /// Highest number that may be assigned at the start.
    pub(crate) fn up_to(&self) -> DeliveryNumber {
        self.state.lock().progress.up_to
    }

    /// Records that its queue has attached it, at whichever leader.
    pub(crate) fn attached(&self) {
        self.state.lock().attached = true;
    }

    /// False until its queue has attached it: before, a leader would answer that it is gone.
    pub(crate) fn is_attached(&self) -> bool {
        self.state.lock().attached
    }

    /// Re-attaches at the leader of that term: from now on only references of that term count that
    /// follow this attachment, since earlier ones may have been lost with a connection. Returns the
    /// request for the leader (DLV 2), or `None` if a later leader has been asked already.
    pub(crate) fn reattach(&self, term: Term) -> Option<Attachment> {
        let mut state = self.state.lock();
        if term < state.term {
            return None;
        }
        state.term = term;
        state.attachment += 1;
        Some(Attachment {
            consumer: self.about.id,
            last: state.progress.received,
            number: state.attachment,
        })
    }

    /// Drops undelivered references because the group's leader has been silent for too long. They
    /// are requested again when the leader contacts this node (DLV 5). True if there were any.
    pub(crate) fn drop_unshown(&self) -> bool {
        self.state.lock().drop_unshown()
    }

    /// Takes references from the leader of that term. Known numbers are skipped, gaps accepted.
    pub(crate) fn deliver(self: &Arc<Self>, term: Term, attachment: u32, deliveries: &[Delivery]) {
        let mut state = self.state.lock();
        if (state.term, state.attachment) != (term, attachment) || state.ended {
            return;
        }
        for delivery in deliveries {
            if delivery.number > state.progress.received {
                state.progress.received = delivery.number;
                let (number, message, counts) =
                    (delivery.number, delivery.message, delivery.counts);
                state.ready.push_back(Reference { number, message, counts });
            }
        }
        self.list(&mut state);
    }

    fn list(self: &Arc<Self>, state: &mut FrontState) {
        if !state.listed && !state.fetching && !state.ready.is_empty() {
            state.listed = true;
            self.connection.consumer_ready(Arc::clone(self));
        }
    }

    /// Ends the consumer: nothing more is delivered. Returns the last number delivered, and whether
    /// the consumer had not ended before.
    pub(crate) fn end(&self) -> (DeliveryNumber, bool) {
        let mut state = self.state.lock();
        let ended = std::mem::replace(&mut state.ended, true);
        state.clear();
        (state.progress.shown, !ended)
    }

    /// Marks it as being cancelled by its client: it asks for no more deliveries, and the end of
    /// its queue is not reported.
    pub(crate) fn leave(&self) {
        self.state.lock().leaving = true;
    }

    /// Resolves when everything that was assigned to it has been delivered.
    pub(crate) fn all_shown(&self) -> impl Future<Output = ()> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.unshown = (!state.ready.is_empty()).then_some(sender);
        async move { drop(receiver.await) }
    }

    /// Whether nothing more is delivered to it.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Records that the client has settled `count` of its deliveries. True if that was the last of
    /// an ended consumer, which can then be forgotten.
    pub(crate) fn settled(&self, count: u64) -> bool {
        let mut state = self.state.lock();
        state.unsettled = state.unsettled.saturating_sub(count);
        state.ended && state.unsettled == 0
    }

    /// Handles the end of its queue.
    pub(crate) fn cancelled(&self) {
        let leaving = self.state.lock().leaving;
        if self.end().1 && !leaving {
            let (channel, consumer, tag) =
                (self.about.channel, self.about.id, self.about.tag.clone());
            self.connection.mailbox.put(Event::ConsumerCancelled { channel, consumer, tag });
        }
    }

    /// Handles the time-out of deliveries up to `last`: notifies its client once (CTO-05).
    /// Undelivered references are released, so that the client knows all that is left to settle
    /// (CTO-06).
    pub(crate) fn timed_out(&self, last: DeliveryNumber) -> Vec<Command> {
        let (first, through) = {
            let mut state = self.state.lock();
            if state.ended || last <= state.progress.timed_out {
                return Vec::new();
            }
            state.progress.timed_out = last;
            let first = DeliveryNumber(state.progress.shown.0 + 1);
            let through = state.progress.received.max(last);
            state.clear();
            (state.progress.shown, state.progress.received) = (through, through);
            (first, through)
        };
        let (channel, consumer) = (self.about.channel, self.about.id);
        let exception = acknowledgement_timeout(channel);
        self.connection.mailbox.put(Event::ConsumerTimedOut { channel, consumer, exception });
        if first > through {
            return Vec::new();
        }
        let release =
            Command::Release { holder: self.holder().holder, numbers: vec![(first, through)] };
        // The release also pauses the consumer.
        self.waits.store(true, Ordering::Relaxed);
        std::iter::once(release).chain(channel_room::credit(self, u64::MAX)).collect()
    }
}
