//! Votes, elections, and handing leadership over.

use super::{
    DecodeError,
    wire::{Reader, begin, put_option_log_id, put_vote},
};
use crate::type_config::{LogId, TypeConfig, Vote};
use bytes::{BufMut, Bytes};
use openraft::raft::{TransferLeaderRequest, VoteRequest, VoteResponse};
use quorate_types::{GroupId, NodeId};
use std::collections::BTreeSet;

/// Encodes a vote as it is stored.
pub(crate) fn encode_vote(vote: &Vote) -> Bytes {
    let mut out = begin(17);
    put_vote(&mut out, vote);
    out.freeze()
}

/// Decodes a stored vote.
pub(crate) fn decode_vote(bytes: &Bytes) -> Result<Vote, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let vote = reader.vote()?;
    reader.end()?;
    Ok(vote)
}

/// Encodes a request for a vote, or for a pre-vote.
pub(crate) fn encode_vote_request(request: &VoteRequest<TypeConfig>) -> Bytes {
    let mut out = begin(40);
    put_vote(&mut out, &request.vote);
    put_option_log_id(&mut out, request.last_log_id.as_ref());
    out.put_u8(u8::from(request.leadership_transfer));
    out.freeze()
}

/// Decodes a request for a vote, or for a pre-vote.
pub(crate) fn decode_vote_request(bytes: &Bytes) -> Result<VoteRequest<TypeConfig>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let vote = reader.vote()?;
    let last_log_id = reader.option_log_id()?;
    let leadership_transfer = reader.flag()?;
    reader.end()?;
    Ok(VoteRequest { leadership_transfer, ..VoteRequest::new(vote, last_log_id) })
}

/// Encodes the answer to a request for a vote.
pub(crate) fn encode_vote_answer(answer: &VoteResponse<TypeConfig>) -> Bytes {
    let mut out = begin(40);
    put_vote(&mut out, &answer.vote);
    out.put_u8(u8::from(answer.vote_granted));
    put_option_log_id(&mut out, answer.last_log_id.as_ref());
    out.freeze()
}

/// Decodes the answer to a request for a vote.
pub(crate) fn decode_vote_answer(bytes: &Bytes) -> Result<VoteResponse<TypeConfig>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let vote = reader.vote()?;
    let granted = reader.flag()?;
    let last_log_id = reader.option_log_id()?;
    reader.end()?;
    Ok(VoteResponse::new(vote, last_log_id, granted))
}

/// Encodes a transfer of leadership.
pub(crate) fn encode_transfer(request: &TransferLeaderRequest<TypeConfig>) -> Bytes {
    let mut out = begin(50);
    put_vote(&mut out, request.from_leader());
    out.put_u64(*request.to_node_id());
    put_option_log_id(&mut out, request.last_log_id());
    out.freeze()
}

/// Decodes a transfer of leadership.
pub(crate) fn decode_transfer(
    bytes: &Bytes,
) -> Result<TransferLeaderRequest<TypeConfig>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let (from, to) = (reader.vote()?, reader.u64()?);
    let last_log_id = reader.option_log_id()?;
    reader.end()?;
    Ok(TransferLeaderRequest::new(from, to, last_log_id))
}

/// Encodes whether a transfer was accepted, or would be.
pub(crate) fn encode_transfer_answer(accepted: bool) -> Bytes {
    let mut out = begin(1);
    out.put_u8(u8::from(accepted));
    out.freeze()
}

/// Decodes whether a transfer was accepted, or would be.
pub(crate) fn decode_transfer_answer(bytes: &Bytes) -> Result<bool, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let accepted = reader.flag()?;
    reader.end()?;
    Ok(accepted)
}

/// The position of a node's log in a group, which decides elections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// Group whose log is described.
    pub(crate) group: GroupId,
    /// The node's vote.
    pub(crate) vote: Vote,
    /// Its last log entry.
    pub(crate) last: Option<LogId>,
    /// The node may lead: its disk does not hang, and it is neither drained nor about to stop.
    pub(crate) may_lead: bool,
}

/// Encodes a question for positions in some groups, whose leader is dead or silent.
pub(crate) fn encode_groups(absent: NodeId, groups: &[GroupId]) -> Bytes {
    let mut out = begin(12 + 2 * groups.len());
    out.put_u64(u64::from(absent.0));
    out.put_u32(groups.len() as u32);
    groups.iter().for_each(|group| out.put_u16(group.0));
    out.freeze()
}

/// Decodes a question for positions.
pub(crate) fn decode_groups(bytes: &Bytes) -> Result<Vec<GroupId>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    // The absent node's id is only for logs and packet captures.
    let _absent = reader.u64()?;
    let count = reader.count(2)?;
    let groups = (0..count).map(|_| reader.u16().map(GroupId)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(groups)
}

/// Encodes names of nodes.
pub(crate) fn encode_nodes(nodes: impl ExactSizeIterator<Item = NodeId>) -> Bytes {
    let mut out = begin(4 + 8 * nodes.len());
    out.put_u32(nodes.len() as u32);
    nodes.for_each(|node| out.put_u64(u64::from(node.0)));
    out.freeze()
}

/// Decodes names of nodes.
pub(crate) fn decode_nodes(bytes: &Bytes) -> Result<BTreeSet<NodeId>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let count = reader.count(8)?;
    let node = |reader: &mut Reader| {
        let node = u16::try_from(reader.u64()?).map_err(|_| DecodeError::Invalid("node"))?;
        Ok(NodeId(node))
    };
    let nodes = (0..count).map(|_| node(&mut reader)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(nodes)
}

/// Encodes the positions of several logs.
pub(crate) fn encode_positions(positions: &[Position]) -> Bytes {
    let mut out = begin(4 + 40 * positions.len());
    out.put_u32(positions.len() as u32);
    for position in positions {
        out.put_u16(position.group.0);
        put_vote(&mut out, &position.vote);
        put_option_log_id(&mut out, position.last.as_ref());
        out.put_u8(u8::from(position.may_lead));
    }
    out.freeze()
}

/// Decodes the positions of several logs.
pub(crate) fn decode_positions(bytes: &Bytes) -> Result<Vec<Position>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let count = reader.count(21)?;
    let mut positions = Vec::with_capacity(count);
    for _ in 0..count {
        let (group, vote) = (GroupId(reader.u16()?), reader.vote()?);
        let last = reader.option_log_id()?;
        positions.push(Position { group, vote, last, may_lead: reader.flag()? });
    }
    reader.end()?;
    Ok(positions)
}
