//! The node's database: its directory, its identity, its groups.

use crate::{
    DatabaseStats, Done, GroupStore, LogWriter, OpenError, Options, StorageError,
    batch::{Work, corrupt},
    codec::{
        DecodeError,
        cursor::Cursor,
        key::{self, RaftRecord},
    },
    directory,
    engine::{Engine, Family},
    install, log_reader,
    memory::{GroupMemory, Log},
    reclaim::Reclaim,
    run_cache::RunCache,
};
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use quorate_types::{ClusterId, GroupId, Incarnation, LogIndex, NodeId};
use std::{collections::HashMap, path::Path, sync::Arc};

/// Whose directory this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node.
    pub node: NodeId,
    /// Drawn when the directory was made.
    pub incarnation: Incarnation,
    /// Cluster that the node belongs to, once it does.
    pub cluster: Option<ClusterId>,
    /// How often the directory has been opened, this time included. Durable before it is given.
    pub opened: u32,
}

const VERSION: u8 = 1;
const IDENTITY: &[u8] = b"identity";
const CLUSTER: &[u8] = b"cluster";
const OPENED: &[u8] = b"opened";

/// The node's database. Dropped, it closes.
pub struct Database {
    engine: Arc<Engine>,
    writer: LogWriter,
    reclaim: Arc<Reclaim>,
    cache: Arc<RunCache>,
    tail_cache_bytes: usize,
    identity: Mutex<Identity>,
    groups: Mutex<HashMap<GroupId, GroupStore>>,
}

impl Database {
    /// Opens or makes the directory; does installs again that a crash left unfinished (STO 6).
    ///
    /// # Errors
    /// What [`OpenError`] names.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        let lock = directory::claim(dir, options.node)?;
        let failed = |source| OpenError::Storage { path: dir.to_owned(), source };
        let engine = Arc::new(Engine::open(dir, lock, &options).map_err(failed)?);
        let mut identity = identify(&engine, &options).map_err(failed)?;
        if identity.node != options.node {
            let (found, node) = (identity.node.0, options.node.0);
            return Err(OpenError::OtherNode { path: dir.to_owned(), found, node });
        }
        identity.opened = count_opening(&engine).map_err(failed)?;
        install::recover(&engine).map_err(failed)?;
        let reclaim = Arc::new(Reclaim::start(engine.clone()).map_err(failed)?);
        let writer = LogWriter::start(engine.clone(), reclaim.clone(), &options).map_err(failed)?;
        Ok(Arc::new(Self {
            engine,
            writer,
            reclaim,
            cache: Arc::new(RunCache::new(options.run_cache_bytes)),
            tail_cache_bytes: options.tail_cache_bytes,
            identity: Mutex::new(identity),
            groups: Mutex::default(),
        }))
    }

    /// Whose directory it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        *self.identity.lock()
    }

    /// Notes the cluster that the node belongs to.
    pub fn set_cluster(&self, cluster: ClusterId, done: Done) {
        self.identity.lock().cluster = Some(cluster);
        let mut value = BytesMut::with_capacity(9);
        value.put_u8(VERSION);
        value.put_u64(cluster.0);
        let (family, key) = (Family::Identity, Bytes::from_static(CLUSTER));
        let refused =
            self.writer.push(Work::Put { family, key, value: value.freeze() }, Some(done));
        if let Some((done, error)) = refused {
            done(Err(error));
        }
    }

    /// The store of one group; the same one for each call.
    ///
    /// # Errors
    /// A failed read.
    pub fn group(&self, group: GroupId) -> Result<GroupStore, StorageError> {
        let mut groups = self.groups.lock();
        if let Some(store) = groups.get(&group) {
            return Ok(store.clone());
        }
        let store = self.open_group(group)?;
        groups.insert(group, store.clone());
        Ok(store)
    }

    fn open_group(&self, group: GroupId) -> Result<GroupStore, StorageError> {
        let engine = &self.engine;
        let (state, checkpointed) = log_reader::ends(engine, group)?;
        let mut log = Log::opened(state, checkpointed);
        log.vote = raft_record(engine, group, RaftRecord::Vote)?;
        log.committed = raft_record(engine, group, RaftRecord::Committed)?;
        let cache = self.cache.clone();
        let memory = Arc::new(GroupMemory::new(group, cache, self.tail_cache_bytes, log));
        let store = GroupStore::new(engine.clone(), self.writer.clone(), memory);
        store.purge_what_ends_below_the_checkpoint();
        Ok(store)
    }

    /// The one writer.
    #[must_use]
    pub fn writer(&self) -> &LogWriter {
        &self.writer
    }

    #[cfg(test)]
    pub(crate) fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }

    /// What it has done since the start.
    #[must_use]
    pub fn stats(&self) -> DatabaseStats {
        DatabaseStats {
            writer: self.writer.stats(),
            run_cache_bytes: self.cache.bytes(),
            bodies_read: self.cache.missed(),
        }
    }

    /// Writes what waits and ends the database's threads; later writes are refused. To be called
    /// before the process exits, not from a [`Done`].
    pub fn close(&self) {
        self.writer.close();
        self.reclaim.close();
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

fn raft_record(
    engine: &Engine,
    group: GroupId,
    record: RaftRecord,
) -> Result<Option<Bytes>, StorageError> {
    let value = engine.get(Family::Raft, &key::raft_key(group, record))?;
    Ok(value.map(|value| Bytes::copy_from_slice(&value)))
}

/// Reads the identity, or writes it into a new database. It is in the database, not in a file, so
/// that a directory that lost its data has lost its identity too (DESIGN §8).
fn identify(engine: &Engine, options: &Options) -> Result<Identity, StorageError> {
    let wrong = corrupt("identity", LogIndex(0));
    let Some(octets) = engine.get(Family::Identity, IDENTITY)? else {
        let (node, incarnation) = (options.node, options.incarnation);
        let mut value = BytesMut::with_capacity(11);
        value.put_u8(VERSION);
        value.put_u16(node.0);
        value.put_u64(incarnation.0);
        let mut batch = rocksdb::WriteBatch::default();
        batch.put_cf(engine.family(Family::Identity)?, IDENTITY, value);
        engine.write_synced(batch)?;
        return Ok(Identity { node, incarnation, cluster: None, opened: 0 });
    };
    let (node, incarnation) = decode_identity(&octets).map_err(&wrong)?;
    let cluster = engine
        .get(Family::Identity, CLUSTER)?
        .map(|octets| decode_cluster(&octets).map_err(&wrong))
        .transpose()?;
    Ok(Identity { node, incarnation, cluster, opened: 0 })
}

/// Counts the openings of the directory, this one included: processes of one directory can be put
/// in order by it. One that crashes right behind this has counted for nothing, which is no harm.
fn count_opening(engine: &Engine) -> Result<u32, StorageError> {
    let wrong = corrupt("number of openings", LogIndex(0));
    let before = engine.get(Family::Identity, OPENED)?;
    let before = before.map(|octets| decode_opened(&octets).map_err(&wrong)).transpose()?;
    let opened = before.unwrap_or(0).saturating_add(1);
    let mut value = BytesMut::with_capacity(5);
    value.put_u8(VERSION);
    value.put_u32(opened);
    let mut batch = rocksdb::WriteBatch::default();
    batch.put_cf(engine.family(Family::Identity)?, OPENED, value);
    engine.write_synced(batch)?;
    Ok(opened)
}

fn decode_opened(octets: &[u8]) -> Result<u32, DecodeError> {
    let mut cursor = Cursor::new(octets);
    cursor.version(VERSION)?;
    Ok(u32::from_be_bytes(cursor.array()?))
}

fn decode_identity(octets: &[u8]) -> Result<(NodeId, Incarnation), DecodeError> {
    let mut cursor = Cursor::new(octets);
    cursor.version(VERSION)?;
    let node = NodeId(u16::from_be_bytes(cursor.array()?));
    Ok((node, Incarnation(u64::from_be_bytes(cursor.array()?))))
}

fn decode_cluster(octets: &[u8]) -> Result<ClusterId, DecodeError> {
    let mut cursor = Cursor::new(octets);
    cursor.version(VERSION)?;
    Ok(ClusterId(u64::from_be_bytes(cursor.array()?)))
}
