//! Publishing: routes what one read of a socket brought, and hands each copy to its target's
//! proposer (PUB, RTE, CNF, NAM 5, 6).

use crate::{
    client::{ChannelId, Event, Pressure, Publish, PublishOutcome},
    front::{
        access::check_user_id,
        batch::{MESSAGE_COST_BYTES, Outgoing},
        confirm::{ConfirmTo, FanOut, PublishTicket},
        connection_state::ConnectionState,
        publish_access::PublishAccess,
        publisher::Publisher,
        refusals::Refusals,
        reply_to,
        route_held::{Rest, await_turn},
        routed::RoutedPublish,
        spread::Spread,
        tally::Tally,
    },
    leader::enqueue_options::{EnqueueOptions, check_delay},
    peers::message::ReplyTo,
};
use bytes::{Bytes, BytesMut};
use quorate_catalog::{Catalog, RouteRequest};
use quorate_storage::codec::message;
use quorate_types::{
    Exception, FieldTable, FieldValue, Home, Message, PlantedBug, Properties, ResourceName,
    ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};
use tokio::time::Instant;

/// Longest time that publishes of one read are routed under the catalog's read lock, before a
/// writer and the readers behind it get their turn.
const CATALOG_HELD_MAX: Duration = Duration::from_millis(1);

/// Copies of messages that are to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoings {
    /// Copies for queues, by home.
    to_queues: BTreeMap<Home, Vec<Outgoing>>,
    /// Replies for channels that wait for them (DRT-04).
    replies: Vec<(Vec<ReplyTo>, Bytes)>,
    /// Bytes of the copies for queues, with the cost of each copy.
    pub(crate) copies_bytes: usize,
}

/// Where the copies of a publish come from, and where their confirms are sent.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) connection: &'a Arc<ConnectionState>,
    pub(crate) channel: ChannelId,
    pub(crate) confirm_to: ConfirmTo,
    pub(crate) mandatory: bool,
}

impl Publisher {
    /// Routes and sends publishes, as `client::Connection::publish` documents. Without a routing
    /// lease they are held, and so are those after a publish to many queues; their outcomes follow
    /// as events.
    pub(crate) fn publish(
        self: &Arc<Self>,
        state: &Arc<ConnectionState>,
        publishes: Vec<Publish>,
        outcomes: &mut Vec<PublishOutcome>,
    ) -> Pressure {
        let mut held = state.publishing.held.lock();
        let mut spread = None;
        if held.busy || !self.base.lease.is_held() {
            // This node may not route now (NAM 5). Publishes held before come first.
            outcomes.extend(publishes.iter().map(|_| PublishOutcome::Routed));
            held.hold(publishes);
        } else {
            let Some(rest) = self.route_all(state, publishes, outcomes, &mut held.refusals) else {
                drop(held);
                return self.pressure(state);
            };
            held.hold(rest.publishes);
            spread = Some(rest.spread);
        }
        if !std::mem::replace(&mut held.busy, true) {
            let (publisher, state) = (Arc::clone(self), Arc::clone(state));
            self.base.context.spawn(async move { publisher.route_held(state, spread).await });
        }
        Pressure::Wait
    }

    /// Routes publishes in order and sends them, up to one that cannot be sent at once. Those of channels
    /// with a refused publish are refused too.
    pub(crate) fn route_all(
        &self,
        connection: &Arc<ConnectionState>,
        publishes: Vec<Publish>,
        outcomes: &mut Vec<PublishOutcome>,
        refusals: &mut Refusals,
    ) -> Option<Rest> {
        let mut spread = None;
        let mut outgoings = Outgoings::default();
        let mut routed = RoutedPublish::default();
        let mut buffer = BytesMut::new();
        let mut tally = Tally::default();
        let mut publishes = publishes.into_iter();
        while publishes.len() > 0 && spread.is_none() {
            let catalog = self.base.catalog.read();
            let until = Instant::now() + CATALOG_HELD_MAX;
            let mut access = connection.publishing.access.lock();
            access.refresh(&catalog, connection.who());
            let mut routing = Routing::new(self, connection, &catalog, &mut access);
            for publish in publishes.by_ref() {
                let (confirm, mandatory) = (publish.confirm.is_some(), publish.mandatory);
                tally.receive(publish.body.len());
                let outcome = match refusals.of(publish.channel) {
                    Some(exception) => Err(exception.clone()),
                    None => {
                        let channel = publish.channel;
                        let confirm_to = ConfirmTo::of(publish.confirm);
                        let source = Source { connection, channel, confirm_to, mandatory };
                        let result =
                            routing.route(publish, &mut routed, &mut buffer, &mut outgoings);
                        if let Ok(true) = result {
                            spread = self.dispatch(&source, &mut routed, &mut outgoings);
                        }
                        result.inspect_err(|exception| refusals.note(channel, exception))
                    }
                };
                tally.count(outcome.as_ref().ok().copied(), confirm, mandatory);
                outcomes.push(outcome_of(outcome));
                if spread.is_some() || Instant::now() >= until {
                    break;
                }
            }
            access.flush();
        }
        let rest = spread.map(|spread| Rest {
            spread,
            publishes: publishes.filter(|it| await_turn(it, refusals, outcomes)).collect(),
        });
        tally.add_to(&self.base.context.counters);
        self.send_all(outgoings);
        rest
    }

    /// Adds the copies of a routed publish, unless they and the copies added before are too many to
    /// be sent in one step.
    fn dispatch(
        &self,
        source: &Source<'_>,
        routed: &mut RoutedPublish,
        outgoings: &mut Outgoings,
    ) -> Option<Spread> {
        if self.is_spread(routed, outgoings.copies_bytes) {
            return Some(Spread::new(source, std::mem::take(routed)));
        }
        outgoings.add(source, routed);
        None
    }

    /// Routes a publish of a transaction without sending it (TX-03); `None`: it is unroutable.
    pub(crate) fn route_only(
        &self,
        connection: &ConnectionState,
        publish: Publish,
    ) -> Result<Option<RoutedPublish>, Exception> {
        let mandatory = publish.mandatory;
        let mut routed = RoutedPublish { mandatory, ..RoutedPublish::default() };
        let mut traces = Outgoings::default();
        let mut tally = Tally::default();
        tally.receive(publish.body.len());
        let result = {
            let catalog = self.base.catalog.read();
            let mut access = connection.publishing.access.lock();
            access.refresh(&catalog, connection.who());
            let mut routing = Routing::new(self, connection, &catalog, &mut access);
            let result = routing.route(publish, &mut routed, &mut BytesMut::new(), &mut traces);
            access.flush();
            result
        };
        // A trace does not wait for the commit.
        self.send_all(traces);
        tally.count(result.as_ref().ok().copied(), false, mandatory);
        tally.add_to(&self.base.context.counters);
        result.map(|found| found.then_some(routed))
    }

    pub(crate) fn send_all(&self, outgoings: Outgoings) {
        for (home, outgoings) in outgoings.to_queues {
            self.base.proposers.fill(home, |batches| {
                outgoings.into_iter().for_each(|outgoing| batches.push_message(outgoing));
            });
        }
        for (addresses, message) in outgoings.replies {
            self.replies.send_reply(&addresses, &message);
        }
    }

    /// Routes a publish again whose targets are all gone, by an up-to-date catalog. Only if this
    /// finds no target is it unroutable (NAM 6). It is dropped if its connection has ended, since nobody
    /// waits for it any more.
    pub(crate) fn route_again(self: &Arc<Self>, ticket: &PublishTicket, place: u32, bytes: Bytes) {
        let publisher = Arc::clone(self);
        let connection = Arc::clone(&ticket.connection);
        let (channel, mandatory) = (ticket.channel, ticket.mandatory);
        let confirm_to = ticket.confirm_to.after(place);
        self.base.context.spawn(async move {
            let base = &publisher.base;
            while !base.catalog_client.read().await || !base.lease.is_held() {
                // Its client may publish the message again elsewhere.
                if !connection.lives_until(base.lease.until_held()).await {
                    return;
                }
            }
            if connection.has_ended() {
                return;
            }
            let source = Source { connection: &connection, channel, confirm_to, mandatory };
            publisher.route_once_more(&source, bytes);
        });
    }

    fn route_once_more(self: &Arc<Self>, source: &Source<'_>, bytes: Bytes) {
        let Ok(message) = message::decode(&bytes) else { return };
        let Ok(properties) = Properties::parse(message.properties.clone()) else { return };
        let mut routed = RoutedPublish::default();
        let request = RouteRequest {
            vhost: &source.connection.info.vhost,
            exchange: &message.exchange,
            routing_key: &message.routing_key,
            further_keys: &message.further_keys,
            properties: &properties,
            chance: quorate_rpc::chance::random,
            locality: &self.base.led.leaderships,
            by_broker: false,
        };
        // A missing exchange makes the message unroutable, as a missing binding does.
        let catalog = self.base.catalog.read();
        let _ = catalog.route(&request, &mut routed.targets);
        // A queue that is not in the catalog has answered that it is gone.
        routed.targets.retain(|queue| catalog.queue_by_id(*queue).is_some());
        routed.options =
            self.base.led.enqueue_options(&catalog, &routed.targets, &properties, &message.body);
        drop(catalog);
        if routed.targets.is_empty() {
            let mut tally = Tally::default();
            tally.unroutable(matches!(source.confirm_to, ConfirmTo::Client(_)), source.mandatory);
            tally.add_to(&self.base.context.counters);
            if source.mandatory {
                let (channel, message) = (source.channel, Box::new(message));
                source.connection.mailbox.put(Event::Returned { channel, message });
            }
            source.confirm_to.send(source.connection, source.channel, 1, true);
            return;
        }
        routed.message = bytes;
        if self.is_spread(&routed, 0) {
            let (publisher, spread) = (Arc::clone(self), Spread::new(source, routed));
            self.base.context.spawn(async move { publisher.spread(spread).await });
            return;
        }
        let mut outgoings = Outgoings::default();
        outgoings.add(source, &routed);
        self.send_all(outgoings);
    }
}

impl Outgoings {
    /// Adds the copies of a routed publish.
    pub(crate) fn add(&mut self, source: &Source<'_>, routed: &RoutedPublish) {
        self.add_replies(routed);
        if routed.targets.is_empty() {
            // No answer follows whether a reply was delivered (DRT-04).
            if matches!(source.confirm_to, ConfirmTo::Client(_)) {
                source.connection.counters.answered_publishes(1, true);
            }
            source.confirm_to.send(source.connection, source.channel, 1, true);
            return;
        }
        let shared = shared_by(routed.targets.len());
        self.add_copies(source, routed, 0..routed.targets.len(), shared.as_ref());
    }

    /// Adds the copies for channels that wait for replies.
    pub(crate) fn add_replies(&mut self, routed: &RoutedPublish) {
        if !routed.replies.is_empty() {
            self.replies.push((routed.replies.clone(), routed.message.clone()));
        }
    }

    /// Adds the copies for some of the queues.
    pub(crate) fn add_copies(
        &mut self,
        source: &Source<'_>,
        RoutedPublish { targets, options, message, .. }: &RoutedPublish,
        places: Range<usize>,
        shared: Option<&Arc<FanOut>>,
    ) {
        let (first, count) = (places.start, places.len());
        let is_confirmed = PlantedBug::ConfirmBeforeCommit.is_in();
        if is_confirmed {
            source.confirm_to.send(source.connection, source.channel, 1, true);
        }
        let pairs = targets.iter().zip(options).skip(first).take(count);
        for (&queue, &EnqueueOptions { level, head }) in pairs {
            let bytes = message.len();
            source.connection.publishing.in_flight.launched(bytes);
            self.copies_bytes += bytes + MESSAGE_COST_BYTES;
            let ticket = PublishTicket {
                connection: Arc::clone(source.connection),
                channel: source.channel,
                confirm_to: match is_confirmed {
                    true => ConfirmTo::Nobody,
                    false => source.confirm_to.clone(),
                },
                mandatory: source.mandatory,
                count: 1,
                bytes,
                shared: shared.map(Arc::clone),
            };
            let message = message.clone();
            let outgoing = Outgoing { queue, level, head, message, ticket };
            self.to_queues.entry(queue.home).or_default().push(outgoing);
        }
    }
}

fn outcome_of(routed: Result<bool, Exception>) -> PublishOutcome {
    match routed {
        Ok(true) => PublishOutcome::Routed,
        Ok(false) => PublishOutcome::Unroutable,
        Err(exception) => PublishOutcome::Refused(exception),
    }
}

/// Routes the publishes of one connection, while the catalog is locked.
struct Routing<'a> {
    publisher: &'a Publisher,
    connection: &'a ConnectionState,
    catalog: &'a Catalog,
    access: &'a mut PublishAccess,
    /// The connection's virtual host is traced.
    is_traced: bool,
}

impl<'a> Routing<'a> {
    fn new(
        publisher: &'a Publisher,
        connection: &'a ConnectionState,
        catalog: &'a Catalog,
        access: &'a mut PublishAccess,
    ) -> Self {
        let is_traced = catalog.is_traced(&connection.info.vhost);
        Self { publisher, connection, catalog, access, is_traced }
    }

    /// Routes one publish into `routed`, and adds its trace to `traces`; false if it is unroutable.
    fn route(
        &mut self,
        publish: Publish,
        routed: &mut RoutedPublish,
        buffer: &mut BytesMut,
        traces: &mut Outgoings,
    ) -> Result<bool, Exception> {
        let seen = self.is_traced.then(|| publish.clone());
        let mandatory = publish.mandatory;
        let is_routed = self.route_untraced(publish, routed, buffer)?;
        self.access.count(routed.targets.len(), is_routed, mandatory);
        if let Some(seen) = &seen {
            let tracer = &self.publisher.tracer;
            tracer.trace_publish(self.catalog, self.connection, seen, routed, traces);
        }
        Ok(is_routed)
    }

    fn route_untraced(
        &mut self,
        publish: Publish,
        routed: &mut RoutedPublish,
        buffer: &mut BytesMut,
    ) -> Result<bool, Exception> {
        let (further_keys, raw) = self.check(&publish)?;
        let Publish { exchange, routing_key, properties, body, .. } = publish;
        let (led, catalog) = (&self.publisher.base.led, self.catalog);
        let vhost = &self.connection.info.vhost;
        routed.targets.clear();
        let request = RouteRequest {
            vhost,
            exchange: &exchange,
            routing_key: &routing_key,
            further_keys: &further_keys,
            properties: &properties,
            chance: quorate_rpc::chance::random,
            locality: &led.leaderships,
            by_broker: false,
        };
        catalog.route(&request, &mut routed.targets).map_err(|error| {
            error.exception(&ResourceName { vhost: vhost.clone(), name: exchange.clone() })
        })?;
        routed.options = led.enqueue_options(catalog, &routed.targets, &properties, &body);
        reply_to::addresses(&request, &mut routed.replies);
        if routed.targets.is_empty() && routed.replies.is_empty() {
            let name = ResourceName { vhost: vhost.clone(), name: exchange };
            self.publisher.warn_of_missing_alternate(catalog, name);
            return Ok(false);
        }
        let message = Message {
            exchange,
            routing_key,
            further_keys,
            properties: raw,
            annotations: FieldTable::default(),
            body,
        };
        message::encode_into(&message, buffer);
        routed.message = buffer.split().freeze();
        Ok(true)
    }

    /// Checks that the client may publish this (PUB-01). Returns its further routing keys, and its
    /// properties as they are stored.
    fn check(&mut self, publish: &Publish) -> Result<(Vec<ShortString>, Bytes), Exception> {
        let Publish { exchange, routing_key, properties, .. } = publish;
        let (catalog, who) = (self.catalog, self.connection.who());
        self.access.check(who, exchange, &self.publisher.base.context.counters.exchanges)?;
        let checked = sender_selected(properties).and_then(|(further_keys, raw)| {
            let limits = &self.publisher.base.context.settings.limits;
            limits.check_publish(properties.header_values, further_keys.len())?;
            check_delay(properties)?;
            let keys = std::iter::once(routing_key).chain(&further_keys);
            self.access.check_topics(catalog, who, exchange, keys)?;
            check_user_id(catalog, who, properties.user_id.as_ref())?;
            Ok((further_keys, raw))
        });
        checked.or_else(|refused| {
            // An error of the exchange comes first (PUB-01).
            let vhost = self.connection.info.vhost.clone();
            catalog.check_publishable(&ResourceName { vhost, name: exchange.clone() })?;
            Err(refused)
        })
    }
}

/// The shared state of several targets; `None` for one.
pub(crate) fn shared_by(targets: usize) -> Option<Arc<FanOut>> {
    // Queues are counted in 32 bits everywhere.
    (targets > 1).then(|| Arc::new(FanOut::new(u32::try_from(targets).unwrap_or(u32::MAX))))
}

/// Further routing keys from headers `CC` and `BCC`, and the properties without `BCC` (RTE-09,
/// PRP-07, PRP-09).
pub(crate) fn sender_selected(
    properties: &Properties,
) -> Result<(Vec<ShortString>, Bytes), Exception> {
    let plain = || Ok((Vec::new(), properties.raw.clone()));
    let Some(bytes) = &properties.headers else { return plain() };
    // Header names are short, so a search in the encoded bytes saves decoding the headers of most
    // messages.
    if !bytes.windows(2).any(|pair| pair == b"CC") {
        return plain();
    }
    let Ok(Some(headers)) = properties.decode_headers() else { return plain() };
    let mut keys = Vec::new();
    let mut seen = BTreeSet::new();
    for name in ["CC", "BCC"] {
        let Some(value) = headers.get(name) else { continue };
        let FieldValue::Array(values) = value else { return Err(bad_header(name, value)) };
        let texts = values.iter().filter_map(FieldValue::as_long_string);
        let texts = texts.filter_map(|text| ShortString::from_bytes(text.clone()).ok());
        keys.extend(texts.filter(|key| seen.insert(key.clone())));
    }
    if headers.get("BCC").is_none() {
        return Ok((keys, properties.raw.clone()));
    }
    let others = headers.0.into_iter().filter(|(name, _)| name.as_str() != "BCC");
    let without = FieldTable(others.collect());
    let raw = properties.with_headers(Some(&without)).unwrap_or_else(|_| properties.raw.clone());
    Ok((keys, raw))
}

fn bad_header(name: &str, value: &FieldValue) -> Exception {
    let kind = value.type_name();
    let reason = format!("invalid message: {{unacceptable_type_in_header,\"{name}\",{kind}}}");
    Exception::new(quorate_types::ReplyCode::PreconditionFailed, reason)
}
