//! What the broker keeps of a client connection.

use crate::{
    client::{ChannelId, ChannelReport, ConnectionInfo, Event, HolderRef, SocketReport},
    context::Context,
    front::{
        consumer::FrontConsumer,
        held_publishes::HeldPublishes,
        in_flight::InFlight,
        mailbox::Mailbox,
        publish_access::PublishAccess,
        replies::{Replies, ReplyConsumer},
        routed::RoutedPublish,
        unfinished::Unfinished,
        unwritten::Unwritten,
    },
    memory::Share,
    views::counters::Counters,
};
use parking_lot::Mutex;
use quorate_catalog::ConnectionId;
use quorate_types::{ConsumerId, QueueId, QueueType, WallTime};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// What the broker keeps of a connection; tickets and consumers hold it too.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) id: ConnectionId,
    pub(crate) info: ConnectionInfo,
    pub(crate) mailbox: Mailbox,
    pub(crate) publishing: Publishing,
    pub(crate) delivering: Delivering,
    pub(crate) held: Mutex<Held>,
    pub(crate) reported: Reported,
    pub(crate) unfinished: Unfinished,
    pub(crate) connected_at: WallTime,
    /// Consumers, those included that are about to end.
    pub(crate) consumers: AtomicU64,
    /// Access version that its consumers were last asked for again (CONN-30).
    pub(crate) secret_checked: AtomicU64,
    /// The node's.
    pub(crate) counters: Arc<Counters>,
}

/// What a connection publishes.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) in_flight: InFlight,
    /// Publishes that cannot be routed yet.
    pub(crate) held: Mutex<HeldPublishes>,
    /// What is remembered of the user's rights.
    pub(crate) access: Mutex<PublishAccess>,
}

/// What is delivered to a connection.
#[derive(Debug)]
pub(crate) struct Delivering {
    pub(crate) unwritten: Unwritten,
    /// Consumers with deliveries ready, each at most once.
    pub(crate) ready: Mutex<VecDeque<Arc<FrontConsumer>>>,
    /// Replies to its channels' requests (DRT).
    pub(crate) replies: Replies,
    /// The client's task has been told that there is something to take.
    pub(crate) announced: AtomicBool,
}

/// An open channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporting {
    pub(crate) id: ChannelId,
    /// What its front end said last.
    pub(crate) report: ChannelReport,
}

/// What a front end says of its connection, for lists.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    pub(crate) socket: Mutex<SocketReport>,
    pub(crate) blocked: AtomicBool,
    /// The open channels, by number.
    pub(crate) channels: Mutex<BTreeMap<u16, Reporting>>,
}

/// What ends with the connection.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The connection has ended; nothing may be added.
    pub(crate) closed: bool,
    /// Channels that have consumers, unsettled gets, a transaction or a limit.
    pub(crate) channels: BTreeMap<ChannelId, HeldByChannel>,
    /// Exclusive queues.
    pub(crate) queues: BTreeSet<QueueId>,
}

/// What ends with a channel.
#[derive(Debug, Default)]
pub(crate) struct HeldByChannel {
    pub(crate) consumers: BTreeMap<ConsumerId, Arc<FrontConsumer>>,
    /// Unsettled gets, with the types of their queues.
    pub(crate) gets: BTreeMap<HolderRef, QueueType>,
    /// Its consumer of replies (DRT-01).
    pub(crate) replies: Option<ReplyConsumer>,
    /// Limit of unsettled deliveries of all consumers together, and how many there are.
    pub(crate) limit: Option<u16>,
    pub(crate) unsettled: u64,
    /// Publishes of its open transaction (TX-03).
    pub(crate) transaction: Vec<RoutedPublish>,
    /// Counts what its consumers were shown, takings at once as one.
    pub(crate) turns: u64,
    /// Its consumers are being given their turns; whether they are to be looked at once more.
    pub(crate) sharing: Option<bool>,
}

impl HeldByChannel {
    /// What its limit leaves; `None` without a limit.
    pub(crate) fn room(&self) -> Option<u64> {
        self.limit.map(|limit| u64::from(limit).saturating_sub(self.unsettled))
    }
}

impl ConnectionState {
    /// False once the channel has been closed.
    pub(crate) fn is_open(&self, id: ChannelId) -> bool {
        self.reported.channels.lock().get(&id.number).is_some_and(|open| open.id == id)
    }

    pub(crate) fn new(
        context: &Context,
        id: ConnectionId,
        info: ConnectionInfo,
        connected_at: WallTime,
        in_flight_max: u64,
    ) -> Self {
        Self {
            id,
            info,
            mailbox: Mailbox::default(),
            publishing: Publishing {
                in_flight: InFlight::new(in_flight_max),
                held: Mutex::new(HeldPublishes::new(context.memory.account(Share::InFlight))),
                access: Mutex::default(),
            },
            delivering: Delivering {
                unwritten: Unwritten::new(
                    &context.memory,
                    context.settings.front.delivery_ahead_bytes,
                ),
                ready: Mutex::default(),
                replies: Replies::new(&context.memory),
                announced: AtomicBool::new(false),
            },
            held: Mutex::default(),
            reported: Reported::default(),
            unfinished: Unfinished::default(),
            connected_at,
            consumers: AtomicU64::new(0),
            // No catalog comes so far.
            secret_checked: AtomicU64::new(u64::MAX),
            counters: Arc::clone(&context.counters),
        }
    }

    /// The consumer has deliveries ready.
    pub(crate) fn consumer_ready(&self, consumer: Arc<FrontConsumer>) {
        self.delivering.ready.lock().push_back(consumer);
        self.announce();
    }

    /// Something is ready to be taken.
    pub(crate) fn announce(&self) {
        if !self.delivering.announced.swap(true, Ordering::AcqRel) {
            self.mailbox.put(Event::DeliveriesReady);
        }
    }

    pub(crate) fn next_ready(&self) -> Option<Arc<FrontConsumer>> {
        self.delivering.ready.lock().pop_front()
    }
}
