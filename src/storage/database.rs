//! The node's database: its directory, its identity, its groups.

use crate::{
    DatabaseMemory, DatabaseStats, Done, GroupStore, LogWriter, OpenError, Options, StorageError,
    batch::{Work, corrupt},
    codec::{
        DecodeError,
        cursor::Cursor,
        key::{self, RaftRecord},
    },
    directory::{self, MachineMark},
    engine::{Engine, Family, RocksEngine},
    epoch::EpochRecord,
    install,
    installer::Installer,
    log_reader,
    memory::{GroupMemory, Log},
    reclaim::Reclaim,
    run_cache::RunCache,
    simulated::{Disk, SimulatedEngine},
    synced::{SyncedFile, SyncedKeeper},
    wal,
};
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use quorate_types::{
    BootNumber, ClusterId, Epoch, GroupId, Incarnation, LogIndex, MachineVersion, NodeId,
};
use std::{
    collections::HashMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The identity of a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Id of the node that the directory belongs to.
    pub node: NodeId,
    /// Drawn when the directory was created.
    pub incarnation: Incarnation,
    /// Cluster of the node, once it belongs to one.
    pub cluster: Option<ClusterId>,
    /// The cluster's epoch, as far as the directory knows it (MEM 14).
    pub epoch: Epoch,
    /// The last resort that begins the epoch was interrupted: the directory serves nobody (MEM 14).
    pub is_recovering: bool,
    /// This process's boot number. Durable before it is returned.
    pub boot: BootNumber,
    /// Boot numbers of the directory's last openings, the oldest first.
    pub former: Vec<BootNumber>,
}

impl Identity {
    fn of(node: NodeId, incarnation: Incarnation, cluster: Option<ClusterId>) -> Self {
        let (epoch, is_recovering) = (Epoch::default(), false);
        let (boot, former) = (BootNumber(0), Vec::new());
        Self { node, incarnation, cluster, epoch, is_recovering, boot, former }
    }
}

const VERSION: u8 = 1;
const IDENTITY: &[u8] = b"identity";
const CLUSTER: &[u8] = b"cluster";
const BOOTS: &[u8] = b"boots";

/// Number of openings of the directory that are remembered.
const BOOTS_MAX: usize = 64;

/// The node's database. Dropped, it closes.
pub struct Database {
    pub(crate) engine: Arc<Engine>,
    pub(crate) writer: LogWriter,
    installer: Arc<Installer>,
    reclaim: Arc<Reclaim>,
    /// A simulated disk has none.
    synced: Option<SyncedKeeper>,
    mark: Arc<MachineMark>,
    pub(crate) cache: Arc<RunCache>,
    tail_cache_bytes: usize,
    identity: Mutex<Identity>,
    pub(crate) groups: Mutex<HashMap<GroupId, GroupStore>>,
}

impl Database {
    /// Opens or creates the directory, unless it has lost data that had been synced; repeats
    /// installs that a crash left unfinished (STO 6).
    ///
    /// # Errors
    /// As [`OpenError`].
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        let claim = directory::claim(dir, options.node)?;
        let failed = |source| OpenError::Storage { path: dir.to_owned(), source };
        let (engine, synced) = open_whole(dir, claim.lock, &options).map_err(failed)?;
        let mark = MachineMark::new(Some(dir), options.node, claim.machine);
        Self::over(engine, Some(synced), mark, dir, &options)
    }

    /// Opens the database on a simulated disk. Such a database has no threads: [`Database::step`]
    /// does its work.
    ///
    /// # Errors
    /// As [`OpenError`].
    pub fn open_simulated(disk: &Disk, options: &Options) -> Result<Arc<Self>, OpenError> {
        let path = PathBuf::from("simulated");
        match SimulatedEngine::open(disk) {
            Some(engine) => {
                let mark = MachineMark::new(None, options.node, MachineVersion::FIRST);
                Self::over(Engine::Simulated(engine), None, mark, &path, options)
            }
            None => Err(OpenError::InUse { path }),
        }
    }

    fn over(
        engine: Engine,
        synced: Option<SyncedFile>,
        mark: MachineMark,
        dir: &Path,
        options: &Options,
    ) -> Result<Arc<Self>, OpenError> {
        let failed = |source| OpenError::Storage { path: dir.to_owned(), source };
        let engine = Arc::new(engine);
        let mut identity = identify(&engine, options).map_err(failed)?;
        if identity.node != options.node {
            let (found, node) = (identity.node.0, options.node.0);
            return Err(OpenError::OtherNode { path: dir.to_owned(), found, node });
        }
        let EpochRecord { epoch, is_recovering } = EpochRecord::read(&engine).map_err(failed)?;
        (identity.epoch, identity.is_recovering) = (epoch, is_recovering);
        (identity.boot, identity.former) = begin_boot(&engine, options).map_err(failed)?;
        install::recover(&engine).map_err(failed)?;
        let reclaim = Arc::new(Reclaim::start(engine.clone()).map_err(failed)?);
        let writer = LogWriter::start(engine.clone(), reclaim.clone(), options).map_err(failed)?;
        let installer = Installer::start(engine.clone(), writer.clone(), options);
        let synced = synced.map(|synced| SyncedKeeper::start(engine.clone(), synced));
        let synced = synced.transpose().map_err(failed)?;
        Ok(Arc::new(Self {
            engine,
            writer,
            installer: Arc::new(installer.map_err(failed)?),
            reclaim,
            synced,
            mark: Arc::new(mark),
            cache: Arc::new(RunCache::new(options.run_cache_bytes)),
            tail_cache_bytes: options.tail_cache_bytes,
            identity: Mutex::new(identity),
            groups: Mutex::default(),
        }))
    }

    /// The identity of the directory.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Stores the cluster to which the node belongs.
    pub fn set_cluster(&self, cluster: ClusterId, done: Done) {
        self.identity.lock().cluster = Some(cluster);
        let mut value = BytesMut::with_capacity(9);
        value.put_u8(VERSION);
        value.put_u64(cluster.0);
        self.put_identity(CLUSTER, value.freeze(), done);
    }

    /// Stores a record of the directory itself.
    pub(crate) fn put_identity(&self, key: &'static [u8], value: Bytes, done: Done) {
        let (family, key) = (Family::Identity, Bytes::from_static(key));
        let refused = self.writer.push(Work::Put { family, key, value }, Some(done));
        if let Some((done, error)) = refused {
            done(Err(error));
        }
    }

    /// The directory has that epoch from now on.
    pub(crate) fn note_epoch(&self, epoch: Epoch, is_recovering: bool) {
        let mut identity = self.identity.lock();
        (identity.epoch, identity.is_recovering) = (epoch, is_recovering);
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
        let (writer, installer) = (self.writer.clone(), self.installer.clone());
        let store = GroupStore::new(engine.clone(), writer, installer, memory);
        store.purge_what_ends_below_the_checkpoint();
        Ok(store)
    }

    /// The directory's mark, which names the version of the replicated machine (MEM 15).
    #[must_use]
    pub fn machine_mark(&self) -> &Arc<MachineMark> {
        &self.mark
    }

    /// The log writer.
    #[must_use]
    pub fn writer(&self) -> &LogWriter {
        &self.writer
    }

    /// On a simulated disk: carries out one cycle of the log writer or one install, on the caller's
    /// thread, and reports the ends of the writes. False: nothing waits. No [`Done`] may call it.
    pub fn step(&self) -> bool {
        self.writer.step() || self.installer.step()
    }

    /// On a simulated disk: calls `wake` when there is work after [`Database::step`] has reported
    /// that there was none. Only the first `wake` is used.
    pub fn when_there_is_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.writer.set_wake(wake);
    }

    /// On a simulated disk: reclaims disk space once, as a node does every 10 s.
    ///
    /// # Errors
    /// A failed read.
    pub fn step_reclaim(&self) -> Result<(), StorageError> {
        self.reclaim.step()
    }

    #[cfg(test)]
    pub(crate) fn reclaim(&self) -> &Reclaim {
        &self.reclaim
    }

    /// Statistics since the start.
    #[must_use]
    pub fn stats(&self) -> DatabaseStats {
        DatabaseStats {
            writer: self.writer.stats(),
            bodies_read: self.cache.missed(),
            log_files: self.engine.log_files(),
        }
    }

    /// Memory held now.
    #[must_use]
    pub fn memory(&self) -> DatabaseMemory {
        DatabaseMemory { run_cache: self.cache.bytes() as u64, ..self.engine.memory() }
    }

    /// Writes waiting writes and ends the database's threads; later writes are refused. Must be
    /// called before the process exits, and not from a [`Done`].
    pub fn close(&self) {
        self.installer.close();
        self.writer.close();
        self.reclaim.close();
        if let Some(synced) = &self.synced {
            synced.close();
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

/// Opens the database if it has lost nothing that had been synced. Damage that RocksDB would skip
/// or remove is checked first.
fn open_whole(
    dir: &Path,
    lock: File,
    options: &Options,
) -> Result<(Engine, SyncedFile), StorageError> {
    let synced = SyncedFile::open(dir)?;
    let db = dir.join("db");
    synced.check_manifest(&db)?;
    wal::check(&db)?;
    let engine = RocksEngine::open(dir, lock, options, synced.is_new())?;
    synced.check_sequence(&engine)?;
    Ok((Engine::Rocks(engine), synced))
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
/// that a directory that has lost its data has lost its identity too (DESIGN §8).
fn identify(engine: &Engine, options: &Options) -> Result<Identity, StorageError> {
    let wrong = corrupt("identity", LogIndex(0));
    let Some(bytes) = engine.get(Family::Identity, IDENTITY)? else {
        let (node, incarnation) = (options.node, options.incarnation);
        let mut value = BytesMut::with_capacity(11);
        value.put_u8(VERSION);
        value.put_u16(node.0);
        value.put_u64(incarnation.0);
        let mut batch = engine.batch(0)?;
        batch.put(Family::Identity, IDENTITY, value);
        engine.write_synced(batch.finish())?;
        return Ok(Identity::of(node, incarnation, None));
    };
    let (node, incarnation) = decode_identity(&bytes).map_err(&wrong)?;
    let cluster = engine
        .get(Family::Identity, CLUSTER)?
        .map(|bytes| decode_cluster(&bytes).map_err(&wrong))
        .transpose()?;
    Ok(Identity::of(node, incarnation, cluster))
}

/// Draws this process's boot number and stores it after those of the directory's earlier openings,
/// so that the processes of one directory are ordered, and a process whose directory was set back
/// is recognized by the numbers that it lacks. A process that crashes directly after this has used
/// a number for nothing, which does no harm.
fn begin_boot(
    engine: &Engine,
    options: &Options,
) -> Result<(BootNumber, Vec<BootNumber>), StorageError> {
    let wrong = corrupt("boot numbers", LogIndex(0));
    let before = engine.get(Family::Identity, BOOTS)?;
    let before = before.map(|bytes| decode_boots(&bytes).map_err(&wrong)).transpose()?;
    let mut former = before.unwrap_or_default();
    former.drain(..former.len().saturating_sub(BOOTS_MAX));
    let opened = former.last().map_or(0, |last| last.opened()).saturating_add(1);
    let boot = BootNumber::of_opening(opened, options.chance);
    let mut value = BytesMut::with_capacity(1 + 8 * (former.len() + 1));
    value.put_u8(VERSION);
    former.iter().chain([&boot]).for_each(|boot| value.put_u64(boot.0));
    let mut batch = engine.batch(0)?;
    batch.put(Family::Identity, BOOTS, value);
    engine.write_synced(batch.finish())?;
    Ok((boot, former))
}

fn decode_boots(bytes: &[u8]) -> Result<Vec<BootNumber>, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let mut boots = Vec::new();
    while cursor.remaining() > 0 {
        boots.push(BootNumber(u64::from_be_bytes(cursor.array()?)));
    }
    Ok(boots)
}

fn decode_identity(bytes: &[u8]) -> Result<(NodeId, Incarnation), DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    let node = NodeId(u16::from_be_bytes(cursor.array()?));
    Ok((node, Incarnation(u64::from_be_bytes(cursor.array()?))))
}

fn decode_cluster(bytes: &[u8]) -> Result<ClusterId, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    cursor.version(VERSION)?;
    Ok(ClusterId(u64::from_be_bytes(cursor.array()?)))
}
