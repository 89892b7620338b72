//! The connections and channels of clients, on this node and on the others, for limits (VLM-04).

use crate::peers::message::PeerCounts;
use parking_lot::Mutex;
use quorate_types::{NodeId, ShortString, VhostName};
use std::{collections::BTreeMap, sync::atomic::AtomicBool};

/// What the other nodes last sent, and what this node counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) of_others: Mutex<BTreeMap<NodeId, PeerCounts>>,
    pub(crate) own: Mutex<Own>,
    /// The last counts sent were not zero, so zeros must be sent when nothing is left.
    pub(crate) sent_nonzero: AtomicBool,
}

/// The open connections and channels of this node's clients.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) connections: u64,
    pub(crate) channels: u64,
    pub(crate) vhosts: BTreeMap<VhostName, u64>,
    /// Connections and channels by user.
    pub(crate) users: BTreeMap<ShortString, (u64, u64)>,
}

impl Counts {
    /// Stores the counts that another node has sent.
    pub(crate) fn received(&self, from: NodeId, counts: PeerCounts) {
        self.of_others.lock().insert(from, counts);
    }
}

impl Own {
    pub(crate) fn change(
        &mut self,
        vhost: &VhostName,
        user: &ShortString,
        connections: i64,
        channels: i64,
    ) {
        let change = |count: &mut u64, by: i64| *count = count.saturating_add_signed(by);
        change(&mut self.connections, connections);
        change(&mut self.channels, channels);
        let of_vhost = self.vhosts.entry(vhost.clone()).or_default();
        change(of_vhost, connections);
        if *of_vhost == 0 {
            self.vhosts.remove(vhost);
        }
        let of_user = self.users.entry(user.clone()).or_default();
        change(&mut of_user.0, connections);
        change(&mut of_user.1, channels);
        if *of_user == (0, 0) {
            self.users.remove(user);
        }
    }
}

#[cfg(test)]
mod tests;
