//! The engine of a database on a simulated disk.

use super::{
    Disk, Operation, Record,
    files::{SimulatedFolder, unreadable},
    trees::{TreeScan, Trees},
};
use crate::{StorageError, engine::Family};
use bytes::Bytes;
use quorate_types::PlantedBug;
use std::{io, time::Duration};

/// One process's view of a disk, until it is killed or the power is lost.
pub(crate) struct SimulatedEngine {
    disk: Disk,
    life: u64,
}

impl SimulatedEngine {
    /// `None`: a database is open on the disk already.
    pub(crate) fn open(disk: &Disk) -> Option<Self> {
        let mut state = disk.lock();
        if state.open {
            return None;
        }
        Some(Self { disk: disk.clone(), life: state.begin() })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.disk.lock().life != self.life
    }

    pub(crate) fn range_bytes(
        &self,
        family: Family,
        start: &[u8],
        end: &[u8],
    ) -> Result<u64, StorageError> {
        Ok(self.trees()?.range_bytes(family, start, end))
    }

    pub(crate) fn get(&self, family: Family, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let mut state = self.disk.lock();
        state.step(self.life, Operation::Read)?;
        Ok(state.live.get(family, key))
    }

    /// A failed read behaves as with RocksDB: the iterator ends, and returns the error when it is
    /// checked.
    pub(crate) fn scan(&self, family: Family, end: &[u8]) -> Result<TreeScan, StorageError> {
        let mut state = self.disk.lock();
        match state.step(self.life, Operation::Read) {
            Ok(()) => Ok(state.live.scan(family, end)),
            Err(error) => Ok(TreeScan::failing(error)),
        }
    }

    pub(crate) fn snapshot(&self) -> Result<Trees, StorageError> {
        self.trees()
    }

    fn trees(&self) -> Result<Trees, StorageError> {
        let mut state = self.disk.lock();
        state.step(self.life, Operation::Read)?;
        Ok(state.live.clone())
    }

    /// The power may be lost between the write and the sync.
    pub(crate) fn write_synced(&self, batch: Record) -> Result<(), StorageError> {
        let mut state = self.disk.lock();
        state.write(self.life, batch.into_bytes())?;
        if PlantedBug::WalSyncOff.is_in() {
            return Ok(());
        }
        state.sync(self.life)
    }

    pub(crate) fn ingest(
        &self,
        folder: &SimulatedFolder,
        table: &'static str,
    ) -> Result<(), StorageError> {
        let table = folder.read(table).map_err(unreadable)?;
        self.disk.lock().ingest(self.life, table.into())
    }

    pub(crate) fn sync_time(&self) -> Duration {
        self.disk.lock().sync_time
    }

    pub(crate) fn synced(&self) -> u64 {
        self.disk.lock().synced
    }

    pub(crate) fn new_folder(&self, name: &str) -> SimulatedFolder {
        let mut state = self.disk.lock();
        state.folders += 1;
        let name = format!("{name}-{}", state.folders);
        SimulatedFolder::new(self.disk.clone(), self.life, name)
    }

    pub(crate) fn folder(&self, name: &str) -> SimulatedFolder {
        SimulatedFolder::new(self.disk.clone(), self.life, name.to_owned())
    }

    pub(crate) fn remove_folders(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.step(self.life, Operation::Write).map_err(io::Error::other)?;
        state.files.clear();
        Ok(())
    }
}

impl Drop for SimulatedEngine {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.life == self.life {
            state.end();
        }
    }
}
