//! Names of nodes and Erlang-like process ids, which lists have where RabbitMQ's have them.

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

    pub(crate) fn nodes(&self, nodes: &[u32]) -> Vec<String> {
        nodes.iter().map(|node| self.node(*node)).collect()
    }

    /// `<node.start.connection.0>`.
    pub(crate) fn connection(&self, id: Option<wire::ConnectionId>) -> String {
        self.channel(id, 0)
    }

    /// `<node.start.connection.channel>`.
    pub(crate) fn channel(&self, id: Option<wire::ConnectionId>, channel: u32) -> String {
        let id = id.unwrap_or_default();
        format!("<{}.{}.{}.{channel}>", self.node(id.node), id.start, id.number)
    }
}
