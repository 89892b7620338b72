//! The homes that this node leads or may lead. Incoming batches are cut into log entries and proposed
//! here, and the machines are read here (DESIGN §6).

use crate::{
    context::Context,
    leader::{
        clock::ProcessStart,
        leaderships::Leaderships,
        local::LocalQueues,
        sequencer::{Handed, Sequencer},
    },
    peers::PeerMessage,
};
use quorate_queue::{Command, Machine};
use quorate_raft::ProposeError;
use quorate_storage::{
    CommandEntry,
    codec::batch::{ProposedBatch, Sender},
};
use quorate_types::{GroupId, Home, NodeId, Term, Timestamp, WallTime};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::Instant;

/// A group's next entry is cut after this long at the latest (DESIGN §6).
const PACE: Duration = Duration::from_millis(3);

/// The replicated groups, and this node's connection-bound queues.
#[derive(Debug)]
pub(crate) struct LedHomes {
    context: Arc<Context>,
    sequencers: BTreeMap<GroupId, Sequencer>,
    pub(crate) local: LocalQueues,
    pub(crate) leaderships: Leaderships,
    /// Told of each entry that is applied while this node leads.
    progress: BTreeMap<Home, watch::Sender<()>>,
    /// Something waits for the pace of the disk.
    pacer: tokio::sync::Notify,
    process: ProcessStart,
}

impl LedHomes {
    /// None of them is led yet.
    pub(crate) fn new(context: &Arc<Context>, homes: &[Home]) -> Self {
        let settings = &context.settings;
        let sequencer = |group| (group, Sequencer::new(settings.wall));
        Self {
            context: Arc::clone(context),
            sequencers: settings.shape.groups().map(sequencer).collect(),
            local: LocalQueues::new(settings.spill.clone(), settings.wall),
            leaderships: Leaderships::new(homes.iter().copied()),
            progress: homes.iter().map(|home| (*home, watch::Sender::default())).collect(),
            pacer: tokio::sync::Notify::new(),
            process: ProcessStart::now(settings.wall),
        }
    }

    /// The replicated queue groups.
    pub(crate) fn queue_groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.sequencers.keys().copied()
    }

    /// Queue groups that this node leads.
    pub(crate) fn groups(&self) -> Vec<GroupId> {
        self.queue_groups().filter(|group| self.leading(Home::Group(*group)).is_some()).collect()
    }

    /// The home of this node's connection-bound queues.
    pub(crate) fn own_home(&self) -> Home {
        Home::Node(self.context.me)
    }

    /// Homes that this node leads, that of its connection-bound queues among them.
    pub(crate) fn homes(&self) -> Vec<Home> {
        let groups = self.groups().into_iter().map(Home::Group);
        groups.chain([self.own_home()]).collect()
    }

    /// Term in which this node leads the home.
    pub(crate) fn leading(&self, home: Home) -> Option<Term> {
        self.leaderships.leading(home)
    }

    /// Reads a home's machine on this node.
    pub(crate) fn with_machine<T>(
        &self,
        home: Home,
        read: impl FnOnce(&Machine) -> T,
    ) -> Option<T> {
        match home {
            Home::Node(_) => self.local.read(read),
            Home::Group(group) => self.context.groups()?.read(group, read),
        }
    }

    /// A leadership of the group begins, with these last stamps in its state.
    pub(crate) fn lead(&self, group: GroupId, term: Term, stamps: (Timestamp, WallTime)) {
        if let Some(sequencer) = self.sequencers.get(&group) {
            sequencer.lead(sequencer.clock.lead(stamps.0, stamps.1, self.process));
            self.send_clocks(std::iter::once(group), None);
            self.leaderships.lead(Home::Group(group), term);
        }
    }

    /// This node leads the home no more.
    pub(crate) fn stop(&self, home: Home) {
        if let Home::Group(group) = home
            && let Some(sequencer) = self.sequencers.get(&group)
        {
            sequencer.stop();
        }
        self.leaderships.stop(home);
        self.note_progress(home);
    }

    /// An entry that was handed to the group's log will not be applied; false for no group of queues.
    pub(crate) fn proposal_lost(&self, group: GroupId) -> bool {
        self.sequencers.get(&group).inspect(|sequencer| sequencer.lost()).is_some()
    }

    /// An entry of this leadership has been applied.
    pub(crate) fn applied(&self, home: Home) {
        if let Home::Group(group) = home
            && let Some(sequencer) = self.sequencers.get(&group)
        {
            sequencer.applied(|entry| self.propose(group, entry));
        }
        self.note_progress(home);
    }

    fn note_progress(&self, home: Home) {
        // Mostly nobody waits, and entries are many.
        if let Some(progress) = self.progress.get(&home)
            && progress.receiver_count() > 0
        {
            progress.send_replace(());
        }
    }

    /// Changes with each entry of the home that is applied while this node leads it, and when it
    /// leads it no more.
    pub(crate) fn progress(&self, home: Home) -> Option<watch::Receiver<()>> {
        self.progress.get(&home).map(watch::Sender::subscribe)
    }

    /// Cuts entries that have waited for a pace of the disk too long; runs until the node stops.
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
    fn propose(&self, group: GroupId, entry: CommandEntry) -> Handed {
        let Some(group) = self.context.group(group) else {
            return Handed::Lost;
        };
        match group.propose(entry.clone()) {
            Ok(()) => Handed::Taken,
            Err(ProposeError::Full) => Handed::Busy(entry),
            Err(ProposeError::NotLeader(_) | ProposeError::Stopped) => Handed::Lost,
        }
    }

    /// Proposes commands of the leader's own, if this node leads the home, in as few entries as they
    /// fit in.
    pub(crate) fn propose_to(&self, home: Home, commands: Vec<Command>) {
        match home {
            Home::Group(group) => {
                if let Some(sequencer) = self.sequencers.get(&group) {
                    sequencer.commands(commands, |entry| self.propose(group, entry));
                }
            }
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
            // Sent in a session of this node that is over, to queues that are gone (SES 6).
            Home::Node(_) if self.is_of_former_session(&batch) => {}
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

    /// Whether this node sent the batch in a session that is over.
    fn is_of_former_session(&self, batch: &ProposedBatch) -> bool {
        match batch.sender {
            Sender::Session(session) => {
                session.node == self.context.me && self.context.session() != Some(session)
            }
            Sender::Letters(_) => false,
        }
    }

    /// When the home's clock shows that time; `None` if this node does not lead it.
    pub(crate) fn moment(&self, home: Home, time: Timestamp) -> Option<Instant> {
        match home {
            Home::Group(group) => self.sequencers.get(&group)?.moment(time),
            Home::Node(_) => self.local.moment(time),
        }
    }

    /// Tells all nodes, or one, how the clocks of these groups stand, as far as this process knows.
    pub(crate) fn send_clocks(&self, groups: impl Iterator<Item = GroupId>, to: Option<NodeId>) {
        let clock = |group| Some((group, self.sequencers.get(&group)?.clock.now()?));
        let clocks: Vec<_> = groups.filter_map(clock).collect();
        if clocks.is_empty() {
            return;
        }
        let message = PeerMessage::Clocks(clocks);
        match to {
            // Who is not linked is told when it is.
            None => self.context.peers.send_to_others(&message),
            Some(node) => drop(self.context.peers.send(node, message)),
        }
    }

    /// Another process says how clocks stand.
    pub(crate) fn clocks_received(&self, clocks: Vec<(GroupId, Timestamp)>) {
        for (group, time) in clocks {
            if let Some(sequencer) = self.sequencers.get(&group) {
                sequencer.clock.learn(time);
            }
        }
    }
}
