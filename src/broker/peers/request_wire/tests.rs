//! Every request and reply is decoded as it was encoded, and bytes that are neither are refused.

use super::*;
use proptest::{collection::vec, option, prelude::*};
use quorate_catalog::{CatalogCommand, CatalogReply};
use quorate_storage::MessageRef;
use quorate_types::{Exception, Home, Level, LogIndex, MessageId, QueueId, ReplyCode, StartNumber};

const ME: NodeId = NodeId(9);

fn message_ref() -> impl Strategy<Value = MessageRef> {
    (1..=u16::MAX, any::<[u64; 3]>(), any::<(u32, u8, bool)>()).prop_map(
        |(number, [index, position, entry], (place, level, replicated))| {
            let home = match replicated {
                true => Home::Group(GroupId(number)),
                false => Home::Node(NodeId(number)),
            };
            let level = Level(level);
            let message = MessageId { level, index: LogIndex(entry), position: place };
            MessageRef { queue: QueueId { home, index, position }, message }
        },
    )
}

fn command() -> impl Strategy<Value = CatalogCommand> {
    any::<(u16, u64)>().prop_map(|(node, start)| CatalogCommand::NodeDown {
        node: NodeId(node),
        start: StartNumber(start),
    })
}

fn request() -> impl Strategy<Value = PeerRequest> {
    let term = option::of((1..=u64::MAX).prop_map(Term));
    prop_oneof![
        (vec(message_ref(), 0..5), term)
            .prop_map(|(messages, term)| PeerRequest::Bodies { messages, term }),
        vec(command(), 0..4).prop_map(PeerRequest::Catalog),
        any::<(u64, bool)>().prop_map(|(applied, renews)| PeerRequest::Lease {
            applied: CatalogIndex(applied),
            renews
        }),
        any::<u64>().prop_map(|index| PeerRequest::Settings(CatalogIndex(index))),
        any::<(u64, u16, [u8; 16])>().prop_map(|(connection, channel, key)| {
            PeerRequest::Requester(ReplyTo { node: ME, connection, channel, key })
        }),
    ]
}

fn body() -> impl Strategy<Value = StoredMessage> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(|bytes| StoredMessage::Here(bytes.into())),
        Just(StoredMessage::Absent),
        Just(StoredMessage::Unknown),
    ]
}

fn catalog_reply() -> impl Strategy<Value = CatalogReply> {
    prop_oneof![
        Just(CatalogReply::Done),
        "[a-z]{0,20}".prop_map(|text| {
            CatalogReply::Refused(Exception::new(ReplyCode::PreconditionFailed, text))
        }),
    ]
}

fn reply() -> impl Strategy<Value = PeerReply> {
    prop_oneof![
        vec(body(), 0..5).prop_map(PeerReply::Bodies),
        (any::<u64>(), vec(catalog_reply(), 0..4)).prop_map(|(index, replies)| {
            PeerReply::Catalog { index: CatalogIndex(index), replies }
        }),
        any::<(u64, Option<u64>)>().prop_map(|(all, reach)| PeerReply::Lease {
            all_applied: CatalogIndex(all),
            not_before: reach.map(CatalogIndex),
        }),
        vec(any::<u16>(), 0..9)
            .prop_map(|groups| PeerReply::Settings(groups.into_iter().map(GroupId).collect())),
        any::<bool>().prop_map(PeerReply::Requester),
    ]
}

/// The service that replies of this kind answer.
fn service(reply: &PeerReply) -> u32 {
    match reply {
        PeerReply::Bodies(_) => BODIES,
        PeerReply::Catalog { .. } => CATALOG,
        PeerReply::Lease { .. } => LEASE,
        PeerReply::Settings(_) => SETTINGS,
        PeerReply::Requester(_) => REQUESTER,
    }
}

proptest! {
    #[test]
    fn requests_are_decoded_as_they_were_encoded(request in request()) {
        let expected = format!("{request:?}");
        let (_, service, _, payload) = encode_request(request);
        let payload: Vec<u8> = payload.into_bytes().into();
        let decoded = decode_request(service, payload.into(), ME);
        prop_assert_eq!(format!("{:?}", decoded.ok()), format!("Some({expected})"));
    }

    #[test]
    fn replies_are_decoded_as_they_were_encoded(reply in reply()) {
        let service = service(&reply);
        let decoded = decode_reply(service, encode_reply(reply.clone()));
        prop_assert_eq!(decoded.ok(), Some(reply));
    }

    #[test]
    fn no_bytes_of_another_node_end_this_one(
        service in 100..130_u32,
        bytes in vec(any::<u8>(), 0..60),
    ) {
        drop(decode_request(service, Bytes::from(bytes.clone()), ME));
        drop(decode_reply(service, Bytes::from(bytes)));
    }
}

#[test]
fn what_is_out_of_range_is_refused() {
    let short_key = pb::ReplyAddress { connection: 1, channel: 1, key: Bytes::from_static(b"k") };
    let request = encode(&pb::RequesterRequest { address: Some(short_key) });
    assert!(matches!(decode_request(REQUESTER, request, ME), Err(WireError::Field)));
    let messages = vec![pb::MessageRef { level: 256, ..pb::MessageRef::default() }];
    let request = encode(&pb::BodiesRequest { messages, term: 0 });
    assert!(matches!(decode_request(BODIES, request, ME), Err(WireError::Field)));
    let groups = encode(&pb::SettingsResponse { groups: vec![1 << 16] });
    assert!(matches!(decode_reply(SETTINGS, groups), Err(WireError::Field)));
    let unknown = decode_request(199, Bytes::new(), ME);
    assert!(matches!(unknown, Err(WireError::UnknownService(199))));
}

/// Bytes of a request or reply, as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes are those of the versions before requests were values, so nodes of both understand
/// each other. Written by hand from `proto/broker.proto`; the catalog's entry has a test in storage.
#[test]
fn the_bytes_of_requests_stay_as_they_are() {
    let queue = QueueId { home: Home::Group(GroupId(3)), index: 4, position: 5 };
    let message = MessageId { level: Level(1), index: LogIndex(6), position: 2 };
    let messages = vec![MessageRef { queue, message }];
    let address = ReplyTo { node: ME, connection: 1, channel: 2, key: [7; 16] };
    let cases = [
        (
            PeerRequest::Bodies { messages, term: Some(Term(9)) },
            (Lane::Bulk, 105, "0a0e0a060803180420051001180620021009".to_owned()),
        ),
        (
            PeerRequest::Lease { applied: CatalogIndex(300), renews: true },
            (Lane::Control, 107, "08ac021001".to_owned()),
        ),
        (PeerRequest::Settings(CatalogIndex(5)), (Lane::Control, 113, "0805".to_owned())),
        (
            PeerRequest::Requester(address),
            (Lane::Control, 121, "0a16080110021a10".to_owned() + &"07".repeat(16)),
        ),
    ];
    for (request, (lane, service, expected)) in cases {
        let (sent_lane, sent_service, group, payload) = encode_request(request);
        assert_eq!((sent_lane, sent_service, group), (lane, service, GroupId::CATALOG));
        let payload: Vec<u8> = payload.into_bytes().into();
        assert_eq!(hex(&payload), expected, "service {service}");
    }
}

/// See [`the_bytes_of_requests_stay_as_they_are`].
#[test]
fn the_bytes_of_replies_stay_as_they_are() {
    let here = StoredMessage::Here(Bytes::from_static(b"ab"));
    let bodies = PeerReply::Bodies(vec![here, StoredMessage::Absent, StoredMessage::Unknown]);
    let (all_applied, not_before) = (CatalogIndex(1), Some(CatalogIndex(2)));
    let cases = [
        (bodies, "0a060801120261620a0218010a00".to_owned()),
        (PeerReply::Lease { all_applied, not_before }, "08011002".to_owned()),
        (PeerReply::Lease { all_applied, not_before: None }, "0801".to_owned()),
        (PeerReply::Settings(vec![GroupId(1), GroupId(2)]), "0a020102".to_owned()),
        (PeerReply::Requester(true), "0801".to_owned()),
    ];
    for (reply, expected) in cases {
        let name = format!("{reply:?}");
        assert_eq!(hex(&encode_reply(reply)), expected, "{name}");
    }
}
