//! Members and placements: decoding gives the encoded value, truncated bytes are refused, and others
//! are refused or decoded without a panic (MEM 1).

use crate::codec::{
    catalog::{
        can_be_read_again, decode_command, decode_key, decode_record, encode_command, encode_key,
        encode_record,
    },
    catalog_reply::{decode_replies, encode_replies},
};
use bytes::Bytes;
use proptest::{
    collection::{btree_map, btree_set, vec},
    prelude::*,
};
use quorate_catalog::{
    CatalogCommand, CatalogKey, CatalogRecord, CatalogReply, Denial, ForgottenRecord,
    MemberCommand as M, MemberDenial as D, MemberRecord, MemberState, Newcomer, PlacementRecord,
};
use quorate_types::{
    GroupId, Incarnation, MachineVersion, NodeId, ReplicaId, ReplicaNumber, StartNumber,
};
use std::{collections::BTreeSet, fmt::Debug};

fn node() -> impl Strategy<Value = NodeId> {
    any::<u16>().prop_map(NodeId)
}

fn group() -> impl Strategy<Value = GroupId> {
    any::<u16>().prop_map(GroupId)
}

fn directory() -> impl Strategy<Value = Incarnation> {
    any::<u64>().prop_map(Incarnation)
}

fn newcomer() -> impl Strategy<Value = Newcomer> {
    (node(), directory(), ".{0,9}", "[a-z]{0,5}").prop_map(|(node, incarnation, address, zone)| {
        Newcomer { node, incarnation, address, zone }
    })
}

fn command() -> impl Strategy<Value = M> {
    let nodes = btree_set(node(), 0..6);
    prop_oneof![
        newcomer().prop_map(M::Join),
        (node(), directory()).prop_map(|(node, incarnation)| M::Admit { node, incarnation }),
        node().prop_map(|node| M::Drain { node }),
        node().prop_map(|node| M::Revive { node }),
        (node(), directory()).prop_map(|(node, incarnation)| M::Forget { node, incarnation }),
        (directory(), newcomer()).prop_map(|(old, by)| M::Replace { old, by }),
        node().prop_map(|node| M::Remove { node }),
        (group(), any::<u64>(), nodes).prop_map(|(group, number, nodes)| M::Place {
            group,
            number,
            nodes
        }),
        (group(), any::<u64>()).prop_map(|(group, number)| M::Reached { group, number }),
        (node(), btree_map(group(), any::<u32>().prop_map(ReplicaNumber), 0..6))
            .prop_map(|(node, replicas)| M::LastResort { node, replicas }),
    ]
}

fn state() -> impl Strategy<Value = MemberState> {
    use MemberState as S;
    prop::sample::select(vec![S::Joining, S::Member, S::Draining, S::Leaving])
}

fn denial() -> impl Strategy<Value = D> {
    let machine = prop::sample::select(vec![MachineVersion::FIRST, MachineVersion::MEMBERS]);
    prop_oneof![
        machine.prop_map(|machine| D::TooEarly { machine }),
        node().prop_map(|node| D::Forgotten { node }),
        (node(), state()).prop_map(|(node, state)| D::IdTaken { node, state }),
        (node(), node()).prop_map(|(node, by)| D::DirectoryTaken { node, by }),
        node().prop_map(|node| D::NoMember { node }),
        (node(), state(), state()).prop_map(|(node, state, wanted)| D::State {
            node,
            state,
            wanted
        }),
        node().prop_map(|node| D::LastMember { node }),
        (node(), group()).prop_map(|(node, group)| D::NoMajority { node, group }),
        (node(), group()).prop_map(|(node, group)| D::StillPlaced { node, group }),
        group().prop_map(|group| D::NoGroup { group }),
        (group(), any::<u64>(), any::<u64>())
            .prop_map(|(group, present, number)| D::OtherPlacement { group, present, number }),
        (group(), any::<u64>()).prop_map(|(group, count)| D::Count { group, count }),
        group().prop_map(|group| D::OthersMove { group }),
    ]
}

fn replicas() -> impl Strategy<Value = BTreeSet<ReplicaId>> {
    let replica = (node(), any::<u32>())
        .prop_map(|(node, number)| ReplicaId { node, number: ReplicaNumber(number) });
    btree_set(replica, 0..6)
}

fn record() -> impl Strategy<Value = CatalogRecord> {
    let member = (newcomer(), state(), any::<u32>()).prop_map(|(newcomer, state, first)| {
        let Newcomer { incarnation, address, zone, .. } = newcomer;
        let first = ReplicaNumber(first);
        CatalogRecord::Member(MemberRecord { incarnation, address, zone, state, first })
    });
    let forgotten = (node(), any::<u64>()).prop_map(|(node, start)| {
        CatalogRecord::Forgotten(ForgottenRecord { node, start: StartNumber(start) })
    });
    let placement = (any::<u64>(), any::<u64>(), replicas(), vec(replicas(), 0..4)).prop_map(
        |(number, reached, replicas, before)| {
            CatalogRecord::Placement(PlacementRecord { number, replicas, reached, before })
        },
    );
    prop_oneof![member, forgotten, placement]
}

fn key() -> impl Strategy<Value = CatalogKey> {
    prop_oneof![
        node().prop_map(CatalogKey::Member),
        directory().prop_map(CatalogKey::Forgotten),
        group().prop_map(CatalogKey::Placement),
    ]
}

/// Checks a value's encoding, its beginnings, and the encoding with one byte changed.
pub(super) fn check<T: PartialEq + Debug, E: PartialEq + Debug>(
    value: &T,
    bytes: &Bytes,
    (at, by): (prop::sample::Index, u8),
    decode: impl Fn(&[u8]) -> Result<T, E>,
) {
    assert_eq!(decode(bytes).as_ref(), Ok(value));
    for end in 0..bytes.len() {
        assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    let mut changed = bytes.to_vec();
    let at = at.index(changed.len());
    changed[at] = changed[at].wrapping_add(by);
    drop(decode(&changed));
}

proptest! {
    #[test]
    fn mem_01_commands_replies_and_records_round_trip(
        command in command(),
        denials in vec(denial(), 1..4),
        record in record(),
        key in key(),
        change in (any::<prop::sample::Index>(), 1..=255u8),
    ) {
        let command = CatalogCommand::Members(command);
        prop_assert!(can_be_read_again(&command));
        check(&command, &encode_command(&command), change, decode_command);
        let denied = |denial| CatalogReply::Denied(Denial::Member(denial));
        let replies: Vec<_> = denials.into_iter().map(denied).collect();
        check(&replies, &encode_replies(&replies), change, decode_replies);
        check(&record, &encode_record(&record), change, decode_record);
        check(&key, &encode_key(&key), change, decode_key);
    }
}
