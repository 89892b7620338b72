//! Names of nodes and Erlang-like process ids, which lists show where RabbitMQ's lists have them.

use quorate_management::wire;
use std::collections::BTreeMap;

/// The names of the cluster's nodes.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<u32, String>);

impl Names {
    pub(crate) fn of(cluster: &wire::Cluster) -> Self {
        Self(cluster.members.iter().map(|member| (member.id, member.name.clone())).collect())
    }

    pub(crate) fn node(&self, node: u32) -> String {
        self.0.get(&node).cloned().unwrap_or_else(|| format!("node{node}"))
    }

    /// The node with that name, or with that id, which need not be one of a member.
    pub(crate) fn id(&self, given: &str) -> Option<u32> {
        let named = self.0.iter().find(|(_, name)| *name == given).map(|(node, _)| *node);
        named.or_else(|| given.parse().ok().filter(|id| *id > 0))
    }

    pub(crate) fn nodes(&self, nodes: &[u32]) -> Vec<String> {
        nodes.iter().map(|node| self.node(*node)).collect()
    }

    /// Name of a connection, `<node.start.connection.0>`.
    pub(crate) fn connection(&self, id: Option<wire::ConnectionId>) -> String {
        self.channel(id, 0)
    }

    /// The connection with that name; the angle brackets may be left out.
    pub(crate) fn connection_of(&self, pid: &str) -> Option<wire::ConnectionId> {
        let pid = pid.strip_prefix('<').unwrap_or(pid);
        let pid = pid.strip_suffix('>').unwrap_or(pid);
        // Split from the end, since a node's name may contain dots.
        let mut parts = pid.rsplitn(4, '.');
        let (channel, number) = (parts.next()?, parts.next()?);
        let (start, name) = (parts.next()?, parts.next()?);
        channel.parse::<u32>().ok()?;
        let node = self.0.iter().find(|(_, known)| *known == name).map(|(node, _)| *node)?;
        Some(wire::ConnectionId { node, start: start.parse().ok()?, number: number.parse().ok()? })
    }

    /// Name of a channel, `<node.start.connection.channel>`.
    pub(crate) fn channel(&self, id: Option<wire::ConnectionId>, channel: u32) -> String {
        let id = id.unwrap_or_default();
        format!("<{}.{}.{}.{channel}>", self.node(id.node), id.start, id.number)
    }
}
