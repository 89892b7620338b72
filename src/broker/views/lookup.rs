//! Single objects by name, for interfaces that are asked about one of many.

use crate::{
    Broker,
    leader::led_homes::walk,
    node::Node,
    views::{
        query::{Replication, binding_view, counts, default_exchange, exchange_view},
        view::{BindingView, ExchangeView, QueueCounts, QueueView},
    },
};
use quorate_catalog::{Access, QueueEntry, Resource, UserRecord, Who};
use quorate_queue::Machine;
use quorate_types::{Exception, Home, QueueId, ResourceName, ShortString, VhostName};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout};

/// Looks up single objects of this node's copy of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a>(&'a Arc<Node>);

impl Broker {
    /// What can be looked up by name.
    #[must_use]
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup(&self.0)
    }

    /// How long an operation waits for a majority.
    #[must_use]
    pub fn operation_timeout(&self) -> Duration {
        self.0.base.context.operation_timeout()
    }

    /// Waits until this node's copy of the catalog has all that any node has answered: it holds a routing
    /// lease (NAM 5). False if it does not within that time.
    pub async fn may_answer(&self, within: Duration) -> bool {
        self.0.base.lease.held_by(Instant::now() + within).await.is_ok()
    }

    /// Waits until every node would answer what this node's copy of the catalog says now (NAM 5). False if
    /// that is not known within that time.
    pub async fn is_agreed(&self, within: Duration) -> bool {
        matches!(timeout(within, self.0.base.lease.agreed()).await, Ok(Ok(())))
    }
}

impl Lookup<'_> {
    /// One exchange, which may be the default one of a virtual host.
    #[must_use]
    pub fn exchange(&self, name: &ResourceName) -> Option<ExchangeView> {
        let catalog = self.0.base.catalog.read();
        if name.name.is_empty() {
            return catalog.has_vhost(&name.vhost).then(|| default_exchange(&name.vhost));
        }
        catalog.exchange(name).map(|record| exchange_view(&catalog, record))
    }

    /// Number of exchanges of virtual hosts, the default ones included.
    #[must_use]
    pub fn exchange_count(&self, vhosts: &BTreeSet<VhostName>) -> usize {
        let catalog = self.0.base.catalog.read();
        let declared = catalog.exchanges().filter(|record| vhosts.contains(&record.name.vhost));
        vhosts.len() + declared.count()
    }

    /// Number of queues of all virtual hosts that have an entry in the catalog.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.0.base.catalog.read().queue_count()
    }

    /// Explicit bindings from an exchange.
    #[must_use]
    pub fn bindings_from(&self, exchange: &ResourceName) -> Vec<BindingView> {
        self.0.base.catalog.read().bindings_from(exchange).map(binding_view).collect()
    }

    /// Explicit bindings to an exchange.
    #[must_use]
    pub fn bindings_to(&self, exchange: &ResourceName) -> Vec<BindingView> {
        self.0.base.catalog.read().bindings_to(exchange).map(binding_view).collect()
    }

    /// Explicit bindings to a queue.
    #[must_use]
    pub fn bindings_of_queue(&self, queue: &ResourceName) -> Vec<BindingView> {
        let catalog = self.0.base.catalog.read();
        let queue = catalog.queue_by_name(queue);
        queue
            .into_iter()
            .flat_map(|it| catalog.bindings_of_queue(it.id))
            .map(binding_view)
            .collect()
    }

    /// The queue of that name; a connection-bound one only on the node of its connection.
    #[must_use]
    pub fn queue(&self, name: &ResourceName) -> Option<QueueView> {
        let entry = self.0.base.known_queue(name)?;
        let replication = self.0.base.replication(entry.id.home);
        Some(self.0.queue_view(entry, &replication))
    }

    /// Queues of virtual hosts: all catalog entries, and the connection-bound queues of this node
    /// that have none. Of each view is made what a list needs, since many views together are large.
    #[must_use]
    pub fn queues<T>(&self, vhosts: &BTreeSet<VhostName>, make: impl Fn(QueueView) -> T) -> Vec<T> {
        self.0.queue_views(|entry| vhosts.contains(&entry.name.vhost), make)
    }

    /// Of those queues the ones that this node leads or is the home of, so that it knows their counts.
    #[must_use]
    pub fn led_queues<T>(
        &self,
        vhosts: &BTreeSet<VhostName>,
        make: impl Fn(QueueView) -> T,
    ) -> Vec<T> {
        let led: BTreeSet<Home> = self.0.base.led.homes().into_iter().collect();
        self.0.queue_views(
            |entry| vhosts.contains(&entry.name.vhost) && led.contains(&entry.id.home),
            make,
        )
    }

    /// The connection-bound ones among those queues.
    #[must_use]
    pub fn bound_queues<T>(
        &self,
        vhosts: &BTreeSet<VhostName>,
        make: impl Fn(QueueView) -> T,
    ) -> Vec<T> {
        let is_bound = |entry: &QueueEntry| matches!(entry.id.home, Home::Node(_));
        let is_led = |entry: &QueueEntry| self.0.base.led.leading(entry.id.home).is_some();
        self.0.queue_views(
            |entry| vhosts.contains(&entry.name.vhost) && is_bound(entry) && is_led(entry),
            make,
        )
    }

    /// The counts of the replicated ones among those queues.
    #[must_use]
    pub fn led_counts(&self, vhosts: &BTreeSet<VhostName>) -> Vec<(QueueId, QueueCounts)> {
        let led = &self.0.base.led;
        let of_group = |group| {
            let home = Home::Group(group);
            let (term, now) = (led.leading(home), led.now(home));
            let mut queues = walk(led, home, Machine::figures);
            // A leader that has been replaced meanwhile does not know the present counts.
            let is_leader = term.is_some() && led.leading(home) == term;
            queues.retain(|queue| is_leader && vhosts.contains(&queue.name.vhost));
            queues.into_iter().map(move |queue| (queue.id, counts(&queue, now)))
        };
        let mut all: Vec<_> = led.groups().into_iter().flat_map(of_group).collect();
        // A queue has its entry in the catalog last. Before, it is in no list.
        let queues: Vec<_> = all.iter().map(|(queue, _)| *queue).collect();
        let declared = self.0.base.catalog.with_entry(&queues);
        all.retain(|(queue, _)| declared.contains(queue));
        all
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &ShortString) -> Option<UserRecord> {
        self.0.base.catalog.read().user(name).cloned()
    }

    /// True if the virtual host exists.
    #[must_use]
    pub fn has_vhost(&self, name: &VhostName) -> bool {
        self.0.base.catalog.read().has_vhost(name)
    }

    /// True if the user has permissions in the virtual host (ACL-01).
    #[must_use]
    pub fn may_use(&self, user: &ShortString, vhost: &VhostName) -> bool {
        self.0.base.catalog.read().rights(Who { vhost, user }).is_some()
    }

    /// Checks whether the user may read from the queue (ACL-02).
    ///
    /// # Errors
    /// 403.
    pub fn check_read(&self, user: &ShortString, queue: &ResourceName) -> Result<(), Exception> {
        let who = Who { vhost: &queue.vhost, user };
        self.0.base.catalog.read().check_access(who, Access::Read, Resource::Queue(&queue.name))
    }

    /// True if the queue belongs to a connection (EXQ-02), as far as this node knows it.
    #[must_use]
    pub fn is_exclusive(&self, queue: &ResourceName) -> bool {
        self.0.base.known_queue(queue).is_some_and(|entry| entry.owner.is_some())
    }

    /// True if the node takes further connections.
    #[must_use]
    pub fn takes_connections(&self) -> bool {
        self.0.clients.node_connections_reached().is_none()
    }

    /// The virtual hosts in which the user has permissions.
    #[must_use]
    pub fn usable_vhosts(&self, user: &ShortString) -> BTreeSet<VhostName> {
        let catalog = self.0.base.catalog.read();
        let names = catalog.vhosts().map(|record| &record.name);
        names.filter(|vhost| catalog.rights(Who { vhost, user }).is_some()).cloned().collect()
    }
}

impl Node {
    /// The queues that are meant, of all that this node knows: catalog entries, and connection-bound
    /// queues of this node that have none. The catalog is not locked while they are counted.
    pub(crate) fn queue_views<T>(
        &self,
        is_meant: impl Fn(&QueueEntry) -> bool,
        make: impl Fn(QueueView) -> T,
    ) -> Vec<T> {
        let mut entries = self.base.catalog.queues_where(&is_meant);
        let is_bound = |entry: &&QueueEntry| matches!(entry.id.home, Home::Node(_));
        let named: BTreeSet<QueueId> =
            entries.iter().filter(is_bound).map(|entry| entry.id).collect();
        {
            let local = self.base.led.local.entries.read();
            let unnamed = local.values().filter(|entry| !named.contains(&entry.id));
            entries.extend(unnamed.filter(|entry| is_meant(entry)).cloned());
        }
        let mut homes: BTreeMap<Home, Replication> = BTreeMap::new();
        let view = |entry: QueueEntry| {
            let home = entry.id.home;
            let replication = homes.entry(home).or_insert_with(|| self.base.replication(home));
            make(self.queue_view(entry, replication))
        };
        entries.into_iter().map(view).collect()
    }
}
