//! The encodings of all values that this crate stores or sends. Each value begins with a format
//! version. The storage crate encodes entries.

mod append;
mod election;
mod membership;
mod snapshot;
mod wire;

pub use quorate_storage::codec::DecodeError;

pub(crate) use append::{
    AppendRequest, decode_append, decode_append_answer, decode_heartbeat, decode_lost,
    encode_append, encode_append_answer, encode_heartbeat, encode_lost,
};
pub(crate) use election::{
    Position, decode_groups, decode_nodes, decode_positions, decode_transfer,
    decode_transfer_answer, decode_vote, decode_vote_answer, decode_vote_request, encode_groups,
    encode_nodes, encode_positions, encode_transfer, encode_transfer_answer, encode_vote,
    encode_vote_answer, encode_vote_request,
};
pub(crate) use membership::{
    decode_committed, decode_membership, decode_stored_membership, encode_committed,
    encode_membership, encode_stored_membership, from_log_entry, into_log_entry,
};
pub(crate) use snapshot::{
    SnapshotStep, decode_log_index, decode_snapshot_step, encode_log_index, encode_snapshot_begin,
    encode_snapshot_chunk, encode_snapshot_end,
};
