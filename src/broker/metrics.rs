//! Numbers of the floors below, for lists and metrics.

use crate::{
    node::Node,
    view::{GroupAudit, GroupView, HistogramView, MetricsView, Role},
};
use quorate_raft::{Group, Times};
use quorate_storage::{Histogram, WriterStats};
use quorate_types::{LogIndex, Term};
use std::sync::Arc;

impl Node {
    /// This node's replicas.
    pub(crate) fn group_views(&self) -> Vec<GroupView> {
        let Some(groups) = self.groups() else { return Vec::new() };
        groups.all().map(|group| self.group_view(group)).collect()
    }

    fn group_view(&self, group: &Arc<Group>) -> GroupView {
        let leadership = group.leadership();
        let role = match leadership.leader {
            Some(leader) if leader == self.me => Role::Leader,
            Some(_) => Role::Follower,
            None => Role::Candidate,
        };
        let log = group.store().log_state();
        GroupView {
            group: group.id(),
            role,
            leader: leadership.leader,
            term: Term(leadership.term.0),
            last: log.last.map_or(LogIndex(0), |id| id.index),
            applied: group.applied().unwrap_or(LogIndex(0)),
            purged: log.last_purged.map_or(LogIndex(0), |id| id.index),
            log_bytes: group.store().log_bytes() as u64,
        }
    }

    /// State digests of this node's replicas.
    pub(crate) fn audits(&self) -> Vec<GroupAudit> {
        let Some(groups) = self.groups() else { return Vec::new() };
        let audit = |group: &Arc<Group>| {
            let (index, digest) = group.digest();
            Some(GroupAudit { group: group.id(), node: self.me, index: index?, digest })
        };
        groups.all().filter_map(audit).collect()
    }

    /// Adds what the floors below count.
    pub(crate) fn add_floor_metrics(&self, view: &mut MetricsView) {
        let Some(groups) = self.groups() else { return };
        for group in groups.all() {
            let metrics = group.metrics();
            view.snapshots_installed += metrics.snapshots_installed.get();
            view.batches += metrics.proposals.get();
            add_times(&mut view.round, &metrics.round);
            add_times(&mut view.election, &metrics.election);
        }
        if let Some(stats) = self.writer_stats.get() {
            let WriterStats { sync_us, batch_bytes, .. } = stats();
            view.synced_bytes = batch_bytes.sum;
            view.sync = histogram(&sync_us);
        }
    }
}

/// Adds sums and counts; the groups keep no buckets, so the view has only the last, unbounded one.
fn add_times(view: &mut HistogramView, times: &Times) {
    view.sum_us += times.sum_us.get();
    match view.counts.first_mut() {
        Some(count) => *count += times.count.get(),
        None => view.counts.push(times.count.get()),
    }
}

/// Buckets of powers of two.
fn histogram(histogram: &Histogram) -> HistogramView {
    let bounds = histogram.buckets.len().saturating_sub(1);
    HistogramView {
        bounds_us: (0..bounds).map(|bit| (1u64 << bit) - 1).collect(),
        counts: histogram.buckets.clone(),
        sum_us: histogram.sum,
    }
}
