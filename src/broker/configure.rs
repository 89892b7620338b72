//! Settings reach their queues (DESIGN §7): the leader of each home compares what its queues have
//! with what the catalog says, and proposes what differs, many queues in one entry. It does so
//! when policies change, when it begins to lead, and now and then (NAM 7), so that nothing depends
//! on who made the change; who made it asks all nodes whether they are through.
//!
//! No node coordinates a policy change, which is one catalog entry. Each leader compares its queues
//! with `Catalog::config_of`, 256 at a time, and proposes `Configure` for those that differ. It
//! repeats this every 10 s. The node that made the change waits at most 2 s for the other nodes
//! before it answers.

use crate::{node::Node, pb, peers::wire};
use bytes::Bytes;
use quorate_catalog::QueueEntry;
use quorate_queue::{Command, QueueConfig};
use quorate_rpc::{Lane, Responder};
use quorate_types::{CatalogIndex, GroupId, Home, NodeId, QueueId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, Notify};

/// Queues compared while the catalog and the home's machine are held, well below a millisecond.
const COMPARED_AT_ONCE: usize = 256;
/// How often it is looked whether what was proposed has been applied.
const LOOK: Duration = Duration::from_millis(5);
/// How long a change of policies waits at most until all queues have it (DESIGN §7).
const IN_FORCE_MOST: Duration = Duration::from_secs(2);
/// Between two questions to nodes whose groups had no leader.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// What homes have to know to bring settings to their queues.
#[derive(Debug)]
pub(crate) struct Configuring {
    /// One comparison of a home at a time: the next one sees what the one before has brought.
    turns: BTreeMap<Home, Mutex<()>>,
    /// Policies have changed.
    changed: Notify,
}

impl Configuring {
    pub(crate) fn new(homes: impl Iterator<Item = Home>) -> Self {
        Self { turns: homes.map(|home| (home, Mutex::new(()))).collect(), changed: Notify::new() }
    }

    /// Settings in this node's catalog copy may have changed.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }
}

impl Node {
    /// Brings changed settings to the queues of the homes that this node leads; runs as long as
    /// the node.
    pub(crate) async fn keep_configured(self: Arc<Self>) {
        loop {
            self.configuring.changed.notified().await;
            for home in self.led.homes() {
                self.begin_configuring(home);
            }
        }
    }

    /// Compares a home's settings beside whatever else goes on.
    pub(crate) fn begin_configuring(self: &Arc<Self>, home: Home) {
        let node = Arc::clone(self);
        self.context.spawn(async move {
            let _in_force = node.configure(home).await;
        });
    }

    /// Brings all queues of a home to the settings that this node's catalog copy has by now: true
    /// once they have been applied, false if this node does not lead the home (any more), or if
    /// that takes too long.
    async fn configure(&self, home: Home) -> bool {
        let Some(turn) = self.configuring.turns.get(&home) else { return false };
        let _turn = turn.lock().await;
        let Some(term) = self.led.leading(home) else { return false };
        let mut proposed: Vec<(QueueId, CatalogIndex)> = Vec::new();
        let mut after = None;
        loop {
            let entries = self.entries(home, after);
            let Some(last) = entries.last() else { break };
            after = Some(last.id);
            let differing = self.differing(home, &entries);
            proposed.extend(differing.iter().map(|(queue, config)| (*queue, config.resolved_at)));
            self.propose_settings(home, differing);
            tokio::task::yield_now().await;
        }
        if !proposed.is_empty() {
            tracing::info!(?home, queues = proposed.len(), "changing the configuration of queues");
        }
        // Proposals are lost with a majority, and not missed by a leader that stays one: whoever
        // still wants to know compares again.
        let until = Instant::now() + IN_FORCE_MOST;
        while self.led.leading(home) == Some(term) && Instant::now() < until {
            while let Some(&(queue, index)) = proposed.last()
                && self.has_settings_of(queue, index)
            {
                proposed.pop();
            }
            if proposed.is_empty() {
                return true;
            }
            tokio::time::sleep(LOOK).await;
        }
        false
    }

    /// The next queues of a home, in the order of their ids.
    fn entries(&self, home: Home, after: Option<QueueId>) -> Vec<QueueEntry> {
        match home {
            Home::Group(group) => {
                let catalog = self.catalog.read();
                catalog
                    .queues_of_home(Home::Group(group), after)
                    .take(COMPARED_AT_ONCE)
                    .cloned()
                    .collect()
            }
            Home::Node(_) => {
                let local = self.local_entries.read();
                let mut entries: Vec<_> =
                    local.values().filter(|entry| Some(entry.id) > after).collect();
                entries.sort_by_key(|entry| entry.id);
                entries.into_iter().take(COMPARED_AT_ONCE).cloned().collect()
            }
        }
    }

    /// Queues whose settings are other ones than the catalog's, with those.
    fn differing(&self, home: Home, entries: &[QueueEntry]) -> Vec<(QueueId, QueueConfig)> {
        let catalog = self.catalog.read();
        let configs = entries.iter().map(|entry| (entry.id, catalog.config_of(entry)));
        let configs: Vec<_> = configs.collect();
        drop(catalog);
        let differing = self.led.with_machine(home, |machine| {
            let differs = |(queue, config): &(QueueId, QueueConfig)| {
                machine.queue(*queue).is_some_and(|queue| !queue.config.agrees_with(config))
            };
            configs.into_iter().filter(differs).collect()
        });
        differing.unwrap_or_default()
    }

    fn propose_settings(&self, home: Home, settings: Vec<(QueueId, QueueConfig)>) {
        let commands =
            settings.into_iter().map(|(queue, config)| Command::Configure { queue, config });
        self.led.propose_to(home, commands.collect());
    }

    /// True if the queue's settings were resolved at this index or above, or if it has ended.
    fn has_settings_of(&self, queue: QueueId, index: CatalogIndex) -> bool {
        let view = self.led.with_machine(queue.home, |machine| machine.queue(queue)).flatten();
        view.is_none_or(|view| view.config.resolved_at >= index)
    }

    /// NAM 2: policies may have changed between a queue's creation and its entry.
    pub(crate) async fn configure_new(&self, entry: &QueueEntry, created: &QueueConfig) {
        let config = self.catalog.read().config_of(entry);
        if !config.agrees_with(created) {
            let configure = Command::Configure { queue: entry.id, config };
            // What does not arrive the reconciler brings (NAM 7).
            drop(self.proposers.ask(entry.id.home, configure).await);
        }
    }

    /// Waits until the queues of all groups have the settings of the catalog at `index`; false if
    /// that takes too long.
    pub(crate) async fn in_force(self: &Arc<Self>, index: CatalogIndex) -> bool {
        let until = Instant::now() + IN_FORCE_MOST;
        let mut missing: BTreeSet<GroupId> = self.led.queue_groups().collect();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let answers = self.context.members().into_iter().map(|node| {
                let this = Arc::clone(self);
                self.context.spawn(async move { this.ask_settings(node, index, left).await })
            });
            for answer in answers.collect::<Vec<_>>() {
                let groups = answer.await.ok().flatten().unwrap_or_default();
                missing.retain(|group| !groups.contains(group));
            }
            if missing.is_empty() {
                return true;
            }
            tokio::time::sleep(ASK_AGAIN.min(left)).await;
        }
    }

    /// The groups led by the node whose queues have the settings of the catalog at `index`.
    async fn ask_settings(
        self: &Arc<Self>,
        node: NodeId,
        index: CatalogIndex,
        within: Duration,
    ) -> Option<Vec<GroupId>> {
        if node == self.context.me {
            return tokio::time::timeout(within, self.settings_at(index)).await.ok();
        }
        let payload = wire::encode(&pb::SettingsRequest { index: index.0 });
        let (lane, group) = (Lane::Control, GroupId::CATALOG);
        let call =
            self.context.peers.links()?.call(node, lane, wire::SETTINGS, group, payload, within);
        let answer = wire::decode::<pb::SettingsResponse>(call.await.ok()?, node)?;
        let group = |group: u32| u16::try_from(group).ok().map(GroupId);
        answer.groups.into_iter().map(group).collect()
    }

    /// The groups led here, once their queues have the settings of the catalog at `index`.
    async fn settings_at(self: &Arc<Self>, index: CatalogIndex) -> Vec<GroupId> {
        self.catalog.applied(index).await;
        let homes = self.led.homes().into_iter().map(|home| {
            let node = Arc::clone(self);
            (home, self.context.spawn(async move { node.configure(home).await }))
        });
        let mut groups = Vec::new();
        for (home, configured) in homes.collect::<Vec<_>>() {
            if let (Home::Group(group), Ok(true)) = (home, configured.await) {
                groups.push(group);
            }
        }
        groups
    }

    /// Answers another node's question for the settings of the queues led here.
    pub(crate) async fn settings_request(
        self: &Arc<Self>,
        from: NodeId,
        payload: Bytes,
        responder: Responder,
    ) {
        let Some(request) = wire::decode::<pb::SettingsRequest>(payload, from) else { return };
        let index = CatalogIndex(request.index);
        let settled = tokio::time::timeout(IN_FORCE_MOST, self.settings_at(index)).await;
        let groups = settled.unwrap_or_default().into_iter().map(|group| u32::from(group.0));
        responder.answer(wire::encode(&pb::SettingsResponse { groups: groups.collect() }));
    }
}
