//! The data directory: checks that Quorate made it, in this format, for this node, and that no
//! other process uses it.

use crate::OpenError;
use quorate_types::NodeId;
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

/// Format that this version reads and writes.
const FORMAT: u32 = 2;

/// File that identifies a directory of Quorate: one line, `quorate format 2 node 3`.
const MARK: &str = "QUORATE";

const LOCK: &str = "LOCK";

/// Number of bytes that this process may still write to the file system.
///
/// # Errors
/// The error of the system.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let system = rustix::fs::statvfs(folder)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

/// Creates the directory if it does not exist, checks it, and takes its lock, which is held as long
/// as the file is open.
pub(crate) fn claim(dir: &Path, node: NodeId) -> Result<File, OpenError> {
    let mut builder = DirBuilder::new();
    builder
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed(dir, "cannot create the directory"))?;
    let mark = match fs::read_to_string(dir.join(MARK)) {
        Ok(mark) => Some(mark),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(dir, "cannot read the file QUORATE")(error)),
    };
    match &mark {
        Some(mark) => check(dir, mark, node)?,
        None => check_empty(dir)?,
    }
    let lock = lock(dir)?;
    if mark.is_none() {
        write_mark(dir, node).map_err(failed(dir, "cannot write the file QUORATE"))?;
    }
    Ok(lock)
}

fn check(dir: &Path, mark: &str, node: NodeId) -> Result<(), OpenError> {
    let path = || dir.to_owned();
    let words: Vec<&str> = mark.split_whitespace().collect();
    let &["quorate", "format", format, "node", owner] = words.as_slice() else {
        return Err(OpenError::NotOurs { path: path() });
    };
    if format != FORMAT.to_string() {
        let found = format.to_owned();
        return Err(OpenError::Format { path: path(), found, known: FORMAT });
    }
    match owner.parse::<u16>() {
        Ok(owner) if owner == node.0 => Ok(()),
        Ok(found) => Err(OpenError::OtherNode { path: path(), found, node: node.0 }),
        Err(_) => Err(OpenError::NotOurs { path: path() }),
    }
}

/// A new directory is empty, except for remains of an interrupted first open, or files of the file
/// system.
fn check_empty(dir: &Path) -> Result<(), OpenError> {
    let cannot_list = failed(dir, "cannot list the directory");
    for entry in fs::read_dir(dir).map_err(&cannot_list)? {
        let name = entry.map_err(&cannot_list)?.file_name();
        if name != LOCK && name != "lost+found" && name.to_str() != Some(&format!("{MARK}.new")) {
            return Err(OpenError::NotOurs { path: dir.to_owned() });
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, OpenError> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(LOCK))
        .map_err(failed(dir, "cannot open the file LOCK"))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(dir, "cannot lock the file LOCK")(error)),
    }
}

fn write_mark(dir: &Path, node: NodeId) -> io::Result<()> {
    let new = dir.join(format!("{MARK}.new"));
    let mut file = File::create(&new)?;
    writeln!(file, "quorate format {FORMAT} node {node}")?;
    file.sync_all()?;
    fs::rename(&new, dir.join(MARK))?;
    File::open(dir)?.sync_all()
}

fn failed(dir: &Path, action: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::File { path: dir.to_owned(), action, source }
}
