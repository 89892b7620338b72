//! Keys: big-endian, the group first, then the queue, so that each group's and each queue's
//! records are one range.
//!
//! - `log`: group, index
//! - `raft`: group, kind
//! - `heads`, `bodies`: group, queue, level, index
//! - `state`, `catalog`: group, 0 for the checkpoint's own record, or 1 and a record's key

use super::{DecodeError, cursor::Cursor};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{GroupId, Home, Level, LogIndex, NodeId, QueueId};

/// Bytes of a queue id in a key.
pub(crate) const QUEUE_KEY_BYTES: usize = 19;

/// Bytes of a run's key.
pub(crate) const RUN_KEY_BYTES: usize = 2 + QUEUE_KEY_BYTES + 1 + 8;

/// Identifies a run within its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RunKey {
    pub(crate) queue: QueueId,
    pub(crate) level: Level,
    pub(crate) index: LogIndex,
}

/// The kinds of records in column family `raft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RaftRecord {
    Vote = 0,
    Committed = 1,
    Purged = 2,
    /// A snapshot's install has begun (STO 6).
    Install = 3,
    /// The last replica of the group that the node has had (MEM 9).
    Replica = 4,
}

pub(crate) fn log_key(group: GroupId, index: LogIndex) -> [u8; 10] {
    let mut key = [0; 10];
    let (head, tail) = key.split_at_mut(2);
    head.copy_from_slice(&group.0.to_be_bytes());
    tail.copy_from_slice(&index.0.to_be_bytes());
    key
}

/// Index of a `log` key of that group.
pub(crate) fn log_index(group: GroupId, key: &[u8]) -> Option<LogIndex> {
    let index = key.strip_prefix(&group.0.to_be_bytes())?;
    Some(LogIndex(u64::from_be_bytes(index.try_into().ok()?)))
}

pub(crate) fn raft_key(group: GroupId, record: RaftRecord) -> [u8; 3] {
    let [high, low] = group.0.to_be_bytes();
    [high, low, record as u8]
}

pub(crate) fn put_queue_key(queue: QueueId, out: &mut BytesMut) {
    match queue.home {
        Home::Group(group) => {
            out.put_u8(0);
            out.put_u16(group.0);
        }
        Home::Node(node) => {
            out.put_u8(1);
            out.put_u16(node.0);
        }
    }
    out.put_u64(queue.index);
    out.put_u64(queue.position);
}

pub(crate) fn queue_key(cursor: &mut Cursor<'_>) -> Result<QueueId, DecodeError> {
    let kind = cursor.u8()?;
    let id = u16::from_be_bytes(cursor.array()?);
    let home = match kind {
        0 => Home::Group(GroupId(id)),
        1 => Home::Node(NodeId(id)),
        _ => return Err(DecodeError::Invalid("home")),
    };
    let index = u64::from_be_bytes(cursor.array()?);
    Ok(QueueId { home, index, position: u64::from_be_bytes(cursor.array()?) })
}

pub(crate) fn run_key(group: GroupId, run: RunKey) -> BytesMut {
    let mut key = BytesMut::with_capacity(RUN_KEY_BYTES);
    key.put_u16(group.0);
    put_queue_key(run.queue, &mut key);
    key.put_u8(run.level.0);
    key.put_u64(run.index.0);
    key
}

/// The run of a key of that group.
pub(crate) fn decode_run_key(group: GroupId, key: &[u8]) -> Result<RunKey, DecodeError> {
    let rest = key.strip_prefix(&group.0.to_be_bytes()).ok_or(DecodeError::Invalid("group"))?;
    let mut cursor = Cursor::new(rest);
    let queue = queue_key(&mut cursor)?;
    let level = Level(cursor.u8()?);
    let index = LogIndex(u64::from_be_bytes(cursor.array()?));
    cursor.end()?;
    Ok(RunKey { queue, level, index })
}

/// Key of the checkpoint's own record: the applied entry, and the data of the raft crate.
pub(crate) fn checkpoint_key(group: GroupId) -> [u8; 3] {
    let [high, low] = group.0.to_be_bytes();
    [high, low, 0]
}

/// Key of a state record.
pub(crate) fn state_key(group: GroupId, record: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(3 + record.len());
    key.put_u16(group.0);
    key.put_u8(1);
    key.put_slice(record);
    key.freeze()
}

/// First key of a group, in any column family.
pub(crate) fn group_start(group: GroupId) -> Vec<u8> {
    group.0.to_be_bytes().to_vec()
}

/// First key after a group: no key has as many bytes of ones.
pub(crate) fn group_end(group: GroupId) -> Vec<u8> {
    match group.0.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![0xff; 64],
    }
}
