//! Where letters go: the catalog copy's answer to one letter, the cycle rule taken out (LET 1, 5,
//! DLX-23, DLX-26). Pure but for the chance and the place that some exchanges ask for.

use super::annotate::{Death, Letter, annotate, is_cycle};
use bytes::{Bytes, BytesMut};
use quorate_catalog::{Catalog, Locality, RouteError, RouteRequest};
use quorate_queue::{DeathReason, Destination, Via};
use quorate_rpc::chance;
use quorate_storage::codec::message;
use quorate_types::{FieldTable, Properties};

/// For a letter whose targets have said that they are gone: those that are known by their names
/// alone (NAM 8) have said so for good.
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
    // An exchange that is not there takes nothing (DLX-06).
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

/// The message as its targets get it.
pub(crate) fn letter(bytes: &Bytes, death: Death<'_>, via: &Via) -> Option<Letter> {
    let message = message::decode(bytes).ok()?;
    annotate(message, death, via)
        .inspect_err(
            |error| tracing::error!(queue = %death.queue, %error, "malformed stored message"),
        )
        .ok()
}

/// The properties as exchanges see them: the broker's own headers among the others (RTE-06).
fn merged_properties(
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
