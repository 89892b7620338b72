//! `/metrics/detailed`: the families that a scrape asks for, of the virtual hosts and queues that it
//! asks for.

use super::exposition::Page;
use super::objects::{self, DETAILED};
use super::{Scrape, clients, logins, persister, queue_churn, resources};
use crate::name_filter::NameFilter;
use crate::source::Source;
use quorate_types::VhostName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Families and virtual hosts that one scrape may name.
const NAMED_MAX: usize = 100;
/// Bytes of the regular expression of queues.
const QUEUE_BYTES_MAX: usize = 1_024;

/// One of RabbitMQ's families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    ConnectionChurn,
    NodeCoarse,
    Node,
    NodePersister,
    Ra,
    QueueCoarse,
    QueueConsumerCount,
    Queue,
    QueueDelivery,
    Exchange,
    ExchangeNames,
    ExchangeBindings,
    Channel,
    ChannelExchange,
    ChannelQueue,
    ChannelQueueExchange,
    ConnectionCoarse,
    Connection,
    VhostStatus,
    AuthAttempt,
    AuthAttemptDetailed,
}

pub(super) const FAMILIES: [(&str, Family); 21] = [
    ("connection_churn_metrics", Family::ConnectionChurn),
    ("node_coarse_metrics", Family::NodeCoarse),
    ("node_metrics", Family::Node),
    ("node_persister_metrics", Family::NodePersister),
    ("ra_metrics", Family::Ra),
    ("queue_coarse_metrics", Family::QueueCoarse),
    ("queue_consumer_count", Family::QueueConsumerCount),
    ("queue_metrics", Family::Queue),
    ("queue_delivery_metrics", Family::QueueDelivery),
    ("exchange_metrics", Family::Exchange),
    ("exchange_names", Family::ExchangeNames),
    ("exchange_bindings", Family::ExchangeBindings),
    ("channel_metrics", Family::Channel),
    ("channel_exchange_metrics", Family::ChannelExchange),
    ("channel_queue_metrics", Family::ChannelQueue),
    ("channel_queue_exchange_metrics", Family::ChannelQueueExchange),
    ("connection_coarse_metrics", Family::ConnectionCoarse),
    ("connection_metrics", Family::Connection),
    ("vhost_status", Family::VhostStatus),
    ("auth_attempt_metrics", Family::AuthAttempt),
    ("auth_attempt_detailed_metrics", Family::AuthAttemptDetailed),
];

/// What a scrape asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    families: BTreeSet<Family>,
    /// Empty: all.
    vhosts: BTreeSet<String>,
    queues: Option<Arc<NameFilter>>,
}

impl Wanted {
    /// Reads the parameters `family` and `vhost`, each of which may come several times, as in
    /// RabbitMQ, and `queue`, a regular expression.
    ///
    /// # Errors
    /// A text that names what is wrong.
    pub(crate) fn parse<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, String> {
        let mut wanted = Self::default();
        for (name, value) in parameters.take(NAMED_MAX) {
            match name {
                "family" => {
                    let known = FAMILIES.iter().find(|(family, _)| *family == value);
                    let (_, family) = known.ok_or_else(|| unknown_family(value))?;
                    wanted.families.insert(*family);
                }
                "vhost" => drop(wanted.vhosts.insert(value.to_owned())),
                "queue" if wanted.queues.is_some() => {
                    return Err("queue may be given once".to_owned());
                }
                "queue" => wanted.queues = Some(queue_filter(value)?),
                // As in RabbitMQ, what is not known is left out.
                _ => {}
            }
        }
        Ok(wanted)
    }

    pub(super) fn vhost(&self, name: &str) -> bool {
        self.vhosts.is_empty() || self.vhosts.contains(name)
    }

    pub(super) fn queue(&self, name: &str) -> bool {
        self.queues.as_ref().is_none_or(|filter| filter.is_match(name))
    }

    /// Whether a page shows all that is wanted.
    ///
    /// # Errors
    /// A text that says why not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let checked = self.queues.as_ref().map_or(Ok(()), |filter| filter.check());
        checked.map_err(|why| format!("queue {why}"))
    }
}

fn unknown_family(name: &str) -> String {
    let shown: String = name.chars().filter(|letter| !letter.is_control()).take(100).collect();
    format!("family is not known: {shown}")
}

fn queue_filter(text: &str) -> Result<Arc<NameFilter>, String> {
    if text.len() > QUEUE_BYTES_MAX {
        return Err(format!("queue must not exceed {QUEUE_BYTES_MAX} bytes"));
    }
    let filter = NameFilter::new(text, false);
    filter.map(Arc::new).map_err(|error| format!("queue is not a regular expression: {error}"))
}

/// Writes the wanted families.
pub(super) fn show<S: Source>(page: &mut Page, scrape: &Scrape<'_>, source: &S) {
    for family in &scrape.wanted.families {
        match family {
            Family::ConnectionChurn => {
                clients(page, DETAILED, scrape.view);
                queue_churn(page, DETAILED, scrape.view);
            }
            Family::NodeCoarse | Family::Node => {
                let limits = *family == Family::Node;
                resources(page, DETAILED, scrape, |is_limit| is_limit == limits);
            }
            Family::NodePersister => persister(page, DETAILED, scrape.view),
            Family::Ra => objects::raft(page, DETAILED, scrape),
            Family::QueueCoarse => objects::queue_coarse(page, DETAILED, scrape),
            Family::QueueConsumerCount => objects::queue_consumers(page, DETAILED, scrape),
            Family::Queue => objects::queue_metrics(page, DETAILED, scrape),
            Family::QueueDelivery => objects::queue_delivery(page, DETAILED, scrape),
            Family::Exchange => objects::exchanges(page, DETAILED, scrape),
            Family::ExchangeNames | Family::ExchangeBindings => {
                exchange_records(page, scrape, source, *family == Family::ExchangeBindings);
            }
            Family::Channel => objects::channels(page, DETAILED, scrape),
            Family::ChannelExchange => objects::channel_publishes(page, DETAILED, scrape),
            Family::ChannelQueue => objects::channel_deliveries(page, DETAILED, scrape),
            Family::ChannelQueueExchange => objects::queue_published(page, DETAILED, scrape),
            Family::ConnectionCoarse => objects::connection_bytes(page, DETAILED, scrape),
            Family::Connection => objects::connection_packets(page, DETAILED, scrape),
            Family::VhostStatus => vhosts(page, scrape, source),
            Family::AuthAttempt => logins(page, DETAILED, scrape.view),
            Family::AuthAttemptDetailed => login_sources(page, source),
        }
    }
}

fn vhosts<S: Source>(page: &mut Page, scrape: &Scrape<'_>, source: &S) {
    let name = "rabbitmq_cluster_vhost_status";
    page.head(name, "gauge", "is 1 if the virtual host is running");
    for record in source.vhosts() {
        if scrape.is_wanted_vhost(record.name.as_str()) {
            page.sample(name, &[("vhost", record.name.as_str())], 1);
        }
    }
}

/// The exchanges of the catalog, or the numbers of their explicit bindings.
fn exchange_records<S: Source>(page: &mut Page, scrape: &Scrape<'_>, source: &S, bindings: bool) {
    let (name, help) = match bindings {
        true => ("rabbitmq_cluster_exchange_bindings", "Number of bindings of an exchange"),
        false => ("rabbitmq_cluster_exchange_name", "Enumerates exchanges"),
    };
    page.head(name, "gauge", help);
    let vhosts: Vec<VhostName> = source.vhosts().into_iter().map(|record| record.name).collect();
    for vhost in vhosts.iter().filter(|vhost| scrape.is_wanted_vhost(vhost.as_str())) {
        let mut counts = BTreeMap::new();
        if bindings {
            for binding in source.bindings(vhost) {
                *counts.entry(binding.source.name).or_insert(0u64) += 1;
            }
        }
        for exchange in source.exchanges(vhost) {
            let labels = [
                ("vhost", vhost.as_str()),
                ("exchange", exchange.name.name.as_str()),
                ("type", exchange.kind.name()),
            ];
            let count = counts.get(&exchange.name.name).copied().unwrap_or_default();
            page.sample(name, &labels, if bindings { count } else { 1 });
        }
    }
}

fn login_sources<S: Source>(page: &mut Page, source: &S) {
    let sources = source.login_sources();
    type Pick = fn(&quorate_broker::view::Attempts) -> u64;
    let rows: [(&str, &str, Pick); 3] = [
        ("total", "Total number of authentication attempts", |it| it.succeeded + it.failed),
        ("succeeded_total", "Total number of successful authentication attempts", |it| {
            it.succeeded
        }),
        ("failed_total", "Total number of failed authentication attempts", |it| it.failed),
    ];
    for (suffix, help, pick) in rows {
        let name = format!("{DETAILED}auth_attempts_detailed_{suffix}");
        page.head(&name, "counter", help);
        for one in &sources {
            let from = one.from.to_string();
            let labels = [
                ("remote_address", from.as_str()),
                ("username", one.user.as_str()),
                ("protocol", one.attempts.protocol.name()),
            ];
            page.sample(&name, &labels, pick(&one.attempts));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scrape_asks_wrongly_is_named() {
        let wanted = |name: &'static str, value: &'static str| {
            Wanted::parse([(name, value)].into_iter()).map(|_| ())
        };
        assert_eq!(wanted("family", "queue_coarse_metrics"), Ok(()));
        assert_eq!(wanted("family", "nope"), Err("family is not known: nope".to_owned()));
        let twice = Wanted::parse([("queue", "a"), ("queue", "b")].into_iter()).map(|_| ());
        assert_eq!(twice, Err("queue may be given once".to_owned()));
        let families = ["queue_metrics", "node_metrics"].map(|family| ("family", family));
        assert!(Wanted::parse(families.into_iter()).is_ok());
        assert!(wanted("queue", "(").is_err_and(|text| text.contains("regular expression")));
    }
}
