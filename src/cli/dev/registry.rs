//! The `dev` clusters that run on this machine, so that `quorate perf` can find their processes:
//! one small file for each in `~/.quorate`.

use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A node's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) pid: u32,
    pub(crate) amqp_port: u16,
}

fn directory(home: &str) -> PathBuf {
    Path::new(home).join(".quorate")
}

fn file(home: &str, port_offset: u16) -> PathBuf {
    directory(home).join(format!("dev-{port_offset}.json"))
}

fn home() -> Option<String> {
    std::env::var("HOME").ok().filter(|home| !home.is_empty())
}

/// A cluster's entry in the registry; removed when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    path: PathBuf,
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A failure has no consequence: readers check that the processes exist.
        let _ = fs::remove_file(&self.path);
    }
}

/// Registers a cluster. Without a home directory this does nothing.
pub(crate) fn register(port_offset: u16, entries: &[Entry]) -> Option<Registered> {
    let home = home()?;
    write(&home, port_offset, entries).ok()
}

fn write(home: &str, port_offset: u16, entries: &[Entry]) -> io::Result<Registered> {
    fs::create_dir_all(directory(home))?;
    let path = file(home, port_offset);
    fs::write(&path, serde_json::to_vec(entries)?)?;
    Ok(Registered { path })
}

/// The process ids of the clusters that have a node at one of these AMQP ports: of all their nodes,
/// since each takes part in every message.
pub(crate) fn pids_at(ports: &[u16]) -> Vec<u32> {
    home().map(|home| find(&home, ports, is_alive)).unwrap_or_default()
}

fn find(home: &str, ports: &[u16], is_alive: impl Fn(u32) -> bool) -> Vec<u32> {
    let Ok(files) = fs::read_dir(directory(home)) else { return Vec::new() };
    let mut pids = Vec::new();
    for file in files.flatten() {
        let name = file.file_name();
        let Some(name) = name.to_str() else { continue };
        if !name.starts_with("dev-") || !name.ends_with(".json") {
            continue;
        }
        let entries: Vec<Entry> = fs::read(file.path())
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        if entries.iter().any(|entry| ports.contains(&entry.amqp_port)) {
            pids.extend(entries.iter().map(|entry| entry.pid).filter(|pid| is_alive(*pid)));
        }
    }
    pids
}

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "quorate")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_cluster_is_found_by_any_of_its_ports_while_it_lives() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap();
        let entry = |pid, amqp_port| Entry { pid, amqp_port };
        let first = write(home, 0, &[entry(10, 5672), entry(11, 5673)]).unwrap();
        let _second = write(home, 100, &[entry(20, 5772)]).unwrap();
        assert_eq!(find(home, &[5673], |_| true), [10, 11]);
        assert_eq!(find(home, &[5673], |pid| pid == 11), [11]);
        assert!(find(home, &[1], |_| true).is_empty());
        drop(first);
        assert!(find(home, &[5673], |_| true).is_empty());
        assert_eq!(find(home, &[5772], |_| true), [20]);
    }
}
