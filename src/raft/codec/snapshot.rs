//! Steps of sending a snapshot, and answers that are one index.

use super::{
    DecodeError,
    wire::{Reader, begin, put_log_id, put_vote},
};
use crate::type_config::{LogId, Vote};
use bytes::{BufMut, Bytes};
use quorate_rpc::Payload;
use quorate_types::LogIndex;

const BEGIN: u8 = 0;
const CHUNK: u8 = 1;
const END: u8 = 2;

/// One step of sending a snapshot.
pub(crate) enum SnapshotStep {
    /// A snapshot begins.
    Begin {
        /// Number of the transfer.
        transfer: u64,
        /// The leader's vote.
        vote: Vote,
        /// Last entry that the snapshot contains.
        applied: LogId,
        /// Approximate number of bytes to be sent.
        bytes: u64,
        /// The metadata that the leader's checkpoint stored with it.
        meta: Bytes,
    },
    /// The next bytes of the snapshot.
    Chunk {
        /// Number of the transfer, chosen by its sender.
        transfer: u64,
        /// Index of the chunk, from 0.
        number: u64,
        /// The bytes of this chunk.
        bytes: Bytes,
    },
    /// All chunks were sent: the snapshot is to be installed.
    End {
        /// Number of the transfer, chosen by its sender.
        transfer: u64,
        /// The leader's vote.
        vote: Vote,
        /// Number of chunks that were sent.
        chunks: u64,
    },
}

/// Encodes the beginning of a snapshot.
pub(crate) fn encode_snapshot_begin(
    transfer: u64,
    vote: &Vote,
    applied: &LogId,
    bytes: u64,
    meta: &Bytes,
) -> Bytes {
    let mut out = begin(60 + meta.len());
    out.put_u8(BEGIN);
    out.put_u64(transfer);
    put_vote(&mut out, vote);
    put_log_id(&mut out, applied);
    out.put_u64(bytes);
    out.put_slice(meta);
    out.freeze()
}

/// Encodes a chunk; its bytes are not copied.
pub(crate) fn encode_snapshot_chunk(transfer: u64, number: u64, bytes: Bytes) -> Payload {
    let mut head = begin(17);
    head.put_u8(CHUNK);
    head.put_u64(transfer);
    head.put_u64(number);
    [head.freeze(), bytes].into_iter().collect()
}

/// Encodes the end of a snapshot.
pub(crate) fn encode_snapshot_end(transfer: u64, vote: &Vote, chunks: u64) -> Bytes {
    let mut out = begin(40);
    out.put_u8(END);
    out.put_u64(transfer);
    put_vote(&mut out, vote);
    out.put_u64(chunks);
    out.freeze()
}

/// Decodes one step.
pub(crate) fn decode_snapshot_step(bytes: &Bytes) -> Result<SnapshotStep, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let step = reader.u8()?;
    let transfer = reader.u64()?;
    match step {
        BEGIN => {
            let (vote, applied, bytes) = (reader.vote()?, reader.log_id()?, reader.u64()?);
            Ok(SnapshotStep::Begin { transfer, vote, applied, bytes, meta: reader.rest() })
        }
        CHUNK => {
            let number = reader.u64()?;
            Ok(SnapshotStep::Chunk { transfer, number, bytes: reader.rest() })
        }
        END => {
            let (vote, chunks) = (reader.vote()?, reader.u64()?);
            reader.end()?;
            Ok(SnapshotStep::End { transfer, vote, chunks })
        }
        _ => Err(DecodeError::Invalid("step of a snapshot")),
    }
}

/// Encodes a log index, the answer to a request for a read index.
pub(crate) fn encode_log_index(index: LogIndex) -> Bytes {
    let mut out = begin(8);
    out.put_u64(index.0);
    out.freeze()
}

/// Decodes the answer to a request for a read index.
pub(crate) fn decode_log_index(bytes: &Bytes) -> Result<LogIndex, DecodeError> {
    let mut reader = Reader::begin(bytes)?;
    let index = LogIndex(reader.u64()?);
    reader.end()?;
    Ok(index)
}
