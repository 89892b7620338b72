//! The figures of `/metrics`, from this crate and those below, and the groups' figures for lists.

use crate::{
    context::Context,
    node::Node,
    views::{
        administration::Views,
        view::{FollowerLag, GroupAudit, GroupView, HistogramView, MetricsView, Role, Waits},
    },
};
use quorate_raft::{Group, Times};
use quorate_storage::{DatabaseStats, Histogram};
use quorate_types::{LogIndex, Term};
use std::sync::Arc;

impl Views<'_> {
    /// Everything that `/metrics` shows.
    #[must_use]
    pub fn metrics(&self) -> MetricsView {
        let node = &self.0;
        let mut view = MetricsView { node: self.node_status(), ..MetricsView::default() };
        node.base.context.counters.show(&mut view);
        view.batch_commands = histogram(node.base.context.counters.batch_commands.histogram());
        view.batch = histogram(node.base.context.counters.batch_wait_us.histogram());
        view.in_flight_bytes = node.base.proposers.bytes();
        view.memory_budget_bytes = node.base.context.memory.bytes_max();
        node.show_clients(&mut view);
        node.show_queues(&mut view);
        view.waits = node.waits();
        view.follower_lags = follower_lags(&node.base.context);
        node.show_floors(&mut view);
        view
    }
}

/// How far the followers of the groups that this node leads are behind.
fn follower_lags(context: &Context) -> Vec<FollowerLag> {
    let Some(groups) = context.groups() else { return Vec::new() };
    let of_group = |group: Arc<Group>| {
        let id = group.id();
        let lags = group.follower_lags().into_iter();
        lags.map(move |(follower, entries)| FollowerLag { group: id, follower, entries })
    };
    groups.all().flat_map(of_group).collect()
}

impl Node {
    /// This node's replicas.
    pub(crate) fn group_views(&self) -> Vec<GroupView> {
        let Some(groups) = self.base.context.groups() else { return Vec::new() };
        groups.all().map(|group| self.group_view(&group)).collect()
    }

    fn group_view(&self, group: &Arc<Group>) -> GroupView {
        let leadership = group.leadership();
        let role = match leadership.leader {
            Some(leader) if leader == self.base.context.me => Role::Leader,
            Some(_) => Role::Follower,
            None => Role::Candidate,
        };
        let log = group.store().log_state();
        let round = group.metrics().round.histogram();
        GroupView {
            group: group.id(),
            role,
            leader: leadership.leader,
            term: Term(leadership.term.0),
            last: log.last.map_or(LogIndex(0), |id| id.index),
            applied: group.applied().unwrap_or(LogIndex(0)),
            purged: log.last_purged.map_or(LogIndex(0), |id| id.index),
            log_bytes: group.store().log_bytes() as u64,
            rounds: round.count,
            rounds_us: round.sum,
        }
    }

    /// State digests of this node's replicas, at several indexes each.
    pub(crate) fn audits(&self) -> Vec<GroupAudit> {
        let Some(groups) = self.base.context.groups() else { return Vec::new() };
        let audits = |group: Arc<Group>| {
            let (id, node) = (group.id(), self.base.context.me);
            let digests = group.digests().into_iter().rev();
            let audit = move |(index, digest)| GroupAudit { group: id, node, index, digest };
            digests.map(audit).collect::<Vec<_>>()
        };
        groups.all().flat_map(audits).collect()
    }

    /// Adds the counts of this node's clients.
    fn show_clients(&self, view: &mut MetricsView) {
        for connection in self.clients.connections.all() {
            let channels = connection.reported.channels.lock();
            view.channels += channels.len() as u64;
            view.publishers +=
                channels.values().filter(|channel| channel.report.traffic.published > 0).count()
                    as u64;
        }
        view.consumers = self.clients.consumers.len() as u64;
    }

    /// Adds what the queues hold that this node leads or is the home of.
    fn show_queues(self: &Arc<Self>, view: &mut MetricsView) {
        for queue in Views(self).queue_figures() {
            view.messages_ready += queue.ready;
            view.messages_ready_bytes += queue.ready_bytes;
            view.messages_unacknowledged += queue.unacknowledged;
            view.messages_unacknowledged_bytes += queue.unacknowledged_bytes;
            view.queues_memory_bytes += queue.memory_bytes;
            view.messages_delayed += queue.delayed;
            view.dead_letters_waiting += queue.dead_letters_waiting;
        }
    }

    /// How long messages of the led queues have waited for their first delivery.
    fn waits(&self) -> Waits {
        let led = &self.base.led;
        let of_home = |home| {
            let term = led.leading(home)?;
            Some((home, term, led.with_machine(home, |machine| *machine.waits())?))
        };
        self.base.context.counters.waits.update(led.homes().into_iter().filter_map(of_home))
    }

    /// Adds what the floors below count.
    fn show_floors(&self, view: &mut MetricsView) {
        let Some(groups) = self.base.context.groups() else { return };
        let (mut round, mut election, mut checkpoint) = Default::default();
        for group in groups.all() {
            let metrics = group.metrics();
            view.snapshots_installed += metrics.snapshots_installed.get();
            view.entries += metrics.proposals.get();
            add_times(&mut round, &metrics.round);
            add_times(&mut election, &metrics.election);
            add_times(&mut checkpoint, &metrics.checkpoint);
        }
        view.round = histogram(round);
        view.election = histogram(election);
        view.checkpoint = histogram(checkpoint);
        let stats = self.base.context.database_stats();
        let DatabaseStats { writer, bodies_read, log_files } = stats;
        view.log_files = log_files;
        view.sync_bytes = histogram(writer.batch_bytes);
        view.sync = histogram(writer.sync_us);
        view.bodies_read = bodies_read;
    }
}

/// Buckets of powers of two.
fn histogram(histogram: Histogram) -> HistogramView {
    let bounds = histogram.buckets.len().saturating_sub(1);
    HistogramView {
        bounds: (0..bounds).map(|bit| (1u64 << bit) - 1).collect(),
        counts: histogram.buckets,
        sum: histogram.sum,
    }
}

fn add_times(sum: &mut Histogram, times: &Times) {
    sum.merge(&times.histogram());
}
