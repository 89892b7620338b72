//! Transactions: publishes are routed when they are published and sent when their channel commits
//! (TX-03, TX-05, TX-06).
//!
//! TX-05 promises no atomicity, so no Raft entry says "commit". A publish of a transaction is
//! routed at once and kept with its channel, encoded and with its targets; a bound on its bytes
//! closes the connection with 506 (`amqp/channel/transaction`). The commit is one request. It sends
//! all publishes before it settles anything, and is answered when every queue has answered.

use crate::{
    client::{ChannelId, Publish, Settle},
    front::{
        client_handle::Transactions,
        commit::Commit,
        confirm::ConfirmTo,
        publish::{Outgoings, Source},
        routed::RoutedPublish,
        spread::Spread,
    },
};
use quorate_types::{Exception, ReplyCode};
use std::sync::Arc;

impl Transactions<'_> {
    /// Routes a publish of a transaction, which is kept until the transaction ends; returns the
    /// bytes kept. `None`: it has no target. Waits while this node may not route (NAM 5).
    ///
    /// # Errors
    /// The exceptions of PUB-01.
    pub(crate) async fn route(&self, publish: Publish) -> Result<Option<usize>, Exception> {
        self.client.base().lease.until_held().await;
        let channel = publish.channel;
        let routed = self.client.node.publisher.route_only(self.client.state, publish)?;
        Ok(routed.map(|routed| self.keep(channel, routed)))
    }

    /// Keeps a publish of the channel's transaction; returns its bytes.
    fn keep(&self, channel: ChannelId, routed: RoutedPublish) -> usize {
        let bytes = routed.bytes();
        let mut held = self.client.state.held.lock();
        // A channel is removed before what it holds is ended, so what an open channel holds ends
        // with it.
        if !held.closed && self.client.state.is_open(channel) {
            held.channels.entry(channel).or_default().transaction.push(routed);
        }
        bytes
    }

    /// Takes the publishes of the channel's transaction; the next transaction begins.
    pub(crate) fn take_transaction(&self, channel: ChannelId) -> Vec<RoutedPublish> {
        let mut held = self.client.state.held.lock();
        let transaction = held.channels.get_mut(&channel).map(|channel| &mut channel.transaction);
        transaction.map(std::mem::take).unwrap_or_default()
    }

    /// Sends what a transaction has published, then what it settles; returns when every queue has
    /// answered (TX-05).
    ///
    /// # Errors
    /// 406 when a queue has refused a message (TX-06), 541 when this start of the node has ended.
    pub(crate) async fn commit(
        &self,
        channel: ChannelId,
        publishes: Vec<RoutedPublish>,
        settles: Vec<Settle>,
    ) -> Result<(), Exception> {
        let count = publishes.len();
        let (commit, all_taken) = Commit::new(count);
        self.send_transaction(channel, publishes, commit).await;
        self.client.settle(settles);
        if count == 0 {
            return Ok(());
        }
        match all_taken.await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = "partial tx completion";
                Err(Exception::new(ReplyCode::PreconditionFailed, text))
            }
            Err(_) => {
                let text = "the node's session has ended during a commit";
                Err(Exception::new(ReplyCode::InternalError, text))
            }
        }
    }

    /// Sends the publishes of a commit, with no more in flight than a connection may have.
    async fn send_transaction(
        &self,
        channel: ChannelId,
        publishes: Vec<RoutedPublish>,
        commit: Arc<Commit>,
    ) {
        let (node, connection) = (self.client.node, self.client.state);
        let mut outgoings = Outgoings::default();
        for routed in publishes {
            let (confirm_to, mandatory) =
                (ConfirmTo::Commit(Arc::clone(&commit)), routed.mandatory);
            let source = Source { connection, channel, confirm_to, mandatory };
            let spread = node.publisher.is_spread(&routed, 0);
            if !spread {
                outgoings.add(&source, &routed);
            }
            if spread || outgoings.copies_bytes > node.publisher.step_bytes() {
                node.publisher.send_all(std::mem::take(&mut outgoings));
                node.publisher.room_to_spread(connection).await;
            }
            if spread {
                node.publisher.spread(Spread::new(&source, routed)).await;
            }
        }
        node.publisher.send_all(outgoings);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{
        client::{Connection as _, Operation},
        testing,
    };
    use bytes::Bytes;

    /// TX-05: a commit is done when the last publish is answered, not before.
    #[test]
    fn tx_05_a_commit_waits_for_every_answer() {
        let (commit, mut all_taken) = Commit::new(3);
        commit.answered(2, true);
        assert!(all_taken.try_recv().is_err());
        commit.answered(1, true);
        assert!(all_taken.try_recv().unwrap());
    }

    /// TX-08, TX-09: what a channel publishes in a transaction is the next commit's, unless the
    /// transaction is rolled back or the channel ends first.
    #[tokio::test]
    async fn tx_09_a_transaction_ends_with_its_commit_its_rollback_or_its_channel() {
        let node = testing::node();
        let connection = crate::Connection { state: testing::connection(&node), node };
        let channel = |opened| ChannelId { number: 1, opened };
        let kept = |opened| {
            let held = connection.state.held.lock();
            held.channels.get(&channel(opened)).map_or(0, |held| held.transaction.len())
        };
        let (first, second) = (channel(0), channel(1));
        connection.open_channel(first).unwrap();
        let routed = || RoutedPublish { message: Bytes::from_static(b"body"), ..<_>::default() };
        assert_eq!(connection.client().transactions().keep(first, routed()), 4);
        connection.client().transactions().keep(first, routed());
        assert_eq!(
            (connection.client().transactions().take_transaction(first).len(), kept(0)),
            (2, 0)
        );
        connection.client().transactions().keep(first, routed());
        connection.roll_back(first);
        assert_eq!(kept(0), 0);
        connection.client().transactions().keep(first, routed());
        // The commit completes although the channel is closed before its first poll (TX-07).
        let commit = Operation::Commit { settles: Vec::new() };
        let committing = connection.ask(first, commit);
        assert_eq!(kept(0), 0);
        drop(committing);
        connection.client().transactions().keep(first, routed());
        connection.close_channel(first);
        connection.open_channel(second).unwrap();
        connection.client().transactions().keep(first, routed());
        assert_eq!((kept(0), kept(1)), (0, 0), "nothing is kept for a channel that has ended");
        connection.client().transactions().keep(second, routed());
        assert_eq!(kept(1), 1);
    }

    /// One refusal fails the commit, which is answered when all publishes have been answered
    /// (TX-06).
    #[test]
    fn tx_06_a_refused_message_fails_the_commit() {
        let (commit, mut all_taken) = Commit::new(2);
        commit.answered(1, false);
        assert!(all_taken.try_recv().is_err());
        commit.answered(1, true);
        assert!(!all_taken.try_recv().unwrap());
    }
}
