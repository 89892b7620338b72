//! Samples of what passes through the node, and the rates computed from them. Each node samples the
//! queues that it leads and its clients; who is asked for the whole cluster asks all nodes and adds.

pub(crate) mod fields;
mod history;
mod sampler;
mod service;
pub(crate) mod shown;
#[cfg(test)]
mod tests;
mod tracked;

pub use service::StatisticsService;
pub(crate) use service::attempts;

use crate::convert;
use crate::facts::ProcessFacts;
use crate::rates::fields::Field;
use crate::rates::history::History;
use crate::rates::sampler::{Round, Sampler};
use crate::source::Source;
use crate::wire::{self, SampledKind};
use parking_lot::Mutex;
use quorate_types::{GroupId, ResourceName, ShortString, VhostName};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Samples of one field in one answer.
pub(crate) const SAMPLES_MAX: u64 = 500;
/// Samples of all fields of all objects in one answer. Between nodes they take 10 bytes each at most,
/// so that an answer is far below the 4 MiB that gRPC takes in one message.
pub(crate) const ALL_SAMPLES_MAX: u64 = 200_000;

/// A request asks for more than [`ALL_SAMPLES_MAX`] samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {ALL_SAMPLES_MAX} samples are asked for")]
pub(crate) struct TooManySamples;
/// Rows of a history, however short the interval is.
const ROWS_MAX: u64 = 721;

/// How a node samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Time between two samples.
    pub interval: Duration,
    /// How long samples are kept.
    pub retention: Duration,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { interval: Duration::from_secs(5), retention: Duration::from_secs(600) }
    }
}

impl Sampling {
    fn interval_ms(self) -> u64 {
        u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn rows_max(self) -> usize {
        let retention_ms = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        let rows = (retention_ms / self.interval_ms() + 1).clamp(2, ROWS_MAX);
        usize::try_from(rows).unwrap_or(2)
    }
}

/// The samples of this node.
#[derive(Clone, Debug)]
pub struct Rates {
    sampling: Sampling,
    sampler: Arc<Mutex<Sampler>>,
}

/// The present time, ms since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Rates {
    /// No samples yet.
    #[must_use]
    pub fn new(sampling: Sampling) -> Self {
        Self { sampling, sampler: Arc::new(Mutex::new(Sampler::new(sampling.rows_max()))) }
    }

    /// Takes samples until the task is dropped: at multiples of the interval, so that those of
    /// different nodes can be added.
    pub async fn run<S: Source>(self, source: S) {
        let interval_ms = self.sampling.interval_ms();
        loop {
            let wait_ms = interval_ms - now_ms() % interval_ms;
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            let (rates, source) = (self.clone(), source.clone());
            // With many queues this takes a while, which is not for the threads of the broker.
            let sampled = tokio::task::spawn_blocking(move || rates.sample(&source));
            if let Err(error) = sampled.await {
                tracing::error!(%error, "samples were not taken");
            }
        }
    }

    fn sample<S: Source>(&self, source: &S) {
        let interval_ms = self.sampling.interval_ms();
        let (view, figures, process) = (source.metrics(), source.figures(), ProcessFacts::read());
        let node = fields::of_node(&view, process.resident_bytes, process.fds_open);
        let commit = |group: &quorate_broker::view::GroupView| {
            (group.group, (group.rounds, group.rounds_us))
        };
        let commits: Vec<_> = view.node.groups.iter().map(commit).collect();
        let vhosts = source.vhosts();
        let now_ms = now_ms() / interval_ms * interval_ms;
        let mut sampler = self.sampler.lock();
        sampler.keep_vhosts(|name| vhosts.iter().any(|vhost| vhost.name == *name));
        sampler.take(&Round { now_ms, node: &node, commits: &commits, figures: &figures });
    }

    /// Mean time from the proposal of an entry until it was applied, in the last interval in which this
    /// node has proposed one to the group; microseconds.
    pub(crate) fn commit_us(&self, group: GroupId) -> Option<u64> {
        self.sampler.lock().commit_us.get(&group).copied()
    }

    /// What this node has sampled of the objects that a request asks for.
    ///
    /// # Errors
    /// These objects have too many samples together.
    pub(crate) fn answer(
        &self,
        request: &wire::StatisticsRequest,
        me: u32,
    ) -> Result<Vec<wire::Statistic>, TooManySamples> {
        let sampler = self.sampler.lock();
        let kind = request.kind();
        let objects = match kind {
            SampledKind::Queues | SampledKind::Exchanges | SampledKind::Vhosts => {
                named_objects(&sampler, request)
            }
            SampledKind::Connections | SampledKind::Channels => client_objects(&sampler, kind),
            SampledKind::Node => {
                let key = wire::Statistic { node: me, ..wire::Statistic::default() };
                return Ok(vec![node_statistic(&sampler, request, key)]);
            }
        };
        check_samples(request, objects.len())?;
        let fields = fields_of(kind);
        let show = |(key, history)| statistic(history, fields, request, key);
        Ok(objects.into_iter().map(show).collect())
    }
}

/// Checks, before samples are copied, that a request does not ask for too many of so many objects.
/// Single nodes are few, and always shown.
///
/// # Errors
/// It does.
pub(crate) fn check_samples(
    request: &wire::StatisticsRequest,
    objects: usize,
) -> Result<(), TooManySamples> {
    let kind = request.kind();
    let spans = fields_of(kind).iter().filter_map(|field| span_of(request, *field));
    let of_field = |span: wire::Span| {
        (span.age_ms.checked_div(span.step_ms).unwrap_or_default()).saturating_add(1)
    };
    let of_one = spans.map(of_field).fold(0u64, u64::saturating_add);
    let all = of_one.saturating_mul(u64::try_from(objects).unwrap_or(u64::MAX));
    if kind == SampledKind::Node || objects <= 1 || all <= ALL_SAMPLES_MAX {
        return Ok(());
    }
    Err(TooManySamples)
}

/// Objects with names, as far as the request wants them, and their histories.
fn named_objects<'a>(
    sampler: &'a Sampler,
    request: &wire::StatisticsRequest,
) -> Vec<(wire::Statistic, &'a History)> {
    let is_vhost =
        |name: &ShortString| request.vhost.as_deref().is_none_or(|vhost| name.as_str() == vhost);
    let is_wanted = |name: &ResourceName| {
        let wanted = request.name.as_deref();
        is_vhost(&name.vhost) && wanted.is_none_or(|wanted| name.name.as_str() == wanted)
    };
    let named = |name: &ResourceName| wire::Statistic {
        vhost: name.vhost.to_string(),
        name: name.name.to_string(),
        ..wire::Statistic::default()
    };
    match request.kind() {
        SampledKind::Queues => {
            let only = |id: &wire::QueueId| (id.group, id.node, id.index, id.position);
            let chosen: BTreeSet<_> = request.queues.iter().map(only).collect();
            let names = sampler.queues.iter().filter_map(|(queue, history)| {
                let id = convert::queue_id(*queue);
                if !chosen.is_empty() && !chosen.contains(&only(&id)) {
                    return None;
                }
                let name = sampler.name(*queue).filter(|name| is_wanted(name))?;
                Some((wire::Statistic { queue: Some(id), ..named(name) }, history))
            });
            names.collect()
        }
        SampledKind::Exchanges => {
            let wanted = sampler.exchanges.iter().filter(|(name, _)| is_wanted(name));
            wanted.map(|(name, history)| (named(name), history)).collect()
        }
        SampledKind::Vhosts => {
            let wanted = sampler.vhosts.iter().filter(|(name, _)| is_vhost(name));
            let key = |name: &VhostName| wire::Statistic {
                vhost: name.to_string(),
                ..wire::Statistic::default()
            };
            wanted.map(|(name, history)| (key(name), history)).collect()
        }
        SampledKind::Connections | SampledKind::Channels | SampledKind::Node => Vec::new(),
    }
}

/// The connections or the channels of this node's clients, and their histories.
fn client_objects(sampler: &Sampler, kind: SampledKind) -> Vec<(wire::Statistic, &History)> {
    let key = |id, channel: u16| wire::Statistic {
        connection: Some(convert::connection_id(id)),
        channel: channel.into(),
        ..wire::Statistic::default()
    };
    if kind == SampledKind::Connections {
        return sampler.connections.iter().map(|(id, history)| (key(*id, 0), history)).collect();
    }
    let channels = sampler.channels.iter();
    channels.map(|((id, number), history)| (key(*id, *number), history)).collect()
}

/// The fields of a kind of object.
pub(crate) fn fields_of(kind: SampledKind) -> &'static [Field] {
    match kind {
        SampledKind::Queues => fields::QUEUE,
        SampledKind::Channels => fields::CHANNEL,
        SampledKind::Connections => fields::CONNECTION,
        SampledKind::Exchanges => fields::EXCHANGE,
        SampledKind::Vhosts => fields::VHOST,
        SampledKind::Node => fields::NODE,
    }
}

/// What a request asks of the samples of a field.
fn span_of(request: &wire::StatisticsRequest, field: Field) -> Option<wire::Span> {
    match field.asked {
        fields::Asked::Lengths => request.lengths,
        fields::Asked::Rates => request.rates,
        fields::Asked::Data => request.data,
        fields::Asked::Node => request.node,
    }
}

fn samples(history: &History, at: usize, span: wire::Span) -> wire::Samples {
    let wire::Span { end_ms, age_ms, step_ms } = span;
    let values =
        history.samples(at, end_ms, age_ms.min(step_ms.saturating_mul(SAMPLES_MAX)), step_ms);
    wire::Samples { field: u32::try_from(at).unwrap_or(u32::MAX), end_ms, step_ms, values }
}

fn statistic(
    history: &History,
    fields: &[Field],
    request: &wire::StatisticsRequest,
    key: wire::Statistic,
) -> wire::Statistic {
    let places = fields.iter().enumerate();
    let wanted = places.filter_map(|(at, field)| Some((at, span_of(request, *field)?)));
    wire::Statistic {
        totals: history.last().unwrap_or_default().to_vec(),
        rates: rates(history, fields),
        samples: wanted.map(|(at, span)| samples(history, at, span)).collect(),
        ..key
    }
}

/// What is a number of things at hand may fall, and what counts only rises.
fn rates(history: &History, fields: &[Field]) -> Vec<f64> {
    let rate = |(at, field): (usize, &Field)| match field.asked {
        fields::Asked::Lengths => history.slope(at),
        fields::Asked::Node if !fields::CHURN.contains(&field.name) => history.slope(at),
        fields::Asked::Rates | fields::Asked::Data | fields::Asked::Node => history.rate(at),
    };
    fields.iter().enumerate().map(rate).collect()
}

fn node_statistic(
    sampler: &Sampler,
    request: &wire::StatisticsRequest,
    key: wire::Statistic,
) -> wire::Statistic {
    let mut shown = statistic(sampler.node_now(), fields::NODE, request, key);
    let places = fields::NODE.iter().enumerate();
    let wanted = places.filter_map(|(at, field)| Some((at, span_of(request, *field)?)));
    shown.samples = wanted.map(|(at, span)| samples(sampler.node(span.age_ms), at, span)).collect();
    shown
}
