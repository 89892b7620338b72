//! A consumer as its front end sees it: references that came from the queue's leader, what was
//! shown to the client, and what may be assigned (DLV).

use crate::{
    client::{ChannelId, Delivered, Event, HolderRef},
    connection::ConnectionState,
    executor::Attachment,
    node::Node,
    settle::acknowledgement_timeout,
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_queue::{Command, Delivery};
use quorate_storage::{MessageRef, codec::message};
use quorate_types::{
    ConsumerId, Counts, DeliveryNumber, FieldTable, Holder, Home, MessageId, QueueId, QueueType,
    ShortString, Term,
};
use std::{collections::VecDeque, sync::Arc};

/// Deliveries that a consumer without a limit of its queue's may be ahead of the client (DLV 6).
pub(crate) const CREDIT_WINDOW: u64 = 2_000;
/// References read at once.
const TAKE_MAX: usize = 256;

/// A consumer of this node's.
#[derive(Debug)]
pub(crate) struct FrontConsumer {
    pub(crate) id: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) queue_type: QueueType,
    pub(crate) channel: ChannelId,
    pub(crate) tag: ShortString,
    pub(crate) no_ack: bool,
    /// As given to basic.consume, for lists.
    pub(crate) prefetch: u16,
    /// As given to basic.consume, for lists.
    pub(crate) arguments: FieldTable,
    /// Its queue sets no limit, so `Credit` is in force (DLV 6).
    pub(crate) windowed: bool,
    /// Count headers are shown.
    pub(crate) shows_counts: bool,
    pub(crate) connection: Arc<ConnectionState>,
    state: Mutex<FrontState>,
}

#[derive(Debug)]
struct FrontState {
    /// Term of the leader that it re-attached to; references of another are not taken (DLV 1).
    term: Term,
    /// Number of its attachment; references sent for an earlier one are not taken.
    attachment: u32,
    received: DeliveryNumber,
    shown: DeliveryNumber,
    /// Of a client that does not acknowledge: settled up to here.
    settled: DeliveryNumber,
    /// Shown and not settled by the client.
    unsettled: u64,
    up_to: DeliveryNumber,
    ready: VecDeque<Reference>,
    /// It is in its connection's list of ready consumers.
    listed: bool,
    ended: bool,
    /// Its client has been told that deliveries up to here timed out.
    timed_out: DeliveryNumber,
    /// A body is being fetched from the leader.
    fetching: bool,
    /// Mean octets of the bodies taken last.
    mean_bytes: usize,
}

#[derive(Clone, Debug)]
struct Reference {
    number: DeliveryNumber,
    message: MessageId,
    counts: Counts,
    /// Fetched from the leader, when this node has no copy.
    fetched: Option<Bytes>,
}

/// What a taking came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    /// More is ready.
    pub(crate) more: bool,
}

/// What a new consumer is made of.
#[derive(Debug)]
pub(crate) struct NewConsumer {
    pub(crate) id: ConsumerId,
    pub(crate) queue: QueueId,
    pub(crate) queue_type: QueueType,
    pub(crate) has_delivery_limit: bool,
    pub(crate) channel: ChannelId,
    pub(crate) tag: ShortString,
    pub(crate) no_ack: bool,
    /// As given to basic.consume, for lists.
    pub(crate) prefetch: u16,
    /// Its queue sets no limit, so `Credit` is in force (DLV 6).
    pub(crate) windowed: bool,
    pub(crate) arguments: FieldTable,
    /// What its channel's limit allows, if it has one.
    pub(crate) room: Option<u64>,
}

impl FrontConsumer {
    pub(crate) fn new(new: NewConsumer, connection: Arc<ConnectionState>) -> Self {
        let (windowed, room) = (new.windowed, new.room);
        let up_to = if let Some(room) = room {
            DeliveryNumber(room)
        } else if windowed {
            DeliveryNumber(CREDIT_WINDOW)
        } else {
            DeliveryNumber(u64::MAX)
        };
        Self {
            id: new.id,
            queue: new.queue,
            queue_type: new.queue_type,
            channel: new.channel,
            tag: new.tag,
            no_ack: new.no_ack,
            prefetch: new.prefetch,
            arguments: new.arguments,
            windowed,
            shows_counts: new.queue_type == QueueType::Quorum || new.has_delivery_limit,
            connection,
            state: Mutex::new(FrontState {
                term: Term(0),
                attachment: 0,
                received: DeliveryNumber(0),
                shown: DeliveryNumber(0),
                settled: DeliveryNumber(0),
                unsettled: 0,
                up_to,
                ready: VecDeque::new(),
                listed: false,
                ended: false,
                timed_out: DeliveryNumber(0),
                fetching: false,
                mean_bytes: 1024,
            }),
        }
    }

    pub(crate) fn home(&self) -> Home {
        self.queue.home
    }

    fn holder(&self) -> HolderRef {
        HolderRef { home: self.queue.home, holder: Holder::Consumer(self.id) }
    }

    /// Highest number that may be assigned at the start.
    pub(crate) fn up_to(&self) -> DeliveryNumber {
        self.state.lock().up_to
    }

    /// Takes references only of that term from now on; says what to tell its leader (DLV 2).
    pub(crate) fn reattach(&self, term: Term) -> Attachment {
        let mut state = self.state.lock();
        state.term = term;
        Attachment { consumer: self.id, last: state.received, number: state.attachment }
    }

    /// The group's leader has been silent for too long: what has not been shown is dropped, and asked
    /// for again when it is heard (DLV 5).
    fn drop_unshown(state: &mut FrontState) {
        state.ready.clear();
        state.received = state.shown;
        state.attachment += 1;
    }

    /// References from the leader of that term. Numbers that it has are skipped, gaps accepted.
    pub(crate) fn deliver(self: &Arc<Self>, term: Term, attachment: u32, deliveries: &[Delivery]) {
        let mut state = self.state.lock();
        if (state.term, state.attachment) != (term, attachment) || state.ended {
            return;
        }
        for delivery in deliveries {
            if delivery.number > state.received {
                state.received = delivery.number;
                let (number, message, counts) =
                    (delivery.number, delivery.message, delivery.counts);
                state.ready.push_back(Reference { number, message, counts, fetched: None });
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
        state.ready.clear();
        (state.shown, !ended)
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
        if self.end().1 {
            let (channel, consumer, tag) = (self.channel, self.id, self.tag.clone());
            self.connection.mailbox.put(Event::ConsumerCancelled { channel, consumer, tag });
        }
    }

    /// Deliveries up to `last` were held too long: its client is told, once (CTO-05). What it has not
    /// been shown goes back, so that what is left for it to settle is what it knows (CTO-06).
    pub(crate) fn timed_out(&self, last: DeliveryNumber) -> Vec<Command> {
        let (first, through) = {
            let mut state = self.state.lock();
            if state.ended || last <= state.timed_out {
                return Vec::new();
            }
            state.timed_out = last;
            let first = DeliveryNumber(state.shown.0 + 1);
            let through = state.received.max(last);
            state.ready.clear();
            (state.shown, state.received) = (through, through);
            (first, through)
        };
        let (channel, consumer) = (self.channel, self.id);
        let exception = acknowledgement_timeout(channel);
        self.connection.mailbox.put(Event::ConsumerTimedOut { channel, consumer, exception });
        if first > through {
            return Vec::new();
        }
        let release =
            Command::Release { holder: self.holder().holder, numbers: vec![(first, through)] };
        std::iter::once(release).chain(self.credit()).collect()
    }

    /// Takes what may be shown now, about `bytes_max` octets of it.
    pub(crate) fn take(
        self: &Arc<Self>,
        node: &Arc<Node>,
        bytes_max: usize,
        into: &mut Vec<Delivered>,
    ) -> Taken {
        let mut commands = Vec::new();
        let taken = self.take_locked(node, bytes_max, into, &mut commands);
        // Only now, without the lock: the queue may answer at once with another delivery.
        for command in commands {
            // DLV 6: settles for a client that does not acknowledge, and credits.
            if matches!(command, Command::Settle { .. } | Command::Credit { .. }) {
                node.submit_ahead(self.home(), command);
            } else {
                node.submit(self.home(), command);
            }
        }
        taken
    }

    fn take_locked(
        self: &Arc<Self>,
        node: &Arc<Node>,
        bytes_max: usize,
        into: &mut Vec<Delivered>,
        commands: &mut Vec<Command>,
    ) -> Taken {
        let mut state = self.state.lock();
        state.listed = false;
        if state.ended {
            return Taken::default();
        }
        if !node.hearing.may_show(self.home()) {
            Self::drop_unshown(&mut state);
            return Taken::default();
        }
        let room =
            self.room().map_or(usize::MAX, |room| usize::try_from(room).unwrap_or(usize::MAX));
        let wanted =
            (bytes_max / state.mean_bytes.max(1)).clamp(1, TAKE_MAX).min(state.ready.len());
        let references: Vec<_> = state.ready.iter().take(wanted.min(room)).cloned().collect();
        let messages = node.read_messages(self.queue, &references_of(self.queue, &references));
        let first = into.len();
        let mut bytes = 0;
        for (reference, message) in references.into_iter().zip(messages) {
            let Some(octets) = reference.fetched.clone().or(message) else {
                self.fetch(node, &mut state);
                break;
            };
            state.ready.pop_front();
            state.shown = reference.number;
            bytes += octets.len();
            into.extend(self.delivered(&reference, &octets));
        }
        let shown = into.get(first..).unwrap_or_default();
        let (count, redelivered) =
            (shown.len(), shown.iter().filter(|one| one.redelivered).count());
        if let Some(mean) = bytes.checked_div(count) {
            state.mean_bytes = mean;
        }
        self.note_shown(&mut state, count, commands);
        if count > 0 {
            let deliveries = node.counters.deliveries(self.queue_type);
            deliveries.consumed(count as u64, redelivered as u64, self.no_ack);
        }
        if count == room {
            self.close_gate(&mut state, commands);
        }
        let more = !state.ready.is_empty() && !state.fetching;
        state.listed = more;
        Taken { bytes, more }
    }

    /// How many more its channel's limit allows; `None` without a limit.
    fn room(&self) -> Option<u64> {
        if self.no_ack {
            return None;
        }
        let held = self.connection.held.lock();
        let channel = held.channels.get(&self.channel)?;
        channel.limit.map(|limit| u64::from(limit).saturating_sub(channel.unsettled))
    }

    fn delivered(&self, reference: &Reference, octets: &Bytes) -> Option<Delivered> {
        let message = match message::decode(octets) {
            Ok(message) => message,
            Err(error) => {
                tracing::error!(queue = %self.queue, %error, "a stored message cannot be read");
                return None;
            }
        };
        Some(Delivered {
            channel: self.channel,
            consumer: self.id,
            tag: self.tag.clone(),
            holder: self.holder(),
            number: reference.number,
            no_ack: self.no_ack,
            redelivered: reference.counts.acquired > 0,
            counts: (self.shows_counts && reference.counts.acquired > 0)
                .then_some(reference.counts),
            message,
        })
    }

    /// Settles for a client that does not, and renews the window (DLV 6).
    fn note_shown(&self, state: &mut FrontState, count: usize, commands: &mut Vec<Command>) {
        if count == 0 {
            return;
        }
        if self.no_ack {
            // Gaps below the last number shown are settled already, so a range does no harm.
            let first = DeliveryNumber(state.settled.0 + 1);
            state.settled = state.shown;
            let holder = Holder::Consumer(self.id);
            commands.push(Command::Settle { holder, numbers: vec![(first, state.shown)] });
        } else {
            state.unsettled += count as u64;
            if let Some(channel) = self.connection.held.lock().channels.get_mut(&self.channel) {
                channel.unsettled += count as u64;
            }
        }
        if self.windowed
            && self.room().is_none()
            && state.up_to.0 < state.shown.0 + CREDIT_WINDOW / 2
        {
            state.up_to = DeliveryNumber(state.shown.0 + CREDIT_WINDOW);
            commands.push(Command::Credit { consumer: self.id, up_to: state.up_to });
        }
    }

    /// The channel's limit is reached: its consumers are paused, and what this one has beyond the
    /// limit is given back (DLV 6). The others first, so that it does not go to them.
    fn close_gate(&self, state: &mut FrontState, commands: &mut Vec<Command>) {
        let others: Vec<ConsumerId> = {
            let held = self.connection.held.lock();
            let consumers = held.channels.get(&self.channel).map(|channel| &channel.consumers);
            consumers.into_iter().flat_map(|consumers| consumers.keys().copied()).collect()
        };
        for consumer in others.into_iter().filter(|consumer| *consumer != self.id) {
            let holder = Holder::Consumer(consumer);
            commands.push(Command::Release { holder, numbers: Vec::new() });
        }
        let numbers = state.ready.drain(..).map(|reference| (reference.number, reference.number));
        let holder = Holder::Consumer(self.id);
        commands.push(Command::Release { holder, numbers: numbers.collect() });
    }

    /// The channel's limit, or what it counts, has changed: what may be assigned now (DLV 6).
    /// `None` while nothing may.
    pub(crate) fn credit(&self) -> Option<Command> {
        let room = self.room();
        let mut state = self.state.lock();
        let up_to = match room {
            Some(0) => return None,
            _ if state.ended => return None,
            Some(room) => state.received.0 + room,
            None if self.windowed => state.shown.0 + CREDIT_WINDOW,
            None => u64::MAX,
        };
        state.up_to = DeliveryNumber(up_to);
        Some(Command::Credit { consumer: self.id, up_to: state.up_to })
    }

    /// This node has no copy of the next body: gets it from the leader (DLV 1).
    fn fetch(self: &Arc<Self>, node: &Arc<Node>, state: &mut FrontState) {
        state.fetching = true;
        let Some(first) = state.ready.front() else { return };
        let wanted = MessageRef { queue: self.queue, message: first.message };
        let number = first.number;
        let (node, consumer) = (Arc::clone(node), Arc::clone(self));
        let task = Arc::clone(&node);
        task.spawn(async move {
            let body = node.fetch_message(wanted).await;
            consumer.fetched(number, body);
        });
    }

    fn fetched(self: &Arc<Self>, number: DeliveryNumber, body: Option<Bytes>) {
        let mut state = self.state.lock();
        state.fetching = false;
        if state.ready.front().is_some_and(|reference| reference.number == number) {
            match (body, state.ready.front_mut()) {
                (Some(body), Some(reference)) => reference.fetched = Some(body),
                // Gone: it has been settled, so there is nothing to show (DLV 1).
                (None, _) => drop(state.ready.pop_front()),
                (Some(_), None) => {}
            }
        }
        self.list(&mut state);
    }
}

fn references_of(queue: QueueId, references: &[Reference]) -> Vec<MessageRef> {
    references.iter().map(|reference| MessageRef { queue, message: reference.message }).collect()
}
