//! Replaces a group's state by a received snapshot (STO 6): a synced mark, removal of the group's
//! runs, ingestion of the table files, one synced batch with state, applied index and removal of
//! the mark. A start that finds the mark repeats this. `installer` does it while the node runs.

use crate::{
    EntryId, ReceivedSnapshot, RunRange, StorageError,
    batch::{Work, corrupt, range_keys, state_family},
    checkpoint,
    codec::{
        self, DecodeError,
        cursor::{Cursor, put_bool, put_bytes},
        key::{self, RaftRecord, RunKey},
    },
    engine::{Engine, Family, OpenBatch, WriteBatch, file},
    message_reader::first_run_from,
    snapshot::{self, Files, read_state},
};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_types::{GroupId, Home, Level, LogIndex, QueueId};

const VERSION: u8 = 1;

/// An install to be carried out.
pub(crate) struct Install {
    group: GroupId,
    applied: EntryId,
    meta: Bytes,
    /// Entries above the snapshot stay in the log, and their runs too.
    keeps_tail: bool,
    files: Files,
}

/// Called before each write to RocksDB that is not the log writer's; tests crash there.
pub(crate) type BeforeWrite<'a> = &'a dyn Fn() -> Result<(), StorageError>;

/// How a batch is written and synced: by the log writer, or directly at a start.
pub(crate) type Put<'a> = &'a dyn Fn(WriteBatch) -> Result<(), StorageError>;

impl Install {
    pub(crate) fn new(snapshot: ReceivedSnapshot, keeps_tail: bool) -> Self {
        let ReceivedSnapshot { group, applied, meta, files } = snapshot;
        Self { group, applied, meta, keeps_tail, files }
    }

    /// The synced mark at its beginning: from then on the install must be completed.
    pub(crate) fn mark(&self) -> Work {
        let key = Bytes::copy_from_slice(&key::raft_key(self.group, RaftRecord::Install));
        Work::Put { family: Family::Raft, key, value: self.encode() }
    }

    /// Keeps the files for the next start, which repeats the install if it finds the mark and removes them
    /// otherwise.
    pub(crate) fn keep_files(&mut self) {
        self.files.keep(true);
    }

    /// Removes the files: the mark is gone.
    pub(crate) fn remove_files(mut self) {
        self.files.keep(false);
    }

    /// All steps after the mark; repeatable. The long steps run beside other writes: only the two
    /// batches and the short ingestion delay them.
    pub(crate) fn carry_out(
        &self,
        engine: &Engine,
        put: Put<'_>,
        before_write: BeforeWrite<'_>,
    ) -> Result<(), StorageError> {
        let mut batch = engine.batch(0)?;
        self.clear(engine, &mut batch)?;
        put(batch.finish())?;
        for (family, table) in
            [(Family::Heads, snapshot::HEADS), (Family::Bodies, snapshot::BODIES)]
        {
            if self.files.folder.has(table) {
                before_write()?;
                // A memtable that overlaps the tables would be flushed while all writes wait.
                engine.flush(family)?;
                engine.ingest(family, &self.files.folder, table)?;
            }
        }
        put(self.last_batch(engine)?)
    }

    /// Removes the group's runs up to the snapshot's index, of every queue that is on disk.
    fn clear(&self, engine: &Engine, batch: &mut OpenBatch<'_>) -> Result<(), StorageError> {
        let families = [Family::Heads, Family::Bodies];
        if !self.keeps_tail {
            for family in families {
                let (start, end) = (key::group_start(self.group), key::group_end(self.group));
                batch.delete_range(family, start, end);
            }
            return Ok(());
        }
        let first = QueueId { home: Home::Group(GroupId(0)), index: 0, position: 0 };
        let mut from = RunKey { queue: first, level: Level(0), index: LogIndex(0) };
        while let Some(found) = first_run_from(engine, self.group, from)? {
            let RunKey { queue, level, .. } = found;
            let (first, last) = (LogIndex(0), self.applied.index);
            let (start, end) = range_keys(self.group, &RunRange { queue, level, first, last });
            for family in families {
                batch.delete_range(family, &start, &end);
            }
            // After every run of this queue and level.
            from = RunKey { queue, level, index: LogIndex(u64::MAX) };
            if found == from {
                break;
            }
        }
        Ok(())
    }

    fn last_batch(&self, engine: &Engine) -> Result<WriteBatch, StorageError> {
        let mut batch = engine.batch(0)?;
        let (start, end) = (key::group_start(self.group), key::group_end(self.group));
        let state = state_family(self.group);
        batch.delete_range(state, &start, &end);
        read_state(&self.files.folder, |key, value| batch.put(state, key, value))?;
        let header = checkpoint::encode_header(self.applied, &self.meta);
        batch.put(state, key::checkpoint_key(self.group), header);
        if !self.keeps_tail {
            batch.delete_range(Family::Log, &start, &end);
            let purged = codec::log::encode_id(self.applied);
            batch.put(Family::Raft, key::raft_key(self.group, RaftRecord::Purged), purged);
        }
        batch.delete(Family::Raft, key::raft_key(self.group, RaftRecord::Install));
        Ok(batch.finish())
    }

    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        codec::log::put_id(self.applied, &mut out);
        put_bool(&mut out, self.keeps_tail);
        put_bytes(&mut out, &self.meta);
        put_bytes(&mut out, self.files.folder.name());
        out.freeze()
    }

    fn decode(engine: &Engine, group: GroupId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        cursor.version(VERSION)?;
        let applied = codec::log::id(&mut cursor)?;
        let keeps_tail = cursor.bool()?;
        let meta = Bytes::copy_from_slice(cursor.bytes()?);
        let name = cursor.string()?;
        cursor.end()?;
        let mut files = Files::of(engine.folder(&name));
        // Until all installs are repeated; then the start removes the whole directory.
        files.keep(true);
        Ok(Self { group, applied, meta, keeps_tail, files })
    }
}

/// At a start: repeats unfinished installs, and removes all files of snapshots.
pub(crate) fn recover(engine: &Engine) -> Result<(), StorageError> {
    let mut unfinished = Vec::new();
    let mut raft = engine.scan(Family::Raft, &[0xff; 8])?;
    raft.seek_to_first();
    while let Some((key, value)) = raft.item() {
        if let [high, low, kind] = *key
            && kind == RaftRecord::Install as u8
        {
            let group = GroupId(u16::from_be_bytes([high, low]));
            let install = Install::decode(engine, group, value)
                .map_err(corrupt("mark of an install", LogIndex(0)))?;
            unfinished.push(install);
        }
        raft.next();
    }
    raft.check()?;
    for install in unfinished {
        tracing::info!(
            group = %install.group, "repeating an interrupted installation of a snapshot"
        );
        install.carry_out(engine, &|batch| engine.write_synced(batch), &|| Ok(()))?;
    }
    engine.remove_folders().map_err(file("cannot remove old snapshots"))
}
