//! Routing: from an exchange and keys to queues (RTE-01 to RTE-10, BND-08). Look-ups do not
//! allocate; a queue is returned at most once, however many bindings lead to it.

use crate::{
    delayed::delay_of,
    exchange::{Exchange, Routes},
    headers::Headers,
    machine::{Catalog, Vhost},
    named::NameHash,
    objects::{Destination, ExchangeType},
    refusal,
    server_name::server_named_queue,
    targets::Targets,
};
use quorate_types::{
    Exception, FieldTable, Home, Properties, QueueId, ResourceName, ShortString, VhostName,
};
use std::{collections::HashSet, iter};

/// Facts about queues and homes, as seen from the node that routes.
pub trait Locality: std::fmt::Debug {
    /// True if this node leads the queue's group, or holds the queue if it is connection-bound.
    fn is_local(&self, queue: QueueId) -> bool;

    /// True if the cluster has that home. A name that a client made up may encode a queue of a node
    /// that is not a member, to which nothing can be sent.
    fn is_known(&self, home: Home) -> bool;
}

/// A message to be routed.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    /// Name of the virtual host.
    pub vhost: &'a VhostName,
    /// Exchange; empty is the default one.
    pub exchange: &'a ShortString,
    /// The message's own routing key.
    pub routing_key: &'a ShortString,
    /// Routing keys of the headers `CC` and `BCC` (RTE-09).
    pub further_keys: &'a [ShortString],
    /// The message's properties; headers are decoded only if an exchange needs them.
    pub properties: &'a Properties,
    /// Draws a random number, for exchanges that select at random (EXC-15).
    pub chance: fn() -> u64,
    /// Which queues are local, for exchanges that route only to those (EXC-15).
    pub locality: &'a dyn Locality,
    /// True if the broker itself routes (a dead letter): internal exchanges accept the message
    /// (EXC-10, DLX-07).
    pub by_broker: bool,
}

/// Why a message is not routed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The exchange does not exist (PUB-01).
    #[error("no such exchange")]
    NoExchange,
    /// The exchange is internal (EXC-10).
    #[error("the exchange is internal")]
    Internal,
    /// A delayed exchange on the path has no queue (EXC-17).
    #[error("a delayed exchange has no queue")]
    NoDelayQueue,
}

impl RouteError {
    /// The exception that the publishing client gets.
    #[must_use]
    pub fn exception(self, exchange: &ResourceName) -> Exception {
        match self {
            Self::NoExchange => refusal::no_exchange(exchange),
            Self::Internal => refusal::internal_exchange(exchange),
            Self::NoDelayQueue => refusal::no_delay_queue(exchange),
        }
    }
}

impl RouteRequest<'_> {
    /// The routing key and the further ones.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &ShortString> {
        iter::once(self.routing_key).chain(self.further_keys)
    }
}

impl Catalog {
    /// Appends the queues that the message goes to, each once; without any queue the message is
    /// unroutable. Earlier items of `targets` stay.
    ///
    /// # Errors
    /// As [`RouteError`]; then nothing is appended.
    pub fn route(
        &self,
        request: &RouteRequest<'_>,
        targets: &mut Vec<QueueId>,
    ) -> Result<(), RouteError> {
        let vhost = self.vhosts.get(request.vhost).ok_or(RouteError::NoExchange)?;
        let first = targets.len();
        let lists = if request.exchange.is_empty() {
            let found = request.keys().filter_map(|key| self.named_queue(vhost, request, key));
            targets.extend(found);
            targets.len() - first
        } else {
            let exchange = vhost.exchanges.get(request.exchange).ok_or(RouteError::NoExchange)?;
            if exchange.record.internal && !request.by_broker {
                return Err(RouteError::Internal);
            }
            let mut walk = Walk::new(self, vhost, request, targets);
            walk.start_from(exchange);
            let (lists, refused) = (walk.lists, walk.refused);
            if let Some(error) = refused {
                targets.truncate(first);
                return Err(error);
            }
            lists
        };
        if lists > 1 {
            each_once(targets, first);
        }
        Ok(())
    }

    /// RTE-01: the queue of that name, with an entry or without one (NAM 8). The queue of a delayed
    /// exchange gets messages from its exchange only, whose permissions they need.
    fn named_queue(
        &self,
        vhost: &Vhost,
        request: &RouteRequest<'_>,
        name: &ShortString,
    ) -> Option<QueueId> {
        match vhost.queues.get(name) {
            Some(_) if vhost.delays_for(name).is_some() => None,
            Some(id) => Some(*id),
            None => server_named_queue(request.vhost, name)
                .filter(|id| request.locality.is_known(id.home) && self.may_live(*id)),
        }
    }
}

/// RTE-10, PRP-08: removes duplicates that come from several lists.
fn each_once(targets: &mut Vec<QueueId>, first: usize) {
    if first == 0 {
        targets.sort_unstable();
        targets.dedup();
    } else {
        let mut added = targets.split_off(first);
        added.sort_unstable();
        added.dedup();
        targets.append(&mut added);
    }
}

/// The traversal of one message through an exchange and those that are reached from it.
struct Walk<'a, 't> {
    catalog: &'a Catalog,
    vhost: &'a Vhost,
    request: &'a RouteRequest<'a>,
    targets: &'t mut Vec<QueueId>,
    /// Number of target lists that queues were taken from; within one list each queue occurs once.
    lists: usize,
    /// Number of destinations that bindings have led to, exchanges included (AE-01).
    destinations: usize,
    /// Exchanges that were reached and have not been visited yet.
    pending: Vec<&'a Exchange>,
    /// Names of all exchanges that were reached; `None` while there is only the first.
    seen: Option<HashSet<&'a ShortString, NameHash>>,
    headers: Option<FieldTable>,
    refused: Option<RouteError>,
}

impl<'a, 't> Walk<'a, 't> {
    fn new(
        catalog: &'a Catalog,
        vhost: &'a Vhost,
        request: &'a RouteRequest<'a>,
        targets: &'t mut Vec<QueueId>,
    ) -> Self {
        Self {
            catalog,
            vhost,
            request,
            targets,
            lists: 0,
            destinations: 0,
            pending: Vec::new(),
            seen: None,
            headers: None,
            refused: None,
        }
    }

    /// BND-08: each exchange handles the message once.
    fn start_from(&mut self, exchange: &'a Exchange) {
        self.pass(exchange, exchange);
        while let Some(next) = self.pending.pop() {
            self.pass(next, exchange);
        }
    }

    /// AE-01: if an exchange's bindings have no destination at all, its alternate is visited,
    /// unless it was reached before (AE-02). An alternate that does not exist counts as none
    /// (AE-03).
    fn pass(&mut self, exchange: &'a Exchange, origin: &'a Exchange) {
        let before = self.destinations;
        self.go_through(exchange, origin);
        if self.destinations == before
            && let Some(alternate) = self.alternate_of(exchange)
        {
            self.come_to(alternate, origin);
        }
    }

    fn alternate_of(&self, exchange: &'a Exchange) -> Option<&'a Exchange> {
        self.vhost.exchanges.get(&self.catalog.alternate_in_force(&exchange.record)?)
    }

    fn come_to(&mut self, exchange: &'a Exchange, origin: &'a Exchange) {
        let first = || HashSet::from_iter([&origin.record.name.name]);
        if self.seen.get_or_insert_with(first).insert(&exchange.record.name.name) {
            self.pending.push(exchange);
        }
    }

    /// EXC-17: a message that a delayed exchange delays goes only to its queue.
    fn is_delayed(&mut self, exchange: &'a Exchange) -> bool {
        if exchange.record.kind != ExchangeType::Delayed {
            return false;
        }
        if delay_of(self.request.properties).is_none() {
            return false;
        }
        let queue = exchange.record.delay_queue();
        match queue.and_then(|queue| self.vhost.queues.get(&queue.name)) {
            Some(queue) => {
                self.destinations += 1;
                self.lists += 1;
                self.targets.push(*queue);
            }
            None => self.refused = Some(RouteError::NoDelayQueue),
        }
        true
    }

    fn go_through(&mut self, exchange: &'a Exchange, origin: &'a Exchange) {
        if self.is_delayed(exchange) {
            return;
        }
        let request = self.request;
        match &exchange.routes {
            Routes::Direct(keys) => {
                for targets in request.keys().filter_map(|key| keys.get(key)) {
                    self.take(targets, origin);
                }
            }
            Routes::Fanout(targets) => self.take(targets, origin),
            Routes::Topic(patterns) if request.further_keys.is_empty() => {
                patterns.matches(request.routing_key.as_bytes(), &mut |targets| {
                    self.take(targets, origin);
                });
            }
            // Many keys may match one pattern; the result stays in proportion to the number of
            // bindings.
            Routes::Topic(patterns) => {
                let mut taken = HashSet::<*const Targets, NameHash>::default();
                for key in request.keys() {
                    patterns.matches(key.as_bytes(), &mut |targets| {
                        if taken.insert(targets) {
                            self.take(targets, origin);
                        }
                    });
                }
            }
            Routes::Headers(matchers) => {
                let table = self.headers.take().unwrap_or_else(|| decoded(request.properties));
                let headers = Headers::of(&table);
                for (matcher, targets) in matchers.values() {
                    if matcher.matches(&headers) {
                        self.take(targets, origin);
                    }
                }
                self.headers = Some(table);
            }
            Routes::Choice(choice) => {
                choice.choose(request).into_iter().for_each(|one| self.take_one(one, origin));
            }
        }
    }

    fn take(&mut self, targets: &'a Targets, origin: &'a Exchange) {
        if targets.queues().len() > 0 {
            self.lists += 1;
            self.targets.extend(targets.queues());
        }
        let exchanges = targets.exchanges();
        self.destinations += targets.queues().len() + exchanges.len();
        for name in exchanges {
            self.come_to_named(name, origin);
        }
    }

    fn take_one(&mut self, destination: &'a Destination, origin: &'a Exchange) {
        self.destinations += 1;
        match destination {
            Destination::Queue { id, .. } => {
                self.lists += 1;
                self.targets.push(*id);
            }
            Destination::Exchange(name) => self.come_to_named(name, origin),
        }
    }

    fn come_to_named(&mut self, name: &ShortString, origin: &'a Exchange) {
        if let Some(exchange) = self.vhost.exchanges.get(name) {
            self.come_to(exchange, origin);
        }
    }
}

/// The decoded headers. Empty if there are none, or if they cannot be decoded (the front end has
/// refused such a message, FRM-11).
fn decoded(properties: &Properties) -> FieldTable {
    properties.decode_headers().ok().flatten().unwrap_or_default()
}
