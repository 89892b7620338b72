//! The files of a received snapshot, on the real or a simulated disk.

use crate::simulated::SimulatedFolder;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The folder of one received snapshot.
pub(crate) enum Folder {
    Disk(PathBuf),
    Simulated(SimulatedFolder),
}

/// A file that is being written.
pub(crate) trait Output: Write + Send + Sync {
    /// Waits until its bytes are on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

impl Output for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A file that is being read, and its length.
pub(crate) type Input = (Box<dyn Read>, u64);

/// Distinguishes the folders of one process; a start removes those of earlier processes.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Directory of received snapshots below the data directory.
fn parent(dir: &Path) -> PathBuf {
    dir.join("snapshots")
}

/// Removes the folders of all snapshots.
pub(super) fn remove_all(dir: &Path) -> io::Result<()> {
    ignore_missing(fs::remove_dir_all(parent(dir)))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Folder {
    pub(super) fn on_disk(dir: &Path, name: &str) -> Self {
        Self::Disk(parent(dir).join(name))
    }

    pub(super) fn new_on_disk(dir: &Path, name: &str) -> Self {
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
        Self::on_disk(dir, &format!("{name}-{process}-{number}"))
    }

    /// Its name below the directory of snapshots.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::Disk(dir) => dir.file_name().unwrap_or_default().as_encoded_bytes(),
            Self::Simulated(folder) => folder.name().as_bytes(),
        }
    }

    /// Creates a file, and the folder if it does not exist.
    pub(crate) fn create(&self, name: &'static str) -> io::Result<Box<dyn Output>> {
        match self {
            Self::Disk(dir) => {
                fs::create_dir_all(dir)?;
                Ok(Box::new(File::create(dir.join(name))?))
            }
            Self::Simulated(folder) => Ok(Box::new(folder.create(name)?)),
        }
    }

    pub(crate) fn open(&self, name: &'static str) -> io::Result<Input> {
        match self {
            Self::Disk(dir) => {
                let file = File::open(dir.join(name))?;
                let length = file.metadata()?.len();
                Ok((Box::new(file), length))
            }
            Self::Simulated(folder) => {
                let bytes = folder.read(name)?;
                let length = bytes.len() as u64;
                Ok((Box::new(io::Cursor::new(bytes)), length))
            }
        }
    }

    pub(crate) fn has(&self, name: &'static str) -> bool {
        match self {
            Self::Disk(dir) => dir.join(name).exists(),
            Self::Simulated(folder) => folder.has(name),
        }
    }

    pub(crate) fn remove(&self, name: &'static str) -> io::Result<()> {
        match self {
            Self::Disk(dir) => fs::remove_file(dir.join(name)),
            Self::Simulated(folder) => folder.remove(name),
        }
    }

    /// Syncs the directory entries of its files, and its own.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        match self {
            // The folder, the directory of snapshots, the data directory.
            Self::Disk(dir) => dir.ancestors().take(3).try_for_each(sync_directory),
            Self::Simulated(folder) => folder.sync_names(),
        }
    }

    /// Removes the folder with its contents.
    pub(crate) fn remove_all(&self) -> io::Result<()> {
        match self {
            Self::Disk(dir) => ignore_missing(fs::remove_dir_all(dir)),
            Self::Simulated(folder) => folder.remove_all(),
        }
    }
}
