//! Bodies of connection-bound queues: in memory up to a budget of the node, above it in nameless
//! files that are never synced and end with the process (DESIGN §6).
//!
//! Because the files have no names, a start has nothing to remove.

use bytes::Bytes;
use quorate_storage::StoredMessage;
use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt, path::PathBuf};

/// Bytes after which a new file is begun. A file's space is free again when its last body has been
/// dropped.
const FILE_BYTES: u64 = 64 << 20;
/// A body up to this size is copied when it is kept: it may be a small part of a shared batch.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// The place of a body.
#[derive(Debug)]
pub(crate) enum Kept {
    Memory(Bytes),
    File { file: u64, offset: u64, len: usize },
}

impl Kept {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Memory(body) => body.len(),
            Self::File { len, .. } => *len,
        }
    }
}

/// The place for bodies. A body that is no longer needed must be given back to free its space.
#[derive(Debug)]
pub(crate) struct Bodies {
    folder: PathBuf,
    exclusive_memory_bytes: usize,
    memory_bytes: usize,
    files: BTreeMap<u64, SpillFile>,
    last: u64,
    /// The last write failed, and the failure has been logged.
    failing: bool,
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    written: u64,
    bodies: u64,
}

impl Bodies {
    /// Keeps so many bytes in memory, and the rest in files of `folder`'s file system.
    pub(crate) fn new(folder: PathBuf, exclusive_memory_bytes: usize) -> Self {
        let files = BTreeMap::new();
        Self { folder, exclusive_memory_bytes, memory_bytes: 0, files, last: 0, failing: false }
    }

    /// Bytes of the bodies in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Stores a body. A body that cannot be written to disk stays in memory: nothing is lost, and
    /// the memory alarm bounds it.
    pub(crate) fn keep(&mut self, body: &Bytes) -> Kept {
        if self.memory_bytes + body.len() > self.exclusive_memory_bytes {
            match self.write(body) {
                Ok(kept) => {
                    self.failing = false;
                    return kept;
                }
                Err(error) if !self.failing => {
                    self.failing = true;
                    tracing::error!(
                        %error, folder = %self.folder.display(),
                        "cannot write bodies of exclusive queues to disk; keeping them in memory"
                    );
                }
                Err(_) => {}
            }
        }
        self.memory_bytes += body.len();
        let copied = body.len() <= COPIED_BYTES_MAX;
        Kept::Memory(if copied { Bytes::copy_from_slice(body) } else { body.clone() })
    }

    /// Reads a body; unknown if the disk cannot be read now.
    pub(crate) fn read(&self, kept: &Kept) -> StoredMessage {
        let (file, offset, len) = match kept {
            Kept::Memory(body) => return StoredMessage::Here(body.clone()),
            Kept::File { file, offset, len } => (file, *offset, *len),
        };
        let mut body = vec![0; len];
        let Some(file) = self.files.get(file) else { return StoredMessage::Absent };
        match file.file.read_exact_at(&mut body, offset) {
            Ok(()) => StoredMessage::Here(body.into()),
            Err(error) => {
                tracing::error!(
                    %error, "cannot read a message body of an exclusive queue from disk"
                );
                StoredMessage::Unknown
            }
        }
    }

    /// Drops a body that is no longer needed.
    pub(crate) fn forget(&mut self, kept: Kept) {
        match kept {
            Kept::Memory(body) => self.memory_bytes -= body.len(),
            Kept::File { file, .. } => {
                let Some(entry) = self.files.get_mut(&file) else { return };
                entry.bodies -= 1;
                if entry.bodies == 0 {
                    self.files.remove(&file);
                }
            }
        }
    }

    fn write(&mut self, body: &Bytes) -> io::Result<Kept> {
        if self.files.get(&self.last).is_none_or(|file| file.written >= FILE_BYTES) {
            let file = tempfile::tempfile_in(&self.folder)?;
            self.last += 1;
            self.files.insert(self.last, SpillFile { file, written: 0, bodies: 0 });
        }
        let Some(entry) = self.files.get_mut(&self.last) else {
            return Err(io::Error::other("the file that was just begun is not there"));
        };
        let offset = entry.written;
        entry.file.write_all_at(body, offset)?;
        entry.written += body.len() as u64;
        entry.bodies += 1;
        Ok(Kept::File { file: self.last, offset, len: body.len() })
    }
}

#[cfg(test)]
mod tests;
