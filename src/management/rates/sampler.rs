//! The samples that one node has taken. Pure: time and figures are arguments.

use crate::rates::fields;
use crate::rates::history::History;
use crate::rates::tracked::Tracked;
use quorate_broker::view::Figures;
use quorate_catalog::ConnectionId;
use quorate_types::{GroupId, Home, QueueId, ResourceName, VhostName};
use std::collections::{BTreeMap, BTreeSet};

/// Rows that a node keeps of itself beyond the retention, with coarser steps: (step, rows), as
/// RabbitMQ's global retention does.
const COARSE: [(u64, usize); 3] = [(60_000, 61), (600_000, 49), (1_800_000, 49)];

/// What a round of samples is taken from.
#[derive(Debug)]
pub(crate) struct Round<'a> {
    /// Time of the round, ms since 1970.
    pub(crate) now_ms: u64,
    /// Values of [`fields::NODE`].
    pub(crate) node: &'a [u64],
    /// Entries that each group has proposed here as the leader, and the sum of their times,
    /// microseconds.
    pub(crate) commits: &'a [(GroupId, (u64, u64))],
    pub(crate) figures: &'a Figures,
}

/// The samples of a node.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// Rows of the histories of full length.
    rows_max: usize,
    last_ms: Option<u64>,
    homes: BTreeSet<Home>,
    pub(crate) queues: Tracked<QueueId>,
    names: BTreeMap<QueueId, ResourceName>,
    pub(crate) exchanges: Tracked<ResourceName>,
    pub(crate) connections: Tracked<ConnectionId>,
    pub(crate) channels: Tracked<(ConnectionId, u16)>,
    pub(crate) vhosts: Tracked<VhostName>,
    /// What has passed through each virtual host since the start of the node.
    passed: BTreeMap<VhostName, [u64; fields::VHOST.len()]>,
    node: History,
    coarse: [History; COARSE.len()],
    commits: BTreeMap<GroupId, (u64, u64)>,
    /// Mean time of a commit in the last round that had one, microseconds.
    pub(crate) commit_us: BTreeMap<GroupId, u64>,
}

/// Place of the first field of a virtual host that counts what passes.
const PASSES: usize = 3;
/// Places of the fields that exchanges add to, and that connections add to.
const UNROUTABLE: usize = 12;
const OCTETS: usize = 14;

impl Sampler {
    /// Without samples; histories are of `rows_max` rows.
    pub(crate) fn new(rows_max: usize) -> Self {
        Self { rows_max, ..Self::default() }
    }

    /// Takes the samples of a round.
    pub(crate) fn take(&mut self, round: &Round<'_>) {
        let Round { now_ms, node, commits, figures } = *round;
        if self.last_ms.is_some_and(|last| last >= now_ms) {
            // The clock was set back: what lies in the future has no use.
            *self = Self { passed: std::mem::take(&mut self.passed), ..Self::new(self.rows_max) };
        }
        self.take_node(now_ms, node);
        self.take_commits(commits);
        for values in self.passed.values_mut() {
            values.iter_mut().take(PASSES).for_each(|length| *length = 0);
        }
        self.take_queues(now_ms, figures);
        self.take_clients(now_ms, figures);
        let vhosts = std::mem::take(&mut self.passed);
        for (vhost, values) in &vhosts {
            self.vhosts.sample(vhost.clone(), now_ms, values, self.last_ms, self.rows_max);
        }
        self.passed = vhosts;
        self.vhosts.end(now_ms, self.rows_max);
        self.homes = figures.homes.iter().copied().collect();
        self.last_ms = Some(now_ms);
    }

    fn take_node(&mut self, now_ms: u64, values: &[u64]) {
        self.node.push(now_ms, values, self.rows_max);
        for ((step, rows), history) in COARSE.iter().zip(&mut self.coarse) {
            let step_ms = now_ms / step * step;
            if self.last_ms.is_none_or(|last| last < step_ms) {
                history.push(step_ms, values, *rows);
            }
        }
    }

    fn take_commits(&mut self, commits: &[(GroupId, (u64, u64))]) {
        for (group, (count, sum_us)) in commits {
            let (count_before, sum_before) =
                self.commits.insert(*group, (*count, *sum_us)).unwrap_or_default();
            let mean =
                sum_us.saturating_sub(sum_before).checked_div(count.saturating_sub(count_before));
            if let Some(mean) = mean {
                self.commit_us.insert(*group, mean);
            }
        }
    }

    fn take_queues(&mut self, now_ms: u64, figures: &Figures) {
        self.names.clear();
        for queue in &figures.queues {
            // A queue that was led elsewhere may have had traffic there.
            let born = self.last_ms.filter(|_| self.homes.contains(&queue.id.home));
            let values = fields::of_queue(queue);
            let before = self.queues.sample(queue.id, now_ms, &values, born, self.rows_max);
            if self.queues.get(&queue.id).is_none() {
                continue;
            }
            self.names.insert(queue.id, queue.name.clone());
            let passed = self.passed.entry(queue.name.vhost.clone()).or_default();
            for (at, (sum, value)) in passed.iter_mut().zip(values).enumerate() {
                let last = before.as_ref().and_then(|row| row.get(at)).copied();
                *sum += match last {
                    _ if at < PASSES => value,
                    Some(last) => value.saturating_sub(last),
                    None => 0,
                };
            }
        }
        self.queues.end(now_ms, self.rows_max);
    }

    fn take_clients(&mut self, now_ms: u64, figures: &Figures) {
        let born = self.last_ms;
        for (name, traffic) in &figures.exchanges {
            let values = fields::of_exchange(traffic);
            let before = self.exchanges.sample(name.clone(), now_ms, &values, born, self.rows_max);
            let [_, _, unroutable @ ..] = values;
            let before = before.as_ref().and_then(|row| row.get(2..));
            self.pass(&name.vhost, UNROUTABLE, &unroutable, before);
        }
        self.exchanges.end(now_ms, self.rows_max);
        for connection in &figures.connections {
            let values = [connection.socket.received_bytes, connection.socket.sent_bytes];
            let before =
                self.connections.sample(connection.id, now_ms, &values, born, self.rows_max);
            self.pass(&connection.vhost, OCTETS, &values, before.as_deref());
        }
        self.connections.end(now_ms, self.rows_max);
        for channel in &figures.channels {
            let key = (channel.connection, channel.number);
            let values = fields::of_channel(&channel.report.traffic);
            self.channels.sample(key, now_ms, &values, born, self.rows_max);
        }
        self.channels.end(now_ms, self.rows_max);
    }

    /// Adds what has risen since the row before to fields of a virtual host.
    fn pass(&mut self, vhost: &VhostName, from: usize, values: &[u64], before: Option<&[u64]>) {
        let Some(before) = before else { return };
        let rises = values.iter().zip(before).map(|(now, then)| now.saturating_sub(*then));
        let passed = self.passed.entry(vhost.clone()).or_default();
        passed.iter_mut().skip(from).zip(rises).for_each(|(sum, rise)| *sum += rise);
    }

    /// Forgets what has passed through virtual hosts that are gone.
    pub(crate) fn keep_vhosts(&mut self, is_there: impl Fn(&VhostName) -> bool) {
        self.passed.retain(|vhost, _| is_there(vhost));
    }

    /// The name of a sampled queue.
    pub(crate) fn name(&self, queue: QueueId) -> Option<&ResourceName> {
        self.names.get(&queue)
    }

    /// The history of the node itself that reaches back far enough, or else the longest.
    pub(crate) fn node(&self, age_ms: u64) -> &History {
        if self.node.len() < self.rows_max || age_ms <= self.node.span_ms() {
            return &self.node;
        }
        let reaches = |(step, rows): &(u64, usize)| age_ms <= step * (*rows as u64 - 1);
        let at = COARSE.iter().position(reaches).unwrap_or(COARSE.len() - 1);
        self.coarse.get(at).unwrap_or(&self.node)
    }

    /// The history of the node with its newest rows.
    pub(crate) fn node_now(&self) -> &History {
        &self.node
    }
}
