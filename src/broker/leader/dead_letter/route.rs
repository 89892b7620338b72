//! Routing of letters: the targets that the catalog copy gives for one letter, without those that
//! would make a cycle (LET 1, 5, DLX-23, DLX-26). Pure except for the randomness and the node that
//! some exchanges use.

use super::annotate::{Death, Letter, annotate, is_cycle};
use bytes::{Bytes, BytesMut};
use quorate_catalog::{Catalog, Locality, RouteError, RouteRequest};
use quorate_queue::{DeathReason, Destination, Via};
use quorate_rpc::chance;
use quorate_storage::codec::message;
use quorate_types::{FieldTable, Properties};

/// The route of a letter whose targets answered that they are gone. Targets that are not in the
/// catalog (NAM 8) are removed: they are taken for those that answered, and their answer is final.
pub(crate) fn again(found: Destination, catalog: &Catalog) -> Destination {
    let Destination::Targets(mut targets) = found else { return found };
    targets.retain(|queue| catalog.queue_by_id(*queue).is_some());
    if targets.is_empty() { Destination::Nothing } else { Destination::Targets(targets) }
}

/// Routes a letter. `bytes` is the message as it is stored.
pub(crate) fn route(
    catalog: &Catalog,
    locality: &dyn Locality,
    bytes: &Bytes,
    death: Death<'_>,
    via: &Via,
) -> Destination {
    let Some(Letter { message, properties, headers }) = letter(bytes, death, via) else {
        return Destination::Nothing;
    };
    let properties = merged_properties(properties, headers, &message.annotations);
    let request = RouteRequest {
        vhost: &death.queue.vhost,
        exchange: &via.exchange,
        routing_key: &message.routing_key,
        further_keys: &message.further_keys,
        properties: &properties,
        chance: chance::random,
        locality,
        by_broker: true,
    };
    let mut targets = Vec::new();
    // A missing exchange has no targets (DLX-06).
    if catalog.route(&request, &mut targets) == Err(RouteError::NoDelayQueue) {
        return Destination::NotYet;
    }
    if targets.is_empty() {
        return Destination::Nothing;
    }
    if death.reason == DeathReason::Delayed {
        return Destination::Targets(targets);
    }
    targets.retain(|target| {
        let name = catalog.queue_by_id(*target).map(|entry| &entry.name.name);
        !name.is_some_and(|name| is_cycle(&message.annotations, name))
    });
    if targets.is_empty() { Destination::Cycle } else { Destination::Targets(targets) }
}

/// The message as its targets get it; `None`, with a log line, if the stored message is malformed.
pub(crate) fn letter(bytes: &Bytes, death: Death<'_>, via: &Via) -> Option<Letter> {
    let message = message::decode(bytes).ok()?;
    annotate(message, death, via)
        .inspect_err(
            |error| tracing::error!(queue = %death.queue, %error, "malformed stored message"),
        )
        .ok()
}

/// The properties that exchanges match: the broker's own headers are among them (RTE-06).
pub(in crate::leader) fn merged_properties(
    properties: Properties,
    headers: Option<FieldTable>,
    annotations: &FieldTable,
) -> Properties {
    let mut headers = headers.unwrap_or_default();
    headers.0.retain(|(name, _)| annotations.get(name.as_str()).is_none());
    headers.0.extend(annotations.0.iter().cloned());
    let mut content = BytesMut::new();
    headers.encode_content(&mut content);
    Properties { headers: Some(content.freeze()), ..properties }
}
