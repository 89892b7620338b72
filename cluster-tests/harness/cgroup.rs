//! Limits of a process by the kernel's control groups (version 1).

use std::fs;
use std::path::{Path, PathBuf};

/// Where the groups of version 1 are.
const ROOT: &str = "/sys/fs/cgroup";
/// How names of groups begin; the id of our process follows.
const PREFIX: &str = "quorate-";
/// The period in which processor time is counted, in microseconds.
const PERIOD_US: u32 = 100_000;

/// What a process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many of a hundred parts of one processor.
    Processor {
        /// The parts.
        percent: u32,
    },
    /// So much memory beyond what it has. The kernel kills a process that wants more.
    Memory {
        /// Bytes.
        bytes: u64,
    },
}

impl Limit {
    fn controller(self) -> &'static str {
        match self {
            Self::Processor { .. } => "cpu",
            Self::Memory { .. } => "memory",
        }
    }

    /// The files to write, in their order.
    fn files(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Processor { percent } => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", (PERIOD_US / 100 * percent).to_string()),
            ],
            Self::Memory { bytes } => vec![("memory.limit_in_bytes", bytes.to_string())],
        }
    }

    /// The file that counts how often the limit was met, and the name of the count.
    fn counter(self) -> (&'static str, &'static str) {
        match self {
            Self::Processor { .. } => ("cpu.stat", "nr_throttled"),
            Self::Memory { .. } => ("memory.oom_control", "oom_kill"),
        }
    }
}

/// A group that holds one process; when it is dropped, the process is in our group.
#[derive(Debug)]
pub struct Group {
    folder: PathBuf,
    limit: Limit,
}

impl Group {
    /// Puts a process under a limit.
    ///
    /// # Errors
    /// What this machine lacks for it.
    pub fn join(pid: u32, limit: Limit) -> Result<Self, String> {
        let controller = Path::new(ROOT).join(limit.controller());
        if !controller.join("cgroup.procs").exists() {
            return Err(format!("no control groups of version 1 in {}", controller.display()));
        }
        let folder = controller.join(format!("{PREFIX}{}-{pid}", std::process::id()));
        let named = |error: std::io::Error| format!("{}: {error}", folder.display());
        fs::create_dir(&folder).map_err(named)?;
        let group = Self { folder: folder.clone(), limit };
        for (file, value) in limit.files() {
            fs::write(folder.join(file), value).map_err(named)?;
        }
        fs::write(folder.join("cgroup.procs"), pid.to_string()).map_err(named)?;
        Ok(group)
    }

    /// How often the limit was met so far.
    #[must_use]
    pub fn hits(&self) -> u64 {
        let (file, name) = self.limit.counter();
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let count = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
        text.lines().find_map(count).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        empty(&self.folder, self.limit.controller());
    }
}

/// Takes away the groups that runs have left that were killed; names them.
#[must_use]
pub fn clean() -> Vec<String> {
    let mut cleaned = Vec::new();
    for controller in ["cpu", "memory"] {
        let entries =
            fs::read_dir(Path::new(ROOT).join(controller)).into_iter().flatten().flatten();
        for folder in entries.map(|entry| entry.path()) {
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            let owner = name.as_ref().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                empty(&folder, controller);
                cleaned.push(format!("control group {}", folder.display()));
            }
        }
    }
    cleaned
}

/// Moves a group's processes to our own group, and takes it away.
fn empty(folder: &Path, controller: &str) {
    let ours = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then(|| path.to_owned())
    };
    let path = ours.lines().find_map(path).unwrap_or_default();
    let home = Path::new(ROOT).join(controller).join(path.trim_start_matches('/'));
    let left = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in left.lines() {
        // It may have ended meanwhile.
        let _ = fs::write(home.join("cgroup.procs"), pid);
    }
    let _ = fs::remove_dir(folder);
}
