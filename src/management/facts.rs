//! Facts about a node apart from its broker: name, versions, listeners, and its process as the
//! kernel reports it.

use quorate_tls::NamedFile;
use quorate_types::NodeId;
use std::fs;
use std::time::Instant;

/// How nodes are named in lists where RabbitMQ uses Erlang node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// As `rabbitID@HOST`.
    RabbitMq,
    /// Quorate: its name is `quorateID@HOST` by default.
    Quorate,
}

impl Naming {
    /// The name of a node whose rpc address is `HOST:PORT`.
    #[must_use]
    pub fn name(self, node: NodeId, rpc_address: &str) -> String {
        let host = rpc_address.rsplit_once(':').map_or(rpc_address, |(host, _)| host);
        let product = match self {
            Self::RabbitMq => "rabbit",
            Self::Quorate => "quorate",
        };
        format!("{product}{node}@{host}")
    }
}

/// A port that the node listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerFacts {
    /// Address, without the port.
    pub interface: String,
    /// TCP port.
    pub port: u16,
    /// RabbitMQ's name of the protocol: `amqp`, `clustering`, `http`.
    pub protocol: &'static str,
    /// Its purpose, as text.
    pub purpose: &'static str,
}

/// Facts that stay the same while the process runs.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Id of the node.
    pub id: NodeId,
    /// Name of this node.
    pub name: String,
    /// How other nodes are named until they have sent their names.
    pub naming: Naming,
    /// Product shown to clients.
    pub product: String,
    /// Version shown to clients.
    pub product_version: String,
    /// Version of Quorate.
    pub version: String,
    /// Path of the data directory.
    pub data_dir: String,
    /// File of settings; empty if there is none.
    pub config_file: String,
    /// Protocols and the ports that they are served on.
    pub listeners: Vec<ListenerFacts>,
    /// The files of certificates that the node uses, each once.
    pub certificates: Vec<NamedFile>,
    /// When the process started.
    pub started: Instant,
}

/// Present facts about the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    pub(crate) resident_bytes: u64,
    pub(crate) fds_open: u64,
    pub(crate) fds_limit: u64,
    pub(crate) cores: u32,
}

impl ProcessFacts {
    /// Reads `/proc`; values that cannot be read are 0.
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let fds_open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            resident_bytes: resident_bytes(&status),
            fds_open,
            fds_limit: fds_limit(&limits),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
        }
    }
}

fn resident_bytes(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

fn fds_limit(limits: &str) -> u64 {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_like_erlang_nodes() {
        assert_eq!(Naming::RabbitMq.name(NodeId(2), "localhost:7673"), "rabbit2@localhost");
        assert_eq!(Naming::Quorate.name(NodeId(1), "[::1]:7672"), "quorate1@[::1]");
    }

    #[test]
    fn the_kernels_words_are_understood() {
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t   2048 kB\n"), 2 << 20);
        assert_eq!(resident_bytes(""), 0);
        assert_eq!(fds_limit("Max open files            1024  4096  files\n"), 1024);
        let process = ProcessFacts::read();
        assert!(process.resident_bytes > 0 && process.fds_open > 0 && process.fds_limit > 0);
    }
}
