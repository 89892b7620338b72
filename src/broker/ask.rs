//! Commands to homes: how they are sent, and what becomes of the answers (SES 4, 5, 7; NAM 6).

use crate::{
    batch::{Answered, Batches, Ticket},
    confirm::{TargetAnswer, Verdict},
    node::Node,
    proposer::Courier,
    wire,
};
use quorate_queue::{Command, Reply};
use quorate_rpc::{Lane, Payload};
use quorate_storage::codec::batch::{ProposedBatch, encode_batch};
use quorate_types::{DeliveryNumber, Holder, Home, NodeId, Sequence, SessionId};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// Why a command got no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The home has no leader that answered in time.
    #[error("timed out")]
    TimedOut,
    /// The node has begun anew (SES 6).
    #[error("the node's session has ended")]
    SessionEnded,
}

impl Node {
    /// Adds to what is sent to a home, and lets a connection-bound home work it off.
    pub(crate) fn fill(&self, home: Home, fill: impl FnOnce(&mut Batches)) {
        let Some(proposer) = self.proposers.get(&home) else {
            tracing::error!(?home, "no such home");
            return;
        };
        proposer.submit(&Carrier(self), fill);
        if home == Home::Node(self.me) {
            self.local.run(self);
        }
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
        let bound = Duration::from_millis(self.settings.operation_timeout_ms);
        match tokio::time::timeout(bound, receiver).await {
            Err(_) => Err(CallError::TimedOut),
            Ok(Err(_)) => Err(CallError::SessionEnded),
            Ok(Ok(reply)) => Ok(reply),
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
        if home == Home::Node(self.me) {
            self.local.run(self);
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
                if let Err((sequence, Reply::Got(_))) = caller.send((answered.sequence, reply)) {
                    let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
                    let holder = Holder::Get(session, sequence);
                    self.submit(home, Command::Release { holder, numbers });
                }
            }
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

/// Carries batches: to this node directly, to others over the bulk lane.
pub(crate) struct Carrier<'a>(pub(crate) &'a Node);

impl Courier for Carrier<'_> {
    fn cut(&self, batch: &ProposedBatch, waited: Duration) {
        self.0.counters.batch_commands.record(batch.commands.len() as u64);
        self.0.counters.batch_wait_us.record_time(waited);
    }

    fn carry(&self, home: Home, to: NodeId, batch: &ProposedBatch) {
        if to == self.0.me {
            self.0.take_batch(home, batch.clone());
        } else if let Some(links) = self.0.links.get() {
            // What does not arrive is sent again after the next announcement (SES 5).
            let payload: Payload = encode_batch(batch).into_iter().collect();
            let _ = links.notify(to, Lane::Bulk, wire::BATCH, wire::group(home), payload);
        }
    }
}
