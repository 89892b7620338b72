//! The memory that this process may use: the machine's, or that of its cgroup if it is less.

use std::path::{Path, PathBuf};

/// The location and the names of a cgroup version's files.
struct Hierarchy {
    /// The controllers in lines of `/proc/self/cgroup`; empty for version 2.
    controllers: &'static str,
    /// The usual mount points.
    roots: &'static [&'static str],
    /// The file with the limit.
    file: &'static str,
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        controllers: "",
        roots: &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
        file: "memory.max",
    },
    Hierarchy {
        controllers: "memory",
        roots: &["/sys/fs/cgroup/memory"],
        file: "memory.limit_in_bytes",
    },
];

/// Bytes of memory that the process may use; if the system gives no answer, a limit that no machine
/// reaches.
pub(crate) fn memory_bytes() -> u64 {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    least(&read).unwrap_or(u64::MAX)
}

/// The minimum of the machine's memory and of the limits of the process's cgroup and those above
/// it.
fn least(read: &impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = limit_files(&groups).into_iter().filter_map(|path| limit(&read(&path)?));
    machine.into_iter().chain(limits).min()
}

/// `MemTotal` of `/proc/meminfo`, bytes.
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The limit in such a file; `None` for `max`, which means no limit.
fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Files that may limit the process, by `/proc/self/cgroup`: the cgroups above also limit it. In a
/// container the path may be the host's, while only the root exists.
fn limit_files(groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        for Hierarchy { controllers: name, roots, file } in &HIERARCHIES {
            if !controllers.split(',').any(|controller| controller == *name) {
                continue;
            }
            for root in *roots {
                let own = Path::new(path.trim_start_matches('/'));
                files.extend(own.ancestors().map(|group| Path::new(root).join(group).join(file)));
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const MEMINFO: &str = "MemTotal:       24683520 kB\nMemFree:        18960384 kB\n";

    fn least_of(files: &[(&str, &str)]) -> Option<u64> {
        let files: BTreeMap<_, _> =
            files.iter().map(|(path, text)| (Path::new(path), text)).collect();
        least(&|path: &Path| files.get(path).map(|text| (**text).to_owned()))
    }

    #[test]
    fn without_a_cgroup_it_is_the_machines() {
        assert_eq!(least_of(&[("/proc/meminfo", MEMINFO)]), Some(24_683_520 * 1024));
        assert_eq!(least_of(&[]), None);
        assert_eq!(least_of(&[("/proc/meminfo", "MemFree: 7 kB")]), None);
    }

    #[test]
    fn a_container_sees_its_limit_at_the_root() {
        let own = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(least_of(&own), Some(512 << 20));
        // A path of the host, of which nothing is mounted.
        let hosts = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "9:cpu,cpuacct:/x\n7:memory:/docker/0123\n0::/\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
        ];
        assert_eq!(least_of(&hosts), Some(256 << 20));
    }

    #[test]
    fn the_least_limit_from_the_own_group_up_counts() {
        let nested = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/system.slice/quorate.service\n"),
            ("/sys/fs/cgroup/system.slice/quorate.service/memory.max", "max\n"),
            ("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n"),
        ];
        assert_eq!(least_of(&nested), Some(1 << 30));
    }

    #[test]
    fn no_limit_leaves_the_machines() {
        let endless = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "4:memory:/\n0::/\n"),
            ("/sys/fs/cgroup/memory.max", "max\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(least_of(&endless), Some(24_683_520 * 1024));
    }
}
