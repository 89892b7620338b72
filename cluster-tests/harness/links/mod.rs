//! The links between the nodes of a cluster under test, and what can be done to them: by proxies, which
//! every machine can have, or by the kernel, in a network namespace for each node.

mod late;
mod network;
mod proxies;

pub(super) use network::Network;
pub use network::clean;
use proxies::Proxies;

use std::time::Duration;

/// How the nodes of a cluster reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wiring {
    /// Over the loopback interface; links cannot be hindered.
    #[default]
    Direct,
    /// Over a proxy for each ordered pair of nodes.
    Proxies,
    /// Each node in a network namespace of its own. Wants root, iproute2 and iptables.
    Namespaces,
}

impl Wiring {
    /// Namespaces where this machine can have them, else proxies, with the reason.
    #[must_use]
    pub fn best() -> (Self, Option<String>) {
        match Network::make(&[1, 2]) {
            Ok(_) => (Self::Namespaces, None),
            Err(reason) => (Self::Proxies, Some(reason)),
        }
    }
}

/// What is done to the bytes that one node sends to another one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hindrance {
    /// They do not arrive, and neither end is told (as `iptables -j DROP`).
    Cut,
    /// Connections that the sender has dialed are reset and new ones refused, though both live (as
    /// `iptables -j REJECT --reject-with tcp-reset`).
    Refuse,
    /// Connections that the sender has dialed and that are established now are reset once.
    Reset,
    /// They arrive late.
    Late {
        /// By at least this.
        least: Duration,
        /// By up to this more.
        jitter: Duration,
        /// Whether packets keep their order. Proxies always keep it.
        in_order: bool,
    },
    /// They pass at this rate.
    Slow {
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// This percentage of the packets is lost. Only in namespaces.
    Lose {
        /// From 1 to 100.
        percent: u8,
    },
    /// This percentage of the packets arrives twice. Only in namespaces.
    Duplicate {
        /// From 1 to 100.
        percent: u8,
    },
}

/// The links of this cluster cannot do that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unable;

/// The links of a cluster.
#[derive(Debug)]
pub struct Links {
    by: By,
    nodes: Vec<u64>,
}

#[derive(Debug)]
enum By {
    Nothing,
    Proxies(Proxies),
    Network(Network),
}

impl Links {
    /// Links between these nodes, given with their real addresses: those of a network, if it is given.
    /// Within a runtime.
    pub(super) fn start(nodes: &[(u64, String)], wiring: Wiring, network: Option<Network>) -> Self {
        let by = match (wiring, network) {
            (_, Some(network)) => By::Network(network),
            (Wiring::Proxies, None) => By::Proxies(Proxies::start(nodes)),
            (Wiring::Direct | Wiring::Namespaces, None) => By::Nothing,
        };
        Self { by, nodes: nodes.iter().map(|(id, _)| *id).collect() }
    }

    /// Where `from` dials `to`, if that is not the address of `to`.
    pub(super) fn address(&self, from: u64, to: u64) -> Option<String> {
        match &self.by {
            By::Proxies(proxies) => proxies.address(from, to),
            By::Nothing | By::Network(_) => None,
        }
    }

    /// From now on this is done to what `from` sends to `to`, until [`Links::heal`].
    ///
    /// # Errors
    /// Links of this kind cannot do it.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn hinder(&self, from: u64, to: u64, hindrance: Hindrance) -> Result<(), Unable> {
        match &self.by {
            By::Nothing => Err(Unable),
            By::Proxies(proxies) => proxies.hinder(from, to, hindrance),
            By::Network(network) => {
                network.hinder(from, to, hindrance);
                Ok(())
            }
        }
    }

    /// Cuts a link, both ways.
    ///
    /// # Panics
    /// When the cluster was started with direct links.
    pub fn cut(&self, one: u64, other: u64) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Cuts what `from` sends to `to`; traffic in the other direction passes.
    ///
    /// # Panics
    /// When the cluster was started with direct links.
    pub fn cut_one_way(&self, from: u64, to: u64) {
        self.certainly(from, to, Hindrance::Cut);
    }

    /// The port of `to` refuses `from`.
    ///
    /// # Panics
    /// When the cluster was started with direct links.
    pub fn refuse(&self, from: u64, to: u64) {
        self.certainly(from, to, Hindrance::Refuse);
    }

    /// Cuts a node off from all others, both ways.
    ///
    /// # Panics
    /// When the cluster was started with direct links.
    pub fn isolate(&self, node: u64) {
        self.nodes.iter().filter(|other| **other != node).for_each(|other| self.cut(node, *other));
    }

    /// How often bytes were held back, delayed, lost or doubled, and connections refused or reset, so far:
    /// whether a fault took effect.
    #[must_use]
    pub fn hindered(&self) -> u64 {
        match &self.by {
            By::Nothing => 0,
            By::Proxies(proxies) => proxies.hindered(),
            By::Network(network) => network.hindered(),
        }
    }

    /// Everything comes through again.
    pub fn heal(&self) {
        match &self.by {
            By::Nothing => {}
            By::Proxies(proxies) => proxies.heal(),
            By::Network(network) => network.heal(),
        }
    }

    fn certainly(&self, from: u64, to: u64, hindrance: Hindrance) {
        if self.hinder(from, to, hindrance).is_err() {
            panic!(
                "the links from node {from} to node {to} cannot be hindered: see `Options::links`"
            )
        }
    }
}
