//! Clusters with members, for tests: short constructors, and what a catalog's leader does.

use super::*;
use quorate_catalog::{
    ClusterShape, MemberCommand as M, MemberDenial, MemberState, Newcomer, PlacementRecord,
    Presence,
};
use quorate_types::{ClusterId, MachineVersion, ReplicaId, ReplicaNumber};
use std::collections::BTreeSet;

pub fn nodes(nodes: &[u16]) -> BTreeSet<NodeId> {
    nodes.iter().copied().map(NodeId).collect()
}

pub fn replica(node: u16, number: u32) -> ReplicaId {
    ReplicaId { node: NodeId(node), number: ReplicaNumber(number) }
}

pub fn newcomer(node: u16, directory: u64) -> Newcomer {
    Newcomer {
        node: NodeId(node),
        incarnation: Incarnation(directory),
        address: format!("host{node}:7672"),
        zone: String::new(),
    }
}

pub fn admit(node: u16, directory: u64) -> M {
    M::Admit { node: NodeId(node), incarnation: Incarnation(directory) }
}

pub fn forget(node: u16, directory: u64) -> M {
    M::Forget { node: NodeId(node), incarnation: Incarnation(directory) }
}

pub fn replace(node: u16, old: u64, directory: u64) -> M {
    M::Replace { old: Incarnation(old), by: newcomer(node, directory) }
}

/// The announcement of a start from that directory.
pub fn started_from(node: u16, directory: u64, boot: u64) -> CatalogCommand {
    CatalogCommand::NodeStarted {
        node: NodeId(node),
        incarnation: Incarnation(directory),
        boot: BootNumber(boot),
        rpc_address: format!("host{node}:7672"),
        amqp_address: format!("host{node}:5672"),
    }
}

impl World {
    /// Formed with that many queue groups; nodes 1 to `nodes` have started, each from the directory
    /// of its number.
    pub fn formed(nodes: u16, queue_groups: u16) -> Self {
        let mut world = Self::new();
        let shape = ClusterShape { cluster: ClusterId(7), queue_groups };
        world.done(CatalogCommand::Form(shape));
        for node in 1..=nodes {
            world.started(node, u64::from(node) * 100);
        }
        world
    }

    /// The same, raised to the version with members.
    pub fn founded(nodes: u16, queue_groups: u16) -> Self {
        let mut world = Self::formed(nodes, queue_groups);
        world.done(CatalogCommand::RaiseMachine(MachineVersion::MEMBERS));
        world
    }

    pub fn member(&mut self, command: M) {
        self.done(CatalogCommand::Members(command));
    }

    pub fn join(&mut self, node: u16, directory: u64) {
        self.member(M::Join(newcomer(node, directory)));
        self.member(admit(node, directory));
    }

    /// The refusal of a command; it has changed nothing.
    pub fn refused(&mut self, command: CatalogCommand) -> MemberDenial {
        let reply = self.one(command.clone());
        let CatalogReply::Denied(Denial::Member(denial)) = reply else {
            panic!("{command:?}: {reply:?}")
        };
        assert_eq!((&self.out.changes, self.events()), (&vec![CatalogKey::State], &[][..]));
        denial
    }

    pub fn member_refused(&mut self, command: M) -> MemberDenial {
        self.refused(CatalogCommand::Members(command))
    }

    pub fn state_of(&self, node: u16) -> Option<MemberState> {
        self.catalog.member(NodeId(node)).map(|member| member.state)
    }

    pub fn placement(&self, group: u16) -> &PlacementRecord {
        self.catalog.placement(GroupId(group)).unwrap()
    }

    pub fn replicas(&self, group: u16) -> Vec<ReplicaId> {
        self.placement(group).replicas.iter().copied().collect()
    }

    /// The next placement of the group.
    pub fn placing(&self, group: u16, of: &[u16]) -> M {
        let number = self.placement(group).number + 1;
        M::Place { group: GroupId(group), number, nodes: nodes(of) }
    }

    pub fn place(&mut self, group: u16, of: &[u16]) {
        self.member(self.placing(group, of));
    }

    pub fn reach(&mut self, group: u16) {
        let number = self.placement(group).number;
        self.member(M::Reached { group: GroupId(group), number });
    }

    /// What a leader of the catalog does, and the leaders of groups, until nothing is left.
    pub fn settle(&mut self, voters: usize) {
        for _ in 0..1_000 {
            let moves = self.catalog.placements().find(|(_, placement)| !placement.is_reached());
            let moves = moves.map(|(group, _)| group.0);
            match (self.catalog.next_step(voters, &|_| Presence::Here), moves) {
                (Some(step), _) => self.member(step),
                (None, Some(group)) => self.reach(group),
                (None, None) => return,
            }
        }
        panic!("no end: {:?}", self.catalog.next_step(voters, &|_| Presence::Here));
    }
}
