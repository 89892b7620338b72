//! The views of this node's queues, exchanges and clients, for lists and audits.

use crate::{
    Broker,
    base::Base,
    front::{
        connection_state::{ConnectionState, Reporting},
        consume::consumer_timeout,
    },
    leader::led_homes::walk,
    node::Node,
    views::{
        administration::{Operator, Views},
        view::{
            Alarm, BindingView, ChannelView, ConnectionView, ConsumerView, ExchangeView,
            GroupAudit, MemoryUse, NodeView, PolicyView, QueueCounts, QueueView, Readiness,
        },
    },
};
use quorate_catalog::{Binding, Catalog, Destination, ExchangeRecord, ExchangeType, QueueEntry};
use quorate_queue::QueueFigures;
use quorate_raft::Group;
use quorate_types::{
    ConsumerId, Exception, FieldTable, GroupId, Home, MachineVersion, NodeId, QueueId,
    ResourceName, ShortString, Term, Timestamp, VhostName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Approximate memory of a queue's state, bytes, without its messages and consumers.
const QUEUE_BYTES: u64 = 1_000;
/// Approximate memory of each message in a queue, bytes.
const HELD_BYTES: u64 = 64;

impl Broker {
    /// The id of this node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.0.base.context.me
    }
}

/// The default exchange, which is implicit and has no record (EXC-01).
pub(crate) fn default_exchange(vhost: &VhostName) -> ExchangeView {
    ExchangeView {
        name: ResourceName { vhost: vhost.clone(), name: ShortString::EMPTY },
        kind: ExchangeType::Direct,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
        policies: PolicyView::default(),
    }
}

pub(crate) fn exchange_view(catalog: &Catalog, record: &ExchangeRecord) -> ExchangeView {
    ExchangeView {
        name: record.name.clone(),
        kind: record.kind,
        durable: record.durable,
        auto_delete: record.auto_delete,
        internal: record.internal,
        arguments: record.arguments.clone(),
        policies: catalog.exchange_policies(&record.name).into(),
    }
}

pub(crate) fn binding_view(binding: &Binding) -> BindingView {
    let (destination, to_queue) = match &binding.destination {
        Destination::Queue { name, .. } => (name.clone(), true),
        Destination::Exchange(name) => (name.clone(), false),
    };
    BindingView {
        source: binding.source.clone(),
        destination,
        to_queue,
        key: binding.key.clone(),
        arguments: binding.arguments.clone(),
    }
}

impl Views<'_> {
    /// Queues of a virtual host: all catalog entries, and the connection-bound queues of this node
    /// that have none.
    #[must_use]
    pub fn queues(&self, vhost: &VhostName) -> Vec<QueueView> {
        self.0.queue_views(|entry| entry.name.vhost == *vhost, |view| view)
    }

    /// Exchanges of a virtual host, the default one included.
    #[must_use]
    pub fn exchanges(&self, vhost: &VhostName) -> Vec<ExchangeView> {
        let catalog = self.0.base.catalog.read();
        let of_vhost = catalog.exchanges().filter(|record| record.name.vhost == *vhost);
        let declared = of_vhost.map(|record| exchange_view(&catalog, record));
        std::iter::once(default_exchange(vhost)).chain(declared).collect()
    }

    /// Explicit bindings of a virtual host (CTL-10).
    #[must_use]
    pub fn bindings(&self, vhost: &VhostName) -> Vec<BindingView> {
        let of_vhost = self.0.base.catalog.bindings_where(|binding| binding.source.vhost == *vhost);
        of_vhost.iter().map(binding_view).collect()
    }

    /// Client connections of this node.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionView> {
        self.0.clients.connections.all().iter().map(connection_view).collect()
    }

    /// Channels of this node's clients.
    #[must_use]
    pub fn channels(&self) -> Vec<ChannelView> {
        self.0.clients.connections.all().iter().flat_map(channel_views).collect()
    }

    /// Consumers of this node's clients.
    #[must_use]
    pub fn consumers(&self, vhost: &VhostName) -> Vec<ConsumerView> {
        let node = &self.0;
        let connections = node.clients.connections.all();
        let of_vhost = connections.iter().filter(|one| one.info.vhost == *vhost);
        of_vhost.flat_map(|connection| node.consumer_views(connection)).collect()
    }

    /// Consumers of queues in a virtual host with a single active consumer, of clients of any node,
    /// for queues that this node leads or is the home of. The flag says whether the consumer is the
    /// active one.
    #[must_use]
    pub fn single_active(&self, vhost: &VhostName) -> Vec<(ConsumerId, bool)> {
        let node = &self.0;
        let homes = node.base.led.homes().into_iter();
        let of_home =
            |home| walk(&node.base.led, home, |machine, at| machine.single_active(vhost, at));
        homes.flat_map(of_home).collect()
    }

    /// State of this node: its alarms, resources and replicas.
    #[must_use]
    pub fn node_status(&self) -> NodeView {
        let node = &self.0;
        let bounds = node.alarms.bounds();
        let (memory, disk) = node.alarms.of(node.base.context.me);
        let alarms = memory.then_some(Alarm::Memory).into_iter().chain(disk.then_some(Alarm::Disk));
        // Locked one after the other: elsewhere both are locked in the opposite order.
        let unnamed = node.base.led.local.entries.read().len();
        let (queues, vhosts) = {
            let catalog = node.base.catalog.read();
            (catalog.queue_count() + unnamed, catalog.vhosts().count())
        };
        let links = node.base.context.peers.links();
        NodeView {
            id: node.base.context.me,
            start: node.base.context.session().map(|session| session.start),
            machine_newest: links.map_or(MachineVersion::FIRST, |links| links.machine().newest()),
            alarms: alarms.collect(),
            memory_limit_bytes: bounds.memory_high_watermark,
            disk_free_bytes: node.alarms.disk_free_bytes().unwrap_or(0),
            disk_free_limit_bytes: bounds.disk_free_limit,
            connections: node.clients.connections.len() as u64,
            queues: queues as u64,
            vhosts: vhosts as u64,
            groups: node.group_views(),
            message_sizes: node.base.context.counters.message_sizes.view(),
            memory: MemoryUse {
                shares: node.base.context.memory.figures().collect(),
                exclusive: node.base.led.local.memory_bytes(),
                database: node.base.context.database_memory(),
            },
        }
    }

    /// Whether this node can serve clients in full.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let node = &self.0;
        let is_silent = |group: GroupId| {
            let home = Home::Group(group);
            node.base.proposers.leader(home).is_none() || !node.front.leader_contact.has_begun(home)
        };
        // Nobody knows when such a group has a leader again, and clients of other queues can be served.
        let is_awaited = |group: GroupId| {
            let runs = |it: NodeId| !node.cluster.failures.is_gone(&node.base.context, it);
            node.base.catalog.read().can_be_led(group, runs)
        };
        let groups = node.base.led.queue_groups();
        let awaited = node.base.context.awaited.lock().clone();
        let behind = behind(&node.base, awaited.caught_up);
        Readiness {
            entrance: awaited.entrance,
            catalog_lease: node.base.lease.is_held(),
            serving: node.base.context.session().is_some(),
            leaderless: groups.filter(|it| is_silent(*it) && is_awaited(*it)).collect(),
            behind: behind.into_iter().filter(|it| is_awaited(*it)).collect(),
            definitions: awaited.definitions,
            drained: *node.clients.drained.borrow(),
            ports_closed: *node.clients.ports_closed.borrow(),
        }
    }

    /// How long the present sync of the disk has taken so far; zero if none is under way.
    #[must_use]
    pub fn sync_under_way(&self) -> Duration {
        self.0.base.context.sync_under_way()
    }

    /// State digests of this node's replicas: the newest of each first, then those at fixed
    /// indexes, so that replicas can be compared while they apply entries.
    #[must_use]
    pub fn audit(&self) -> Vec<GroupAudit> {
        self.0.audits()
    }
}

impl Operator<'_> {
    /// Deletes a queue as an operator does, an exclusive one too. Returns the number of ready
    /// messages.
    ///
    /// # Errors
    /// 403 for the queue of a delayed exchange; 404 if there is no such queue; 406 if it is in use
    /// or not empty; 541 if its group does not answer.
    pub async fn delete_queue(
        &self,
        queue: &ResourceName,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        let entry = find_queue(self.0, queue).await?;
        self.0.queues.check_free(&entry)?;
        self.0.queues.delete_queue(&entry, if_unused, if_empty).await
    }

    /// Purges a queue as an operator does. Returns the number of messages removed.
    ///
    /// # Errors
    /// 404 if there is no such queue; 541 if its group does not answer.
    pub async fn purge_queue(&self, queue: &ResourceName) -> Result<u64, Exception> {
        let entry = find_queue(self.0, queue).await?;
        self.0.queues.purge_queue(&entry).await
    }
}

/// The queue of that name, also if it was declared while this node did not hear of it.
async fn find_queue(node: &Node, queue: &ResourceName) -> Result<QueueEntry, Exception> {
    if let Some(entry) = node.base.known_queue(queue) {
        return Ok(entry);
    }
    node.queues.read_catalog().await?;
    match node.base.known_queue(queue) {
        Some(entry) => Ok(entry),
        None => Err(node.exclusive.missing_queue(queue).await),
    }
}

/// The groups whose replica here has still to catch up after the start of the process, or was lost with
/// the node's former disk and has no successor yet. What is placed here later does not count.
fn behind(base: &Base, caught_up: bool) -> Vec<GroupId> {
    let context = &base.context;
    let Some(groups) = context.groups().filter(|_| !caught_up) else { return Vec::new() };
    let lags = |group: &Arc<Group>| {
        base.replicas_of(group.id()).contains(&context.me) && !group.has_caught_up()
    };
    let mut behind: BTreeSet<_> = groups.all().filter(lags).map(|group| group.id()).collect();
    {
        let catalog = base.catalog.read();
        let placed = catalog.placements().map(|(group, _)| group);
        behind.extend(placed.filter(|group| catalog.lost_replicas(*group).contains(&context.me)));
    }
    let behind: Vec<GroupId> = behind.into_iter().collect();
    if behind.is_empty() && context.session().is_some() {
        context.awaited.lock().caught_up = true;
    }
    behind
}

/// The counts that are among a queue's figures; `now` is its home's clock.
pub(crate) fn counts(queue: &QueueFigures, now: Option<Timestamp>) -> QueueCounts {
    QueueCounts {
        ready: queue.ready,
        unacknowledged: queue.unacknowledged,
        delayed: queue.delayed,
        dead_letters_waiting: queue.letters,
        consumers: u64::from(queue.consumers),
        ready_bytes: queue.ready_bytes,
        unacknowledged_bytes: queue.unacknowledged_bytes,
        configured_at: queue.configured_at,
        oldest_age_ms: queue.oldest.zip(now).map(|(oldest, now)| now.ms_since(oldest)),
        memory_bytes: memory_bytes(queue),
    }
}

/// Bytes of memory that a queue uses, about.
pub(crate) const fn memory_bytes(queue: &QueueFigures) -> u64 {
    QUEUE_BYTES + HELD_BYTES * queue.unacknowledged
}

/// Which nodes replicate the queues of a home, as this node knows it. If it leads the home: in which term,
/// and what time it was at the home.
#[derive(Clone, Debug)]
pub(crate) struct Replication {
    leader: Option<NodeId>,
    members: Vec<NodeId>,
    online: Vec<NodeId>,
    term: Option<Term>,
    now: Option<Timestamp>,
}

impl Node {
    /// A queue of a home that is replicated in this way.
    pub(crate) fn queue_view(&self, entry: QueueEntry, replication: &Replication) -> QueueView {
        let counts = self.queue_counts(entry.id, replication);
        let Replication { leader, members, online, .. } = replication.clone();
        let policies = {
            let catalog = self.base.catalog.read();
            catalog.queue_policies(&entry.name, entry.queue_type).into()
        };
        QueueView {
            policies,
            id: entry.id,
            name: entry.name,
            queue_type: entry.queue_type,
            durable: entry.durable,
            auto_delete: entry.auto_delete,
            owner: entry.owner,
            arguments: entry.arguments,
            leader,
            members,
            online,
            counts,
        }
    }

    /// The counts of a queue, if this node led its home when the replication was looked up, and still does.
    fn queue_counts(&self, id: QueueId, replication: &Replication) -> Option<QueueCounts> {
        let led = &self.base.led;
        led.leading(id.home).filter(|term| replication.term == Some(*term))?;
        let queue = led.with_machine(id.home, |machine| machine.queue_figures(id)).flatten()?;
        Some(counts(&queue, replication.now))
    }

    fn consumer_views(&self, connection: &ConnectionState) -> Vec<ConsumerView> {
        let consumers: Vec<_> = {
            let held = connection.held.lock();
            held.channels.values().flat_map(|one| one.consumers.values().cloned()).collect()
        };
        let live = consumers
            .into_iter()
            .filter(|one| self.clients.consumers.get(one.about.id.number).is_some());
        live.filter_map(|consumer| {
            let queue = self.base.with_entry(consumer.about.queue, QueueEntry::clone)?;
            Some(ConsumerView {
                id: consumer.about.id,
                timeout_ms: consumer_timeout_ms(&self.base, &queue, &consumer.about.arguments),
                queue: queue.name,
                connection: connection.id,
                channel: consumer.about.channel.number,
                tag: consumer.about.tag.clone(),
                ack_required: !consumer.about.no_ack,
                prefetch: consumer.about.prefetch,
                exclusive: consumer.about.exclusive,
                arguments: consumer.about.arguments.clone(),
            })
        })
        .collect()
    }
}

impl Base {
    /// How the queues of a home are replicated.
    pub(crate) fn replication(&self, home: Home) -> Replication {
        let (term, now) = (self.led.leading(home), self.led.now(home));
        let (leader, members, lost) = match home {
            Home::Node(node) => (Some(node), vec![node], BTreeSet::new()),
            Home::Group(group) => {
                let lost = self.catalog.read().lost_replicas(group);
                (self.group_leader(group), self.replicas_of(group), lost)
            }
        };
        let is_online = |node: &NodeId| self.context.is_reachable(*node) && !lost.contains(node);
        let online = members.iter().copied().filter(is_online).collect();
        Replication { leader, members, online, term, now }
    }

    /// Names of those of the queues that this node knows.
    pub(crate) fn queue_names(
        &self,
        queues: &BTreeSet<QueueId>,
    ) -> BTreeMap<QueueId, ResourceName> {
        let local = self.led.local.entries.read();
        let of_local = local.values().filter(|entry| queues.contains(&entry.id));
        let mut names: BTreeMap<_, _> =
            of_local.map(|entry| (entry.id, entry.name.clone())).collect();
        drop(local);
        let catalog = self.catalog.read();
        let entries = queues.iter().filter_map(|queue| catalog.queue_by_id(*queue));
        names.extend(entries.map(|entry| (entry.id, entry.name.clone())));
        names
    }

    /// Name of a queue in the catalog, or of a connection-bound one of this node.
    pub(crate) fn queue_name(&self, id: QueueId) -> Option<ResourceName> {
        self.with_entry(id, |entry| entry.name.clone())
    }

    /// Looks at a queue of the catalog, or a connection-bound one of this node.
    fn with_entry<T>(&self, id: QueueId, look: impl Fn(&QueueEntry) -> T) -> Option<T> {
        let known = self.catalog.read().queue_by_id(id).map(&look);
        known.or_else(|| {
            let local = self.led.local.entries.read();
            local.values().find(|entry| entry.id == id).map(look)
        })
    }
}

/// How long a consumer may hold a delivery unsettled, ms (CTO-04).
fn consumer_timeout_ms(base: &Base, queue: &QueueEntry, arguments: &FieldTable) -> u64 {
    // The arguments were valid when it began to consume.
    let own = consumer_timeout(queue, arguments).ok().flatten();
    let of_queue = || base.catalog.read().config_of(queue).consumer_timeout_ms;
    own.or_else(of_queue).unwrap_or(base.context.settings.consumer_timeout_ms)
}

fn connection_view(connection: &Arc<ConnectionState>) -> ConnectionView {
    let (info, reported) = (&connection.info, &connection.reported);
    let state = if reported.blocked.load(Ordering::Relaxed) {
        crate::views::view::ConnectionState::Blocked
    } else {
        crate::views::view::ConnectionState::Running
    };
    ConnectionView {
        id: connection.id,
        user: info.user.clone(),
        vhost: info.vhost.clone(),
        peer: info.peer,
        local: info.local,
        state,
        channels: u32::try_from(reported.channels.lock().len()).unwrap_or(u32::MAX),
        channel_max: info.channel_max,
        frame_max: info.frame_max,
        heartbeat_s: info.heartbeat_s,
        connected_at_ms: connection.connected_at.0,
        client_properties: info.client_properties.clone(),
        mechanism: info.mechanism,
        tls: info.tls.clone(),
        socket: *reported.socket.lock(),
    }
}

fn channel_views(connection: &Arc<ConnectionState>) -> Vec<ChannelView> {
    let consumers: Vec<_> = {
        let held = connection.held.lock();
        held.channels.values().flat_map(|channel| channel.consumers.values().cloned()).collect()
    };
    // Ended consumers stay while they have unsettled deliveries. A consumer locks `held` of its
    // connection while its own state is locked, so `held` must not be locked here any more.
    let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
    for consumer in consumers.iter().filter(|consumer| !consumer.has_ended()) {
        *counts.entry(consumer.about.channel.number).or_default() += 1;
    }
    let channels = connection.reported.channels.lock();
    let (user, vhost): (&ShortString, &ShortString) =
        (&connection.info.user, &connection.info.vhost);
    channels
        .iter()
        .map(|(&number, Reporting { report, .. })| ChannelView {
            connection: connection.id,
            peer: connection.info.peer,
            local: connection.info.local,
            number,
            user: user.clone(),
            vhost: vhost.clone(),
            confirm: report.confirm,
            consumers: counts.get(&number).copied().unwrap_or_default(),
            unacknowledged: report.unacknowledged,
            unconfirmed: report.unconfirmed,
            transactional: report.transactional,
            messages_uncommitted: report.messages_uncommitted,
            acks_uncommitted: report.acks_uncommitted,
            prefetch: report.prefetch,
            traffic: report.traffic,
        })
        .collect()
}
