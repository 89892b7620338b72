//! The homes that this node leads or may lead. Incoming batches are cut into log entries and proposed
//! here, and the machines are read here (DESIGN §6).

use crate::{
    context::Context,
    leader::{
        clock::{ProcessStart, TimeOf},
        leaderships::Leaderships,
        local::LocalQueues,
        sequencer::{Handed, Sequencer},
    },
    peers::PeerMessage,
};
use quorate_queue::{Command, Machine, Walk};
use quorate_raft::ProposeError;
use quorate_storage::{
    CommandEntry,
    codec::batch::{ProposedBatch, Sender},
};
use quorate_types::{GroupId, Home, NodeId, Term, Timestamp, WallTime};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::watch;
use tokio::time::Instant;

/// The longest that a command waits for its group's next entry (DESIGN §6).
const PACE: Duration = Duration::from_millis(3);

/// The replicated groups, and this node's connection-bound queues.
#[derive(Debug)]
pub(crate) struct LedHomes {
    context: Arc<Context>,
    sequencers: BTreeMap<GroupId, Sequencer>,
    pub(crate) local: LocalQueues,
    pub(crate) leaderships: Leaderships,
    /// Notified of each entry that is applied while this node leads the home.
    progress: BTreeMap<Home, watch::Sender<()>>,
    /// Notified when a batch waits for the log writer.
    pacer: tokio::sync::Notify,
    process: ProcessStart,
}

/// Reads all queues of a home. Its machine is locked for one part of the walk at a time; if this node loses
/// the machine meanwhile, the rest is missing.
pub(crate) fn walk<T>(
    led: &LedHomes,
    home: Home,
    read: impl Fn(&Machine, &mut Walk) -> Vec<T>,
) -> Vec<T> {
    Walk::through(|walk| led.with_machine(home, |machine| read(machine, walk)))
}

impl LedHomes {
    /// State of a node that leads none of the homes.
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

    /// Term in which this node leads the home; `None` if it does not lead it.
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

    /// Begins a leadership of the group, whose state has these last stamps.
    pub(crate) fn lead(&self, group: GroupId, term: Term, stamps: (Timestamp, WallTime)) {
        if let Some(sequencer) = self.sequencers.get(&group) {
            let (time, now) = sequencer.clock.lead(stamps.0, stamps.1, self.process);
            sequencer.lead(time, now);
            self.leaderships.lead(Home::Group(group), term);
        }
    }

    /// Ends this node's leadership of the home.
    pub(crate) fn stop(&self, home: Home) {
        if let Home::Group(group) = home
            && let Some(sequencer) = self.sequencers.get(&group)
        {
            sequencer.stop();
        }
        self.leaderships.stop(home);
        self.note_progress(home);
    }

    /// Counts out an entry of the group that will not be applied; false if the group has no queues.
    pub(crate) fn proposal_lost(&self, group: GroupId) -> bool {
        self.sequencers.get(&group).inspect(|sequencer| sequencer.lost()).is_some()
    }

    /// Counts out an entry of this leadership that has been applied, and proposes what waited for
    /// it.
    pub(crate) fn applied(&self, home: Home) {
        if let Home::Group(group) = home
            && let Some(sequencer) = self.sequencers.get(&group)
        {
            sequencer.applied(|entry| self.propose(group, entry));
        }
        self.note_progress(home);
    }

    fn note_progress(&self, home: Home) {
        // Entries are frequent, and mostly no task waits for them.
        if let Some(progress) = self.progress.get(&home)
            && progress.receiver_count() > 0
        {
            progress.send_replace(());
        }
    }

    /// Changes with each entry of the home that is applied while this node leads it, and when the
    /// leadership ends.
    pub(crate) fn progress(&self, home: Home) -> Option<watch::Receiver<()>> {
        self.progress.get(&home).map(watch::Sender::subscribe)
    }

    /// Cuts entries that have waited longer than [`PACE`]; runs until the node stops.
    pub(crate) async fn pace(self: Arc<Self>) {
        loop {
            self.pacer.notified().await;
            tokio::time::sleep(PACE).await;
            self.pace_all();
        }
    }

    /// Cuts entries of all groups: the log writer has finished a cycle, or a batch has waited long
    /// enough.
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

    /// Proposes the leader's own commands in as few entries as possible, if this node leads the
    /// home.
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
            // The batch belongs to an ended session of this node; its queues are gone (SES 6).
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

    /// The present time of the home's clock; `None` if this node does not lead it.
    pub(crate) fn now(&self, home: Home) -> Option<Timestamp> {
        match home {
            Home::Group(group) => self.sequencers.get(&group)?.now(),
            Home::Node(_) => Some(self.local.now()),
        }
    }

    /// The present time of the home's clock, as far as this node knows it.
    pub(crate) fn clock(&self, home: Home) -> Option<Timestamp> {
        match home {
            Home::Group(group) => self.sequencers.get(&group)?.clock.now(),
            Home::Node(_) => Some(self.local.now()),
        }
    }

    /// The instant at which the home's clock shows that time; `None` if this node does not lead it.
    pub(crate) fn moment(&self, home: Home, time: Timestamp) -> Option<Instant> {
        match home {
            Home::Group(group) => self.sequencers.get(&group)?.moment(time),
            Home::Node(_) => self.local.moment(time),
        }
    }

    /// Sends the present time of these groups' clocks to one node or to all, for the clocks known
    /// here.
    pub(crate) fn send_clocks(&self, groups: impl Iterator<Item = GroupId>, to: Option<NodeId>) {
        let clock = |group| Some((group, self.sequencers.get(&group)?.clock.now()?));
        let clocks: Vec<_> = groups.filter_map(clock).collect();
        if clocks.is_empty() {
            return;
        }
        let message = PeerMessage::Clocks(clocks);
        match to {
            // Nodes that are not linked get the clocks when they are linked.
            None => self.context.peers.send_to_others(&message),
            Some(node) => drop(self.context.peers.send(node, message)),
        }
    }

    /// Takes the times of groups' clocks that another process has sent. `led` is the latest leadership
    /// of a group by that process that is known here.
    pub(crate) fn clocks_received(
        &self,
        clocks: Vec<(GroupId, Timestamp)>,
        led: impl Fn(GroupId) -> Option<Term>,
    ) {
        for (group, time) in clocks {
            let Some(sequencer) = self.sequencers.get(&group) else { continue };
            let of = match (led(group), self.leading(Home::Group(group))) {
                (Some(term), own) if own.is_none_or(|own| own < term) => TimeOf::Leader,
                (_, Some(_)) => TimeOf::Follower,
                (_, None) => TimeOf::Other,
            };
            sequencer.clock.learn(time, of);
        }
    }
}
