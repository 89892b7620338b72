//! Disks that fail and clocks that are wrong: an LD_PRELOAD library for the faults of calls, and a file
//! system of its own whose power is cut.

use super::{Node, Options};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What a node's disk or wall clock does; by its place in the control page of `faults/calls.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// Syncs fail with this error number.
    SyncFails = 0,
    /// Syncs do not return, for as long as it is 1.
    SyncHangs = 1,
    /// Syncs succeed and do nothing.
    SyncLies = 2,
    /// Writes fail with this error number.
    WriteFails = 3,
    /// Reads fail with this error number.
    ReadFails = 4,
    /// The file system reports this many MiB of free space.
    FreeMib = 5,
    /// Syncs take this many milliseconds longer.
    SyncMs = 6,
    /// The wall clock is this many seconds ahead. A negative number (it is behind) is given as its two's
    /// complement.
    WallSeconds = 8,
    /// The wall clock runs too fast by this percentage, from when it is set. A negative number (it runs
    /// too slow) is given as its two's complement.
    WallPercent = 9,
}

/// Place of the number of calls that a fault has changed.
const HITS: u64 = 7;
/// The highest id of a node, those that join a cluster later included: each has an id of its own.
const NODES_MAX: u64 = 64;

const CALLS: &str = include_str!("../faults/calls.c");
const POWER: &str = include_str!("../faults/power.c");

/// The error number of `EIO`.
pub const EIO: u32 = 5;
/// The error number of `ENOSPC`.
pub const ENOSPC: u32 = 28;

/// The library, compiled, and a control page for each node.
#[derive(Debug)]
pub struct CallFaults {
    folder: TempDir,
}

impl CallFaults {
    /// Compiles the library.
    ///
    /// # Panics
    /// Without a C compiler.
    #[must_use]
    pub fn prepare() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        compile(CALLS, &folder.path().join("calls.so"), &["-shared", "-fPIC"]);
        for node in 1..=NODES_MAX {
            fs::write(folder.path().join(format!("node-{node}")), [0; 4096]).expect("a page");
        }
        Self { folder }
    }

    /// Options with which nodes' disks and clocks obey.
    #[must_use]
    pub fn on(&self, mut options: Options) -> Options {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        options.env.extend([
            ("LD_PRELOAD".to_owned(), path("calls.so")),
            ("CALL_FAULTS".to_owned(), path("node-{node}")),
            ("CALL_FAULTS_UNDER".to_owned(), "/node-{node}/".to_owned()),
        ]);
        options
    }

    /// From now on a node's disk or clock does this; with 0, no longer.
    ///
    /// # Panics
    /// When the node has no page.
    pub fn set(&self, node: u64, fault: CallFault, value: u32) {
        let page =
            File::options().write(true).open(self.folder.path().join(format!("node-{node}")));
        let written =
            page.and_then(|page| page.write_all_at(&value.to_ne_bytes(), 4 * fault as u64));
        written.expect("the node's page");
    }
}

impl CallFaults {
    /// How many calls of a node's processes faults have changed so far.
    ///
    /// # Panics
    /// When the node has no page.
    #[must_use]
    pub fn hits(&self, node: u64) -> u32 {
        let page = File::open(self.folder.path().join(format!("node-{node}")));
        let mut hits = [0; 4];
        let read = page.and_then(|page| page.read_exact_at(&mut hits, 4 * HITS));
        read.expect("the node's page");
        u32::from_ne_bytes(hits)
    }
}

/// Compiles a program of C; its text is left beside it.
fn compile(text: &str, to: &Path, flags: &[&str]) {
    let source = to.with_extension("c");
    fs::write(&source, text).expect("the source is written");
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-O2", "-o"]).arg(to).args(flags).arg(source).status();
    assert!(status.expect("a C compiler").success(), "cc failed");
}

/// How names of folders of file systems begin; the id of our process follows.
const PREFIX: &str = "quorate-disk-";

/// Takes away the file systems that runs have left that were killed; names them.
#[must_use]
pub fn clean() -> Vec<String> {
    let mut cleaned = Vec::new();
    for folder in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            unmount(&folder.path().join(ROOT));
            // What is still mounted stays, and is tried again next time.
            if fs::remove_dir_all(folder.path()).is_ok() {
                cleaned.push(format!("disk {}", folder.path().display()));
            }
        }
    }
    cleaned
}

fn unmount(root: &Path) {
    // Not mounted if it could not be made. Its loop device goes with the mount.
    let _ = run(Command::new("umount").arg("--lazy").arg(root));
}

/// Where a file system is mounted in its folder.
const ROOT: &str = "root";

/// A file system in a file, whose power can be cut.
#[derive(Debug)]
pub struct LoopDisk {
    folder: TempDir,
}

impl LoopDisk {
    /// Makes and mounts one.
    ///
    /// # Errors
    /// What this machine lacks for it: root, loop devices, ext4.
    pub fn make(mib: u64) -> Result<Self, String> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        compile(POWER, &folder.path().join("power"), &[]);
        let disk = Self { folder };
        let image = File::create(disk.image()).and_then(|image| image.set_len(mib << 20));
        image.map_err(|error| error.to_string())?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image()))?;
        fs::create_dir(disk.root()).map_err(|error| error.to_string())?;
        disk.mount()?;
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.path().join(ROOT)
    }

    /// Makes it the disk of a node that has not been started.
    ///
    /// # Panics
    /// When the node has a data directory already.
    pub fn take(&self, node: &Node) {
        let name = node.data_dir().file_name().expect("the name of a folder");
        let folder = self.root().join(name);
        fs::create_dir(&folder).expect("a folder on the disk");
        std::os::unix::fs::symlink(folder, node.data_dir()).expect("a link to it");
    }

    fn mount(&self) -> Result<(), String> {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.root()))
    }

    /// Simulates a power loss, then mounts the file system again. The processes that use it must have
    /// been killed before.
    ///
    /// # Panics
    /// When it is still in use.
    pub fn cut_power(&self) {
        let cut = run(Command::new(self.folder.path().join("power")).arg(self.root()))
            .and_then(|()| run(Command::new("umount").arg(self.root())))
            .and_then(|()| self.mount());
        cut.expect("power is cut and comes back");
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        unmount(&self.root());
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{command:?}: {}: {said}", output.status))
}
