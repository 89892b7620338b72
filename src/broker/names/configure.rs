//! Settings reach their queues (DESIGN §7): the leader of each home compares what its queues have
//! with what the catalog says, and proposes what differs, many queues in one entry. It does so
//! when policies change, when it begins to lead, and now and then (NAM 7), so that nothing depends
//! on who made the change; who made it asks all nodes whether they are through.
//!
//! No node coordinates a policy change, which is one catalog entry. Each leader compares its queues
//! with `Catalog::config_of`, 256 at a time, and proposes `Configure` for those that differ. It
//! repeats this every 10 s. The node that made the change waits at most 2 s for the other nodes
//! before it answers.

use crate::{
    base::Base,
    context::Context,
    front::proposers::Proposers,
    leader::led_homes::LedHomes,
    names::{
        CatalogCopy,
        configure_plan::{self, COMPARED_AT_ONCE, IN_FORCE_MOST, Proposed, Unconfirmed},
    },
    peers::{PeerReply, PeerRequest},
};
use quorate_catalog::QueueEntry;
use quorate_queue::{Command, Machine, QueueConfig};
use quorate_types::{CatalogIndex, GroupId, Home, NodeId, QueueId, Term};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};
use tokio::sync::{Mutex, Notify};

/// Brings settings to the queues of the homes that this node leads.
#[derive(Debug)]
pub(crate) struct Configurer {
    this: Weak<Configurer>,
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    led: Arc<LedHomes>,
    proposers: Arc<Proposers>,
    /// One comparison of a home at a time: the next one sees what the one before has brought.
    turns: BTreeMap<Home, Mutex<()>>,
    /// Policies have changed.
    changed: Notify,
}

impl Configurer {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        let Base { context, catalog, led, proposers, .. } = base.clone();
        let turns = proposers.homes().into_iter().map(|home| (home, Mutex::new(()))).collect();
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            context,
            catalog,
            led,
            proposers,
            turns,
            changed: Notify::new(),
        })
    }

    /// Settings in this node's catalog copy may have changed.
    pub(crate) fn changed(&self) {
        self.changed.notify_one();
    }

    /// Brings changed settings to the queues of the homes that this node leads; runs as long as
    /// the node.
    pub(crate) async fn keep(self: Arc<Self>) {
        loop {
            self.changed.notified().await;
            self.led.homes().into_iter().for_each(|home| self.begin(home));
        }
    }

    /// Compares a home's settings beside whatever else goes on.
    pub(crate) fn begin(&self, home: Home) {
        let Some(this) = self.this.upgrade() else { return };
        self.context.spawn(async move {
            let _in_force = this.configure(home).await;
        });
    }

    /// Brings all queues of a home to the settings that this node's catalog copy has by now: true
    /// once they have been applied, false if this node does not lead the home (any more), or if
    /// that takes too long.
    async fn configure(&self, home: Home) -> bool {
        let Some(turn) = self.turns.get(&home) else { return false };
        let _turn = turn.lock().await;
        let Some(term) = self.led.leading(home) else { return false };
        let mut proposed = Proposed::default();
        let mut after = None;
        loop {
            let entries = self.entries(home, after);
            let Some(last) = entries.last() else { break };
            after = Some(last.id);
            let differing = self.differing(home, &entries);
            proposed.add(&differing);
            let configure = |(queue, config)| Command::Configure { queue, config };
            self.led.propose_to(home, differing.into_iter().map(configure).collect());
            tokio::task::yield_now().await;
        }
        if proposed.len() > 0 {
            tracing::info!(?home, queues = proposed.len(), "changing the configuration of queues");
        }
        let applied = self.until_applied(home, term, proposed);
        tokio::time::timeout(IN_FORCE_MOST, applied).await.unwrap_or(false)
    }

    /// Resolves when all these settings have been applied, or with false when the leadership has
    /// ended. Proposals are lost with a majority, and not missed by a leader that stays one, so that
    /// this may take for ever: whoever still wants to know compares again.
    async fn until_applied(&self, home: Home, term: Term, mut proposed: Proposed) -> bool {
        let Some(mut progress) = self.led.progress(home) else { return false };
        loop {
            let settle = |proposed: &mut Proposed| {
                self.led.with_machine(home, |machine| proposed.settle(machine))
            };
            while settle(&mut proposed).is_some_and(|settled| settled > 0) {}
            if proposed.len() == 0 {
                return true;
            }
            // Looked at behind the subscription: an end before it changes nothing any more.
            if self.led.leading(home) != Some(term) {
                return false;
            }
            // The sender lives as long as `self`.
            let _ = progress.changed().await;
        }
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
                let local = self.led.local.entries.read();
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
        let differing = |machine: &Machine| configure_plan::differing(configs, machine);
        self.led.with_machine(home, differing).unwrap_or_default()
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
    pub(crate) async fn in_force(&self, index: CatalogIndex) -> bool {
        tokio::time::timeout(IN_FORCE_MOST, self.until_in_force(index)).await.is_ok()
    }

    async fn until_in_force(&self, index: CatalogIndex) {
        let mut leaders = self.proposers.leaders();
        let mut unconfirmed = Unconfirmed::new(self.led.queue_groups());
        loop {
            let asked = self.context.members().into_iter().filter_map(|node| {
                let this = self.this.upgrade()?;
                Some(self.context.spawn(async move { this.ask(node, index).await }))
            });
            for answer in asked.collect::<Vec<_>>() {
                unconfirmed.answered(answer.await.ok().flatten());
            }
            let Some(bound) = unconfirmed.ask_again_after() else { return };
            // The sender lives as long as `self`.
            let _ = tokio::time::timeout(bound, leaders.changed()).await;
        }
    }

    /// The groups led by the node whose queues have the settings of the catalog at `index`.
    async fn ask(&self, node: NodeId, index: CatalogIndex) -> Option<Vec<GroupId>> {
        let request = PeerRequest::Settings(index);
        let reply = self.context.peers.ask(node, request, IN_FORCE_MOST).await?;
        let PeerReply::Settings(groups) = reply else { return None };
        Some(groups)
    }

    /// The groups led here, once their queues have the settings of the catalog at `index`; none if
    /// that takes too long.
    pub(crate) async fn settings_at(&self, index: CatalogIndex) -> Vec<GroupId> {
        let settled = tokio::time::timeout(IN_FORCE_MOST, self.until_settings_at(index)).await;
        settled.unwrap_or_default()
    }

    async fn until_settings_at(&self, index: CatalogIndex) -> Vec<GroupId> {
        self.catalog.applied(index).await;
        let homes = self.led.homes().into_iter().filter_map(|home| {
            let this = self.this.upgrade()?;
            Some((home, self.context.spawn(async move { this.configure(home).await })))
        });
        let mut groups = Vec::new();
        for (home, configured) in homes.collect::<Vec<_>>() {
            if let (Home::Group(group), Ok(true)) = (home, configured.await) {
                groups.push(group);
            }
        }
        groups
    }
}
