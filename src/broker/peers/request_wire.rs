//! Requests between brokers, and the replies to them, as they are on the wire.

use super::{
    message::ReplyTo,
    request::{PeerReply, PeerRequest},
    wire::{
        Frame, WireError, encode, from_message_ref, from_reply_to, message, to_group,
        to_message_ref, to_reply_to,
    },
};
use crate::pb;
use bytes::Bytes;
use quorate_catalog::CatalogEntry;
use quorate_rpc::Lane;
use quorate_storage::{StoredMessage, codec};
use quorate_types::{CatalogIndex, GroupId, NodeId, Stamp, Term};

const BODIES: u32 = 105;
const CATALOG: u32 = 106;
const LEASE: u32 = 107;
const SETTINGS: u32 = 113;
const REQUESTER: u32 = 121;

/// The frame of a request. What is as large as clients make it does not go among the votes and
/// heartbeats.
pub(crate) fn encode_request(request: PeerRequest) -> Frame {
    let (lane, service, payload) = match request {
        PeerRequest::Bodies { messages, term } => {
            let messages = messages.iter().map(from_message_ref).collect();
            let term = term.map_or(0, |term| term.0);
            (Lane::Bulk, BODIES, encode(&pb::BodiesRequest { messages, term }))
        }
        PeerRequest::Catalog(commands) => {
            let entry = CatalogEntry { stamp: Stamp::default(), commands };
            let entry = codec::catalog::encode_entry(&entry);
            (Lane::Bulk, CATALOG, encode(&pb::CatalogRequest { entry }))
        }
        PeerRequest::Lease { applied, renews } => {
            let request = pb::LeaseRequest { applied: applied.0, renews };
            (Lane::Control, LEASE, encode(&request))
        }
        PeerRequest::Settings(index) => {
            (Lane::Control, SETTINGS, encode(&pb::SettingsRequest { index: index.0 }))
        }
        PeerRequest::Requester(address) => {
            let request = pb::RequesterRequest { address: Some(from_reply_to(&address)) };
            (Lane::Control, REQUESTER, encode(&request))
        }
    };
    (lane, service, GroupId::CATALOG, payload.into())
}

/// The request that node `me` has received.
///
/// # Errors
/// No node of this version sends it.
pub(crate) fn decode_request(
    service: u32,
    payload: Bytes,
    me: NodeId,
) -> Result<PeerRequest, WireError> {
    Ok(match service {
        BODIES => {
            let pb::BodiesRequest { messages, term } = message(payload)?;
            let messages = messages.into_iter().map(to_message_ref).collect::<Option<_>>();
            let messages = messages.ok_or(WireError::Field)?;
            PeerRequest::Bodies { messages, term: (term > 0).then_some(Term(term)) }
        }
        CATALOG => {
            let request: pb::CatalogRequest = message(payload)?;
            PeerRequest::Catalog(codec::catalog::decode_entry(&request.entry)?.commands)
        }
        LEASE => {
            let pb::LeaseRequest { applied, renews } = message(payload)?;
            PeerRequest::Lease { applied: CatalogIndex(applied), renews }
        }
        SETTINGS => {
            let request: pb::SettingsRequest = message(payload)?;
            PeerRequest::Settings(CatalogIndex(request.index))
        }
        REQUESTER => {
            let request: pb::RequesterRequest = message(payload)?;
            let address: Option<ReplyTo> = to_reply_to(request.address, me);
            PeerRequest::Requester(address.ok_or(WireError::Field)?)
        }
        unknown => return Err(WireError::UnknownService(unknown)),
    })
}

/// The payload of a reply.
pub(crate) fn encode_reply(reply: PeerReply) -> Bytes {
    match reply {
        PeerReply::Bodies(bodies) => {
            let bodies = bodies.into_iter().map(from_body).collect();
            encode(&pb::BodiesResponse { bodies })
        }
        PeerReply::Catalog { index, replies } => {
            let replies = codec::catalog_reply::encode_replies(&replies);
            encode(&pb::CatalogResponse { index: index.0, replies })
        }
        PeerReply::Lease { all_applied, not_before } => {
            let reach = not_before.map(|index| index.0);
            encode(&pb::LeaseResponse { all_applied: all_applied.0, reach })
        }
        PeerReply::Settings(groups) => {
            let groups = groups.into_iter().map(|group| u32::from(group.0)).collect();
            encode(&pb::SettingsResponse { groups })
        }
        PeerReply::Requester(present) => encode(&pb::RequesterResponse { present }),
    }
}

/// The reply to a request of that service.
///
/// # Errors
/// No node of this version sends it.
pub(crate) fn decode_reply(service: u32, payload: Bytes) -> Result<PeerReply, WireError> {
    Ok(match service {
        BODIES => {
            let response: pb::BodiesResponse = message(payload)?;
            PeerReply::Bodies(response.bodies.into_iter().map(to_body).collect())
        }
        CATALOG => {
            let pb::CatalogResponse { index, replies } = message(payload)?;
            let replies = codec::catalog_reply::decode_replies(&replies)?;
            PeerReply::Catalog { index: CatalogIndex(index), replies }
        }
        LEASE => {
            let pb::LeaseResponse { all_applied, reach } = message(payload)?;
            let not_before = reach.map(CatalogIndex);
            PeerReply::Lease { all_applied: CatalogIndex(all_applied), not_before }
        }
        SETTINGS => {
            let response: pb::SettingsResponse = message(payload)?;
            let groups = response.groups.into_iter().map(to_group);
            PeerReply::Settings(groups.collect::<Result<_, _>>()?)
        }
        REQUESTER => {
            let response: pb::RequesterResponse = message(payload)?;
            PeerReply::Requester(response.present)
        }
        unknown => return Err(WireError::UnknownService(unknown)),
    })
}

fn from_body(body: StoredMessage) -> pb::bodies_response::Body {
    let settled = body == StoredMessage::Absent;
    let message = match body {
        StoredMessage::Here(message) => Some(message),
        StoredMessage::Absent | StoredMessage::Unknown => None,
    };
    let (present, message) = (message.is_some(), message.unwrap_or_default());
    pb::bodies_response::Body { present, message, settled }
}

fn to_body(body: pb::bodies_response::Body) -> StoredMessage {
    match body {
        pb::bodies_response::Body { present: true, message, .. } => StoredMessage::Here(message),
        pb::bodies_response::Body { settled: true, .. } => StoredMessage::Absent,
        pb::bodies_response::Body { .. } => StoredMessage::Unknown,
    }
}

#[cfg(test)]
mod tests;
