//! Files of received snapshots on a simulated disk. Bytes that are not synced may be lost in a
//! crash, and so may a file whose folder is not synced.

use super::{Disk, Operation, chance::Chance, state::State};
use crate::{StorageError, engine::Output};
use std::{
    collections::BTreeMap,
    io::{self, Write},
};

/// All files, by folder and name.
#[derive(Default)]
pub(super) struct Files(BTreeMap<(String, &'static str), Content>);

#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    /// Number of synced bytes.
    synced: usize,
    /// True if its directory entry is synced.
    named: bool,
}

impl Files {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of files that were lost or truncated.
    pub(super) fn crash(&mut self, chance: &mut Chance) -> usize {
        let mut losses = 0;
        self.0.retain(|_, file| {
            let kept = file.synced + chance.up_to(file.bytes.len() - file.synced);
            let stays = file.named || chance.once_in(2);
            losses += usize::from(!stays || kept < file.bytes.len());
            file.bytes.truncate(kept);
            (file.synced, file.named) = (kept, true);
            stays
        });
        losses
    }
}

/// A folder, as one process sees it.
#[derive(Clone)]
pub(crate) struct SimulatedFolder {
    disk: Disk,
    life: u64,
    name: String,
}

impl SimulatedFolder {
    pub(super) fn new(disk: Disk, life: u64, name: String) -> Self {
        Self { disk, life, name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn create(&self, file: &'static str) -> io::Result<SimulatedFile> {
        self.change(Operation::Write, |state, name| {
            state.files.0.insert((name, file), Content::default());
            Ok(())
        })?;
        Ok(SimulatedFile { folder: self.clone(), file })
    }

    pub(crate) fn read(&self, file: &'static str) -> io::Result<Vec<u8>> {
        self.change(Operation::Read, |state, name| {
            let found = state.files.0.get(&(name, file)).ok_or(io::ErrorKind::NotFound)?;
            Ok(found.bytes.clone())
        })
    }

    pub(crate) fn has(&self, file: &'static str) -> bool {
        self.disk.lock().files.0.contains_key(&(self.name.clone(), file))
    }

    pub(crate) fn remove(&self, file: &'static str) -> io::Result<()> {
        self.change(Operation::Write, |state, name| {
            state.files.0.remove(&(name, file)).map(drop).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    pub(crate) fn sync_names(&self) -> io::Result<()> {
        self.change(Operation::Sync, |state, name| {
            let own = state.files.0.iter_mut().filter(|((folder, _), _)| *folder == name);
            own.for_each(|(_, file)| file.named = true);
            Ok(())
        })
    }

    /// A dead process removes nothing any more.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        if state.life == self.life {
            state.files.0.retain(|(folder, _), _| *folder != self.name);
        }
        Ok(())
    }

    fn change<T>(
        &self,
        operation: Operation,
        change: impl FnOnce(&mut State, String) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.disk.lock();
        state.step(self.life, operation).map_err(io::Error::other)?;
        change(&mut state, self.name.clone())
    }
}

/// A file that is being written.
pub(crate) struct SimulatedFile {
    folder: SimulatedFolder,
    file: &'static str,
}

impl Write for SimulatedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = self.file;
        self.folder.change(Operation::Write, |state, name| {
            let found = state.files.0.get_mut(&(name, file)).ok_or(io::ErrorKind::NotFound)?;
            found.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for SimulatedFile {
    fn sync(&mut self) -> io::Result<()> {
        let file = self.file;
        self.folder.change(Operation::Sync, |state, name| {
            let found = state.files.0.get_mut(&(name, file)).ok_or(io::ErrorKind::NotFound)?;
            found.synced = found.bytes.len();
            Ok(())
        })
    }
}

/// The error of a file operation, as callers of the engine get it.
pub(super) fn unreadable(error: io::Error) -> StorageError {
    crate::engine::file("cannot ingest a table of a snapshot")(error)
}
