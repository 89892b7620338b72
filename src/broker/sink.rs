//! What the groups tell this node's broker: who leads, and what applying has brought.

use crate::{Broker, node::Node};
use quorate_catalog::{CatalogEntry, CatalogEvent, CatalogOutput, refusal};
use quorate_queue::{Entry, Output};
use quorate_raft::{CatalogSink, GroupSink, QueueSink};
use quorate_storage::EntryId;
use quorate_types::{CatalogIndex, GroupId, Home, NodeId, StartNumber, Term};
use std::{sync::Arc, time::Duration};

/// After this long a leader that lost a proposal asks for what was in it.
const REANNOUNCE: Duration = Duration::from_millis(100);

impl GroupSink for Broker {
    fn became_leader(&self, group: GroupId, term: Term) {
        let mut early = self.0.early.lock();
        if self.0.context.groups().is_none() {
            early.insert(group, term);
            return;
        }
        drop(early);
        self.0.lead(group, term);
    }

    fn lost_leadership(&self, group: GroupId) {
        self.0.early.lock().remove(&group);
        let node = &self.0;
        if group == GroupId::CATALOG {
            node.lease.stop();
        } else {
            node.led.stop(Home::Group(group));
        }
    }

    fn proposal_lost(&self, group: GroupId) {
        let node = &self.0;
        // What was in it is sent again once this leader announces itself anew (SES 5): without a
        // majority it refuses, and goes on leading when the majority is back.
        if node.led.proposal_lost(group) && node.reannouncing.lock().insert(group) {
            let node = Arc::clone(node);
            node.clone().context.spawn(async move {
                tokio::time::sleep(REANNOUNCE).await;
                node.reannouncing.lock().remove(&group);
                let home = Home::Group(group);
                if let Some(term) = node.led.leading(home) {
                    node.announce(home, term, None);
                }
            });
        }
    }

    fn leader_changed(&self, group: GroupId, term: Term, leader: Option<NodeId>) {
        // Who is sent to follows from the leader's own announcement (SES 5).
        tracing::debug!(%group, %term, ?leader, "leader changed");
    }

    fn installed(&self, group: GroupId, applied: EntryId) {
        if group == GroupId::CATALOG {
            let node = &self.0;
            node.catalog_grown(CatalogIndex(applied.index.0));
            node.configurer.changed();
            node.close_orphans();
            // A snapshot brings no events.
            node.catalog.note_formed();
            let node = Arc::clone(node);
            node.clone().context.spawn(async move { node.nodes_changed() });
        }
    }
}

impl QueueSink for Broker {
    fn applied(&self, group: GroupId, _: EntryId, leading: bool, _: &Entry, output: &Output) {
        let node = &self.0;
        if leading {
            node.led.applied(Home::Group(group));
            node.perform(Home::Group(group), output);
        }
    }
}

impl CatalogSink for Broker {
    fn applied(&self, id: EntryId, leading: bool, _: &CatalogEntry, output: &CatalogOutput) {
        let node = &self.0;
        if leading {
            node.catalog_client.applied(id.index, output.replies.clone());
        }
        node.catalog_grown(CatalogIndex(id.index.0));
        let mut nodes_changed = false;
        for event in &output.events {
            match event {
                CatalogEvent::Formed(_) => node.catalog.note_formed(),
                CatalogEvent::NodeStarted { .. }
                | CatalogEvent::NodeDowned { .. }
                | CatalogEvent::LifeBegan { .. } => nodes_changed = true,
                CatalogEvent::VhostDeleted { vhost, queues } => {
                    let why = refusal::vhost_deleted(vhost);
                    node.close_where(|info| info.vhost == *vhost, &why);
                    node.end_queues(queues);
                }
                CatalogEvent::DelayQueueRemoved { queue } => node.end_queues(&[*queue]),
                CatalogEvent::UserDeleted { user } => {
                    node.close_where(|info| info.user == *user, &refusal::user_deleted(user));
                }
                // Every node sees it; one counts it.
                CatalogEvent::QueueRemoved { .. } => {
                    node.context.counters.queues_deleted.add(u64::from(leading));
                }
                CatalogEvent::PoliciesChanged => node.configurer.changed(),
            }
        }
        if nodes_changed {
            let node = Arc::clone(node);
            node.clone().context.spawn(async move { node.nodes_changed() });
        }
    }
}

impl Node {
    /// This node's catalog copy has been applied up to `index`.
    fn catalog_grown(&self, index: CatalogIndex) {
        self.catalog.grown(index);
        self.lease.tell_applied(index);
    }

    /// Starts or lives of nodes have changed: groups led here are told; this run may be over.
    fn nodes_changed(self: &Arc<Self>) {
        if let Some(session) = self.context.session()
            && self.catalog.read().is_fenced(session)
        {
            self.fenced(session);
        }
        self.expect_incarnations();
        for group in self.led.groups() {
            self.look_after_nodes(group);
        }
    }

    /// Other nodes are believed with the data directories only that the catalog knows them by, as they
    /// were or later: one that has lost its data must neither vote nor acknowledge (DESIGN §8).
    pub(crate) fn expect_incarnations(&self) {
        let Some(links) = self.context.peers.links() else { return };
        for (node, entry) in self.catalog.read().nodes() {
            if node != self.context.me && entry.start > StartNumber(0) {
                links.expect(node, Some((entry.incarnation, entry.boot)));
            }
        }
    }

    /// Takes up leaderships that began before the broker did.
    pub(crate) fn lead_early(self: &Arc<Self>) {
        let early = std::mem::take(&mut *self.early.lock());
        for (group, term) in early {
            self.lead(group, term);
        }
    }

    /// This node leads the group, and has applied its term's first entry (STO 7).
    fn lead(self: &Arc<Self>, group: GroupId, term: Term) {
        tracing::debug!(%group, %term, "this node leads the group");
        if group == GroupId::CATALOG {
            self.lease.lead();
            // An accusation may be over by now: another process of the node may hold a lease of the
            // leader before.
            drop(self.to_fence());
            let dead = self.failures.accusations.lock().all();
            for (node, boot) in dead {
                self.lease.dead(node, boot);
            }
            let node = Arc::clone(self);
            self.context.spawn(async move { node.bury().await });
            return;
        }
        let home = Home::Group(group);
        let mut owed = Output::default();
        let begun = self.led.with_machine(home, |machine| {
            machine.obligations(&mut owed.effects);
            (machine.time(), machine.wall())
        });
        let Some(stamps) = begun else { return };
        self.led.lead(group, term, stamps);
        self.perform(home, &owed);
        self.announce(home, term, None);
        // A majority has just committed its term's first entry.
        self.tell_heard_of([(group, term)]);
        self.reconciler.compare(group);
        let node = Arc::clone(self);
        self.context.spawn(async move { node.look_after_nodes(group) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{CatalogCommand, ClusterShape};
    use quorate_types::{BootNumber, ClusterId, Incarnation, LogIndex, SessionId, Stamp};

    /// A node that missed entries gets a snapshot in place of them: what they would have told it is
    /// found in it.
    #[tokio::test]
    async fn a_snapshot_of_the_catalog_tells_what_its_entries_would_have_told() {
        let broker = crate::Broker(crate::testing::node());
        let node = &broker.0;
        let shape = ClusterShape { cluster: ClusterId(7), queue_groups: 3 };
        let started = CatalogCommand::NodeStarted {
            node: node.context.me,
            incarnation: Incarnation(1),
            boot: BootNumber(1),
            rpc_address: String::new(),
            amqp_address: String::new(),
        };
        let start = StartNumber(5);
        let down = CatalogCommand::NodeDown { node: node.context.me, start };
        node.context.begin_session(SessionId { node: node.context.me, start });
        for (index, commands) in [(5, vec![CatalogCommand::Form(shape), started]), (6, vec![down])]
        {
            let entry = CatalogEntry { stamp: Stamp::default(), commands };
            let mut catalog = node.catalog.write();
            catalog.apply(CatalogIndex(index), &entry, &mut CatalogOutput::default());
        }
        let applied = EntryId { term: Term(1), leader: node.context.me, index: LogIndex(6) };
        GroupSink::installed(&broker, GroupId::CATALOG, applied);
        assert_eq!(
            *broker.formed().borrow(),
            Some(shape),
            "so that the cluster's id is written down"
        );
        let fenced = async {
            while node.context.session().is_some() {
                tokio::task::yield_now().await;
            }
        };
        let fenced = tokio::time::timeout(Duration::from_secs(10), fenced).await;
        assert!(fenced.is_ok(), "this run is over");
    }
}
