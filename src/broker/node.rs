//! What the rooms of the broker share: this node's proposers, groups, links, catalog copy,
//! connections and consumers.

use crate::{
    batch::{Answered, Batches, Ticket},
    catalog_client::CatalogClient,
    client::{HolderRef, Settle, Settlement},
    confirm::{TargetAnswer, Verdict},
    connection::{ConnectionState, HeldByChannel},
    consumer::FrontConsumer,
    executor::Executor,
    lease::Lease,
    local::LocalQueues,
    proposer::{Courier, Proposer},
    sequencer::Sequencer,
    settings::BrokerSettings,
    wire,
};
use bytes::Bytes;
use parking_lot::RwLock;
use quorate_catalog::Catalog;
use quorate_queue::{Command, Detach, Reply};
use quorate_raft::Groups;
use quorate_rpc::{Lane, Links};
use quorate_storage::{
    CommandEntry, MessageRef,
    codec::batch::{ProposedBatch, encode_batch},
};
use quorate_types::{
    BootNumber, CatalogIndex, ConsumerId, DeliveryNumber, GroupId, Holder, Home, NodeId, QueueId, ReturnCause,
    Sequence, SessionId,
};
use std::{
    collections::{BTreeMap, HashMap},
    future::Future,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// One node's broker, shared by all its rooms.
pub(crate) struct Node {
    this: Weak<Node>,
    pub(crate) me: NodeId,
    pub(crate) boot: BootNumber,
    pub(crate) settings: BrokerSettings,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) catalog: Arc<RwLock<Catalog>>,
    pub(crate) catalog_client: CatalogClient,
    /// Index that this node's copy has been applied up to.
    pub(crate) catalog_version: tokio::sync::watch::Sender<CatalogIndex>,
    pub(crate) lease: Lease,
    pub(crate) local: LocalQueues,
    /// One for each home that this node may send to.
    pub(crate) proposers: BTreeMap<Home, Proposer>,
    pub(crate) sequencers: BTreeMap<GroupId, Sequencer>,
    pub(crate) executor: Executor,
    pub(crate) connections: Registry<Arc<ConnectionState>>,
    pub(crate) consumers: Registry<Arc<FrontConsumer>>,
    /// This run's session, once its start number is known.
    pub(crate) session: RwLock<Option<SessionId>>,
    pub(crate) groups: OnceLock<Arc<Groups>>,
    pub(crate) links: OnceLock<Links>,
    pub(crate) pacer: tokio::sync::Notify,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node({})", self.me)
    }
}

/// Things of one kind by number, numbers given from 1 and never again.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    next: AtomicU64,
    by_number: RwLock<HashMap<u64, T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), by_number: RwLock::default() }
    }
}

impl<T: Clone> Registry<T> {
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, number: u64, thing: T) {
        self.by_number.write().insert(number, thing);
    }

    pub(crate) fn get(&self, number: u64) -> Option<T> {
        self.by_number.read().get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<T> {
        self.by_number.write().remove(&number)
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.by_number.read().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.read().len()
    }
}

/// Why a command got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The home has no leader that answered in time.
    #[error("timed out")]
    TimedOut,
    /// The node has begun anew (SES 6).
    #[error("the node's session has ended")]
    SessionEnded,
}

impl Node {
    /// The node, shared, for tasks that outlive a call; `None` while it is being made or dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Runs a task of the node's.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// This run's session; `None` until its start has been announced.
    pub(crate) fn session(&self) -> Option<SessionId> {
        *self.session.read()
    }

    /// The groups; set once when the node starts, before anything is served.
    pub(crate) fn groups(&self) -> Option<&Arc<Groups>> {
        self.groups.get()
    }

    /// Octets under way to the fullest home.
    pub(crate) fn home_bytes_max(&self) -> usize {
        self.proposers.values().map(Proposer::bytes).max().unwrap_or(0)
    }

    /// Adds to what is sent to a home, and lets a connection-bound home work it off.
    pub(crate) fn fill(&self, home: Home, fill: impl FnOnce(&mut Batches)) {
        let Some(proposer) = self.proposers.get(&home) else {
            tracing::error!(?home, "no such home");
            return;
        };
        proposer.submit(&Carrier(self), fill);
        if home == Home::Node(self.me) {
            self.local.run(self);
        }
    }

    /// Sends a command whose reply nobody waits for.
    pub(crate) fn submit(&self, home: Home, command: Command) {
        self.fill(home, |batches| batches.push(command, Ticket::None));
    }

    /// Sends a command and waits for its reply, as long as operations may take.
    pub(crate) async fn ask(&self, home: Home, command: Command) -> Result<Reply, CallError> {
        let (sender, receiver) = oneshot::channel();
        self.fill(home, |batches| batches.push(command, Ticket::Reply(sender)));
        self.wait(receiver).await
    }

    /// Waits for an answer, as long as operations may take.
    pub(crate) async fn wait<T>(&self, receiver: oneshot::Receiver<T>) -> Result<T, CallError> {
        let bound = Duration::from_millis(self.settings.operation_timeout_ms);
        match tokio::time::timeout(bound, receiver).await {
            Err(_) => Err(CallError::TimedOut),
            Ok(Err(_)) => Err(CallError::SessionEnded),
            Ok(Ok(reply)) => Ok(reply),
        }
    }

    /// Takes a home's answers to this node's batches.
    pub(crate) fn answered(
        self: &Arc<Self>,
        home: Home,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
    ) {
        let Some(proposer) = self.proposers.get(&home) else { return };
        let answered = proposer.answered(&Carrier(self), session, first, last, other);
        for answered in answered {
            self.complete(home, session, answered);
        }
        if home == Home::Node(self.me) {
            self.local.run(self);
        }
    }

    fn complete(self: &Arc<Self>, home: Home, session: SessionId, answered: Answered) {
        match (answered.ticket, answered.reply) {
            (Ticket::None, _) => {}
            (Ticket::Publishes(tickets), Reply::Taken) => {
                tickets.iter().for_each(|ticket| ticket.finish_all(true));
            }
            (Ticket::Publishes(tickets), reply) => {
                let mut place = 0;
                for ticket in &tickets {
                    for offset in 0..ticket.count {
                        let message =
                            answered.messages.get(place as usize).cloned().unwrap_or_default();
                        let answer = answer_of(&reply, place);
                        if let Verdict::RouteAgain(octets) =
                            ticket.finish_one(offset, answer, &message)
                        {
                            self.route_again(ticket, offset, octets);
                        }
                        place += 1;
                    }
                }
            }
            // The caller may have given up; only a get's message has to go back for that.
            (Ticket::Reply(caller), reply) => drop(caller.send(reply)),
            (Ticket::Get(caller), reply) => {
                if let Err((sequence, Reply::Got(_))) = caller.send((answered.sequence, reply)) {
                    let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
                    let holder = Holder::Get(session, sequence);
                    self.submit(home, Command::Release { holder, numbers });
                }
            }
        }
    }

    /// Settles what a client settles, and notes what its channels hold less.
    pub(crate) fn settle(&self, connection: &ConnectionState, settles: Vec<Settle>) {
        let mut opened = Vec::new();
        for settle in settles {
            let Settle { holder: HolderRef { home, holder }, numbers, settlement } = settle;
            let count = numbers.iter().map(|(first, last)| last.0 + 1 - first.0).sum::<u64>();
            settled_at(connection, HolderRef { home, holder }, count, &mut opened);
            let command = match settlement {
                Settlement::Ack => Command::Settle { holder, numbers },
                Settlement::Requeue(cause) => Command::Return { holder, numbers, cause },
                Settlement::Discard => Command::Discard { holder, numbers },
            };
            self.submit(home, command);
        }
        opened.iter().for_each(|consumer| consumer.gate_changed(self));
    }

    /// Ends what a channel held.
    pub(crate) fn end_channel(&self, channel: HeldByChannel) {
        for (id, consumer) in channel.consumers {
            self.consumers.remove(id.number);
            let (shown, _) = consumer.end();
            let detach = Command::Detach { consumer: id, shown, how: Detach::ChannelEnd };
            self.submit(consumer.home(), detach);
        }
        for HolderRef { home, holder } in channel.gets {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            let cause = ReturnCause::ChannelEnd;
            self.submit(home, Command::Return { holder, numbers, cause });
        }
    }

    /// A consumer of this run of the node.
    pub(crate) fn consumer(&self, id: ConsumerId) -> Option<Arc<FrontConsumer>> {
        (self.session() == Some(id.session)).then(|| self.consumers.get(id.number)).flatten()
    }

    /// Bodies of which this node has a copy; one for each reference.
    pub(crate) fn read_messages(&self, queue: QueueId, wanted: &[MessageRef]) -> Vec<Option<Bytes>> {
        let read = match queue.home {
            Home::Node(_) => return self.local.messages(wanted),
            Home::Group(group) => {
                self.groups().and_then(|groups| groups.store(group)).map(|store| store.messages(wanted))
            }
        };
        match read {
            Some(Ok(messages)) => messages,
            Some(Err(error)) => {
                tracing::error!(%queue, %error, "messages cannot be read");
                vec![None; wanted.len()]
            }
            None => vec![None; wanted.len()],
        }
    }

    /// Hands an entry to the group's log; false if this node does not lead it.
    pub(crate) fn propose(&self, group: GroupId, entry: CommandEntry) -> bool {
        self.groups().is_some_and(|groups| groups.propose(group, entry).is_ok())
    }

    /// Proposes a command of the leader's own, if this node leads the group.
    pub(crate) fn propose_as_leader(&self, group: GroupId, command: Command) {
        if let Some(sequencer) = self.sequencers.get(&group) {
            sequencer.command(command, |entry| self.propose(group, entry));
        }
    }

    /// Takes a batch for a home that this node leads.
    pub(crate) fn take_batch(&self, home: Home, batch: ProposedBatch) {
        match home {
            Home::Node(_) => self.local.push(batch),
            Home::Group(group) => {
                if let Some(sequencer) = self.sequencers.get(&group) {
                    sequencer.push(batch, |entry| self.propose(group, entry));
                    if sequencer.is_waiting() {
                        self.pacer.notify_one();
                    }
                }
            }
        }
    }
}

/// How the enqueue's reply answers the message at that place.
fn answer_of(reply: &Reply, place: u32) -> TargetAnswer {
    match reply {
        Reply::Taken => TargetAnswer::Taken,
        Reply::Refused(ranges) => {
            if ranges.iter().any(|&(first, last)| (first..=last).contains(&place)) {
                TargetAnswer::Refused
            } else {
                TargetAnswer::Taken
            }
        }
        Reply::Gone
        | Reply::Created(_)
        | Reply::Alive(_)
        | Reply::Ended { .. }
        | Reply::InUse
        | Reply::NotEmpty
        | Reply::ExclusiveInUse
        | Reply::Got(_)
        | Reply::Empty
        | Reply::Purged { .. } => TargetAnswer::Gone,
    }
}

/// Notes that a holder holds `count` less. If its channel has a limit, the channel's consumers are
/// added to `opened`, since they may have room now.
fn settled_at(
    connection: &ConnectionState,
    settled: HolderRef,
    count: u64,
    opened: &mut Vec<Arc<FrontConsumer>>,
) {
    let mut held = connection.held.lock();
    let Holder::Consumer(id) = settled.holder else {
        held.channels.values_mut().for_each(|channel| drop(channel.gets.remove(&settled)));
        return;
    };
    let channel = held.channels.values_mut().find(|channel| channel.consumers.contains_key(&id));
    let Some(channel) = channel else { return };
    channel.unsettled = channel.unsettled.saturating_sub(count);
    if channel.limit.is_some() {
        opened.extend(channel.consumers.values().cloned());
    }
    if channel.consumers.get(&id).is_some_and(|consumer| consumer.settled(count)) {
        channel.consumers.remove(&id);
    }
}

/// Carries batches: to this node directly, to others over the bulk lane.
pub(crate) struct Carrier<'a>(pub(crate) &'a Node);

impl Courier for Carrier<'_> {
    fn carry(&self, home: Home, to: NodeId, batch: &ProposedBatch) {
        if to == self.0.me {
            self.0.take_batch(home, batch.clone());
        } else if let Some(links) = self.0.links.get() {
            // What does not arrive is sent again after the next announcement (SES 5).
            let payload = encode_batch(batch);
            drop(links.notify(to, Lane::Bulk, wire::BATCH, wire::group(home), payload));
        }
    }
}
