//! What the catalog's leader puts before anything that it proposes: the cluster's shape if it has
//! none, and a new life if the whole cluster has been stopped (DESIGN §7).

use quorate_catalog::{Catalog, CatalogCommand, ClusterShape};
use quorate_types::{BootNumber, NodeId};
use std::collections::BTreeSet;

/// The commands of a leader that is process `me` and is linked with these processes, in a cluster that
/// was founded by so many. `None` while it cannot tell whether the cluster has been stopped, since it
/// is not linked with a majority of the members.
pub(super) fn formation(
    catalog: &Catalog,
    me: (NodeId, BootNumber),
    linked: &[(NodeId, BootNumber)],
    shape: ClusterShape,
    founders: usize,
) -> Option<Vec<CatalogCommand>> {
    let mut commands = Vec::new();
    if catalog.shape().is_none() {
        commands.push(CatalogCommand::Form(shape));
    }
    let known = |&(node, boot): &(NodeId, BootNumber)| catalog.session_of(node, boot).is_some();
    if !known(&me) {
        let members = catalog.members().filter(|(_, member)| member.state.works());
        let working: BTreeSet<NodeId> = members.map(|(node, _)| node).collect();
        let counts = |node: NodeId| working.is_empty() || working.contains(&node);
        let linked: Vec<bool> =
            linked.iter().filter(|(node, _)| counts(*node)).map(known).collect();
        let members = if working.is_empty() { founders } else { working.len() };
        if has_been_stopped(&linked, members)? {
            commands.push(CatalogCommand::NewLife { boot: me.1 });
        }
    }
    Some(commands)
}

/// Whether the whole cluster has been stopped, as a process sees it whose own start is not known:
/// `linked` says of each linked process whether its start is. `None` while too few are linked.
fn has_been_stopped(linked: &[bool], members: usize) -> Option<bool> {
    if linked.contains(&true) {
        return Some(false);
    }
    ((linked.len() + 1) * 2 > members).then_some(true)
}

#[cfg(test)]
mod tests;
