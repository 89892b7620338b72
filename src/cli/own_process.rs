//! This node's process as its operators see it: settings, command line, log, certificates, threads,
//! network interfaces; and its end.

use super::log_lines::LogLines;
use super::logging;
use super::settings::{Loaded, Settings, ShownSetting};
use super::tls;
use quorate_management::wire::{self, Interface, Thread, Variable};
use quorate_management::{LogLine, Process, certificates};
use quorate_tls::{Files, NamedFile};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::sync::broadcast::Receiver;

/// Variables of the environment that contain secrets.
const SECRETS: [&str; 2] = ["QUORATE_CLUSTER_SECRET", "QUORATE_URI"];
/// In the place of a secret.
const HIDDEN: &str = "[hidden]";

/// The process of this node.
#[derive(Debug)]
pub(crate) struct OwnProcess {
    settings: Vec<ShownSetting>,
    nodes: Vec<u32>,
    certificates: Vec<NamedFile>,
    lines: Arc<LogLines>,
    stop: Arc<Notify>,
}

impl OwnProcess {
    /// The process that runs with these settings, and ends when `stop` is notified.
    pub(crate) fn new(loaded: &Loaded, lines: Arc<LogLines>, stop: Arc<Notify>) -> Self {
        Self {
            settings: loaded.shown.clone(),
            nodes: loaded.settings.cluster.keys().map(|node| node.0.into()).collect(),
            certificates: certificate_files(&loaded.settings),
            lines,
            stop,
        }
    }
}

impl Process for OwnProcess {
    fn describe(&self) -> wire::Process {
        let setting = |setting: &ShownSetting| Variable {
            name: setting.name.to_owned(),
            value: setting.value.clone(),
            origin: setting.origin.clone(),
        };
        let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        wire::Process {
            settings: self.settings.iter().map(setting).collect(),
            arguments: arguments.collect(),
            environment: environment(std::env::vars_os().filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
            })),
            log: "<stderr>".to_owned(),
            nodes: self.nodes.clone(),
            certificates: self.certificates.iter().map(certificates).collect(),
            threads: threads(Path::new("/proc/self/task")),
            interfaces: interfaces(&Network::read()),
            tls_versions: quorate_tls::tls_versions(),
            cipher_suites: quorate_tls::cipher_suites(),
        }
    }

    fn log_lines(&self, most: usize) -> (Vec<LogLine>, Receiver<LogLine>) {
        self.lines.read(most)
    }

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        logging::set_level(level)
    }

    fn stop(&self) {
        self.stop.notify_one();
    }
}

/// The variables of the environment that are about Quorate; of secrets only the names.
fn environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Variable> {
    let own = variables.filter(|(name, _)| name.starts_with("QUORATE_"));
    let own: BTreeMap<String, String> = own.collect();
    let shown = own.into_iter().map(|(name, value)| {
        let value = if SECRETS.contains(&name.as_str()) { HIDDEN.to_owned() } else { value };
        Variable { name, value, origin: String::new() }
    });
    shown.collect()
}

/// The files of certificates that the node uses, each once.
pub(super) fn certificate_files(settings: &Settings) -> Vec<NamedFile> {
    let serves_tls = settings.amqp_tls_listen.is_some() || settings.http_tls_listen.is_some();
    let clients = tls::client_files(settings).ok().filter(|_| serves_tls);
    let nodes = tls::rpc_files(|name| settings.tls_file(name)).ok();
    let nodes = nodes.filter(|_| settings.rpc_tls);
    let mut known = BTreeSet::new();
    let of = |files: Files| [Some(files.certificate), files.ca];
    let files = [clients, nodes].into_iter().flatten().flat_map(of).flatten();
    files.filter(|file| known.insert(file.path.clone())).collect()
}

/// The processor time of threads, those of one name together. A folder that cannot be read has none.
fn threads(tasks: &Path) -> Vec<Thread> {
    let tick_ms = 1_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut by_name: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        // A thread may have ended meanwhile.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some((name, user, system)) = thread(&stat) else { continue };
        let known = by_name.entry(name).or_default();
        *known = (known.0 + user * tick_ms, known.1 + system * tick_ms);
    }
    let threads = by_name.into_iter();
    threads.map(|(name, (user_ms, system_ms))| Thread { name, user_ms, system_ms }).collect()
}

/// Name, and ticks of user and system time, of a line such as `7 (clients) S 1 …`.
fn thread(stat: &str) -> Option<(String, u64, u64)> {
    // A name may contain brackets.
    let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
    let name = stat.get(begin + 1..end)?.to_owned();
    let mut fields = stat.get(end + 1..)?.split_whitespace().skip(11);
    let (user, system) = (fields.next()?, fields.next()?);
    Some((name, user.parse().ok()?, system.parse().ok()?))
}

/// What the kernel says of the network.
#[derive(Debug, Default)]
struct Network {
    /// `/proc/net/fib_trie`.
    trie: String,
    /// `/proc/net/route`.
    routes: String,
    /// `/proc/net/if_inet6`.
    ipv6: String,
}

impl Network {
    fn read() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        Self { trie: read("fib_trie"), routes: read("route"), ipv6: read("if_inet6") }
    }
}

/// The network interfaces that have addresses, and these.
fn interfaces(network: &Network) -> Vec<Interface> {
    let mut found: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    for address in local_addresses(&network.trie) {
        let name = if address.is_loopback() {
            "lo".to_owned()
        } else {
            route_of(address, &network.routes).unwrap_or_else(|| "unknown".to_owned())
        };
        found.entry(name).or_default().insert(address.into());
    }
    for line in network.ipv6.lines() {
        let mut words = line.split_whitespace();
        let (address, name) = (words.next(), words.last());
        let address = address.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        if let (Some(address), Some(name)) = (address, name) {
            found.entry(name.to_owned()).or_default().insert(Ipv6Addr::from(address).into());
        }
    }
    let shown = found.into_iter().map(|(name, addresses)| Interface {
        name,
        addresses: addresses.iter().map(ToString::to_string).collect(),
    });
    shown.collect()
}

/// The addresses above the lines `/32 host LOCAL`.
fn local_addresses(trie: &str) -> BTreeSet<Ipv4Addr> {
    let mut last: Option<Ipv4Addr> = None;
    let mut found = BTreeSet::new();
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last);
        }
    }
    found
}

/// The interface whose network contains the address: the one with the longest mask.
fn route_of(address: Ipv4Addr, routes: &str) -> Option<String> {
    let address = u32::from(address);
    let route = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The kernel prints the bytes of the network as a number of this machine.
        let number =
            |place: usize| u32::from_str_radix(words.get(place)?, 16).ok().map(u32::from_be);
        let (network, mask) = (number(1)?, number(7)?);
        let name = words.first()?;
        (mask != 0 && address & mask == network).then(|| (mask, (*name).to_owned()))
    };
    routes.lines().skip(1).filter_map(route).max().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_the_environment_are_not_shown() {
        let variables =
            [("QUORATE_NODE_ID", "2"), ("HOME", "/root"), ("QUORATE_CLUSTER_SECRET", "x")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let shown = environment(variables.into_iter());
        let shown: Vec<_> = shown.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        assert_eq!(shown, [("QUORATE_CLUSTER_SECRET", "[hidden]"), ("QUORATE_NODE_ID", "2")]);
    }

    #[test]
    fn threads_are_read_from_the_kernels_lines() {
        let line = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20";
        assert_eq!(thread(line), Some(("a (b) c".to_owned(), 120, 30)));
        assert_eq!(thread("7"), None);
        assert!(!threads(Path::new("/proc/self/task")).is_empty());
    }

    #[test]
    fn interfaces_have_the_addresses_of_their_networks() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
                    |-- 172.17.0.2\n        /32 host LOCAL\n     |-- 172.17.255.255\n        /32 \
                    link BROADCAST\n";
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n\
                      eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\n\
                      eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\n";
        let ipv6 = "00000000000000000000000000000001 01 80 10 80       lo\n";
        let network =
            Network { trie: trie.to_owned(), routes: routes.to_owned(), ipv6: ipv6.to_owned() };
        let found = interfaces(&network);
        let shown: Vec<String> =
            found.iter().map(|it| format!("{} {}", it.name, it.addresses.join(" "))).collect();
        assert_eq!(shown, ["eth0 172.17.0.2", "lo 127.0.0.1 ::1"]);
    }
}
