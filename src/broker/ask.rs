//! Commands to homes: how they are sent, and what becomes of the answers (SES 4, 5, 7; NAM 6).

use crate::{
    batch::{Answered, Batches, Ticket},
    confirm::{TargetAnswer, Verdict},
    context::CallError,
    node::Node,
    peers::{PeerMessage, Sent},
    proposer::Courier,
};
use quorate_queue::{Command, Reply};
use quorate_rpc::Lane;
use quorate_storage::codec::batch::ProposedBatch;
use quorate_types::{DeliveryNumber, Holder, Home, NodeId, Sequence, SessionId};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, time::MissedTickBehavior};

/// How often is looked whether batches have gone unanswered for too long.
const LOOK: Duration = Duration::from_millis(250);

impl Node {
    /// Adds to what is sent to a home, and lets a connection-bound home work it off.
    pub(crate) fn fill(&self, home: Home, fill: impl FnOnce(&mut Batches)) {
        let Some(proposer) = self.proposers.get(&home) else {
            tracing::error!(?home, "commands for an unknown Raft group or node");
            return;
        };
        proposer.submit(&Carrier(self), fill);
    }

    /// Sends a command whose reply nobody waits for.
    pub(crate) fn submit(&self, home: Home, command: Command) {
        self.fill(home, |batches| batches.push(command, Ticket::None));
    }

    /// Sends a settle or a credit before the publishes that wait (see [`Batches::push_ahead`]).
    pub(crate) fn submit_ahead(&self, home: Home, command: Command) {
        self.fill(home, |batches| batches.push_ahead(command));
    }

    /// Sends a command and waits for its reply, as long as operations may take.
    pub(crate) async fn ask(&self, home: Home, command: Command) -> Result<Reply, CallError> {
        let (sender, receiver) = oneshot::channel();
        self.fill(home, |batches| batches.push(command, Ticket::Reply(sender)));
        self.wait(receiver).await
    }

    /// Sends a command and waits for its reply however long that takes.
    pub(crate) async fn ask_until_answered(
        &self,
        home: Home,
        command: Command,
    ) -> Result<Reply, CallError> {
        let (sender, receiver) = oneshot::channel();
        self.fill(home, |batches| batches.push(command, Ticket::Reply(sender)));
        receiver.await.map_err(|_| CallError::SessionEnded)
    }

    /// Waits for an answer, as long as operations may take.
    pub(crate) async fn wait<T>(&self, receiver: oneshot::Receiver<T>) -> Result<T, CallError> {
        match tokio::time::timeout(self.context.operation_timeout(), receiver).await {
            Err(_) => Err(CallError::TimedOut),
            Ok(Err(_)) => Err(CallError::SessionEnded),
            Ok(Ok(reply)) => Ok(reply),
        }
    }

    /// Sends again what has gone unanswered for too long; runs as long as the node.
    pub(crate) async fn send_overdue(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // Nothing is lost on the way to this node's own queues.
            let others =
                self.proposers.iter().filter(|(home, _)| **home != Home::Node(self.context.me));
            others.for_each(|(_, proposer)| proposer.send_overdue(&Carrier(&self)));
        }
    }

    /// Takes a home's answers to this node's batches.
    pub(crate) fn answered(
        self: &Arc<Self>,
        home: Home,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
    ) {
        let Some(proposer) = self.proposers.get(&home) else { return };
        let answered = proposer.answered(&Carrier(self), session, first, last, other);
        for answered in answered {
            self.complete(home, session, answered);
        }
    }

    fn complete(self: &Arc<Self>, home: Home, session: SessionId, answered: Answered) {
        match (answered.ticket, answered.reply) {
            (Ticket::None, _) => {}
            (Ticket::Publishes(tickets), Reply::Taken) => {
                tickets.iter().for_each(|ticket| ticket.finish_all(true));
            }
            (Ticket::Publishes(tickets), reply) => {
                let mut place = 0;
                for ticket in &tickets {
                    for offset in 0..ticket.count {
                        let message =
                            answered.messages.get(place as usize).cloned().unwrap_or_default();
                        let answer = answer_of(&reply, place);
                        if let Verdict::RouteAgain(octets) =
                            ticket.finish_one(offset, answer, &message)
                        {
                            self.route_again(ticket, offset, octets);
                        }
                        place += 1;
                    }
                }
            }
            // The caller may have given up; only a get's message has to go back for that.
            (Ticket::Reply(caller), reply) => drop(caller.send(reply)),
            (Ticket::Get(caller), reply) => {
                let answer = Some((answered.sequence, reply));
                drop(caller.send(GetAnswer { node: Arc::clone(self), home, session, answer }));
            }
        }
    }
}

/// A get's answer on its way to its caller. Wherever it is when the caller goes, also when it has
/// come and was not looked at any more, its message is given back (SES 7).
#[derive(Debug)]
pub(crate) struct GetAnswer {
    node: Arc<Node>,
    home: Home,
    session: SessionId,
    answer: Option<(Sequence, Reply)>,
}

impl GetAnswer {
    /// The caller has it: the message is the caller's to give back.
    pub(crate) fn take(mut self) -> Option<(Sequence, Reply)> {
        self.answer.take()
    }
}

impl Drop for GetAnswer {
    fn drop(&mut self) {
        if let Some((sequence, Reply::Got(_))) = self.answer {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            let holder = Holder::Get(self.session, sequence);
            self.node.submit(self.home, Command::Release { holder, numbers });
        }
    }
}

/// How the enqueue's reply answers the message at that place.
fn answer_of(reply: &Reply, place: u32) -> TargetAnswer {
    match reply {
        Reply::Taken => TargetAnswer::Taken,
        Reply::Full => TargetAnswer::Refused,
        Reply::Refused(ranges) => {
            if ranges.iter().any(|&(first, last)| (first..=last).contains(&place)) {
                TargetAnswer::Refused
            } else {
                TargetAnswer::Taken
            }
        }
        Reply::Gone
        | Reply::Created(_)
        | Reply::Alive(_)
        | Reply::Ended { .. }
        | Reply::InUse
        | Reply::NotEmpty
        | Reply::ExclusiveInUse
        | Reply::Got(_)
        | Reply::Empty
        | Reply::Purged { .. } => TargetAnswer::Gone,
    }
}

/// Carries batches to the leaders of their homes.
pub(crate) struct Carrier<'a>(pub(crate) &'a Node);

impl Courier for Carrier<'_> {
    fn cut(&self, batch: &ProposedBatch, waited: Duration) {
        self.0.context.counters.batch_commands.record(batch.commands.len() as u64);
        self.0.context.counters.batch_wait_us.record_time(waited);
    }

    fn carry(&self, home: Home, to: NodeId, batch: &Arc<ProposedBatch>) -> Sent {
        let batch = Arc::clone(batch);
        let sent = self.0.context.peers.send(to, PeerMessage::Batch { home, batch });
        self.0.context.counters.batches_refused.add(u64::from(sent == Sent::Full));
        sent
    }

    fn wait_for_room(&self, home: Home, to: NodeId) {
        let Some(node) = self.0.arc() else { return };
        self.0.context.spawn(async move {
            node.context.peers.wait_for_room(to, Lane::Bulk).await;
            if let Some(proposer) = node.proposers.get(&home) {
                proposer.has_room(&Carrier(&node));
            }
        });
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::testing;
    use bytes::Bytes;
    use quorate_queue::{MessageHead, QueueConfig};
    use quorate_storage::codec::batch::{ProposedRun, Sender};
    use quorate_types::{Level, QueueId, QueueType, ResourceName, ShortString, StartNumber};

    const HOME: Home = Home::Node(testing::SESSION.node);

    /// A queue with one message.
    async fn queue(node: &Arc<Node>) -> QueueId {
        let name = ResourceName {
            vhost: ShortString::from_static("/"),
            name: ShortString::from_static("q"),
        };
        let config = QueueConfig::plain(QueueType::Classic);
        let created =
            node.ask(HOME, Command::CreateQueue { name, config, bound: Some(1) }).await.unwrap();
        let Reply::Created(queue) = created else { panic!("not created: {created:?}") };
        let head = MessageHead { body_bytes: 4, expiration_ms: None };
        let messages = vec![Bytes::from_static(b"body")];
        let run = ProposedRun { queue, level: Level(0), heads: vec![head], messages };
        let batch = ProposedBatch {
            sender: Sender::Session(SessionId { node: NodeId(2), start: StartNumber(1) }),
            first: Sequence(1),
            mark: Sequence(1),
            runs: vec![run],
            commands: vec![Command::Enqueue { run: 0, first: 0, count: 1 }],
        };
        node.take_batch(HOME, Arc::new(batch));
        node.receive_own_now();
        queue
    }

    fn counts(node: &Node, queue: QueueId) -> (u64, u64) {
        let view = node.with_machine(HOME, |machine| machine.queue(queue)).flatten().unwrap();
        (view.ready, view.unacknowledged)
    }

    #[tokio::test]
    async fn ses_7_a_get_whose_answer_has_come_and_is_never_looked_at_gives_its_message_back() {
        let node = testing::node();
        let queue = queue(&node).await;
        let get = || {
            let (sender, receiver) = oneshot::channel();
            let command = Command::Get { queue, timeout_default_ms: None };
            node.fill(HOME, |batches| batches.push(command, Ticket::Get(sender)));
            node.receive_own_now();
            receiver
        };
        let answered = get();
        assert_eq!(counts(&node, queue), (0, 1), "the answer lies in the channel");
        drop(answered);
        node.receive_own_now();
        assert_eq!(counts(&node, queue), (1, 0));

        let taken = get().await.ok().and_then(GetAnswer::take);
        assert!(matches!(taken, Some((_, Reply::Got(_)))), "{taken:?}");
        assert_eq!(counts(&node, queue), (0, 1), "who has taken it gives it back itself");
    }
}
