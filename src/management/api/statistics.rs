//! The statistics of the objects of a list, from all nodes, and the parameters of a request that ask
//! for them.

use crate::api::call::{Api, Call};
use crate::api::list::Wanted;
use crate::api::refusal::Refusal;
use crate::api::spans::Spans;
use crate::api::uri::Query;
use crate::rates::fields::{Asked, Field};
use crate::rates::{self, check_samples, fields_of, shown};
use crate::wire::{self, SampledKind};
use quorate_types::ResourceName;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What names an object of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Queue(u32, u32, u64, u64),
    Connection(u32, u64, u64),
    Channel(u32, u64, u64, u32),
    Exchange(String, String),
    Vhost(String),
    Node(u32),
}

impl Key {
    /// The key of a queue of a list.
    pub(crate) fn of_queue(queue: &wire::Queue) -> Option<Self> {
        queue.id.map(|id| Self::Queue(id.group, id.node, id.index, id.position))
    }

    /// The key of a connection.
    pub(crate) fn of_connection(id: wire::ConnectionId) -> Self {
        Self::Connection(id.node, id.start, id.number)
    }

    /// The key of a channel of a list.
    pub(crate) fn of_channel(channel: &wire::Channel) -> Option<Self> {
        let number = channel.number;
        channel.connection.map(|id| Self::Channel(id.node, id.start, id.number, number))
    }

    fn of(kind: SampledKind, statistic: &wire::Statistic) -> Option<Self> {
        match kind {
            SampledKind::Queues => {
                statistic.queue.map(|id| Self::Queue(id.group, id.node, id.index, id.position))
            }
            SampledKind::Connections => statistic.connection.map(Self::of_connection),
            SampledKind::Channels => statistic
                .connection
                .map(|id| Self::Channel(id.node, id.start, id.number, statistic.channel)),
            SampledKind::Exchanges => {
                Some(Self::Exchange(statistic.vhost.clone(), statistic.name.clone()))
            }
            SampledKind::Vhosts => Some(Self::Vhost(statistic.vhost.clone())),
            SampledKind::Node => Some(Self::Node(statistic.node)),
        }
    }
}

/// Statistics of the objects of one kind.
#[derive(Debug)]
pub(crate) struct Book {
    kind: SampledKind,
    /// The request wants none.
    is_off: bool,
    statistics: BTreeMap<Key, wire::Statistic>,
    /// Nodes whose samples are missing.
    pub(crate) silent: Vec<u32>,
}

/// True if a request shows, or sorts by, something that comes from statistics: all fields if it names
/// no columns.
fn is_needed(query: &Query, kind: SampledKind) -> bool {
    let Some(columns) = query.get("columns") else { return true };
    let names = columns.split(',').chain(query.get("sort").unwrap_or_default().split(','));
    let names: BTreeSet<&str> =
        names.map(|path| path.split('.').next().unwrap_or_default()).collect();
    // The totals of these are shown among the other fields.
    let has_total = |field: &Field| match field.asked {
        Asked::Data | Asked::Node => names.contains(field.name),
        Asked::Lengths | Asked::Rates => false,
    };
    // What is shown of nodes is made of statistics in more than one way, and small.
    kind == SampledKind::Node
        || Wanted::Only(&names).has_statistics()
        || fields_of(kind).iter().any(has_total)
}

/// What a request asks of statistics.
///
/// # Errors
/// 400 that names the wrong parameter.
pub(crate) fn spans(call: &Call) -> Result<Spans, Refusal> {
    Spans::parse(&call.query, rates::now_ms())
}

impl Book {
    /// The statistics of all objects of a kind, or only of those of the virtual host in the path.
    ///
    /// # Errors
    /// 400: too many samples are asked for.
    pub(crate) async fn of(
        api: &Api,
        call: &Call,
        spans: &Spans,
        kind: SampledKind,
    ) -> Result<Self, Refusal> {
        let vhost = call.name("vhost").map(str::to_owned);
        let request = wire::StatisticsRequest { vhost, ..spans.request(kind) };
        Self::ask(api, call, spans, request).await
    }

    /// The statistics of one queue or exchange.
    ///
    /// # Errors
    /// 400: too many samples are asked for.
    pub(crate) async fn of_one(
        api: &Api,
        call: &Call,
        (spans, kind): (&Spans, SampledKind),
        name: &ResourceName,
    ) -> Result<Self, Refusal> {
        let (vhost, name) = (Some(name.vhost.to_string()), Some(name.name.to_string()));
        let request = wire::StatisticsRequest { vhost, name, ..spans.request(kind) };
        Self::ask(api, call, spans, request).await
    }

    /// The statistics of some queues.
    ///
    /// # Errors
    /// 400: too many samples are asked for.
    pub(crate) async fn of_queues(
        api: &Api,
        call: &Call,
        spans: &Spans,
        queues: Vec<wire::QueueId>,
    ) -> Result<Self, Refusal> {
        let request = spans.request(SampledKind::Queues);
        Self::ask(api, call, spans, wire::StatisticsRequest { queues, ..request }).await
    }

    async fn ask(
        api: &Api,
        call: &Call,
        spans: &Spans,
        request: wire::StatisticsRequest,
    ) -> Result<Self, Refusal> {
        let kind = request.kind();
        let is_off = spans.is_off || !is_needed(&call.query, kind);
        let mut book = Self { kind, is_off, statistics: BTreeMap::new(), silent: Vec::new() };
        if is_off {
            return Ok(book);
        }
        let asked = request.clone();
        let listed = api.cluster.statistics(request).await.map_err(|_| spans.too_many())?;
        book.silent = listed.silent;
        for statistic in listed.items {
            book.add(statistic);
        }
        check_samples(&asked, book.statistics.len()).map_err(|_| spans.too_many())?;
        Ok(book)
    }

    /// Takes over the samples of some objects from another book, and the nodes that it misses.
    pub(crate) fn take_samples(&mut self, other: Self) {
        for (key, statistic) in other.statistics {
            match self.statistics.get_mut(&key) {
                Some(known) => known.samples = statistic.samples,
                None => drop(self.statistics.insert(key, statistic)),
            }
        }
        self.silent.extend(other.silent);
    }

    /// True if the rates of an object may be missing because this node, which has them, did not
    /// answer.
    pub(crate) fn misses(&self, key: Option<&Key>, node: u32) -> bool {
        let is_known = key.is_some_and(|key| self.statistics.contains_key(key));
        !is_known && self.silent.contains(&node)
    }

    fn add(&mut self, statistic: wire::Statistic) {
        let Some(key) = Key::of(self.kind, &statistic) else { return };
        match self.statistics.get_mut(&key) {
            None => drop(self.statistics.insert(key, statistic)),
            // For a moment two nodes may take themselves for the leader of a queue; they count the same
            // messages.
            Some(_) if self.kind == SampledKind::Queues => {}
            Some(sum) => shown::add(sum, &statistic),
        }
    }

    /// The statistics of one object.
    pub(crate) fn get(&self, key: &Key) -> Option<&wire::Statistic> {
        self.statistics.get(key)
    }

    /// The statistics of all objects that count, together; `None` if the request wants none.
    pub(crate) fn sum(&self, counts: impl Fn(&Key) -> bool) -> Option<wire::Statistic> {
        let mut sum = wire::Statistic::default();
        let counted = self.statistics.iter().filter(|(key, _)| counts(key));
        counted.for_each(|(_, statistic)| shown::add(&mut sum, statistic));
        (!self.is_off).then_some(sum)
    }

    /// Adds the statistics of an object to what is shown of it.
    pub(crate) fn insert(&self, shown: &mut Value, key: Option<&Key>) {
        if !self.is_off {
            let statistic = key.and_then(|key| self.statistics.get(key));
            shown::insert(shown, fields_of(self.kind), statistic);
        }
    }

    /// The value at a path of the statistics of an object.
    pub(crate) fn at(&self, key: Option<&Key>, path: &[&str]) -> Option<Value> {
        let statistic = key.and_then(|key| self.statistics.get(key));
        if self.is_off { None } else { shown::at(fields_of(self.kind), statistic, path) }
    }

    /// What is shown of an object, with its statistics.
    pub(crate) fn with(&self, mut shown: Value, key: Option<&Key>) -> Value {
        self.insert(&mut shown, key);
        shown
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use serde_json::json;

    fn book(kind: SampledKind) -> Book {
        Book { kind, is_off: false, statistics: BTreeMap::new(), silent: Vec::new() }
    }

    #[test]
    fn what_clients_of_several_nodes_publish_is_added_and_a_queue_counts_once() {
        let exchange = wire::Statistic {
            vhost: "/".to_owned(),
            name: "x".to_owned(),
            totals: vec![3, 2],
            rates: vec![1.5, 1.0],
            ..wire::Statistic::default()
        };
        let mut exchanges = book(SampledKind::Exchanges);
        exchanges.add(exchange.clone());
        exchanges.add(exchange);
        let key = Key::Exchange("/".to_owned(), "x".to_owned());
        let shown = exchanges.with(json!({}), Some(&key));
        assert_eq!(shown.pointer("/message_stats/publish_in"), Some(&json!(6)));
        assert_eq!(shown.pointer("/message_stats/publish_out_details/rate"), Some(&json!(2.0)));

        let id = wire::QueueId { group: 1, node: 0, index: 2, position: 0 };
        let queue = wire::Statistic {
            queue: Some(id),
            totals: vec![0, 0, 0, 5],
            ..wire::Statistic::default()
        };
        let mut queues = book(SampledKind::Queues);
        queues.add(queue.clone());
        queues.add(queue);
        let shown = queues.with(json!({}), Some(&Key::Queue(1, 0, 2, 0)));
        assert_eq!(shown.pointer("/message_stats/publish"), Some(&json!(5)));
    }

    #[test]
    fn statistics_are_fetched_if_a_column_or_the_order_needs_them() {
        let is_needed = |query: &str, kind| is_needed(&Query::parse(query).unwrap(), kind);
        for query in [
            "",
            "sort=message_stats.publish",
            "columns=name,message_stats.publish",
            "columns=name,messages_details.rate",
            "columns=name&sort=messages_details.rate",
        ] {
            assert!(is_needed(query, SampledKind::Queues), "{query}");
        }
        for query in ["columns=name", "columns=name,messages&sort=messages", "columns="] {
            assert!(!is_needed(query, SampledKind::Queues), "{query}");
        }
        // A virtual host has this total from its statistics.
        assert!(is_needed("columns=recv_oct", SampledKind::Vhosts));
        assert!(!is_needed("columns=messages", SampledKind::Vhosts));
        assert!(is_needed("columns=name", SampledKind::Node));
    }

    /// An autoscaler would take a missing rate for 0.
    #[test]
    fn rates_are_missing_if_the_leader_is_silent() {
        let id = wire::QueueId { group: 1, node: 0, index: 2, position: 0 };
        let statistic = wire::Statistic { queue: Some(id), ..wire::Statistic::default() };
        let mut queues = Book { silent: vec![3], ..book(SampledKind::Queues) };
        let key = Key::of(SampledKind::Queues, &statistic);
        assert!(queues.misses(key.as_ref(), 3) && !queues.misses(key.as_ref(), 2));
        queues.add(statistic);
        assert!(!queues.misses(key.as_ref(), 3), "another node leads it now");
    }

    #[test]
    fn the_samples_of_a_page_are_taken_over() {
        let id = |index| Some(wire::QueueId { group: 1, node: 0, index, position: 0 });
        let samples = vec![wire::Samples { values: vec![1], ..wire::Samples::default() }];
        let of = |index, total, samples: &[wire::Samples]| wire::Statistic {
            queue: id(index),
            totals: vec![total],
            samples: samples.to_vec(),
            ..wire::Statistic::default()
        };
        let mut all = Book { silent: vec![2], ..book(SampledKind::Queues) };
        all.add(of(1, 7, &[]));
        let mut page = Book { silent: vec![3], ..book(SampledKind::Queues) };
        page.add(of(1, 8, &samples));
        page.add(of(2, 9, &samples));
        all.take_samples(page);
        let got = |index| all.get(&Key::Queue(1, 0, index, 0));
        assert_eq!(got(1), Some(&of(1, 7, &samples)), "its place in the order stays");
        assert_eq!(got(2), Some(&of(2, 9, &samples)));
        assert_eq!(all.silent, [2, 3]);
    }

    /// NServiceBus and others ask for none.
    #[test]
    fn disabled_statistics_are_left_out() {
        let off = Book { is_off: true, ..book(SampledKind::Queues) };
        assert_eq!(off.with(json!({ "name": "q" }), None), json!({ "name": "q" }));
        let none = book(SampledKind::Queues).with(json!({}), None);
        assert_eq!(none.pointer("/messages_details/rate"), Some(&json!(0.0)));
        assert_eq!(none.get("message_stats"), None);
    }
}
