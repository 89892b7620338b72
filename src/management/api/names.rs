//! Names of nodes, in the style of RabbitMQ's.

use crate::api::call::Api;
use crate::facts::NodeFacts;
use quorate_broker::view::ClusterView;
use std::collections::BTreeMap;

/// The name of each member, by its id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(BTreeMap<u32, String>);

impl Names {
    /// The names of the members; a member that has not been asked yet is asked.
    pub(crate) async fn of(api: &Api) -> Self {
        let given = api.cluster.given_names().await;
        Self::new(&api.facts, &api.cluster.view(), given)
    }

    /// The names of the members, as far as they have been asked.
    pub(crate) fn known(api: &Api) -> Self {
        Self::new(&api.facts, &api.cluster.view(), api.cluster.known_names())
    }

    /// The names that nodes have given themselves; that of another one is made of its address.
    pub(crate) fn new(
        facts: &NodeFacts,
        view: &ClusterView,
        mut given: BTreeMap<u32, String>,
    ) -> Self {
        for member in &view.members {
            let made = || facts.naming.name(member.id, &member.rpc_address);
            given.entry(u32::from(member.id.0)).or_insert_with(made);
        }
        given.insert(u32::from(facts.id.0), facts.name.clone());
        Self(given)
    }

    /// The name of a node; empty for one that is not known, such as 0.
    pub(crate) fn name(&self, node: u32) -> &str {
        self.0.get(&node).map_or("", String::as_str)
    }

    /// The names of several nodes.
    pub(crate) fn all(&self, nodes: &[u32]) -> Vec<&str> {
        nodes.iter().map(|node| self.name(*node)).collect()
    }

    /// The node of that name.
    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.0.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }
}
