//! The statistics of the objects of a list, from all nodes, and the parameters of a request that ask
//! for them.

use crate::api::call::{Api, Call};
use crate::api::refusal::Refusal;
use crate::api::spans::Spans;
use crate::rates::{self, fields_of, shown};
use crate::wire::{self, SampledKind};
use quorate_types::ResourceName;
use serde_json::Value;
use std::collections::BTreeMap;

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

/// What a request asks of statistics.
///
/// # Errors
/// 400 that names the wrong parameter.
pub(crate) fn spans(call: &Call) -> Result<Spans, Refusal> {
    Spans::parse(&call.query, rates::now_ms())
}

impl Book {
    /// The statistics of all objects of a kind, or only of those of the virtual host in the path.
    pub(crate) async fn of(api: &Api, call: &Call, spans: &Spans, kind: SampledKind) -> Self {
        let vhost = call.name("vhost").map(str::to_owned);
        Self::ask(api, spans, wire::StatisticsRequest { vhost, ..spans.request(kind) }).await
    }

    /// The statistics of one queue or exchange.
    pub(crate) async fn of_one(
        api: &Api,
        spans: &Spans,
        kind: SampledKind,
        name: &ResourceName,
    ) -> Self {
        let (vhost, name) = (Some(name.vhost.to_string()), Some(name.name.to_string()));
        Self::ask(api, spans, wire::StatisticsRequest { vhost, name, ..spans.request(kind) }).await
    }

    async fn ask(api: &Api, spans: &Spans, request: wire::StatisticsRequest) -> Self {
        let kind = request.kind();
        let mut book =
            Self { kind, is_off: spans.is_off, statistics: BTreeMap::new(), silent: Vec::new() };
        if spans.is_off {
            return book;
        }
        let listed = api.cluster.statistics(request).await;
        book.silent = listed.silent;
        for statistic in listed.items {
            book.add(statistic);
        }
        book
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

    /// The statistics of all objects together; `None` if the request wants none.
    pub(crate) fn sum(&self) -> Option<wire::Statistic> {
        let mut sum = wire::Statistic::default();
        self.statistics.values().for_each(|statistic| shown::add(&mut sum, statistic));
        (!self.is_off).then_some(sum)
    }

    /// Adds the statistics of an object to what is shown of it.
    pub(crate) fn insert(&self, shown: &mut Value, key: Option<&Key>) {
        if !self.is_off {
            let statistic = key.and_then(|key| self.statistics.get(key));
            shown::insert(shown, fields_of(self.kind), statistic);
        }
    }

    /// What is shown of an object, with its statistics.
    pub(crate) fn with(&self, mut shown: Value, key: Option<&Key>) -> Value {
        self.insert(&mut shown, key);
        shown
    }
}

#[cfg(test)]
mod tests {
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
