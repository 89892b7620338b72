//! A consumer as its front end sees it: references that came from the queue's leader, what was
//! shown to the client, and what may be assigned (DLV).
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

/// Deliveries that a consumer without a limit of its queue's may be ahead of the client (DLV 6).
pub(crate) const CREDIT_WINDOW: u64 = 2_000;

/// A consumer of this node's.
#[derive(Debug)]
pub(crate) struct FrontConsumer {
    pub(crate) about: ConsumerProperties,
    pub(crate) connection: Arc<ConnectionState>,
    /// The place of its last delivery among all of its channel's: who has the lowest is next (QOS-06).
    pub(crate) turn: AtomicU64,
    /// The queue was told to pause it, since its channel was at its limit.
    pub(crate) waits: AtomicBool,
    /// The queue was told to pause it, or of a credit, behind publishes: no credit overtakes that.
    pub(crate) gated: AtomicBool,
    pub(crate) state: Mutex<FrontState>,
}

/// What changes of a consumer.
#[derive(Debug)]
pub(crate) struct FrontState {
    /// Term of the leader that it re-attached to; references of another are not taken (DLV 1).
    term: Term,
    /// Its queue has it.
    attached: bool,
    /// Number of its attachment; references sent for an earlier one are not taken.
    attachment: u32,
    pub(crate) progress: Progress,
    /// Shown and not settled by the client.
    unsettled: u64,
    pub(crate) ready: VecDeque<Reference>,
    /// It is in its connection's list of ready consumers.
    listed: bool,
    pub(crate) ended: bool,
    /// A body is being fetched from another node.
    fetching: bool,
    /// Its client cancels it: it asks for nothing more.
    pub(crate) leaving: bool,
    /// Dropped when nothing is left to show to a client that cancels.
    unshown: Option<oneshot::Sender<()>>,
    /// Body of the first of `ready`, when this node has no copy that it can show.
    pub(crate) fetched: Option<Fetched>,
}

/// How far a consumer's deliveries have come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// The last that came from the queue's leader.
    pub(crate) received: DeliveryNumber,
    /// The last that was shown to the client.
    pub(crate) shown: DeliveryNumber,
    /// Of a client that does not acknowledge: settled up to here.
    settled: DeliveryNumber,
    /// The queue may assign deliveries up to here.
    pub(crate) up_to: DeliveryNumber,
    /// The client has been told that deliveries up to here timed out.
    timed_out: DeliveryNumber,
}

impl FrontState {
    /// What has not been shown has been given back: it is neither settled by a range nor asked for
    /// again, though the queue may not know yet.
    pub(crate) fn give_back(&mut self, no_ack: bool) {
        self.progress.shown = self.progress.received;
        if no_ack {
            self.progress.settled = self.progress.shown;
        }
        self.fetched = None;
    }

    /// Forgets what has not been shown.
    fn clear(&mut self) {
        self.ready.clear();
        self.fetched = None;
        self.unshown = None;
    }
}

/// A delivery that came from the leader.
#[derive(Debug)]
pub(crate) struct Reference {
    pub(crate) number: DeliveryNumber,
    message: MessageId,
    counts: Counts,
}

/// What does not change of a consumer.
#[derive(Debug)]
pub(crate) struct ConsumerProperties {
    pub(crate) id: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) queue_type: QueueType,
    pub(crate) has_delivery_limit: bool,
    pub(crate) channel: ChannelId,
    pub(crate) tag: ShortString,
    pub(crate) no_ack: bool,
    /// As given to basic.consume, for lists.
    pub(crate) prefetch: u16,
    /// As given to basic.consume, for lists.
    pub(crate) exclusive: bool,
    /// Its queue sets no limit, so `Credit` is in force (DLV 6).
    pub(crate) windowed: bool,
    pub(crate) arguments: FieldTable,
    /// What its channel's limit allowed when it began, if there was one.
    pub(crate) room: Option<u64>,
}

impl ConsumerProperties {
    /// Count headers are shown.
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

    /// Its queue has it from now on, at whichever leader.
    pub(crate) fn attached(&self) {
        self.state.lock().attached = true;
    }

    /// False while its queue may not have it yet, and would say that it is gone.
    pub(crate) fn is_attached(&self) -> bool {
        self.state.lock().attached
    }

    /// Takes references only of that term from now on, and only such as follow this re-attaching:
    /// of those sent before, some may have been lost with a connection. Says what to tell its leader
    /// (DLV 2); nothing where a later leader has been told already.
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

    /// The group's leader has been silent for too long: what has not been shown is dropped, and asked
    /// for again when it is heard (DLV 5).
    fn drop_unshown(state: &mut FrontState) {
        state.clear();
        state.progress.received = state.progress.shown;
        state.attachment += 1;
    }

    /// References from the leader of that term. Numbers that it has are skipped, gaps accepted.
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

    /// It ends: nothing is shown any more. Tells the last number shown, and whether it had not
    /// ended before.
    pub(crate) fn end(&self) -> (DeliveryNumber, bool) {
        let mut state = self.state.lock();
        let ended = std::mem::replace(&mut state.ended, true);
        state.clear();
        (state.progress.shown, !ended)
    }

    /// Its client cancels it: it asks for nothing more, and a queue that ends meanwhile is no news.
    pub(crate) fn leave(&self) {
        self.state.lock().leaving = true;
    }

    /// Resolves when everything that it was given has been shown.
    pub(crate) fn all_shown(&self) -> impl Future<Output = ()> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        state.unshown = (!state.ready.is_empty()).then_some(sender);
        async move { drop(receiver.await) }
    }

    /// Nothing of it is shown any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// The client has settled that many of its deliveries. True if that was the last of a consumer
    /// that has ended, so that nothing is left to remember.
    pub(crate) fn settled(&self, count: u64) -> bool {
        let mut state = self.state.lock();
        state.unsettled = state.unsettled.saturating_sub(count);
        state.ended && state.unsettled == 0
    }

    /// The queue has ended.
    pub(crate) fn cancelled(&self) {
        let leaving = self.state.lock().leaving;
        if self.end().1 && !leaving {
            let (channel, consumer, tag) =
                (self.about.channel, self.about.id, self.about.tag.clone());
            self.connection.mailbox.put(Event::ConsumerCancelled { channel, consumer, tag });
        }
    }

    /// Deliveries up to `last` were held too long: its client is told, once (CTO-05). What it has not
    /// been shown goes back, so that what is left for it to settle is what it knows (CTO-06).
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
        // That pauses it, too.
        self.waits.store(true, Ordering::Relaxed);
        std::iter::once(release).chain(channel_room::credit(self, u64::MAX)).collect()
    }
}
