//! Limits of connections and channels (VLM-01, VLM-02, CONN-20, CHN-03). Nodes tell each other what
//! they count of virtual hosts and users that have a limit; a limit may be exceeded while that is
//! on its way (VLM-04).

use crate::{
    connection::{Connection, ConnectionState},
    node::Node,
    pb, wire,
};
use parking_lot::Mutex;
use quorate_catalog::{Catalog, reached, refusal};
use quorate_types::{Exception, NodeId, ShortString, VhostName};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What other nodes have told.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    told: Mutex<BTreeMap<NodeId, Told>>,
    /// This node has told more than nothing, and so has to tell when it is nothing again.
    telling: AtomicBool,
}

/// What one node counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    vhosts: BTreeMap<VhostName, u64>,
    /// Connections and channels.
    users: BTreeMap<ShortString, (u64, u64)>,
}

fn channels(connection: &ConnectionState) -> u64 {
    connection.reported.channels.lock().len() as u64
}

impl Node {
    /// What other nodes that can be reached have told.
    fn told(&self, count: impl Fn(&Told) -> u64) -> u64 {
        let told = self.counts.told.lock();
        let reachable = told.iter().filter(|(node, _)| self.is_reachable(**node));
        reachable.map(|(_, told)| count(told)).sum()
    }

    fn own(&self, count: impl Fn(&ConnectionState) -> u64) -> u64 {
        self.connections.all().iter().map(|connection| count(connection)).sum()
    }

    /// The node's limit of connections, if it is reached.
    pub(crate) fn node_connections_reached(&self) -> Option<u64> {
        let limit = i64::from(self.settings.limits.connections_max?);
        reached(Some(limit), self.own(|_| 1))
    }

    /// The node's limit of channels, if it is reached.
    fn node_channels_reached(&self) -> Option<u64> {
        let limit = i64::from(self.settings.limits.channels_max?);
        reached(Some(limit), self.own(channels))
    }

    /// The virtual host's limit, if it is reached.
    pub(crate) fn vhost_connections_reached(
        &self,
        catalog: &Catalog,
        vhost: &VhostName,
    ) -> Option<u64> {
        let limit = Some(catalog.vhost_limits(vhost).connections_max?);
        let own = self.own(|connection| u64::from(connection.info.vhost == *vhost));
        reached(limit, own + self.told(|told| told.vhosts.get(vhost).copied().unwrap_or(0)))
    }

    /// The user's limit, if it is reached.
    pub(crate) fn user_connections_reached(
        &self,
        catalog: &Catalog,
        user: &ShortString,
    ) -> Option<u64> {
        let limit = Some(catalog.user_limits(user).connections_max?);
        let own = self.own(|connection| u64::from(connection.info.user == *user));
        reached(limit, own + self.told(|told| told.users.get(user).map_or(0, |count| count.0)))
    }

    fn user_channels_reached(&self, user: &ShortString) -> Option<u64> {
        let limit = Some(self.catalog.read().user_limits(user).channels_max?);
        let of_user = |connection: &ConnectionState| connection.info.user == *user;
        let own = self.own(|one| if of_user(one) { channels(one) } else { 0 });
        reached(limit, own + self.told(|told| told.users.get(user).map_or(0, |count| count.1)))
    }

    /// What this node counts of all that have a limit.
    fn counted(&self) -> Told {
        let mut counted = Told::default();
        {
            let catalog = self.catalog.read();
            let vhosts = catalog.vhosts().filter(|vhost| vhost.limits.connections_max.is_some());
            counted.vhosts = vhosts.map(|vhost| (vhost.name.clone(), 0)).collect();
            let users = catalog.users().filter(|user| user.limits != Default::default());
            counted.users = users.map(|user| (user.name.clone(), (0, 0))).collect();
        }
        if counted != Told::default() {
            for connection in self.connections.all() {
                if let Some(count) = counted.vhosts.get_mut(&connection.info.vhost) {
                    *count += 1;
                }
                if let Some((connections, open)) = counted.users.get_mut(&connection.info.user) {
                    *connections += 1;
                    *open += channels(&connection);
                }
            }
        }
        counted.vhosts.retain(|_, count| *count > 0);
        counted.users.retain(|_, count| *count != (0, 0));
        counted
    }

    /// Tells all nodes what this one counts, if there is something to tell.
    pub(crate) fn tell_counts(&self) {
        let counted = self.counted();
        let something = counted != Told::default();
        if !self.counts.telling.swap(something, Ordering::AcqRel) && !something {
            return;
        }
        let vhosts = counted.vhosts.into_iter().map(|(name, connections)| pb::counts::Count {
            name: name.to_string(),
            connections,
            channels: 0,
        });
        let users = counted.users.into_iter().map(|(name, (connections, channels))| {
            pb::counts::Count { name: name.to_string(), connections, channels }
        });
        let message = pb::Counts { vhosts: vhosts.collect(), users: users.collect() };
        self.tell_all(wire::COUNTS, &wire::encode(&message));
    }

    /// Another node has told what it counts.
    pub(crate) fn counts_from(&self, from: NodeId, message: pb::Counts) {
        let named = |name: String| ShortString::try_from(name).unwrap_or_default();
        let vhosts = message.vhosts.into_iter().map(|one| (named(one.name), one.connections));
        let users = message.users.into_iter();
        let users = users.map(|one| (named(one.name), (one.connections, one.channels)));
        let told = Told { vhosts: vhosts.collect(), users: users.collect() };
        self.counts.told.lock().insert(from, told);
    }
}

impl Connection {
    /// CHN-03.
    pub(crate) fn check_channels(&self) -> Result<(), Exception> {
        let user = &self.info().user;
        if let Some(limit) = self.node.user_channels_reached(user) {
            return Err(refusal::user_channel_limit(user, limit));
        }
        match self.node.node_channels_reached() {
            Some(limit) => Err(refusal::node_channel_limit(&self.node.settings.name, limit)),
            None => Ok(()),
        }
    }

    /// Connections or channels have come or gone: those who count them are told soon.
    pub(crate) fn recount(&self) {
        let has_limit = {
            let catalog = self.node.catalog.read();
            let info = self.info();
            catalog.vhost_limits(&info.vhost).connections_max.is_some()
                || catalog.user_limits(&info.user) != Default::default()
        };
        if has_limit {
            let node = Arc::clone(&self.node);
            self.node.spawn(async move { node.tell_counts() });
        }
    }
}
