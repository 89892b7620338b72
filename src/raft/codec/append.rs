//! Appends, heartbeats and their answers.

use super::{
    DecodeError,
    membership::{from_log_entry, to_log_entry},
    wire::{Reader, begin, put_log_id, put_option_log_id, put_vote},
};
use crate::type_config::{LogId, TypeConfig, Vote};
use bytes::{BufMut, Bytes};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use quorate_rpc::Payload;
use quorate_storage::codec::log;

/// An append as it is sent: the number of its stream, and openraft's request.
pub(crate) struct AppendRequest {
    /// Number of the leader's stream of appends. The appends of a stream are answered in order, and
    /// none after a refused one.
    pub(crate) stream: u64,
    /// The request that openraft made.
    pub(crate) request: AppendEntriesRequest<TypeConfig>,
}

/// Encodes an append; bodies are not copied.
pub(crate) fn encode_append(stream: u64, request: &AppendEntriesRequest<TypeConfig>) -> Payload {
    let mut head = begin(80);
    head.put_u64(stream);
    put_vote(&mut head, &request.vote);
    put_option_log_id(&mut head, request.prev_log_id.as_ref());
    put_option_log_id(&mut head, request.leader_commit.as_ref());
    head.put_u32(request.entries.len() as u32);
    let mut payload = Payload::new();
    for entry in &request.entries {
        let pieces = log::encode_wire(&to_log_entry(entry));
        head.put_u32(pieces.iter().map(Bytes::len).sum::<usize>() as u32);
        payload.push(head.split().freeze());
        pieces.into_iter().for_each(|piece| payload.push(piece));
    }
    payload.push(head.freeze());
    payload
}

/// Decodes an append; commands and bodies are slices of `bytes`.
pub(crate) fn decode_append(bytes: &Bytes) -> Result<AppendRequest, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let stream = reader.u64()?;
    let vote = reader.vote()?;
    let prev_log_id = reader.option_log_id()?;
    let leader_commit = reader.option_log_id()?;
    let count = reader.count(4)?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let bytes = reader.u32()? as usize;
        entries.push(from_log_entry(log::decode_wire(&reader.bytes(bytes)?)?)?);
    }
    reader.end()?;
    let request = AppendEntriesRequest { vote, prev_log_id, entries, leader_commit };
    Ok(AppendRequest { stream, request })
}

/// Encodes a heartbeat, which is an append without entries.
pub(crate) fn encode_heartbeat(request: &AppendEntriesRequest<TypeConfig>) -> Bytes {
    let mut out = begin(60);
    put_vote(&mut out, &request.vote);
    put_option_log_id(&mut out, request.prev_log_id.as_ref());
    put_option_log_id(&mut out, request.leader_commit.as_ref());
    out.freeze()
}

/// Decodes a heartbeat.
pub(crate) fn decode_heartbeat(
    bytes: &Bytes,
) -> Result<AppendEntriesRequest<TypeConfig>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let vote = reader.vote()?;
    let prev_log_id = reader.option_log_id()?;
    let leader_commit = reader.option_log_id()?;
    reader.end()?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries: Vec::new(), leader_commit })
}

/// Encodes a leader's notice to a follower that lacks entries it has acknowledged: its vote, and the last
/// entry acknowledged to it.
pub(crate) fn encode_lost(vote: &Vote, acknowledged: &LogId) -> Bytes {
    let mut out = begin(40);
    put_vote(&mut out, vote);
    put_log_id(&mut out, acknowledged);
    out.freeze()
}

/// Decodes a leader's notice to a follower that lacks entries it has acknowledged.
pub(crate) fn decode_lost(bytes: &Bytes) -> Result<(Vote, LogId), DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let told = (reader.vote()?, reader.log_id()?);
    reader.end()?;
    Ok(told)
}

const MATCHING: u8 = 0;
const CONFLICT: u8 = 1;
const HIGHER_VOTE: u8 = 2;

/// Encodes the answer to an append or a heartbeat.
pub(crate) fn encode_append_answer(answer: &StreamAppendResult<TypeConfig>) -> Bytes {
    let mut out = begin(20);
    match answer {
        Ok(matching) => {
            out.put_u8(MATCHING);
            put_option_log_id(&mut out, matching.as_ref());
        }
        Err(StreamAppendError::Conflict(conflict)) => {
            out.put_u8(CONFLICT);
            put_log_id(&mut out, conflict);
        }
        Err(StreamAppendError::HigherVote(vote)) => {
            out.put_u8(HIGHER_VOTE);
            put_vote(&mut out, vote);
        }
    }
    out.freeze()
}

/// Decodes the answer to an append or a heartbeat.
pub(crate) fn decode_append_answer(
    bytes: &Bytes,
) -> Result<StreamAppendResult<TypeConfig>, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let answer: Result<Option<LogId>, StreamAppendError<TypeConfig>> = match reader.u8()? {
        MATCHING => Ok(reader.option_log_id()?),
        CONFLICT => Err(StreamAppendError::Conflict(reader.log_id()?)),
        HIGHER_VOTE => {
            let vote: Vote = reader.vote()?;
            Err(StreamAppendError::HigherVote(vote))
        }
        _ => return Err(DecodeError::Invalid("answer to an append")),
    };
    reader.end()?;
    Ok(answer)
}
