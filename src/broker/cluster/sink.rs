//! What the groups report to this node's broker: who leads, and what was applied.

use crate::{Broker, node::Node};
use quorate_catalog::{CatalogEntry, CatalogEvent, CatalogOutput, refusal};
use quorate_queue::{Entry, Output};
use quorate_raft::{CatalogSink, GroupSink, QueueSink};
use quorate_storage::EntryId;
use quorate_types::{CatalogIndex, GroupId, Home, NodeId, Term};
use std::sync::Arc;

impl GroupSink for Broker {
    fn became_leader(&self, group: GroupId, term: Term) {
        let mut early = self.0.leader.early.lock();
        if self.0.base.context.groups().is_none() {
            early.insert(group, term);
            return;
        }
        drop(early);
        self.0.lead(group, term);
    }

    fn lost_leadership(&self, group: GroupId) {
        self.0.leader.early.lock().remove(&group);
        let node = &self.0;
        if group == GroupId::CATALOG {
            node.base.lease.stop();
        } else {
            node.base.led.stop(Home::Group(group));
        }
    }

    fn proposal_lost(&self, group: GroupId) {
        let node = &self.0;
        // The lost batch is sent again when this leader repeats its announcement (SES 5). Without a
        // majority a leader refuses proposals, and stays leader when the majority is back.
        if node.base.led.proposal_lost(group) {
            node.leader.announce_again(group);
        }
    }

    fn leader_changed(&self, group: GroupId, term: Term, leader: Option<NodeId>) {
        // Proposers learn the leader from its own announcement (SES 5).
        tracing::debug!(%group, %term, ?leader, "leader changed");
    }

    fn installed(&self, group: GroupId, applied: EntryId) {
        if group == GroupId::CATALOG {
            let node = &self.0;
            node.catalog_grown(CatalogIndex(applied.index.0));
            node.queues.configurer.changed();
            node.clients.close_orphans();
            // A snapshot has no events, so the formation is checked here.
            node.base.catalog.note_formed();
            node.cluster.members_changed();
            let cluster = Arc::clone(&node.cluster);
            node.base.context.spawn(async move { cluster.nodes_changed() });
        }
    }
}

impl QueueSink for Broker {
    fn applied(&self, group: GroupId, _: EntryId, leading: bool, _: &Entry, output: &Output) {
        let node = &self.0;
        if leading {
            node.base.led.applied(Home::Group(group));
            node.leader.perform(Home::Group(group), output);
        }
    }
}

impl CatalogSink for Broker {
    fn applied(&self, id: EntryId, leading: bool, _: &CatalogEntry, output: &CatalogOutput) {
        let node = &self.0;
        if leading {
            node.base.catalog_client.applied(id.index, output.replies.clone());
        }
        node.catalog_grown(CatalogIndex(id.index.0));
        let mut nodes_changed = false;
        for event in &output.events {
            match event {
                CatalogEvent::Formed(_) => node.base.catalog.note_formed(),
                CatalogEvent::MachineRaised(to) => {
                    tracing::info!(%to, "the cluster's machine version is raised");
                    node.cluster.members_changed();
                    // What settings mean depends on the version (RQU-07).
                    node.queues.configurer.changed();
                }
                CatalogEvent::MembersChanged => node.cluster.members_changed(),
                // The groups carry it out (`raft/placements`).
                CatalogEvent::PlacementChanged { .. } => {}
                CatalogEvent::NodeStarted { .. }
                | CatalogEvent::NodeDowned { .. }
                | CatalogEvent::LifeBegan { .. } => nodes_changed = true,
                CatalogEvent::VhostDeleted { vhost, queues } => {
                    let why = refusal::vhost_deleted(vhost);
                    node.clients.close_where(|info| info.vhost == *vhost, &why);
                    node.leader.end_queues(queues);
                }
                CatalogEvent::DelayQueueRemoved { queue } => node.leader.end_queues(&[*queue]),
                CatalogEvent::UserDeleted { user } => {
                    node.clients
                        .close_where(|info| info.user == *user, &refusal::user_deleted(user));
                }
                // Every node gets this event; only the catalog's leader counts it.
                CatalogEvent::QueueRemoved { .. } => {
                    node.base.context.counters.queues_deleted.add(u64::from(leading));
                }
                CatalogEvent::PoliciesChanged => node.queues.configurer.changed(),
            }
        }
        if nodes_changed {
            let cluster = Arc::clone(&node.cluster);
            node.base.context.spawn(async move { cluster.nodes_changed() });
        }
    }

    fn placement_reached(&self, group: GroupId, number: u64) {
        self.0.cluster.report_reached(group, number);
    }
}

impl Node {
    /// Records that this node's catalog copy has been applied up to `index`.
    fn catalog_grown(&self, index: CatalogIndex) {
        self.base.catalog.grown(index);
        self.base.lease.report_applied(index);
    }

    /// Begins leaderships that the groups reported before the broker was started.
    pub(crate) fn start_early_leaderships(&self) {
        let early = std::mem::take(&mut *self.leader.early.lock());
        for (group, term) in early {
            self.lead(group, term);
        }
    }

    /// This node leads the group, and has applied its term's first entry (STO 7).
    fn lead(&self, group: GroupId, term: Term) {
        tracing::debug!(%group, %term, "this node leads the group");
        if group == GroupId::CATALOG {
            self.cluster.lead_catalog();
        } else {
            self.leader.lead(group, term);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{CatalogCommand, ClusterShape};
    use quorate_types::{
        BootNumber, ClusterId, Incarnation, LogIndex, SessionId, Stamp, StartNumber,
    };
    use std::time::Duration;

    /// A node that missed entries gets a snapshot in place of them: the effects of these entries are
    /// derived from it.
    #[tokio::test]
    async fn a_snapshot_of_the_catalog_has_the_effects_of_its_entries() {
        let broker = crate::Broker(crate::testing::node());
        let node = &broker.0;
        let shape = ClusterShape { cluster: ClusterId(7), queue_groups: 3 };
        let started = CatalogCommand::NodeStarted {
            node: node.base.context.me,
            incarnation: Incarnation(1),
            boot: BootNumber(1),
            rpc_address: String::new(),
            amqp_address: String::new(),
        };
        let start = StartNumber(5);
        let down = CatalogCommand::NodeDown { node: node.base.context.me, start };
        node.base.context.begin_session(SessionId { node: node.base.context.me, start });
        for (index, commands) in [(5, vec![CatalogCommand::Form(shape), started]), (6, vec![down])]
        {
            let entry = CatalogEntry { stamp: Stamp::default(), commands };
            let mut catalog = node.base.catalog.write();
            catalog.apply(CatalogIndex(index), &entry, &mut CatalogOutput::default());
        }
        let applied = EntryId { term: Term(1), leader: node.base.context.me, index: LogIndex(6) };
        GroupSink::installed(&broker, GroupId::CATALOG, applied);
        assert_eq!(
            *broker.formed().borrow(),
            Some(shape),
            "so that the cluster's id is written down"
        );
        let fenced = async {
            while node.base.context.session().is_some() {
                tokio::task::yield_now().await;
            }
        };
        let fenced = tokio::time::timeout(Duration::from_secs(600), fenced).await;
        assert!(fenced.is_ok(), "this run is over");
    }
}
