//! Entries of the groups that this node leads: what comes in for them, when they are cut, and how
//! they are handed to the log (DESIGN §6).

use crate::{node::Node, sequencer::Handed};
use quorate_queue::Command;
use quorate_raft::ProposeError;
use quorate_storage::{CommandEntry, codec::batch::ProposedBatch};
use quorate_types::{GroupId, Home};
use std::{sync::Arc, time::Duration};

/// A group's next entry is cut after this long at the latest (DESIGN §6).
const PACE: Duration = Duration::from_millis(3);

impl Node {
    /// Cuts entries that have waited for a pace of the disk too long.
    pub(crate) async fn pace(self: Arc<Self>) {
        loop {
            self.pacer.notified().await;
            tokio::time::sleep(PACE).await;
            self.pace_all();
        }
    }

    /// A good moment to cut what waits: the log writer has finished a cycle, or time is up.
    pub(crate) fn pace_all(&self) {
        for (group, sequencer) in &self.sequencers {
            sequencer.pace(|entry| self.propose(*group, entry));
        }
    }

    /// Hands an entry to the group's log.
    pub(crate) fn propose(&self, group: GroupId, entry: CommandEntry) -> Handed {
        let Some(group) = self.context.groups().and_then(|groups| groups.group(group)) else {
            return Handed::Lost;
        };
        match group.propose(entry.clone()) {
            Ok(()) => Handed::Taken,
            Err(ProposeError::Full) => Handed::Busy(entry),
            Err(ProposeError::NotLeader(_) | ProposeError::Stopped) => Handed::Lost,
        }
    }

    /// Proposes a command of the leader's own, if this node leads the group.
    pub(crate) fn propose_as_leader(&self, group: GroupId, command: Command) {
        if let Some(sequencer) = self.sequencers.get(&group) {
            sequencer.commands(vec![command], |entry| self.propose(group, entry));
        }
    }

    /// Proposes commands of the leader's own, in as few entries as they fit in.
    pub(crate) fn propose_all_as_leader(&self, group: GroupId, commands: Vec<Command>) {
        if let Some(sequencer) = self.sequencers.get(&group) {
            sequencer.commands(commands, |entry| self.propose(group, entry));
        }
    }

    /// Proposes commands of the home's leader, if this node is it.
    pub(crate) fn propose_to(&self, home: Home, commands: Vec<Command>) {
        match home {
            Home::Group(group) => self.propose_all_as_leader(group, commands),
            Home::Node(_) => {
                commands.into_iter().for_each(|command| self.local.command(command));
                self.context.peers.wake();
            }
        }
    }

    /// Takes a batch for a home that this node leads.
    pub(crate) fn take_batch(&self, home: Home, batch: Arc<ProposedBatch>) {
        let batch = Arc::unwrap_or_clone(batch);
        match home {
            Home::Node(_) => {
                self.local.push(batch);
                self.context.peers.wake();
            }
            Home::Group(group) => {
                if let Some(sequencer) = self.sequencers.get(&group) {
                    sequencer.push(batch, |entry| self.propose(group, entry));
                    if sequencer.is_waiting() {
                        self.pacer.notify_one();
                    }
                }
            }
        }
    }
}
