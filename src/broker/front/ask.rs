//! What happens with the homes' answers to commands (SES 4, 7; NAM 6).

use crate::front::{
    FrontEnd,
    batch::{Answered, Ticket},
    confirm,
    get_answer::GetAnswer,
};
use quorate_queue::Reply;
use quorate_types::{Home, Sequence, SessionId, StartNumber};
use std::sync::Arc;

impl FrontEnd {
    /// Handles a home's answers to this node's batches.
    pub(crate) fn answered(
        self: &Arc<Self>,
        home: Home,
        session: SessionId,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
    ) {
        for answered in self.base.proposers.answered(home, session, first, last, other) {
            self.complete(home, session, answered);
        }
    }

    /// Answers commands to connection-bound queues of nodes whose latest start is fenced: the queues
    /// have ended with it, and the node may never start again (NAM 8).
    pub(crate) fn answer_for_ended_starts(self: &Arc<Self>) {
        let ended: Vec<_> = {
            let catalog = self.base.catalog.read();
            let nodes = catalog.nodes().filter(|(_, entry)| entry.start <= entry.fenced);
            // Start numbers are log indexes (SES 1): no later one has been given up to the copy's index.
            let last = StartNumber(catalog.version().0);
            nodes.map(|(node, entry)| (node, entry.fenced.max(last))).collect()
        };
        for (node, start) in ended.into_iter().filter(|(node, _)| *node != self.base.context.me) {
            // Answers are for a session of this node that may end meanwhile: then nobody takes them.
            let Some(session) = self.base.context.session() else { return };
            for answered in self.base.proposers.ended(node, start) {
                self.complete(Home::Node(node), session, answered);
            }
        }
    }

    fn complete(self: &Arc<Self>, home: Home, session: SessionId, answered: Answered) {
        match (answered.ticket, answered.reply) {
            (Ticket::None, _) => {}
            (Ticket::Publishes(tickets), reply) => {
                confirm::finish(&tickets, &reply, &answered.messages, |ticket, place, bytes| {
                    self.publisher.route_again(ticket, place, bytes);
                });
            }
            // The caller may have given up. Only the message of a get must be given back then.
            (Ticket::Reply(caller), reply) => drop(caller.send(reply)),
            (Ticket::Get(caller), reply) => {
                let answer = (answered.sequence, reply);
                drop(caller.send(GetAnswer::new(&self.base.proposers, home, session, answer)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::{node::Node, testing};
    use bytes::Bytes;
    use quorate_queue::{Command, MessageHead};
    use quorate_storage::codec::batch::{ProposedBatch, ProposedRun, Sender};
    use quorate_types::{Level, NodeId, QueueId, StartNumber};
    use tokio::sync::oneshot;

    const HOME: Home = Home::Node(testing::SESSION.node);

    /// A queue with one message.
    async fn queue(node: &Arc<Node>) -> QueueId {
        let queue = testing::local_queue(node).await;
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
        node.base.led.take_batch(HOME, Arc::new(batch));
        node.receive_own_now();
        queue
    }

    fn counts(node: &Node, queue: QueueId) -> (u64, u64) {
        let view =
            node.base.led.with_machine(HOME, |machine| machine.queue(queue)).flatten().unwrap();
        (view.ready, view.unacknowledged)
    }

    #[tokio::test]
    async fn ses_7_a_get_whose_answer_is_never_taken_gives_its_message_back() {
        let node = testing::node();
        let queue = queue(&node).await;
        let get = || {
            let (sender, receiver) = oneshot::channel();
            let command = Command::Get { queue, timeout_default_ms: None };
            node.base.proposers.fill(HOME, |batches| batches.push(command, Ticket::Get(sender)));
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
        assert_eq!(counts(&node, queue), (0, 1), "its caller gives it back itself");
    }
}
