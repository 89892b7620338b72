//! openraft's log of one group, on top of the storage crate: one FIFO and one sync for all groups.

use crate::{
    codec::{
        decode_committed, decode_vote, encode_committed, encode_vote, from_log_entry,
        into_log_entry,
    },
    standing::Standing,
    type_config::{Entry, LogId, TypeConfig, Vote, entry_id, log_id},
    written::written,
};
use futures::{Stream, stream};
use openraft::{
    LogState, OptionalSend, RaftLogReader, entry::RaftEntry, storage::IOFlushed,
    storage::RaftLogStorage,
};
use quorate_storage::{Done, GroupStore, StorageError};
use quorate_types::{LogIndex, PlantedBug};
use std::{
    fmt::Debug,
    io,
    ops::{Bound, RangeBounds},
    sync::Arc,
};

/// Approximate maximum of bytes of entries in one append to a follower; a single entry may be
/// larger.
pub(crate) const APPEND_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of entries that are read at a time for applying.
const APPLY_READ_BYTES: usize = 2 * 1024 * 1024;

/// One group's log. Cheap to clone: openraft's readers are clones.
#[derive(Clone)]
pub(crate) struct LogStore {
    store: GroupStore,
    standing: Arc<Standing>,
}

impl LogStore {
    pub(crate) fn new(store: GroupStore, standing: Arc<Standing>) -> Self {
        Self { store, standing }
    }

    /// Entries from `first` to before `end`, approximately `bytes_max` bytes of them.
    fn read(&self, first: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let entries = self.store.read(LogIndex(first), LogIndex(end), bytes_max);
        let decoded = entries.map_err(io::Error::other)?.into_iter().map(from_log_entry);
        decoded.collect::<Result<_, _>>().map_err(io::Error::other)
    }

    /// The part of a range that the log has: first index, and end.
    fn clamp(&self, range: &impl RangeBounds<u64>) -> (u64, u64) {
        let state = self.store.log_state();
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        let begin = state.last_purged.map_or(0, |id| id.index.0 + 1);
        let behind = state.last.map_or(0, |id| id.index.0 + 1);
        (first.max(begin), end.min(behind))
    }
}

/// openraft's callback. Without a call its group would hang silently, so a drop reports an error.
struct Flushed(Option<IOFlushed<TypeConfig>>);

impl Flushed {
    fn notify(mut self, result: Result<(), StorageError>) {
        if let Some(callback) = self.0.take() {
            callback.io_completed(result.map_err(io::Error::other));
        }
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback.io_completed(Err(io::Error::other("the log writer dropped an append")));
        }
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (mut first, end) = self.clamp(&range);
        let mut entries = Vec::new();
        while first < end {
            let read = self.read(first, end, usize::MAX)?;
            match read.last() {
                Some(last) => first = last.index() + 1,
                // The log may begin after the requested index, but it has no gaps.
                None if entries.is_empty() => first += 1,
                None => return Err(io::Error::other(format!("log entry {first} is missing"))),
            }
            entries.extend(read);
        }
        Ok(entries)
    }

    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (first, end) = self.clamp(&range);
        let log = self.clone();
        let chunks = stream::iter(Chunks { log, first, end });
        futures::StreamExt::flat_map(chunks, |chunk| {
            let (entries, error) = match chunk {
                Ok(entries) => (entries, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            stream::iter(entries.into_iter().map(Ok).chain(error))
        })
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        let vote = self.store.vote();
        vote.map(|bytes| decode_vote(&bytes)).transpose().map_err(io::Error::other)
    }

    /// openraft's hook for bounding an append in bytes. Entries that were purged meanwhile are left
    /// out.
    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        let (first, end) = self.clamp(&(start..end));
        if first != start || first >= end {
            return Ok(Vec::new());
        }
        self.read(first, end, APPEND_BYTES_MAX)
    }
}

/// A reader of the log in chunks, so that a long log is applied without having all of it in memory.
struct Chunks {
    log: LogStore,
    first: u64,
    end: u64,
}

impl Iterator for Chunks {
    type Item = io::Result<Vec<Entry>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.first >= self.end {
            return None;
        }
        let read = self.log.read(self.first, self.end, APPLY_READ_BYTES);
        self.first = match read.as_ref().map(|entries| entries.last().map(Entry::index)) {
            Ok(Some(last)) => last + 1,
            Ok(None) => {
                let missing = io::Error::other(format!("log entry {} is missing", self.first));
                self.first = self.end;
                return Some(Err(missing));
            }
            Err(_) => self.end,
        };
        Some(read)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let state = self.store.log_state();
        Ok(LogState {
            last_purged_log_id: state.last_purged.map(log_id),
            last_log_id: state.last.map(log_id),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    /// If the vote is not this node's any more, it stops leading at once, before the vote is on
    /// disk.
    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.standing.vote_saved(vote);
        if PlantedBug::VoteNotSynced.is_in() {
            self.store.save_vote(encode_vote(vote), Box::new(drop));
            return Ok(());
        }
        written(|done| self.store.save_vote(encode_vote(vote), done))
            .await
            .map_err(io::Error::other)
    }

    /// Stored with the next write (STO 1).
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.store.save_committed(encode_committed(committed.as_ref()));
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        match self.store.committed() {
            Some(bytes) => decode_committed(&bytes).map_err(io::Error::other),
            None => Ok(None),
        }
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().map(into_log_entry).collect();
        let flushed = Flushed(Some(callback));
        self.store.append(entries, Box::new(move |result| flushed.notify(result)));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let after = last.map(|id| id.index);
        let committed = self.read_committed().await?.map(|id| id.index);
        assert!(committed <= after, "STO 5: what is committed stays: {committed:?}, {after:?}");
        written(|done| self.store.truncate_after(after.map(LogIndex), done))
            .await
            .map_err(io::Error::other)
    }

    /// Not awaited: the FIFO keeps the order, and a purge that a crash undoes is repeated.
    async fn purge(&mut self, through: LogId) -> io::Result<()> {
        let done: Done = Box::new(|result| {
            if let Err(error) = result {
                tracing::error!("cannot purge the log: {error}");
            }
        });
        #[cfg(test)]
        tests::checkpoint_first(&self.store, &through);
        self.store.purge_through(entry_id(&through), done);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{
        machine::{GroupMachine, MachineError},
        replica::{Replica, StateMachine},
        sink::GroupSink,
        snapshot::{self, Snapshot, SnapshotData},
        type_config::{SnapshotMeta, StoredMembership},
    };
    use bytes::Bytes;
    use openraft::{
        storage::{EntryResponder, RaftStateMachine},
        testing::log::{StoreBuilder, Suite},
    };
    use quorate_storage::{Checkpoint, CommandEntry, Database, EntryId, Loaded, Options};
    use quorate_types::{GroupId, Incarnation, NodeId, Term};
    use tempfile::TempDir;

    /// The store purges only up to a checkpoint (STO 3), but the test suite purges without one.
    pub(super) fn checkpoint_first(store: &GroupStore, through: &LogId) {
        let meta = crate::codec::encode_stored_membership(&StoredMembership::default());
        let checkpoint = Checkpoint::new(entry_id(through), meta, Vec::new());
        store.checkpoint(checkpoint, Box::new(|_| {}));
    }

    pub(crate) struct Deaf;

    impl GroupSink for Deaf {
        fn became_leader(&self, _: GroupId, _: Term) {}
        fn lost_leadership(&self, _: GroupId) {}
        fn leader_changed(&self, _: GroupId, _: Term, _: Option<NodeId>) {}
        fn installed(&self, _: GroupId, _: EntryId) {}
    }

    /// A machine without state, whose applies may fail.
    pub(crate) struct Nothing {
        pub(crate) fails: bool,
    }

    impl GroupMachine for Nothing {
        fn load(&mut self, _: Loaded) -> Result<(), MachineError> {
            Ok(())
        }
        fn apply(&mut self, id: EntryId, _: &CommandEntry, _: bool) -> Result<(), MachineError> {
            let reason = || "a read failed".to_owned();
            let failed = || MachineError::Apply { index: id.index, reason: reason() };
            if self.fails { Err(failed()) } else { Ok(()) }
        }
        fn advance(&mut self, _: EntryId) {}
        fn dirty_bytes(&self) -> usize {
            0
        }
        fn checkpoint(
            &mut self,
            applied: EntryId,
            meta: Bytes,
        ) -> Result<Checkpoint, MachineError> {
            Ok(Checkpoint::new(applied, meta, Vec::new()))
        }
        fn clear(&mut self) {}
        fn digest(&self) -> u64 {
            0
        }
    }

    /// A replica that makes a checkpoint for every requested snapshot, since there is no timer
    /// here.
    struct Eager(StateMachine, GroupStore);

    impl RaftStateMachine<TypeConfig> for Eager {
        type SnapshotData = SnapshotData;
        type SnapshotBuilder = snapshot::Builder;

        async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
            self.0.applied_state().await
        }

        async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
        where
            Strm: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
        {
            self.0.apply(entries).await
        }

        async fn get_snapshot_builder(&mut self) -> snapshot::Builder {
            let replica = &self.0.0;
            replica.checkpoint();
            let applied = replica.applied_index().map(|index| index.0);
            let durable = || replica.durable().and_then(|meta| Some(meta.last_log_id?.index));
            while durable() != applied {
                tokio::task::yield_now().await;
            }
            self.0.get_snapshot_builder().await
        }

        async fn install_snapshot(
            &mut self,
            meta: &SnapshotMeta,
            snapshot: SnapshotData,
        ) -> io::Result<()> {
            let SnapshotData::Outgoing(mut reader) = snapshot else { return Ok(()) };
            let (applied, bytes) = (reader.applied(), reader.meta().clone());
            let mut download = self.1.download(applied, reader.bytes(), bytes).unwrap();
            while let Some(chunk) = reader.next_chunk().unwrap() {
                download.chunk(&chunk).unwrap();
            }
            let received = SnapshotData::Received(Box::new(download.complete().unwrap()));
            self.0.install_snapshot(meta, received).await
        }

        async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
            match self.0.0.durable() {
                Some(_) => snapshot::outgoing(&self.1),
                None => Ok(None),
            }
        }
    }

    struct Builder;

    impl StoreBuilder<TypeConfig, LogStore, Eager, (TempDir, Arc<Database>)> for Builder {
        async fn build(
            &self,
        ) -> Result<((TempDir, Arc<Database>), LogStore, Eager), openraft::StorageError<TypeConfig>>
        {
            let dir = TempDir::new().unwrap();
            let options = Options::new(NodeId(1), Incarnation(1));
            let database = Database::open(dir.path(), options).unwrap();
            let store = database.group(GroupId(1)).unwrap();
            let sink = Arc::new(Deaf);
            let standing = Standing::new(GroupId(1), NodeId(1), sink.clone(), None, Arc::default());
            let replica = Replica::load(
                store.clone(),
                Box::new(Nothing { fails: false }),
                Arc::clone(&standing),
                sink,
                Arc::new(|_, _| {}),
                Arc::default(),
                1 << 20,
            );
            let log = LogStore::new(store.clone(), standing);
            Ok(((dir, database), log, Eager(StateMachine(replica.unwrap()), store)))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_log_passes_the_suite_of_openraft() {
        Suite::test_all(Builder).await.unwrap();
    }
}
