//! What the rooms of the broker share: this node's proposers, groups, links, catalog copy,
//! connections and consumers.

use crate::{
    alarm::Alarms,
    batch::{Answered, Batches, Ticket},
    catalog_client::CatalogClient,
    client::{ConnectionInfo, Event, FrontSettings, HolderRef, Settle, Settlement},
    confirm::{TargetAnswer, Verdict},
    connection::{Connection, ConnectionState, HeldByChannel},
    consumer::FrontConsumer,
    counters::Counters,
    executor::Executor,
    failure::Failures,
    hearing::Hearing,
    lease::Lease,
    local::LocalQueues,
    proposer::{Courier, Proposer},
    sequencer::{Handed, Sequencer},
    settings::BrokerSettings,
    sink::Early,
    wire,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use quorate_catalog::{Catalog, ClusterShape, ConnectionId, QueueEntry, refusal};
use quorate_queue::{Command, Detach, Machine, Reply};
use quorate_raft::{Groups, ProposeError};
use quorate_rpc::{Lane, Links, Payload};
use quorate_storage::{
    CommandEntry, Database, DatabaseStats, MessageRef,
    codec::batch::{ProposedBatch, encode_batch},
};
use quorate_types::{
    BootNumber, CatalogIndex, ConsumerId, DeliveryNumber, Exception, GroupId, Holder, Home, NodeId,
    QueueId, QueueType, ReplyCode, ResourceName, ReturnCause, Sequence, SessionId, ShortString,
    StartNumber,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    future::Future,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// A group's next entry is cut after this long at the latest (DESIGN §6).
const PACE: Duration = Duration::from_millis(3);

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
    pub(crate) hearing: Hearing,
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
    pub(crate) failures: Failures,
    pub(crate) alarms: Alarms,
    pub(crate) counters: Arc<Counters>,
    /// Entries of connection-bound queues of this node, also of those that are not in the catalog.
    pub(crate) local_entries: RwLock<BTreeMap<ResourceName, QueueEntry>>,
    pub(crate) early: Early,
    /// Groups that this node is about to announce itself to again.
    pub(crate) reannouncing: Mutex<BTreeSet<GroupId>>,
    /// The cluster's shape, once it has one.
    pub(crate) formed: tokio::sync::watch::Sender<Option<ClusterShape>>,
    /// The database's numbers.
    pub(crate) storage_stats: OnceLock<StatsSource>,
    /// Whether this run's session is in force.
    pub(crate) started: tokio::sync::watch::Sender<bool>,
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

/// Where the database's numbers come from.
pub(crate) type StatsSource = Box<dyn Fn() -> DatabaseStats + Send + Sync>;

/// The broker of one node, shared by everything that serves clients.
#[derive(Clone, Debug)]
pub struct Broker(pub(crate) Arc<Node>);

impl Broker {
    /// A broker that serves nobody yet: [`Broker::begin`] follows when its groups and links run.
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn new(settings: BrokerSettings, catalog: Arc<RwLock<Catalog>>) -> Self {
        let groups: Vec<_> = settings.shape.groups().collect();
        let homes = groups.iter().map(|group| Home::Group(*group));
        let homes = homes.chain(settings.members.iter().map(|node| Home::Node(*node)));
        let homes: Vec<_> = homes.collect();
        let nobody = SessionId { node: settings.me, start: StartNumber(0) };
        let (version, shape) = (catalog.read().version(), catalog.read().shape());
        Self(Arc::new_cyclic(|this| Node {
            this: Weak::clone(this),
            me: settings.me,
            boot: settings.boot,
            runtime: tokio::runtime::Handle::current(),
            catalog,
            catalog_client: CatalogClient::default(),
            catalog_version: tokio::sync::watch::Sender::new(version),
            lease: Lease::new(),
            local: LocalQueues::new(settings.spill.clone()),
            hearing: Hearing::new(
                groups.iter().copied().map(Home::Group),
                settings.consumer_disconnected_timeout_ms,
            ),
            proposers: homes.iter().map(|home| (*home, Proposer::new(*home, nobody))).collect(),
            sequencers: groups.iter().map(|group| (*group, Sequencer::default())).collect(),
            executor: Executor::new(homes.iter().copied()),
            connections: Registry::default(),
            consumers: Registry::default(),
            session: RwLock::new(None),
            groups: OnceLock::new(),
            links: OnceLock::new(),
            pacer: tokio::sync::Notify::new(),
            failures: Failures::default(),
            alarms: Alarms::default(),
            counters: Arc::default(),
            local_entries: RwLock::default(),
            early: Early::default(),
            reannouncing: Mutex::default(),
            formed: tokio::sync::watch::Sender::new(shape),
            storage_stats: OnceLock::new(),
            started: tokio::sync::watch::Sender::new(false),
            settings,
        }))
    }

    /// Takes the running groups and links, announces this run, and keeps house from now on.
    pub fn begin(&self, groups: Arc<Groups>, links: Links, database: &Arc<Database>) {
        let node = &self.0;
        // Weak: metrics do not keep the database open.
        let weak = Arc::downgrade(database);
        let stats = move || weak.upgrade().map(|database| database.stats()).unwrap_or_default();
        // Set once, here; a second begin is refused below.
        let _ = node.storage_stats.set(Box::new(stats));
        let pacer = Arc::downgrade(node);
        database.writer().subscribe_cycles(Box::new(move |_| {
            if let Some(node) = pacer.upgrade() {
                node.pace_all();
            }
        }));
        if node.links.set(links).is_err() || node.groups.set(groups).is_err() {
            tracing::error!("a broker was begun twice");
            return;
        }
        node.lead_early();
        let tasks = Arc::clone(node);
        node.spawn(async move { tasks.announce_start().await });
        node.spawn(Arc::clone(node).keep_lease());
        node.spawn(Arc::clone(node).look_after());
        node.spawn(Arc::clone(node).watch_alarms());
        node.spawn(Arc::clone(node).pace());
    }

    /// Settings for front ends.
    #[must_use]
    pub fn front_settings(&self) -> FrontSettings {
        self.0.settings.front.clone()
    }

    /// Checks a password; `loopback` tells whether the client's address is one (ACL-24).
    #[must_use]
    pub fn authenticate(&self, user: &str, password: &[u8], loopback: bool) -> bool {
        // Users beyond guest come with access control.
        user == "guest" && password == b"guest" && loopback
    }

    /// Opens a connection (`connection.open`), after its user has been authenticated.
    ///
    /// # Errors
    /// 530 as CONN-20 lists; 541 while this run has no session.
    pub fn connect(&self, info: ConnectionInfo) -> Result<Connection, Exception> {
        let node = &self.0;
        if !node.catalog.read().has_vhost(&info.vhost) {
            return Err(refusal::no_vhost(&info.vhost));
        }
        let Some(session) = node.session() else {
            let text = "this node has not joined its cluster yet";
            return Err(Exception::new(ReplyCode::InternalError, text));
        };
        let id = ConnectionId { session, number: node.connections.number() };
        let in_flight_max = node.settings.connection_in_flight_bytes;
        let counters = Arc::clone(&node.counters);
        let state = Arc::new(ConnectionState::new(id, info, in_flight_max, counters));
        node.connections.insert(id.number, Arc::clone(&state));
        node.counters.connections_opened.add(1);
        Ok(Connection { node: Arc::clone(node), state })
    }

    /// Alarms in force, for a connection that begins to publish (ALM-02): the reason.
    #[must_use]
    pub fn alarm(&self) -> Option<String> {
        self.0.alarms.reason()
    }

    /// The name that consumers and queues are given: `prefix` and 22 characters of URL-safe
    /// base64 of 16 random octets (QUE-06, CON-01).
    #[must_use]
    pub fn generated_name(&self, prefix: &str) -> ShortString {
        self.0.generated_name(prefix)
    }

    /// The cluster's shape, once it has one.
    #[must_use]
    pub fn formed(&self) -> tokio::sync::watch::Receiver<Option<ClusterShape>> {
        self.0.formed.subscribe()
    }

    /// Open client connections.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.0.connections.len()
    }
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

    /// Sends a command and waits for its reply however long that takes.
    pub(crate) async fn ask_until_answered(
        &self,
        home: Home,
        command: Command,
    ) -> Result<Reply, CallError> {
        let (sender, receiver) = oneshot::channel();
        self.fill(home, |batches| batches.push(command, Ticket::Reply(sender)));
        receiver.await.map_err(|_| CallError::SessionEnded)
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
            let queue_type = settled_at(connection, HolderRef { home, holder }, count, &mut opened);
            if let (Settlement::Ack, Some(queue_type)) = (settlement, queue_type) {
                self.counters.deliveries(queue_type).acknowledged.add(count);
            }
            let command = match settlement {
                Settlement::Ack => Command::Settle { holder, numbers },
                Settlement::Requeue(cause) => Command::Return { holder, numbers, cause },
                Settlement::Discard => Command::Discard { holder, numbers },
                Settlement::Release => Command::Release { holder, numbers },
            };
            self.submit(home, command);
        }
        self.credit(&opened);
    }

    /// Tells consumers' homes what may be assigned to them now. Those of one home in one batch, so
    /// that what all of a channel's consumers get is known before any of it is shown.
    pub(crate) fn credit(&self, consumers: &[Arc<FrontConsumer>]) {
        let mut by_home: BTreeMap<Home, Vec<Command>> = BTreeMap::new();
        for consumer in consumers {
            by_home.entry(consumer.home()).or_default().extend(consumer.credit());
        }
        for (home, commands) in by_home {
            self.fill(home, |batches| {
                commands.into_iter().for_each(|command| batches.push(command, Ticket::None));
            });
        }
    }

    /// Ends what a channel held.
    pub(crate) fn end_channel(&self, channel: HeldByChannel) {
        for (id, consumer) in channel.consumers {
            self.consumers.remove(id.number);
            let (shown, _) = consumer.end();
            let detach = Command::Detach { consumer: id, shown, how: Detach::ChannelEnd };
            self.submit(consumer.home(), detach);
        }
        for HolderRef { home, holder } in channel.gets.into_keys() {
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
    pub(crate) fn read_messages(
        &self,
        queue: QueueId,
        wanted: &[MessageRef],
    ) -> Vec<Option<Bytes>> {
        let read = match queue.home {
            Home::Node(_) => return self.local.messages(wanted),
            Home::Group(group) => self
                .groups()
                .and_then(|groups| groups.group(group))
                .map(|group| group.store().messages(wanted)),
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

    /// A server-given name (QUE-06, CON-01).
    pub(crate) fn generated_name(&self, prefix: &str) -> ShortString {
        let chance: [u8; 16] = rand::random();
        let name = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(chance));
        // A prefix of ours and 22 characters are a short string.
        ShortString::try_from(name).unwrap_or_default()
    }

    /// Closes all client connections.
    pub(crate) fn close_all(&self, why: &str) {
        for connection in self.connections.all() {
            let exception = Exception::new(ReplyCode::ConnectionForced, why);
            connection.mailbox.put(Event::Close(exception));
        }
    }

    /// Members of the cluster.
    pub(crate) fn members(&self) -> Vec<NodeId> {
        self.settings.members.clone()
    }

    /// Queue groups that this node leads.
    pub(crate) fn led_groups(&self) -> Vec<GroupId> {
        let leads = |group: &GroupId| self.executor.leading(Home::Group(*group)).is_some();
        self.sequencers.keys().copied().filter(leads).collect()
    }

    /// Reads a home's machine on this node.
    pub(crate) fn with_machine<T>(
        &self,
        home: Home,
        read: impl FnOnce(&Machine) -> T,
    ) -> Option<T> {
        match home {
            Home::Node(_) => self.local.read(read),
            Home::Group(group) => self.groups()?.read(group, read),
        }
    }

    /// Cuts entries that have waited for a pace of the disk too long.
    async fn pace(self: Arc<Self>) {
        loop {
            self.pacer.notified().await;
            tokio::time::sleep(PACE).await;
            self.pace_all();
        }
    }

    /// A good moment to cut what waits: the log writer has finished a cycle, or time is up.
    pub(crate) fn pace_all(&self) {
        for (group, sequencer) in &self.sequencers {
            sequencer.pace(|entry| self.propose(*group, entry));
        }
    }

    /// Hands an entry to the group's log.
    pub(crate) fn propose(&self, group: GroupId, entry: CommandEntry) -> Handed {
        let Some(group) = self.groups().and_then(|groups| groups.group(group)) else {
            return Handed::Lost;
        };
        match group.propose(entry.clone()) {
            Ok(()) => Handed::Taken,
            Err(ProposeError::Full) => Handed::Busy(entry),
            Err(ProposeError::NotLeader(_) | ProposeError::Stopped) => Handed::Lost,
        }
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

/// Notes that a holder holds `count` less, and tells the type of its queue. If its channel has a
/// limit, the channel's consumers are added to `opened`, since they may have room now.
fn settled_at(
    connection: &ConnectionState,
    settled: HolderRef,
    count: u64,
    opened: &mut Vec<Arc<FrontConsumer>>,
) -> Option<QueueType> {
    let mut held = connection.held.lock();
    let Holder::Consumer(id) = settled.holder else {
        return held.channels.values_mut().find_map(|channel| channel.gets.remove(&settled));
    };
    let channel = held.channels.values_mut().find(|channel| channel.consumers.contains_key(&id))?;
    channel.unsettled = channel.unsettled.saturating_sub(count);
    if channel.limit.is_some() {
        opened.extend(channel.consumers.values().cloned());
    }
    let consumer = channel.consumers.get(&id)?;
    let queue_type = consumer.queue_type;
    if consumer.settled(count) {
        channel.consumers.remove(&id);
    }
    Some(queue_type)
}

/// Carries batches: to this node directly, to others over the bulk lane.
pub(crate) struct Carrier<'a>(pub(crate) &'a Node);

impl Courier for Carrier<'_> {
    fn cut(&self, batch: &ProposedBatch, waited: Duration) {
        self.0.counters.batch_commands.record(batch.commands.len() as u64);
        self.0.counters.batch_wait_us.record_time(waited);
    }

    fn carry(&self, home: Home, to: NodeId, batch: &ProposedBatch) {
        if to == self.0.me {
            self.0.take_batch(home, batch.clone());
        } else if let Some(links) = self.0.links.get() {
            // What does not arrive is sent again after the next announcement (SES 5).
            let payload: Payload = encode_batch(batch).into_iter().collect();
            let _ = links.notify(to, Lane::Bulk, wire::BATCH, wire::group(home), payload);
        }
    }
}
