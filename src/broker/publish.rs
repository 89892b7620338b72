//! Publishing: routes what one read of a socket brought, and hands each copy to its target's
//! proposer (PUB, RTE, CNF, NAM 5, 6).

use crate::{
    batch::Outgoing,
    client::{ChannelId, Event, Pressure, Publish, PublishOutcome},
    confirm::{FanOut, PublishTicket},
    connection::{Connection, ConnectionState},
    counters::Counters,
    node::Node,
};
use bytes::{Bytes, BytesMut};
use quorate_catalog::{Catalog, RouteRequest};
use quorate_queue::MessageHead;
use quorate_storage::codec::message;
use quorate_types::{
    Exception, FieldTable, FieldValue, Home, Level, Message, Properties, QueueId, ResourceName,
    ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Copies of messages on their way, by home.
type Outgoings = BTreeMap<Home, Vec<Outgoing>>;

impl Connection {
    /// Routes and proposes publishes, all that one read of the socket brought, in order.
    /// `outcomes` gets one outcome for each; after a refused one, later publishes of the same
    /// channel are refused with the same (PUB-03). Without a routing lease they are held, and
    /// what they come to follows as events.
    pub fn publish(&self, publishes: Vec<Publish>, outcomes: &mut Vec<PublishOutcome>) -> Pressure {
        let mut held = self.state.held_publishes.lock();
        if !held.is_empty() || !self.node.lease.is_held() {
            // NAM 5: this node may not route now. What was held before comes first.
            outcomes.extend(publishes.iter().map(|_| PublishOutcome::Routed));
            let first = held.is_empty();
            held.extend(publishes);
            drop(held);
            if first {
                let (node, state) = (Arc::clone(&self.node), Arc::clone(&self.state));
                self.node.spawn(async move { node.route_held(state).await });
            }
            return Pressure::Wait;
        }
        self.node.route_all(&self.state, publishes, outcomes);
        drop(held);
        self.pressure()
    }
}

impl Node {
    /// Routes what a connection published while this node had no lease.
    async fn route_held(self: Arc<Self>, connection: Arc<ConnectionState>) {
        self.lease.until_held().await;
        let mut held = connection.held_publishes.lock();
        let publishes = std::mem::take(&mut *held);
        let identities: Vec<_> = publishes
            .iter()
            .map(|publish| (publish.channel, publish.confirm, publish.mandatory))
            .collect();
        let messages: Vec<_> = publishes.iter().map(late_return).collect();
        let mut outcomes = Vec::new();
        self.route_all(&connection, publishes, &mut outcomes);
        drop(held);
        connection.landed(0);
        for ((outcome, (channel, confirm, _)), message) in
            outcomes.into_iter().zip(identities).zip(messages)
        {
            match outcome {
                PublishOutcome::Routed => {}
                PublishOutcome::Unroutable => {
                    if let Some(message) = message {
                        connection.mailbox.put(Event::Returned { channel, message });
                    }
                    confirm_one(&connection, channel, confirm);
                }
                PublishOutcome::Refused(exception) => {
                    connection.mailbox.put(Event::ChannelException { channel, exception });
                }
            }
        }
    }

    fn route_all(
        &self,
        connection: &Arc<ConnectionState>,
        publishes: Vec<Publish>,
        outcomes: &mut Vec<PublishOutcome>,
    ) {
        let mut refused: BTreeMap<ChannelId, Exception> = BTreeMap::new();
        let mut outgoings = Outgoings::new();
        let mut targets = Vec::new();
        let mut buffer = BytesMut::new();
        let mut tally = Tally::default();
        {
            let catalog = self.catalog.read();
            for publish in publishes {
                let (confirm, mandatory) = (publish.confirm.is_some(), publish.mandatory);
                let outcome = match refused.get(&publish.channel) {
                    Some(exception) => Err(exception.clone()),
                    None => {
                        let channel = publish.channel;
                        let routed = self.route_one(
                            &catalog,
                            connection,
                            publish,
                            &mut targets,
                            &mut buffer,
                            &mut outgoings,
                        );
                        routed.inspect_err(|exception| {
                            refused.insert(channel, exception.clone());
                        })
                    }
                };
                tally.count(outcome.as_ref().ok().copied(), confirm, mandatory);
                outcomes.push(match outcome {
                    Ok(true) => PublishOutcome::Routed,
                    Ok(false) => PublishOutcome::Unroutable,
                    Err(exception) => PublishOutcome::Refused(exception),
                });
            }
        }
        tally.add_to(&self.counters);
        self.send_all(outgoings);
    }

    fn send_all(&self, outgoings: Outgoings) {
        for (home, outgoings) in outgoings {
            self.fill(home, |batches| {
                outgoings.into_iter().for_each(|outgoing| batches.push_message(outgoing));
            });
        }
    }

    /// Routes one publish; false if it is unroutable.
    fn route_one(
        &self,
        catalog: &Catalog,
        connection: &Arc<ConnectionState>,
        publish: Publish,
        targets: &mut Vec<QueueId>,
        buffer: &mut BytesMut,
        outgoings: &mut Outgoings,
    ) -> Result<bool, Exception> {
        let Publish { channel, confirm, exchange, routing_key, properties, body, mandatory } =
            publish;
        targets.clear();
        let vhost = &connection.info.vhost;
        let named = || ResourceName { vhost: vhost.clone(), name: exchange.clone() };
        let (further_keys, raw) = sender_selected(&properties)
            .and_then(|selected| check_user(&properties, connection).map(|()| selected))
            .map_err(|refused| match catalog.check_publish(&named()) {
                // The exchange comes first (PUB-01).
                Err(error) => error.exception(&named()),
                Ok(()) => refused,
            })?;
        let request = RouteRequest {
            vhost,
            exchange: &exchange,
            routing_key: &routing_key,
            further_keys: &further_keys,
            properties: &properties,
            chance: rand::random,
            by_broker: false,
        };
        catalog.route(&request, targets).map_err(|error| error.exception(&named()))?;
        if targets.is_empty() {
            self.warn_of_missing_alternate(catalog, named());
            return Ok(false);
        }
        let head = head_of(&properties, &body);
        let message = Message {
            exchange,
            routing_key,
            further_keys,
            properties: raw,
            annotations: FieldTable::default(),
            body,
        };
        message::encode_into(&message, buffer);
        let octets = buffer.split().freeze();
        let shared = shared_by(targets.len());
        for &queue in targets.iter() {
            let bytes = octets.len();
            connection.launched(bytes);
            let connection = Arc::clone(connection);
            let shared = shared.clone();
            let ticket =
                PublishTicket { connection, channel, confirm, mandatory, count: 1, bytes, shared };
            let level = Level(0);
            let message = octets.clone();
            let outgoing = Outgoing { queue, level, head, message, ticket };
            outgoings.entry(queue.home).or_default().push(outgoing);
        }
        Ok(true)
    }

    /// All targets of a publish were gone: reads the catalog and routes it again; only then is it
    /// unroutable (NAM 6).
    pub(crate) fn route_again(&self, ticket: &PublishTicket, place: u32, octets: Bytes) {
        let Some(node) = self.arc() else { return };
        let again = Again {
            connection: Arc::clone(&ticket.connection),
            channel: ticket.channel,
            confirm: ticket.confirm.map(|first| first + u64::from(place)),
            mandatory: ticket.mandatory,
        };
        self.spawn(async move {
            while !node.read_catalog().await || !node.lease.is_held() {
                node.lease.until_held().await;
            }
            node.route_once_more(again, octets);
        });
    }

    fn route_once_more(&self, again: Again, octets: Bytes) {
        let Ok(message) = message::decode(&octets) else { return };
        let Ok(properties) = Properties::parse(message.properties.clone()) else { return };
        let Again { connection, channel, confirm, mandatory } = again;
        let mut targets = Vec::new();
        let request = RouteRequest {
            vhost: &connection.info.vhost,
            exchange: &message.exchange,
            routing_key: &message.routing_key,
            further_keys: &message.further_keys,
            properties: &properties,
            chance: rand::random,
            by_broker: false,
        };
        // An exchange that is gone by now leaves the message as unroutable as no binding does.
        let _ = self.catalog.read().route(&request, &mut targets);
        if targets.is_empty() {
            let mut tally = Tally::default();
            tally.unroutable(confirm.is_some(), mandatory);
            tally.add_to(&self.counters);
            if mandatory {
                let message = Box::new(message);
                connection.mailbox.put(Event::Returned { channel, message });
            }
            confirm_one(&connection, channel, confirm);
            return;
        }
        let head = head_of(&properties, &message.body);
        let shared = shared_by(targets.len());
        let mut outgoings = Outgoings::new();
        for queue in targets {
            let bytes = octets.len();
            connection.launched(bytes);
            let ticket = PublishTicket {
                connection: Arc::clone(&connection),
                channel,
                confirm,
                mandatory,
                count: 1,
                bytes,
                shared: shared.clone(),
            };
            let outgoing =
                Outgoing { queue, level: Level(0), head, message: octets.clone(), ticket };
            outgoings.entry(queue.home).or_default().push(outgoing);
        }
        self.send_all(outgoings);
    }
}

/// Publishes of one read of a socket, counted before they are added to the node's counters.
#[derive(Debug, Default)]
struct Tally {
    received: u64,
    received_confirm: u64,
    routed: u64,
    returned: u64,
    dropped: u64,
    /// Unroutable ones are confirmed at once (CNF-03).
    confirmed: u64,
}

impl Tally {
    /// A publish that was routed or not; `None`: refused.
    fn count(&mut self, routed: Option<bool>, confirm: bool, mandatory: bool) {
        self.received += 1;
        self.received_confirm += u64::from(confirm);
        match routed {
            Some(true) => self.routed += 1,
            Some(false) => self.unroutable(confirm, mandatory),
            None => {}
        }
    }

    fn unroutable(&mut self, confirm: bool, mandatory: bool) {
        if mandatory {
            self.returned += 1;
        } else {
            self.dropped += 1;
        }
        self.confirmed += u64::from(confirm);
    }

    fn add_to(&self, counters: &Counters) {
        let Self { received, received_confirm, routed, returned, dropped, confirmed } = *self;
        for (counter, count) in [
            (&counters.received, received),
            (&counters.received_confirm, received_confirm),
            (&counters.routed, routed),
            (&counters.unroutable_returned, returned),
            (&counters.unroutable_dropped, dropped),
            (&counters.confirmed, confirmed),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
    }
}

/// A publish that is routed again.
struct Again {
    connection: Arc<ConnectionState>,
    channel: ChannelId,
    confirm: Option<u64>,
    mandatory: bool,
}

/// What several targets share; nothing for one.
fn shared_by(targets: usize) -> Option<Arc<FanOut>> {
    // Queues are counted in 32 bits everywhere.
    (targets > 1).then(|| Arc::new(FanOut::new(u32::try_from(targets).unwrap_or(u32::MAX))))
}

fn confirm_one(connection: &ConnectionState, channel: ChannelId, confirm: Option<u64>) {
    if let Some(number) = confirm {
        let (first, last) = (number, number);
        connection.mailbox.put(Event::Confirmed { channel, first, last, taken: true });
    }
}

/// What a mandatory publish is returned as, should it turn out unroutable.
fn late_return(publish: &Publish) -> Option<Box<Message>> {
    publish.mandatory.then(|| {
        Box::new(Message {
            exchange: publish.exchange.clone(),
            routing_key: publish.routing_key.clone(),
            further_keys: Vec::new(),
            properties: publish.properties.raw.clone(),
            annotations: FieldTable::default(),
            body: publish.body.clone(),
        })
    })
}

fn head_of(properties: &Properties, body: &Bytes) -> MessageHead {
    let expiration_ms =
        properties.expiration.as_ref().and_then(|text| text.as_str().parse::<u64>().ok());
    // A body has at most 128 MiB.
    MessageHead { body_bytes: u32::try_from(body.len()).unwrap_or(u32::MAX), expiration_ms }
}

/// PRP-06: who names a user must be it.
fn check_user(properties: &Properties, connection: &ConnectionState) -> Result<(), Exception> {
    let (Some(named), user) = (&properties.user_id, &connection.info.user) else { return Ok(()) };
    if named == user {
        return Ok(());
    }
    let text = format!("user_id property set to '{named}' but authenticated user was '{user}'");
    Err(Exception::new(quorate_types::ReplyCode::PreconditionFailed, text))
}

/// Further routing keys from headers `CC` and `BCC`, and the properties without `BCC` (RTE-09,
/// PRP-07, PRP-09).
fn sender_selected(properties: &Properties) -> Result<(Vec<ShortString>, Bytes), Exception> {
    let plain = || Ok((Vec::new(), properties.raw.clone()));
    let Some(octets) = &properties.headers else { return plain() };
    // Names are short and rare: a look at the octets spares decoding all other messages' headers.
    if !octets.windows(2).any(|pair| pair == b"CC") {
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
