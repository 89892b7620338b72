//! The data directory: checks that Quorate made it, in this format, for this node, and that no
//! other process uses it.

use crate::OpenError;
use parking_lot::Mutex;
use quorate_types::{MachineVersion, NodeId};
use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Format of a new directory.
const FORMAT: u32 = 2;

/// Format of a directory whose mark names the version of the replicated machine. Binaries that know
/// the first version only know the format 2 only, so that they refuse such a directory (MEM 15).
const FORMAT_OF_MACHINE: u32 = 3;

/// File that identifies a directory of Quorate: one line, `quorate format 2 node 3` or
/// `quorate format 3 node 3 machine 2`.
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

/// A directory that this process has claimed.
pub(crate) struct Claim {
    /// Its lock, which is held as long as the file is open.
    pub(crate) lock: File,
    /// Version of the replicated machine in its mark.
    pub(crate) machine: MachineVersion,
}

/// Creates the directory if it does not exist, checks it, and takes its lock.
pub(crate) fn claim(dir: &Path, node: NodeId) -> Result<Claim, OpenError> {
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
    let machine = match &mark {
        Some(mark) => check(dir, mark, node)?,
        None => {
            check_empty(dir)?;
            MachineVersion::FIRST
        }
    };
    let lock = lock(dir)?;
    if mark.is_none() {
        write_mark(dir, node, machine).map_err(failed(dir, "cannot write the file QUORATE"))?;
    }
    Ok(Claim { lock, machine })
}

/// The node that a directory belongs to. Nothing is changed.
///
/// # Errors
/// There is no directory that this binary can use.
pub fn owner(dir: &Path) -> Result<NodeId, OpenError> {
    let mark = match fs::read_to_string(dir.join(MARK)) {
        Ok(mark) => mark,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::Absent { path: dir.to_owned() });
        }
        Err(error) => return Err(failed(dir, "cannot read the file QUORATE")(error)),
    };
    read_mark(dir, &mark).map(|(owner, _)| owner)
}

/// The version of the replicated machine in the mark of a directory of this node.
fn check(dir: &Path, mark: &str, node: NodeId) -> Result<MachineVersion, OpenError> {
    let (owner, machine) = read_mark(dir, mark)?;
    if owner != node {
        let (path, found, node) = (dir.to_owned(), owner.0, node.0);
        return Err(OpenError::OtherNode { path, found, node });
    }
    Ok(machine)
}

/// The node and the version of the replicated machine in the mark, if this binary knows both.
fn read_mark(dir: &Path, mark: &str) -> Result<(NodeId, MachineVersion), OpenError> {
    let path = || dir.to_owned();
    let words: Vec<&str> = mark.split_whitespace().collect();
    let (format, owner, machine) = match *words.as_slice() {
        ["quorate", "format", format, "node", owner] => (format, owner, None),
        ["quorate", "format", format, "node", owner, "machine", machine] => {
            (format, owner, Some(machine))
        }
        // A later format may say more.
        ["quorate", "format", format, ..] => {
            let found = format.to_owned();
            return Err(OpenError::Format { path: path(), found, known: FORMAT_OF_MACHINE });
        }
        _ => return Err(OpenError::NotOurs { path: path() }),
    };
    let known = if machine.is_some() { FORMAT_OF_MACHINE } else { FORMAT };
    if format != known.to_string() {
        let found = format.to_owned();
        return Err(OpenError::Format { path: path(), found, known });
    }
    let (Ok(owner), Ok(machine)) =
        (owner.parse::<u16>(), machine.map_or(Ok(MachineVersion::FIRST.0), str::parse))
    else {
        return Err(OpenError::NotOurs { path: path() });
    };
    let (machine, newest) = (MachineVersion(machine), MachineVersion::NEWEST);
    if machine > newest {
        return Err(OpenError::Machine { path: path(), found: machine, newest });
    }
    Ok((NodeId(owner), machine))
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

fn write_mark(dir: &Path, node: NodeId, machine: MachineVersion) -> io::Result<()> {
    let new = dir.join(format!("{MARK}.new"));
    let mut file = File::create(&new)?;
    if machine == MachineVersion::FIRST {
        writeln!(file, "quorate format {FORMAT} node {node}")?;
    } else {
        writeln!(file, "quorate format {FORMAT_OF_MACHINE} node {node} machine {machine}")?;
    }
    file.sync_all()?;
    fs::rename(&new, dir.join(MARK))?;
    File::open(dir)?.sync_all()
}

/// Keeps the version of the replicated machine in the mark of the directory up to date, so that an
/// older binary refuses the directory before it touches anything (MEM 15).
#[derive(Debug)]
pub struct MachineMark {
    /// A simulated disk has no directory.
    dir: Option<PathBuf>,
    node: NodeId,
    marked: Mutex<MachineVersion>,
}

impl MachineMark {
    pub(crate) fn new(dir: Option<&Path>, node: NodeId, marked: MachineVersion) -> Self {
        Self { dir: dir.map(Path::to_owned), node, marked: Mutex::new(marked) }
    }

    /// Writes the version durably, unless the mark names it or a later one already.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn raise(&self, to: MachineVersion) -> Result<(), OpenError> {
        let mut marked = self.marked.lock();
        if to <= *marked {
            return Ok(());
        }
        if let Some(dir) = &self.dir {
            write_mark(dir, self.node, to).map_err(failed(dir, "cannot write the file QUORATE"))?;
        }
        *marked = to;
        Ok(())
    }
}

fn failed(dir: &Path, action: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::File { path: dir.to_owned(), action, source }
}
