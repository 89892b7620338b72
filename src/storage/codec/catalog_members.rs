//! Encoding of members and placements in the catalog's commands, records and replies, all from
//! machine version 2 on (MEM 15).

use super::{
    DecodeError,
    catalog_parts::machine_version,
    cursor::{Cursor, put_bytes, put_int, put_len},
};
use bytes::{BufMut, BytesMut};
use quorate_catalog::{
    ForgottenRecord, MemberCommand, MemberDenial, MemberRecord, MemberState, Newcomer,
    PlacementRecord,
};
use quorate_types::{GroupId, Incarnation, NodeId, ReplicaId, ReplicaNumber, StartNumber};
use std::collections::BTreeSet;

const JOIN: u8 = 1;
const ADMIT: u8 = 2;
const DRAIN: u8 = 3;
const REVIVE: u8 = 4;
const FORGET: u8 = 5;
const REPLACE: u8 = 6;
const REMOVE: u8 = 7;
const PLACE: u8 = 8;
const REACHED: u8 = 9;
const LAST_RESORT: u8 = 10;

const TOO_EARLY: u8 = 1;
const FORGOTTEN: u8 = 2;
const ID_TAKEN: u8 = 3;
const DIRECTORY_TAKEN: u8 = 4;
const NO_MEMBER: u8 = 5;
const STATE: u8 = 6;
const LAST_MEMBER: u8 = 7;
const NO_MAJORITY: u8 = 8;
const STILL_PLACED: u8 = 9;
const NO_GROUP: u8 = 10;
const OTHER_PLACEMENT: u8 = 11;
const COUNT: u8 = 12;
const OTHERS_MOVE: u8 = 13;

pub(super) fn put_member_command(command: &MemberCommand, out: &mut BytesMut) {
    use MemberCommand as C;
    match command {
        C::Join(newcomer) => {
            out.put_u8(JOIN);
            put_newcomer(newcomer, out);
        }
        C::Admit { node, incarnation } => {
            put_node(ADMIT, *node, out);
            out.put_u64(incarnation.0);
        }
        C::Drain { node } => put_node(DRAIN, *node, out),
        C::Revive { node } => put_node(REVIVE, *node, out),
        C::Forget { node, incarnation } => {
            put_node(FORGET, *node, out);
            out.put_u64(incarnation.0);
        }
        C::Replace { old, by } => {
            out.put_u8(REPLACE);
            out.put_u64(old.0);
            put_newcomer(by, out);
        }
        C::Remove { node } => put_node(REMOVE, *node, out),
        C::Place { group, number, nodes } => {
            put_group(PLACE, *group, out);
            put_int(out, *number);
            put_len(out, nodes.len());
            nodes.iter().for_each(|node| put_int(out, u64::from(node.0)));
        }
        C::Reached { group, number } => {
            put_group(REACHED, *group, out);
            put_int(out, *number);
        }
        C::LastResort { node, replicas } => {
            put_node(LAST_RESORT, *node, out);
            put_len(out, replicas.len());
            for (group, number) in replicas {
                put_int(out, u64::from(group.0));
                put_int(out, u64::from(number.0));
            }
        }
    }
}

pub(super) fn member_command(cursor: &mut Cursor<'_>) -> Result<MemberCommand, DecodeError> {
    use MemberCommand as C;
    Ok(match cursor.u8()? {
        JOIN => C::Join(newcomer(cursor)?),
        ADMIT => C::Admit { node: node(cursor)?, incarnation: incarnation(cursor)? },
        DRAIN => C::Drain { node: node(cursor)? },
        REVIVE => C::Revive { node: node(cursor)? },
        FORGET => C::Forget { node: node(cursor)?, incarnation: incarnation(cursor)? },
        REPLACE => C::Replace { old: incarnation(cursor)?, by: newcomer(cursor)? },
        REMOVE => C::Remove { node: node(cursor)? },
        PLACE => C::Place {
            group: group(cursor)?,
            number: cursor.int()?,
            nodes: cursor.list(node)?.into_iter().collect(),
        },
        REACHED => C::Reached { group: group(cursor)?, number: cursor.int()? },
        LAST_RESORT => C::LastResort {
            node: node(cursor)?,
            replicas: cursor.list(numbered)?.into_iter().collect(),
        },
        _ => return Err(DecodeError::Invalid("member command")),
    })
}

pub(super) fn put_member(member: &MemberRecord, out: &mut BytesMut) {
    out.put_u64(member.incarnation.0);
    put_bytes(out, member.address.as_bytes());
    put_bytes(out, member.zone.as_bytes());
    put_state(member.state, out);
    put_int(out, u64::from(member.first.0));
}

pub(super) fn member(cursor: &mut Cursor<'_>) -> Result<MemberRecord, DecodeError> {
    Ok(MemberRecord {
        incarnation: incarnation(cursor)?,
        address: cursor.string()?,
        zone: cursor.string()?,
        state: state(cursor)?,
        first: ReplicaNumber(cursor.u32()?),
    })
}

pub(super) fn put_forgotten(record: &ForgottenRecord, out: &mut BytesMut) {
    put_int(out, u64::from(record.node.0));
    put_int(out, record.start.0);
}

pub(super) fn forgotten(cursor: &mut Cursor<'_>) -> Result<ForgottenRecord, DecodeError> {
    Ok(ForgottenRecord { node: node(cursor)?, start: StartNumber(cursor.int()?) })
}

pub(super) fn put_placement(placement: &PlacementRecord, out: &mut BytesMut) {
    put_int(out, placement.number);
    put_int(out, placement.reached);
    put_replicas(&placement.replicas, out);
    put_len(out, placement.before.len());
    placement.before.iter().for_each(|replicas| put_replicas(replicas, out));
}

pub(super) fn placement(cursor: &mut Cursor<'_>) -> Result<PlacementRecord, DecodeError> {
    Ok(PlacementRecord {
        number: cursor.int()?,
        reached: cursor.int()?,
        replicas: replicas(cursor)?,
        before: cursor.list(replicas)?,
    })
}

pub(super) fn put_member_denial(denial: &MemberDenial, out: &mut BytesMut) {
    use MemberDenial as D;
    match *denial {
        D::TooEarly { machine } => {
            out.put_u8(TOO_EARLY);
            put_int(out, u64::from(machine.0));
        }
        D::Forgotten { node } => put_node(FORGOTTEN, node, out),
        D::IdTaken { node, state } => {
            put_node(ID_TAKEN, node, out);
            put_state(state, out);
        }
        D::DirectoryTaken { node, by } => {
            put_node(DIRECTORY_TAKEN, node, out);
            put_int(out, u64::from(by.0));
        }
        D::NoMember { node } => put_node(NO_MEMBER, node, out),
        D::State { node, state, wanted } => {
            put_node(STATE, node, out);
            put_state(state, out);
            put_state(wanted, out);
        }
        D::LastMember { node } => put_node(LAST_MEMBER, node, out),
        D::NoMajority { node, group } => {
            put_node(NO_MAJORITY, node, out);
            put_int(out, u64::from(group.0));
        }
        D::StillPlaced { node, group } => {
            put_node(STILL_PLACED, node, out);
            put_int(out, u64::from(group.0));
        }
        D::NoGroup { group } => put_group(NO_GROUP, group, out),
        D::OtherPlacement { group, present, number } => {
            put_group(OTHER_PLACEMENT, group, out);
            put_int(out, present);
            put_int(out, number);
        }
        D::Count { group, count } => {
            put_group(COUNT, group, out);
            put_int(out, count);
        }
        D::OthersMove { group } => put_group(OTHERS_MOVE, group, out),
    }
}

pub(super) fn member_denial(cursor: &mut Cursor<'_>) -> Result<MemberDenial, DecodeError> {
    use MemberDenial as D;
    Ok(match cursor.u8()? {
        TOO_EARLY => D::TooEarly { machine: machine_version(cursor)? },
        FORGOTTEN => D::Forgotten { node: node(cursor)? },
        ID_TAKEN => D::IdTaken { node: node(cursor)?, state: state(cursor)? },
        DIRECTORY_TAKEN => D::DirectoryTaken { node: node(cursor)?, by: node(cursor)? },
        NO_MEMBER => D::NoMember { node: node(cursor)? },
        STATE => D::State { node: node(cursor)?, state: state(cursor)?, wanted: state(cursor)? },
        LAST_MEMBER => D::LastMember { node: node(cursor)? },
        NO_MAJORITY => D::NoMajority { node: node(cursor)?, group: group(cursor)? },
        STILL_PLACED => D::StillPlaced { node: node(cursor)?, group: group(cursor)? },
        NO_GROUP => D::NoGroup { group: group(cursor)? },
        OTHER_PLACEMENT => D::OtherPlacement {
            group: group(cursor)?,
            present: cursor.int()?,
            number: cursor.int()?,
        },
        COUNT => D::Count { group: group(cursor)?, count: cursor.int()? },
        OTHERS_MOVE => D::OthersMove { group: group(cursor)? },
        _ => return Err(DecodeError::Invalid("denial")),
    })
}

fn put_newcomer(newcomer: &Newcomer, out: &mut BytesMut) {
    put_int(out, u64::from(newcomer.node.0));
    out.put_u64(newcomer.incarnation.0);
    put_bytes(out, newcomer.address.as_bytes());
    put_bytes(out, newcomer.zone.as_bytes());
}

fn newcomer(cursor: &mut Cursor<'_>) -> Result<Newcomer, DecodeError> {
    Ok(Newcomer {
        node: node(cursor)?,
        incarnation: incarnation(cursor)?,
        address: cursor.string()?,
        zone: cursor.string()?,
    })
}

fn put_replicas(replicas: &BTreeSet<ReplicaId>, out: &mut BytesMut) {
    put_len(out, replicas.len());
    for replica in replicas {
        put_int(out, u64::from(replica.node.0));
        put_int(out, u64::from(replica.number.0));
    }
}

fn replicas(cursor: &mut Cursor<'_>) -> Result<BTreeSet<ReplicaId>, DecodeError> {
    Ok(cursor.list(replica)?.into_iter().collect())
}

fn replica(cursor: &mut Cursor<'_>) -> Result<ReplicaId, DecodeError> {
    Ok(ReplicaId { node: node(cursor)?, number: ReplicaNumber(cursor.u32()?) })
}

fn numbered(cursor: &mut Cursor<'_>) -> Result<(GroupId, ReplicaNumber), DecodeError> {
    Ok((group(cursor)?, ReplicaNumber(cursor.u32()?)))
}

fn put_state(state: MemberState, out: &mut BytesMut) {
    out.put_u8(match state {
        MemberState::Joining => 0,
        MemberState::Member => 1,
        MemberState::Draining => 2,
        MemberState::Leaving => 3,
    });
}

fn state(cursor: &mut Cursor<'_>) -> Result<MemberState, DecodeError> {
    Ok(match cursor.u8()? {
        0 => MemberState::Joining,
        1 => MemberState::Member,
        2 => MemberState::Draining,
        3 => MemberState::Leaving,
        _ => return Err(DecodeError::Invalid("state of a member")),
    })
}

/// Appends a tag and a node.
fn put_node(tag: u8, node: NodeId, out: &mut BytesMut) {
    out.put_u8(tag);
    put_int(out, u64::from(node.0));
}

fn node(cursor: &mut Cursor<'_>) -> Result<NodeId, DecodeError> {
    cursor.u16().map(NodeId)
}

/// Appends a tag and a group.
fn put_group(tag: u8, group: GroupId, out: &mut BytesMut) {
    out.put_u8(tag);
    put_int(out, u64::from(group.0));
}

fn group(cursor: &mut Cursor<'_>) -> Result<GroupId, DecodeError> {
    cursor.u16().map(GroupId)
}

fn incarnation(cursor: &mut Cursor<'_>) -> Result<Incarnation, DecodeError> {
    cursor.array().map(|bytes| Incarnation(u64::from_be_bytes(bytes)))
}
