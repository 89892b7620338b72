//! Commands of this node's front end to homes: one proposer for each home, and what waits for
//! replies (SES 2, 4, 5; Q-60).

use crate::{
    context::{CallError, Context},
    front::{
        batch::{Answered, Batches, Ticket},
        proposer::{Courier, Proposer},
    },
    memory::Share,
    peers::{PeerMessage, Sent},
};
use parking_lot::RwLock;
use quorate_queue::{Command, Reply};
use quorate_rpc::Lane;
use quorate_storage::codec::batch::ProposedBatch;
use quorate_types::{Home, LetterHome, NodeId, Sequence, SessionId, StartNumber, Term};
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::Instant;
use tokio::{
    sync::{oneshot, watch},
    time::MissedTickBehavior,
};

/// How often overdue batches are searched for.
const OVERDUE_CHECK: Duration = Duration::from_millis(250);

/// The proposers of a node, one for each home.
#[derive(Debug)]
pub(crate) struct Proposers {
    this: Weak<Proposers>,
    context: Arc<Context>,
    homes: RwLock<Homes>,
    /// Changes whenever a leader has announced itself.
    leaders: watch::Sender<()>,
}

/// The proposers, and the session that all of them send for.
#[derive(Debug)]
struct Homes {
    session: SessionId,
    all: BTreeMap<Home, Arc<Proposer>>,
}

impl Proposers {
    /// Proposers to these homes, for a process without a session.
    pub(crate) fn new(context: &Arc<Context>, homes: &[Home]) -> Arc<Self> {
        let session = SessionId { node: context.me, start: StartNumber(0) };
        let proposers = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            context: Arc::clone(context),
            homes: RwLock::new(Homes { session, all: BTreeMap::new() }),
            leaders: watch::Sender::default(),
        });
        proposers.add(homes.iter().copied());
        proposers
    }

    /// Adds homes: those of nodes that have joined (MEM 3). A home is never removed, since what was sent
    /// to it may wait for its end.
    pub(crate) fn add(&self, homes: impl Iterator<Item = Home>) {
        let mut known = self.homes.write();
        let session = known.session;
        for home in homes {
            let memory = || self.context.memory.account(Share::InFlight);
            let proposer = || Arc::new(Proposer::new(home, session, memory()));
            known.all.entry(home).or_insert_with(proposer);
        }
    }

    fn of(&self, home: Home) -> Option<Arc<Proposer>> {
        self.homes.read().all.get(&home).cloned()
    }

    fn all(&self) -> Vec<(Home, Arc<Proposer>)> {
        let homes = self.homes.read();
        homes.all.iter().map(|(home, proposer)| (*home, Arc::clone(proposer))).collect()
    }

    /// Lets `fill` add commands to the batches of a home.
    pub(crate) fn fill(&self, home: Home, fill: impl FnOnce(&mut Batches)) {
        match self.of(home) {
            Some(proposer) => proposer.submit(self, fill),
            None => tracing::error!(?home, "commands for an unknown Raft group or node"),
        }
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn submit(&self, home: Home, command: Command) {
        self.fill(home, |batches| batches.push(command, Ticket::None));
    }

    /// Sends a settle or a credit before the publishes that wait (see [`Batches::push_ahead`]).
    pub(crate) fn submit_ahead(&self, home: Home, command: Command) {
        self.fill(home, |batches| batches.push_ahead(command));
    }

    /// Sends a command and waits for its reply, at most the time of an operation.
    pub(crate) async fn ask(&self, home: Home, command: Command) -> Result<Reply, CallError> {
        self.wait(self.submit_for_reply(home, command)).await
    }

    /// Sends a command, whose reply the receiver gets.
    pub(crate) fn submit_for_reply(
        &self,
        home: Home,
        command: Command,
    ) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        self.fill(home, |batches| batches.push(command, Ticket::Reply(sender)));
        receiver
    }

    /// Sends a command and waits for its reply without a time limit.
    pub(crate) async fn ask_until_answered(
        &self,
        home: Home,
        command: Command,
    ) -> Result<Reply, CallError> {
        let receiver = self.submit_for_reply(home, command);
        receiver.await.map_err(|_| CallError::SessionEnded)
    }

    /// Waits for an answer, at most the time of an operation.
    pub(crate) async fn wait<T>(&self, receiver: oneshot::Receiver<T>) -> Result<T, CallError> {
        match tokio::time::timeout(self.context.operation_timeout(), receiver).await {
            Err(_) => Err(CallError::TimedOut),
            Ok(Err(_)) => Err(CallError::SessionEnded),
            Ok(Ok(reply)) => Ok(reply),
        }
    }

    /// Sends overdue batches again; runs until the node stops.
    pub(crate) async fn send_overdue(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(OVERDUE_CHECK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Nothing is lost on the way to this node's own queues.
            let own = Home::Node(self.context.me);
            let all = self.all().into_iter().filter(|(home, _)| *home != own);
            all.for_each(|(_, proposer)| proposer.send_overdue(&*self));
        }
    }

    /// Handles a home's answers to this node's batches; returns the answered commands.
    pub(crate) fn answered(
        &self,
        home: Home,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
    ) -> Vec<Answered> {
        let Some(proposer) = self.of(home) else { return Vec::new() };
        proposer.answered(self, session, first, last, other)
    }

    /// Handles a home's request for everything from that number on (SES 3).
    pub(crate) fn wanted(&self, home: Home, session: SessionId, want: Sequence) {
        if let Some(proposer) = self.of(home) {
            proposer.wanted(self, session, want);
        }
    }

    /// Handles the end of the node's starts up to this one; returns the answered commands.
    pub(crate) fn ended(&self, node: NodeId, start: StartNumber) -> Vec<Answered> {
        let Some(proposer) = self.of(Home::Node(node)) else { return Vec::new() };
        proposer.ended(self, start)
    }

    /// Records the announcement of a leader of the home; false if a later one is known (SES 5).
    pub(crate) fn announced(&self, home: Home, leader: NodeId, term: Term) -> bool {
        let news = self.of(home).is_some_and(|proposer| proposer.announced(self, leader, term));
        self.leaders.send_replace(());
        news
    }

    /// Changes whenever a leader of any home has announced itself.
    pub(crate) fn leaders(&self) -> watch::Receiver<()> {
        self.leaders.subscribe()
    }

    /// The leader of the home, as far as this node knows, and its term.
    pub(crate) fn leader(&self, home: Home) -> Option<(NodeId, Term)> {
        self.of(home)?.leader()
    }

    /// The node that leads the other end of a stream of dead letters, as far as this node knows.
    pub(crate) fn leader_of(&self, home: LetterHome) -> Option<NodeId> {
        match home {
            LetterHome::Start(session) => Some(session.node),
            LetterHome::Group(_) => Some(self.leader(home.home())?.0),
        }
    }

    /// All homes that this node may send to.
    pub(crate) fn homes(&self) -> Vec<Home> {
        self.homes.read().all.keys().copied().collect()
    }

    /// Begins a session of this process: commands of the previous one are not answered (SES 6).
    pub(crate) fn restart(&self, session: SessionId) {
        let mut homes = self.homes.write();
        homes.session = session;
        homes.all.values().for_each(|proposer| proposer.restart(session));
    }

    /// Whether a start follows the starts of all sessions of this process so far (SES 1).
    pub(crate) fn is_next(&self, start: StartNumber) -> bool {
        self.homes.read().all.values().all(|proposer| proposer.session().start < start)
    }

    /// Bytes in flight to the home with most of them.
    pub(crate) fn home_bytes_max(&self) -> usize {
        self.homes.read().all.values().map(|one| one.bytes()).max().unwrap_or(0)
    }

    /// Bytes of publishes that wait or are in flight to all homes.
    pub(crate) fn bytes(&self) -> u64 {
        self.homes.read().all.values().map(|one| one.bytes() as u64).sum()
    }
}

impl Courier for Proposers {
    fn cut(&self, batch: &ProposedBatch, waited: Duration) {
        self.context.counters.batch_commands.record(batch.commands.len() as u64);
        self.context.counters.batch_wait_us.record_time(waited);
    }

    fn carry(&self, home: Home, to: NodeId, batch: &Arc<ProposedBatch>) -> Sent {
        let batch = Arc::clone(batch);
        let sent = self.context.peers.send(to, PeerMessage::Batch { home, batch });
        self.context.counters.batches_refused.add(u64::from(sent == Sent::Full));
        sent
    }

    fn wait_for_room(&self, home: Home, to: NodeId) {
        let Some(this) = self.this.upgrade() else { return };
        self.context.spawn(async move {
            this.context.peers.wait_for_room(to, Lane::Bulk).await;
            if let Some(proposer) = this.of(home) {
                proposer.has_room(&*this);
            }
        });
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
