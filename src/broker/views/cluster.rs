//! The views of the cluster's members and of the placement of its groups (MEM 1).

use crate::{
    base::Base,
    views::{
        administration::Views,
        view::{ClusterView, MemberView, PlacementView},
    },
};
use quorate_catalog::{Catalog, MemberState};
use quorate_types::{GroupId, Home, NodeId, ReplicaId};
use std::collections::BTreeSet;

impl Views<'_> {
    /// The cluster, as this node knows it.
    #[must_use]
    pub fn cluster(&self) -> ClusterView {
        let base = &self.0.base;
        let is_reachable = |node: NodeId| base.context.is_reachable(node);
        let (mut members, mut placement, cluster, machine) = {
            let catalog = base.catalog.read();
            let members = members(&catalog, &base.context.settings.members);
            let placement = placement(&catalog, &members, is_reachable);
            (members, placement, catalog.shape().map(|shape| shape.cluster), catalog.machine())
        };
        // Not while the catalog is locked: what follows takes locks of other parts.
        let mut leaders = Vec::new();
        for one in &mut placement {
            let leader = base.group_leader(one.group);
            one.is_led &= leader.is_some_and(is_reachable);
            leaders.extend(leader);
        }
        for member in &mut members {
            member.running = is_reachable(member.id);
            let named = placement.iter().filter(|it| it.nodes.contains(&member.id));
            member.replicas = named.count() as u64;
            member.leads = leaders.iter().filter(|leader| **leader == member.id).count() as u64;
        }
        let catalog_leader = base.context.catalog_leader();
        ClusterView { cluster, catalog_leader, members, machine, placement }
    }
}

impl Base {
    /// The node that leads a group, as far as this node knows: by its own replica, or without one by
    /// the last announcement of a leader (MEM 12).
    pub(crate) fn group_leader(&self, group: GroupId) -> Option<NodeId> {
        let leader = match self.context.group(group) {
            Some(replica) => replica.leader(),
            None => self.proposers.leader(Home::Group(group)),
        };
        leader.map(|(node, _)| node)
    }

    /// The nodes that replicate a group: those of its placement, or before machine version 2 all.
    pub(crate) fn replicas_of(&self, group: GroupId) -> Vec<NodeId> {
        let placed = self.catalog.read().placement(group).map(|placement| placement.nodes());
        placed.map_or_else(|| self.context.members(), |nodes| nodes.into_iter().collect())
    }
}

/// The members that the catalog holds, or before machine version 2 those of the setting `cluster`.
/// Whether they run, and what they replicate and lead, is not filled in.
fn members(catalog: &Catalog, listed: &[NodeId]) -> Vec<MemberView> {
    let held = catalog.members().map(|(id, member)| {
        // The address with which the directory was started last, which may have changed since it
        // joined.
        let started = catalog.node(id).filter(|entry| entry.incarnation == member.incarnation);
        MemberView {
            id,
            state: member.state,
            zone: member.zone.clone(),
            rpc_address: started.map_or(&member.address, |entry| &entry.rpc_address).clone(),
            amqp_address: started.map(|entry| entry.amqp_address.clone()).unwrap_or_default(),
            running: false,
            replicas: 0,
            leads: 0,
        }
    });
    let held: Vec<MemberView> = held.collect();
    if !held.is_empty() {
        return held;
    }
    let listed = listed.iter().map(|id| {
        let started = catalog.node(*id);
        MemberView {
            id: *id,
            state: MemberState::Member,
            zone: String::new(),
            rpc_address: started.map(|entry| entry.rpc_address.clone()).unwrap_or_default(),
            amqp_address: started.map(|entry| entry.amqp_address.clone()).unwrap_or_default(),
            running: false,
            replicas: 0,
            leads: 0,
        }
    });
    listed.collect()
}

/// The placement of every group; before machine version 2 all nodes replicate every group. Whether it has a
/// leader is not looked at, only whether it can have one.
fn placement(
    catalog: &Catalog,
    members: &[MemberView],
    is_reachable: impl Fn(NodeId) -> bool,
) -> Vec<PlacementView> {
    let held = catalog.placements().map(|(group, placement)| {
        let nodes_of = |it: &BTreeSet<ReplicaId>| -> Vec<NodeId> {
            it.iter().map(|replica| replica.node).collect()
        };
        let mut before = placement.before.iter().map(nodes_of);
        PlacementView {
            group,
            nodes: placement.nodes().into_iter().collect(),
            is_led: catalog.can_be_led(group, &is_reachable),
            former: before.next().unwrap_or_default(),
            lost: catalog.lost_replicas(group).into_iter().collect(),
            superseded: before.collect(),
        }
    });
    let held: Vec<PlacementView> = held.collect();
    let Some(shape) = catalog.shape().filter(|_| held.is_empty()) else { return held };
    let running = members.iter().filter(|member| is_reachable(member.id)).count();
    let everywhere = |group| PlacementView {
        group,
        nodes: members.iter().map(|member| member.id).collect(),
        is_led: running * 2 > members.len(),
        former: Vec::new(),
        lost: Vec::new(),
        superseded: Vec::new(),
    };
    std::iter::once(GroupId::CATALOG).chain(shape.groups()).map(everywhere).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_catalog::{
        CatalogCommand, CatalogEntry, CatalogOutput, ClusterShape, MemberCommand, Newcomer,
    };
    use quorate_types::{BootNumber, CatalogIndex, ClusterId, Incarnation, MachineVersion, Stamp};

    /// A catalog with two queue groups, and with nodes 1 to 3 that were started.
    fn formed() -> Catalog {
        let mut catalog = Catalog::new();
        let form = ClusterShape { cluster: ClusterId(0xc1), queue_groups: 2 };
        apply(&mut catalog, vec![CatalogCommand::Form(form)]);
        for node in 1..=3 {
            let started = CatalogCommand::NodeStarted {
                node: NodeId(node),
                incarnation: Incarnation(u64::from(node)),
                boot: BootNumber(u64::from(node)),
                rpc_address: format!("h{node}:7672"),
                amqp_address: format!("h{node}:5672"),
            };
            apply(&mut catalog, vec![started]);
        }
        catalog
    }

    fn apply(catalog: &mut Catalog, commands: Vec<CatalogCommand>) {
        let next = CatalogIndex(catalog.version().0 + 1);
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        catalog.apply(next, &entry, &mut CatalogOutput::default());
    }

    /// What is shown while these nodes are away.
    fn shown(catalog: &Catalog, away: &[u16]) -> Vec<String> {
        let members = members(catalog, &[NodeId(1), NodeId(2), NodeId(3)]);
        let placement = placement(catalog, &members, |it| !away.contains(&it.0));
        let members = members.iter().map(|it| {
            format!("{} {} {:?} {} {}", it.id, it.state, it.zone, it.rpc_address, it.amqp_address)
        });
        let placement = placement.iter().map(|it| {
            let ids = |nodes: &[NodeId]| nodes.iter().map(|it| it.0).collect::<Vec<u16>>();
            format!("{}: {:?} {:?} {}", it.group, ids(&it.nodes), ids(&it.former), it.is_led)
        });
        members.chain(placement).collect()
    }

    #[test]
    fn mem_01_members_and_placements_are_those_of_the_catalog_and_before_version_2_all_nodes() {
        let mut catalog = formed();
        let before = shown(&catalog, &[3]);
        assert_eq!(
            before,
            [
                "1 a member \"\" h1:7672 h1:5672",
                "2 a member \"\" h2:7672 h2:5672",
                "3 a member \"\" h3:7672 h3:5672",
                "0: [1, 2, 3] [] true",
                "1: [1, 2, 3] [] true",
                "2: [1, 2, 3] [] true",
            ]
        );
        let unled = "1: [1, 2, 3] [] false".to_owned();
        assert!(shown(&catalog, &[2, 3]).contains(&unled), "two of three are away");
        apply(&mut catalog, vec![CatalogCommand::RaiseMachine(MachineVersion::MEMBERS)]);
        assert_eq!(shown(&catalog, &[3]), before);
        assert!(shown(&catalog, &[2, 3]).contains(&unled));
        let (node, incarnation) = (NodeId(4), Incarnation(4));
        let newcomer =
            Newcomer { node, incarnation, address: "h4:7672".to_owned(), zone: "north".to_owned() };
        let placed = [1, 2, 4].map(NodeId).into();
        let place = MemberCommand::Place { group: GroupId(1), number: 2, nodes: placed };
        let admit = MemberCommand::Admit { node, incarnation };
        let steps = [MemberCommand::Join(newcomer), admit, place];
        apply(&mut catalog, steps.into_iter().map(CatalogCommand::Members).collect());
        assert_eq!(
            shown(&catalog, &[3]).split_off(3),
            [
                "4 a member \"north\" h4:7672 ",
                "0: [1, 2, 3] [] true",
                "1: [1, 2, 4] [1, 2, 3] true",
                "2: [1, 2, 3] [] true",
            ]
        );
    }
}
