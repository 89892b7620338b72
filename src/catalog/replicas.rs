//! Which nodes replicate which groups: the next step towards an even placement (MEM 6).
//!
//! A step changes the replicas of one group. It is a pure function of what the catalog holds, so
//! that every leader of the catalog computes the same one. Repairs come first: replicas on nodes
//! that leave, and groups with too few or too many. Then groups are spread over zones, and last
//! over nodes. Each step reduces the [`Flaws`] of the placement, so there is a last step.

use quorate_types::{GroupId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// What a placement depends on of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of its zone; nodes of an empty name are each in a zone of their own.
    pub zone: String,
    /// Whether replicas may be placed on it. A node that is drained keeps those that it has.
    pub takes: bool,
    /// Whether it leaves, so that its replicas must go.
    pub leaves: bool,
}

/// The nodes that shall replicate each group.
pub type Replicas = BTreeMap<GroupId, BTreeSet<NodeId>>;

/// How bad a placement is; the first difference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flaws {
    /// Replicas on nodes that leave or are unknown, and replicas that are missing or too many.
    pub misplaced: usize,
    /// Replicas in a zone that has another one of the same group, beyond what the number of zones
    /// makes necessary.
    pub crowded: usize,
    /// Sum of the squares of the nodes' numbers of replicas.
    pub uneven: usize,
}

/// The members of a cluster, as far as placement depends on them.
#[derive(Clone, Debug)]
pub struct Hosts<'a> {
    hosts: &'a BTreeMap<NodeId, Host>,
    /// Replicas that each group shall have.
    voters: usize,
}

impl<'a> Hosts<'a> {
    /// `voters`: replicas that each group shall have, as far as there are nodes for them.
    #[must_use]
    pub fn new(hosts: &'a BTreeMap<NodeId, Host>, voters: usize) -> Self {
        let stay = hosts.values().filter(|host| !host.leaves).count();
        Self { hosts, voters: voters.min(stay) }
    }

    /// The best next step: a group, and the nodes that shall replicate it from now on. At most one
    /// node comes and at most one goes. `None`: no step makes the placement better. Groups in
    /// `moving` are left alone.
    #[must_use]
    pub fn next_step(
        &self,
        present: &Replicas,
        moving: &BTreeSet<GroupId>,
    ) -> Option<(GroupId, BTreeSet<NodeId>)> {
        let (before, loads) = self.judge(present);
        let groups = present.iter().filter(|(group, _)| !moving.contains(group));
        let steps = groups.flat_map(|(group, of)| {
            let (misplaced, crowded) = (self.misplaced(of), self.crowded(of));
            let judged = move |step: Step, loads| {
                let next = step.applied(of);
                let flaws = Flaws {
                    misplaced: before.misplaced - misplaced + self.misplaced(&next),
                    crowded: before.crowded - crowded + self.crowded(&next),
                    uneven: step.uneven(before.uneven, loads),
                };
                (flaws, *group, next)
            };
            let loads = &loads;
            self.steps(of).map(move |step| judged(step, loads))
        });
        let (after, group, next) = steps.min()?;
        (after < before).then_some((group, next))
    }

    /// The flaws of a placement.
    #[must_use]
    pub fn flaws(&self, replicas: &Replicas) -> Flaws {
        self.judge(replicas).0
    }

    /// The flaws of a placement, and the number of replicas of each node.
    fn judge(&self, replicas: &Replicas) -> (Flaws, BTreeMap<NodeId, usize>) {
        let mut loads: BTreeMap<NodeId, usize> = BTreeMap::new();
        replicas.values().flatten().for_each(|node| *loads.entry(*node).or_default() += 1);
        let flaws = Flaws {
            misplaced: replicas.values().map(|of| self.misplaced(of)).sum(),
            crowded: replicas.values().map(|of| self.crowded(of)).sum(),
            uneven: loads.values().map(|load| load * load).sum(),
        };
        (flaws, loads)
    }

    fn misplaced(&self, of: &BTreeSet<NodeId>) -> usize {
        let stays = |node: &&NodeId| self.hosts.get(node).is_some_and(|host| !host.leaves);
        let good = of.iter().filter(stays).count();
        of.len() - good + good.abs_diff(self.voters)
    }

    /// Replicas beyond the first of their zone, without those for which there is no other zone.
    fn crowded(&self, of: &BTreeSet<NodeId>) -> usize {
        let zones: BTreeSet<_> = of.iter().map(|node| self.zone(*node)).collect();
        let stay = self.hosts.iter().filter(|(_, host)| !host.leaves);
        let all: BTreeSet<_> = stay.map(|(node, _)| self.zone(*node)).collect();
        of.len().min(all.len()).saturating_sub(zones.len())
    }

    /// The zone of a node; its id stands for a zone without a name.
    fn zone(&self, node: NodeId) -> (&str, Option<NodeId>) {
        match self.hosts.get(&node) {
            Some(host) if !host.zone.is_empty() => (&host.zone, None),
            Some(_) | None => ("", Some(node)),
        }
    }

    /// The changes of a group that are possible.
    fn steps<'b>(&'b self, of: &'b BTreeSet<NodeId>) -> impl Iterator<Item = Step> + 'b {
        let may_come = self
            .hosts
            .iter()
            .filter(|(node, host)| host.takes && !host.leaves && !of.contains(node));
        let coming = may_come.map(|(node, _)| Some(*node)).chain([None]);
        let going = || of.iter().map(|node| Some(*node)).chain([None]);
        coming.flat_map(move |comes| going().map(move |goes| Step { comes, goes }))
    }
}

/// A change of one group's replicas.
#[derive(Clone, Copy)]
struct Step {
    comes: Option<NodeId>,
    goes: Option<NodeId>,
}

impl Step {
    fn applied(self, of: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let kept = of.iter().copied().filter(|node| Some(*node) != self.goes);
        kept.chain(self.comes).collect()
    }

    /// The sum of the squares of the loads, which was `uneven` before. The squares of neighbouring
    /// numbers differ by the sum of the two numbers.
    fn uneven(self, uneven: usize, loads: &BTreeMap<NodeId, usize>) -> usize {
        let load = |node: NodeId| loads.get(&node).copied().unwrap_or(0);
        let more = self.comes.map_or(0, |node| 2 * load(node) + 1);
        let less = self.goes.map_or(0, |node| (2 * load(node)).saturating_sub(1));
        uneven + more - less
    }
}
