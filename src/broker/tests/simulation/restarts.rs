//! Nodes that are stopped as `quorate` stops on SIGTERM, one after the other, and started again: as they
//! were, at another address (MEM 3), or with a release that knows another machine version (MEM 15).
//! Failures hit them meanwhile as at any other time.

use crate::{
    driver::Driver,
    membership::{Launch, Request},
    world::{Health, NODES},
};
use quorate_types::{MachineVersion, NodeId};
use std::{collections::VecDeque, time::Duration};

/// Between two requests to stop; a node may be starting when it is asked.
const REQUEST: Duration = Duration::from_secs(1);

/// Why nodes are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Rolling,
    NewAddress,
    Upgrade,
}

/// A restart of one node.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: NodeId,
    /// What its next process is started with.
    launch: Launch,
    /// Its former process has ended.
    has_ended: bool,
}

/// The restarts that are left, in order; one is under way at a time.
#[derive(Default)]
pub struct Restarts(VecDeque<Step>);

impl Restarts {
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, node: NodeId, launch: Launch) {
        self.0.push_back(Step { node, launch, has_ended: false });
    }
}

impl Driver {
    /// Some of the nodes that founded the cluster run a release that does not know the newest version.
    pub fn is_old(&self) -> bool {
        let version = |node| self.world.membership.launch(node).version;
        NODES.into_iter().any(|node| version(node) < MachineVersion::NEWEST)
    }

    pub fn plan_restarts(&mut self, why: Why) {
        let first = self.moves.chance.below(NODES.len() as u64) as usize;
        let mut nodes = NODES;
        nodes.rotate_left(first);
        let [one, other, last] = nodes;
        let before = |node| self.world.membership.launch(node);
        let upgraded = |node| Launch { version: MachineVersion::NEWEST, ..before(node) };
        let steps = match why {
            Why::Rolling => nodes.map(|node| (node, before(node))).to_vec(),
            Why::NewAddress => {
                let moved = |node| Launch { moved: before(node).moved + 1, ..before(node) };
                vec![(one, moved(one)), (other, moved(other))]
            }
            // The first attempt is undone, as long as a node is left that does not know the version.
            Why::Upgrade => vec![
                (one, upgraded(one)),
                (other, upgraded(other)),
                (one, before(one)),
                (one, upgraded(one)),
                (last, upgraded(last)),
            ],
        };
        steps.into_iter().for_each(|(node, launch)| self.moves.restarts.add(node, launch));
    }

    /// A node's process has ended, for whatever reason: its next one is what the restart wants.
    pub fn change_launch(&mut self, node: NodeId) {
        let Some(step) = self.moves.restarts.0.front_mut() else { return };
        if step.node == node && !step.has_ended {
            step.has_ended = true;
            self.world.membership.set_launch(node, step.launch);
        }
    }

    /// Stops the next node, or goes on to the one after it when it runs again.
    pub fn see_to_restarts(&mut self) {
        let Some(Step { node, launch, has_ended }) = self.moves.restarts.0.front().copied() else {
            return;
        };
        if has_ended && self.is_up(node) {
            self.note(&format!("node {node} was restarted with {launch:?}"));
            self.moves.restarts.0.pop_front();
        } else if !has_ended {
            self.moves.due += REQUEST;
            self.world.membership.ask(node, Request::Stop);
        }
    }

    /// Ends the processes of nodes that have stopped.
    pub fn end_stopped(&mut self) {
        for node in self.world.membership.take_stopped() {
            if self.world.health(node) == Health::Running {
                self.world.disk(node).kill();
                self.end(node, Health::Killed);
            }
        }
    }
}
