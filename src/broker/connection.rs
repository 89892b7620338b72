//! One client connection's handle on the broker, and what the broker keeps of it.

use crate::{
    client::{
        ChannelId, ChannelReport, ConnectionInfo, Delivered, Event, HolderRef, Pressure, Settle,
        SocketReport,
    },
    connection_state::{ConnectionState, Held, Reporting},
    memory::Share,
    node::Node,
    publisher::Publisher,
};
use quorate_types::{Exception, QueueId};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

/// Bytes that one read of a socket brings, about.
const READ_BYTES: usize = 256 * 1024;

/// A client connection. Dropping it without [`Connection::close`] is a loss of the connection:
/// its channels end, its exclusive queues go (CONN-32).
#[derive(Debug)]
pub struct Connection {
    pub(crate) node: Arc<Node>,
    pub(crate) state: Arc<ConnectionState>,
}

impl Connection {
    /// What was given at the opening.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        &self.state.info
    }

    /// A channel is open: lists show it from now on, until [`Connection::close_channel`].
    ///
    /// # Errors
    /// 530: the user has as many channels as it may have (CHN-03).
    pub fn open_channel(&self, id: ChannelId) -> Result<(), Exception> {
        self.check_channels()?;
        let report = ChannelReport::default();
        let before =
            self.state.reported.channels.lock().insert(id.number, Reporting { id, report });
        self.state.count(&self.node.clients.counts, 0, i64::from(before.is_none()));
        self.state.counters.channels_opened.add(1);
        self.recount();
        Ok(())
    }

    /// Tells what lists show of a channel. Of one that has ended, nothing any more.
    pub fn report_channel(&self, id: ChannelId, report: ChannelReport) {
        let mut channels = self.state.reported.channels.lock();
        if let Some(open) = channels.get_mut(&id.number).filter(|open| open.id == id) {
            open.report = report;
        }
    }

    /// Tells what lists show of the socket, and whether it is not being read because of an alarm
    /// (ALM-03).
    pub fn report_socket(&self, socket: SocketReport, blocked: bool) {
        let reported = &self.state.reported;
        *reported.socket.lock() = socket;
        reported.blocked.store(blocked, Ordering::Relaxed);
    }

    /// Waits until there is at least one event, and takes all there are. Cancel-safe.
    pub async fn events(&self, events: &mut Vec<Event>) {
        self.state.mailbox.take(events).await;
        if events.iter().any(|event| matches!(event, Event::MaySettle)) {
            self.settle(Vec::new());
        }
    }

    /// Whether the socket may be read on.
    pub(crate) fn pressure(&self) -> Pressure {
        let full = self.state.in_flight.is_full();
        if !full && !self.node.publisher.is_full_for(&self.state) {
            return Pressure::None;
        }
        self.node.base.context.memory.note_waited(Share::InFlight);
        Pressure::Wait
    }

    /// Resolves when the socket may be read again after [`Pressure::Wait`]. Cancel-safe.
    pub async fn room(&self) {
        let state = &self.state;
        let ready = || {
            state.in_flight.has_room()
                && !self.node.publisher.is_full_for(state)
                && !state.held_publishes.lock().busy
        };
        state.in_flight.until(ready).await;
        self.node.base.lease.until_held().await;
    }

    /// So many bytes of answers and deliveries wait to be written to the client now.
    pub fn report_unwritten(&self, bytes: usize) {
        self.state.unwritten.set(bytes);
    }

    /// As [`Connection::report_unwritten`], with deliveries that have just been taken.
    pub fn report_given(&self, bytes: usize) {
        self.state.unwritten.given(bytes);
    }

    /// Bytes of deliveries that may be taken now, beside what waits to be written; 0 for none
    /// before something of it has been written or the node's budget has room.
    #[must_use]
    pub fn delivery_room_bytes(&self) -> usize {
        let room = self.state.unwritten.room_bytes();
        if room == 0 {
            self.state.unwritten.note_waited();
        }
        room
    }

    /// The memory for deliveries is used up, and this connection has some of it.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.state.unwritten.is_pressed()
    }

    /// The client takes what it is sent so slowly that others get nothing: it is dropped.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.state.unwritten.is_given_up()
    }

    /// Resolves when the node's budget of bodies has room, for a connection that has waited for it.
    /// Cancel-safe.
    pub async fn budget_room(&self) {
        self.state.unwritten.budget_room().await;
    }

    /// Takes deliveries to be written now, until they have `bytes_max` bytes of bodies (at least
    /// one if any is ready). What is taken counts as shown to the client (DLV 4).
    pub fn take_deliveries(&self, bytes_max: usize, deliveries: &mut Vec<Delivered>) {
        // What becomes ready from here on is announced again.
        self.state.announced.store(false, Ordering::Release);
        let first = deliveries.len();
        let mut left = bytes_max.saturating_sub(self.state.replies.take(bytes_max, deliveries));
        let mut waiting = Vec::new();
        while left > 0 {
            let Some(consumer) = self.state.next_ready() else { break };
            let taken = consumer.take(&self.node.front, left, deliveries);
            left = left.saturating_sub(taken.bytes.max(1));
            if taken.more {
                waiting.push(consumer);
            }
        }
        self.node
            .publisher
            .trace_deliveries(&self.state, deliveries.get(first..).unwrap_or_default());
        let more = !waiting.is_empty();
        self.state.ready.lock().extend(waiting);
        let untaken = || !self.state.ready.lock().is_empty() || !self.state.replies.is_empty();
        if more || (left == 0 && untaken()) {
            self.state.announce();
        }
    }

    /// Limits the unsettled deliveries of all consumers of a channel together (QOS-06, Q-12);
    /// `None` takes the limit away.
    pub fn limit_channel(&self, channel: ChannelId, limit: Option<u16>) {
        self.state.held.lock().channels.entry(channel).or_default().limit = limit;
        match limit {
            Some(_) => self.node.front.share_room(&self.state, channel),
            None => self.node.front.lift_limit(&self.state, channel),
        }
    }

    /// Settles deliveries, after what the client published before. Needs no answer (ACK-08).
    pub fn settle(&self, settles: Vec<Settle>) {
        let settles = self.state.held_publishes.lock().hold_settles(settles);
        self.node.front.settle(&self.state, settles);
    }

    /// Settles at once what waits for publishes that are held: what was settled before its channel ends
    /// does not return.
    fn settle_held(&self, is_ending: impl Fn(HolderRef) -> bool) {
        let settles = self.state.held_publishes.lock().take_settles(is_ending);
        self.node.front.settle(&self.state, settles);
    }

    /// The channel has ended, by a close or an error: its consumers end, what they and its gets
    /// hold returns (CHN-05). Deliveries and confirms for it stop at once.
    pub fn close_channel(&self, channel: ChannelId) {
        self.settle_held(|holder| self.state.is_of(channel, holder));
        self.forget_channel(channel);
        let ended = self.state.held.lock().channels.remove(&channel);
        if let Some(ended) = ended {
            self.node.front.end_channel(ended);
        }
    }

    /// False once the channel has been closed.
    pub(crate) fn is_open(&self, id: ChannelId) -> bool {
        self.state.reported.channels.lock().get(&id.number).is_some_and(|open| open.id == id)
    }

    fn forget_channel(&self, id: ChannelId) {
        let mut channels = self.state.reported.channels.lock();
        if channels.get(&id.number).is_some_and(|open| open.id == id) {
            channels.remove(&id.number);
            self.state.counters.channels_closed.add(1);
            drop(channels);
            self.state.count(&self.node.clients.counts, 0, -1);
            self.recount();
        }
    }

    /// The client closes: channels end, exclusive queues are deleted; then close-ok may be sent
    /// (CONN-27).
    pub async fn close(self) {
        let queues = self.end();
        self.node.exclusive.end_exclusive(queues).await;
    }

    fn end(&self) -> BTreeSet<QueueId> {
        self.settle_held(|_| true);
        let held = {
            let mut held = self.state.held.lock();
            let closed = Held { closed: true, ..Held::default() };
            std::mem::replace(&mut *held, closed)
        };
        if held.closed {
            return BTreeSet::new();
        }
        self.node.clients.connections.remove(self.state.id.number);
        self.state.unwritten.set(0);
        let open = std::mem::take(&mut *self.state.reported.channels.lock());
        self.state.counters.channels_closed.add(open.len() as u64);
        // A connection has at most 65,535 channels.
        self.state.count(&self.node.clients.counts, -1, -(open.len() as i64));
        self.state.counters.connections_closed.add(1);
        self.recount();
        for (_, channel) in held.channels {
            self.node.front.end_channel(channel);
        }
        held.queues
    }
}

impl Publisher {
    /// Some home has more under way than it should, or the whole node, and this connection has a part
    /// in it: who has little in flight does not wait for those who have much, since what it sends
    /// next may go elsewhere. But many who have little may have much together.
    pub(crate) fn is_full_for(&self, connection: &ConnectionState) -> bool {
        let little = if self.base.context.memory.is_overdrawn(Share::InFlight, true) {
            0
        } else {
            READ_BYTES
        };
        connection.in_flight.bytes() > little
            && (self.base.proposers.home_bytes_max() as u64
                > self.base.context.settings.home_in_flight_bytes
                || self.base.context.memory.room_bytes(Share::InFlight) == 0)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let queues = self.end();
        if !queues.is_empty() {
            let node = Arc::clone(&self.node);
            self.node.base.context.spawn(async move { node.exclusive.end_exclusive(queues).await });
        }
    }
}
