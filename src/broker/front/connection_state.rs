//! The broker's state of a client connection.

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

/// The broker's state of a connection; tickets and consumers share it.
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
    /// Number of consumers, those included that are about to end.
    pub(crate) consumers: AtomicU64,
    /// The catalog's access version at the last check of its consumers' rights (CONN-30).
    pub(crate) secret_checked: AtomicU64,
    /// The counters of the node, shared by all connections.
    pub(crate) counters: Arc<Counters>,
}

/// The publishing side of a connection.
#[derive(Debug)]
pub(crate) struct Publishing {
    pub(crate) in_flight: InFlight,
    /// Publishes that cannot be routed yet.
    pub(crate) held: Mutex<HeldPublishes>,
    /// The remembered rights of the user.
    pub(crate) access: Mutex<PublishAccess>,
}

impl Publishing {
    /// Resolves when no publish waits until it can be routed. Cancel-safe.
    pub(crate) async fn routed(&self) {
        self.in_flight.until(|| !self.held.lock().busy).await;
    }
}

/// The delivering side of a connection.
#[derive(Debug)]
pub(crate) struct Delivering {
    pub(crate) unwritten: Unwritten,
    /// Consumers with deliveries ready, each at most once.
    pub(crate) ready: Mutex<VecDeque<Arc<FrontConsumer>>>,
    /// Replies to its channels' requests (DRT).
    pub(crate) replies: Replies,
    /// The client's task has been notified that deliveries are ready.
    pub(crate) announced: AtomicBool,
}

/// An open channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reporting {
    pub(crate) id: ChannelId,
    /// The last report of its front end.
    pub(crate) report: ChannelReport,
}

/// What a front end reports of its connection, for lists.
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
    /// Its exclusive queues, which are deleted when it ends.
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
    /// Limit of unsettled deliveries of all consumers together; `unsettled` is their present
    /// number.
    pub(crate) limit: Option<u16>,
    pub(crate) unsettled: u64,
    /// Publishes of its open transaction (TX-03).
    pub(crate) transaction: Vec<RoutedPublish>,
    /// Number of times that its consumers have taken deliveries; gives the order of their turns.
    pub(crate) turns: u64,
    /// Its consumers are being given their turns; true if they must be checked once more.
    pub(crate) sharing: Option<bool>,
}

impl HeldByChannel {
    /// Room that the limit leaves; `None` without a limit.
    pub(crate) fn room(&self) -> Option<u64> {
        self.limit.map(|limit| u64::from(limit).saturating_sub(self.unsettled))
    }
}

impl ConnectionState {
    /// Whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.held.lock().closed
    }

    /// Resolves with true when `ready` does, or with false when the connection ends before that.
    pub(crate) async fn lives_until(&self, ready: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = self.publishing.in_flight.until(|| self.has_ended()) => false,
            () = ready => true,
        }
    }

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
            // No version of a catalog reaches this value.
            secret_checked: AtomicU64::new(u64::MAX),
            counters: Arc::clone(&context.counters),
        }
    }

    /// Records that the consumer has deliveries ready.
    pub(crate) fn consumer_ready(&self, consumer: Arc<FrontConsumer>) {
        self.delivering.ready.lock().push_back(consumer);
        self.announce();
    }

    /// Notifies the client's task that deliveries are ready.
    pub(crate) fn announce(&self) {
        if !self.delivering.announced.swap(true, Ordering::AcqRel) {
            self.mailbox.put(Event::DeliveriesReady);
        }
    }

    pub(crate) fn next_ready(&self) -> Option<Arc<FrontConsumer>> {
        self.delivering.ready.lock().pop_front()
    }
}
