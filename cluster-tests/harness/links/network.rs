//! A network of its own for a cluster: a namespace for each node, joined by a bridge, which is also where
//! clients reach them. Faults are the kernel's: iptables, tc, and packets queued for [`super::late`].
//!
//! The network is 198.18.N.0/24 (RFC 2544, networks for tests); N is held by a lock on a file of the
//! machine, and what has N in its name while nobody holds the lock was left by a run that was killed.

use super::Hindrance;
use super::late::{Late, Lateness};
use crate::harness::ports::PORTS;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Where `ip netns` keeps namespaces.
const NAMESPACES: &str = "/run/netns";
/// How many networks a machine has at a time.
const SUBNETS: u8 = 200;
/// Last byte of the bridge's address.
const BRIDGE: u8 = 254;

/// A cluster's network, gone when it is dropped.
#[derive(Debug)]
pub(crate) struct Network {
    subnet: u8,
    nodes: Vec<u64>,
    late: Mutex<BTreeMap<u64, Late>>,
    late_packets: Arc<AtomicU64>,
    /// What was counted before the counters were taken away, and connections that were reset.
    counted: AtomicU64,
    _lock: File,
}

impl Network {
    /// A network for these nodes.
    ///
    /// # Errors
    /// What this machine lacks for it.
    pub fn make(nodes: &[u64]) -> Result<Self, String> {
        let (subnet, lock) = take()?;
        remove(subnet);
        let network = Self {
            subnet,
            nodes: nodes.to_vec(),
            late: Mutex::default(),
            late_packets: Arc::default(),
            counted: AtomicU64::new(0),
            _lock: lock,
        };
        let bridge = bridge(subnet);
        run(&format!("ip link add {bridge} type bridge"))?;
        run(&format!("ip addr add {}/24 dev {bridge}", network.address(u64::from(BRIDGE))))?;
        run(&format!("ip link set {bridge} up"))?;
        for node in nodes {
            let (name, outer, address) =
                (namespace(subnet, *node), link(subnet, *node), network.address(*node));
            run(&format!("ip netns add {name}"))?;
            run(&format!("ip link add {outer} type veth peer name eth0 netns {name}"))?;
            run(&format!("ip link set {outer} master {bridge} up"))?;
            network.within(*node, &format!("ip addr add {address}/24 dev eth0"))?;
            network.within(*node, "ip link set eth0 up")?;
            network.within(*node, "ip link set lo up")?;
            // Shows whether iptables works here.
            network.within(*node, "iptables -w -F INPUT")?;
        }
        Ok(network)
    }

    /// The address of a node.
    pub fn address(&self, node: u64) -> String {
        format!("198.18.{}.{node}", self.subnet)
    }

    /// The file of a node's namespace.
    pub fn path(&self, node: u64) -> PathBuf {
        PathBuf::from(NAMESPACES).join(namespace(self.subnet, node))
    }

    /// From now on this is done to what `from` sends to `to`.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn hinder(&self, from: u64, to: u64, hindrance: Hindrance) {
        let [sender, receiver] = [from, to].map(|node| self.address(node));
        let done = match hindrance {
            Hindrance::Cut => self.filter(to, &format!("-s {sender} -j DROP")),
            Hindrance::Refuse => {
                let (first, last) = (PORTS.start(), PORTS.end());
                let to_ports = format!("-s {sender} -p tcp --dport {first}:{last}");
                self.filter(to, &format!("{to_ports} -j REJECT --reject-with tcp-reset"))
            }
            Hindrance::Reset => self.reset(from, &receiver),
            Hindrance::Late { least, jitter, in_order } => {
                self.late(to, &sender, Lateness { least, jitter, in_order })
            }
            Hindrance::Slow { bytes_per_s } => self.slow(from, to, bytes_per_s),
            Hindrance::Lose { percent } => {
                self.filter(to, &format!("-s {sender} {} -j DROP", one_of(percent)))
            }
            Hindrance::Duplicate { percent } => {
                let some = format!("-d {receiver} {}", one_of(percent));
                let to_itself = format!("-j TEE --gateway {receiver}");
                self.within(
                    from,
                    &format!("iptables -w -t mangle -A POSTROUTING {some} {to_itself}"),
                )
            }
        };
        done.unwrap_or_else(|error| panic!("{hindrance:?} from node {from} to node {to}: {error}"));
    }

    /// How many packets were hindered and connections reset, so far.
    pub fn hindered(&self) -> u64 {
        let of = |node| {
            let tables = [
                self.asked(node, "iptables -w -n -v -x -L INPUT"),
                self.asked(node, "iptables -w -t mangle -n -v -x -L POSTROUTING"),
            ];
            // The first number of each rule's line is that of its packets. Late ones are counted apart.
            let lines = tables.iter().flat_map(|table| table.lines());
            let rules = lines.filter(|line| !line.contains("NFQUEUE"));
            let packets = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
            let overlimits: u64 = self.overlimits(node);
            rules.filter_map(packets).sum::<u64>() + overlimits
        };
        self.counted.load(Ordering::Relaxed)
            + self.late_packets.load(Ordering::Relaxed)
            + self.nodes.iter().map(|node| of(*node)).sum::<u64>()
    }

    /// Everything comes through again.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn heal(&self) {
        let before = self.late_packets.load(Ordering::Relaxed);
        self.counted.store(self.hindered() - before, Ordering::Relaxed);
        for node in &self.nodes {
            for command in ["iptables -w -F INPUT", "iptables -w -t mangle -F POSTROUTING"] {
                self.within(*node, command).unwrap_or_else(|error| panic!("{error}"));
            }
            // It is not there, if the node's links were not slow.
            let _ = self.within(*node, "tc qdisc del dev eth0 root");
        }
        self.late.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn filter(&self, node: u64, rule: &str) -> Result<(), String> {
        self.within(node, &format!("iptables -w -A INPUT {rule}"))
    }

    /// Resets the connections that a node has with an address.
    fn reset(&self, node: u64, address: &str) -> Result<(), String> {
        let killed = output(&self.nsenter(node, &format!("ss -K -H -t -n dst {address}")))?;
        self.counted.fetch_add(killed.lines().count() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn late(&self, node: u64, sender: &str, lateness: Lateness) -> Result<(), String> {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match late.entry(node) {
            Entry::Occupied(entry) => entry.get().number,
            Entry::Vacant(entry) => {
                let count = Arc::clone(&self.late_packets);
                let started = Late::start(&self.path(node), lateness, count);
                entry.insert(started.map_err(|error| format!("NFQUEUE: {error}"))?).number
            }
        };
        self.filter(node, &format!("-s {sender} -j NFQUEUE --queue-num {number} --queue-bypass"))
    }

    /// A class of the node's interface for what goes to one receiver; the rest is not limited.
    fn slow(&self, node: u64, to: u64, bytes_per_s: u64) -> Result<(), String> {
        let bits = bytes_per_s.saturating_mul(8).max(1);
        let class = format!("1:{:x}", 0x20 + to);
        // There already, if another of the node's links is slow.
        let _ = self.within(node, "tc qdisc add dev eth0 root handle 1: htb default 10");
        let _ = self.within(node, "tc class add dev eth0 parent 1: classid 1:10 htb rate 10gbit");
        self.within(
            node,
            &format!("tc class add dev eth0 parent 1: classid {class} htb rate {bits}bit"),
        )?;
        let receiver = self.address(to);
        let filter = "tc filter add dev eth0 parent 1: protocol ip u32 match ip dst";
        self.within(node, &format!("{filter} {receiver} flowid {class}"))
    }

    /// How often the slow classes of a node had to wait.
    fn overlimits(&self, node: u64) -> u64 {
        let said = self.asked(node, "tc -s class show dev eth0");
        let of_class = |text: &str| {
            let rest = text.split_once("overlimits ")?.1;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let slow = said.split("class htb ").filter(|text| !text.starts_with("1:10 "));
        slow.filter_map(of_class).sum()
    }

    fn nsenter(&self, node: u64, command: &str) -> String {
        format!("nsenter --net={} {command}", self.path(node).display())
    }

    fn within(&self, node: u64, command: &str) -> Result<(), String> {
        run(&self.nsenter(node, command))
    }

    fn asked(&self, node: u64, command: &str) -> String {
        output(&self.nsenter(node, command)).unwrap_or_default()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Packets that are held go on before their namespace is gone.
        self.late.lock().unwrap_or_else(PoisonError::into_inner).clear();
        remove(self.subnet);
    }
}

/// Takes away the namespaces and interfaces that runs have left that were killed; names them.
///
/// # Errors
/// The folder of locks cannot be used.
pub fn clean() -> Result<Vec<String>, String> {
    let mut cleaned = Vec::new();
    for subnet in 0..SUBNETS {
        if let Some(_lock) = lock(subnet)? {
            cleaned.extend(remove(subnet));
        }
    }
    Ok(cleaned)
}

/// Takes away the interfaces and the namespaces of a network.
fn remove(subnet: u8) -> Vec<String> {
    let mut removed = Vec::new();
    let (bridge, links) = (bridge(subnet), link_prefix(subnet));
    // Interfaces first: the kernel removes those of a namespace some time after it.
    for name in names("/sys/class/net").filter(|name| *name == bridge || name.starts_with(&links)) {
        if run(&format!("ip link del {name}")).is_ok() {
            removed.push(format!("interface {name}"));
        }
    }
    let prefix = namespace_prefix(subnet);
    for name in names(NAMESPACES).filter(|name| name.starts_with(&prefix)) {
        if run(&format!("ip netns del {name}")).is_ok() {
            removed.push(format!("namespace {name}"));
        }
    }
    removed
}

fn names(folder: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn namespace_prefix(subnet: u8) -> String {
    format!("quorate-{subnet}-")
}

fn namespace(subnet: u8, node: u64) -> String {
    format!("{}{node}", namespace_prefix(subnet))
}

fn bridge(subnet: u8) -> String {
    format!("quorate{subnet}")
}

fn link_prefix(subnet: u8) -> String {
    format!("quorate{subnet}-")
}

fn link(subnet: u8, node: u64) -> String {
    format!("{}{node}", link_prefix(subnet))
}

fn one_of(percent: u8) -> String {
    format!("-m statistic --mode random --probability {:.2}", f64::from(percent) / 100.0)
}

/// The first network that nobody holds, held from now on.
fn take() -> Result<(u8, File), String> {
    for subnet in 0..SUBNETS {
        if let Some(lock) = lock(subnet)? {
            return Ok((subnet, lock));
        }
    }
    Err(format!("all {SUBNETS} networks are taken"))
}

/// Holds a network; `None` if somebody holds it.
fn lock(subnet: u8) -> Result<Option<File>, String> {
    let folder = std::env::temp_dir().join("quorate-tests").join("networks");
    let named = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(named)?;
    let path = folder.join(subnet.to_string());
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(named)?;
    Ok(file.try_lock().is_ok().then_some(file))
}

fn run(command: &str) -> Result<(), String> {
    output(command).map(drop)
}

/// What a command says; its words are separated by single blanks.
fn output(command: &str) -> Result<String, String> {
    let mut words = command.split(' ');
    let mut process = Command::new(words.next().unwrap_or_default());
    let output = process.args(words).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::io::ErrorKind;
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::time::Duration;

    /// How a connection fails that node 1 tries to open to node 2, where nobody listens.
    fn connect(network: &Network) -> ErrorKind {
        let (namespace, to) = (File::open(network.path(1)).unwrap(), network.address(2));
        let connect = move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), network).unwrap();
            let to = format!("{to}:{}", PORTS.start()).parse().unwrap();
            TcpStream::connect_timeout(&to, Duration::from_millis(500)).unwrap_err().kind()
        };
        std::thread::spawn(connect).join().unwrap()
    }

    /// Passes where the machine has no namespaces for us.
    #[test]
    fn a_network_can_be_made_again_at_once_and_leaves_nothing() {
        for _ in 0..3 {
            let network = match Network::make(&[1, 2]) {
                Ok(network) => network,
                Err(reason) => return eprintln!("SKIPPED, no networks here: {reason}"),
            };
            let (path, subnet) = (network.path(2), network.subnet);
            network.hinder(1, 2, Hindrance::Cut);
            assert_eq!(connect(&network), ErrorKind::TimedOut);
            assert!(network.hindered() > 0);
            network.heal();
            assert_eq!(connect(&network), ErrorKind::ConnectionRefused);
            drop(network);
            let left = |name: &String| name.starts_with(&link_prefix(subnet));
            assert!(!path.exists() && !names("/sys/class/net").any(|name| left(&name)));
        }
    }
}
