//! Transactions: publishes and settlements of a channel are kept until its client commits them or
//! rolls them back (TX-01 to TX-09).

use crate::{
    channel::{
        Action, Out, Returned, Then,
        machine::{Channel, Waiting},
        settle::{Entry, Settles, Unacked, UnknownTag},
    },
    codec::{
        cold::{Cold, channel, tx},
        frame::{Frame, Kind},
        hot,
        method::MethodId,
    },
    connection::close::Fault,
};
use quorate_client::{Operation, Publish, Settle, Settlement};
use quorate_types::ReplyCode;

/// Bytes that the open transactions of a connection may have published, as a multiple of the
/// largest message. Above this the connection is closed with 506, since nothing else would free the
/// memory.
const TRANSACTION_MESSAGES_MAX: u64 = 2;

/// Memory of a publish in addition to its bytes.
const PUBLISH_COST_BYTES: usize = 256;

/// A channel's transaction, which begins with `tx.select`, a commit or a rollback (TX-09). The
/// broker keeps its publishes.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Number of publishes, including unroutable ones.
    published: u64,
    /// Mandatory messages without a route.
    returns: Vec<Returned>,
    settles: Vec<(Settlement, Vec<Entry>)>,
    /// Bytes of publishes and returns.
    bytes: usize,
    /// Bytes of the previous transaction, whose commit has not been answered.
    committing: usize,
}

impl Transaction {
    /// Settles with the commit. From now on the deliveries are not unacked any more (TX-04).
    pub(crate) fn settle(
        &mut self,
        unacked: &mut Unacked,
        tag: u64,
        multiple: bool,
        settlement: Settlement,
    ) -> Result<(), UnknownTag> {
        let mut aside = Vec::new();
        unacked.set_aside(tag, multiple, &mut aside)?;
        self.settles.push((settlement, aside));
        Ok(())
    }

    /// Number of publishes so far, whatever their outcome.
    pub(crate) fn published(&self) -> u64 {
        self.published
    }

    /// Number of deliveries that are settled with the commit.
    pub(crate) fn settled(&self) -> u64 {
        self.settles.iter().map(|(_, entries)| entries.len() as u64).sum()
    }

    /// Number of deliveries that the commit acknowledges.
    fn acknowledged(&self) -> u64 {
        let acks = self.settles.iter().filter(|(settlement, _)| *settlement == Settlement::Ack);
        acks.map(|(_, entries)| entries.len() as u64).sum()
    }

    /// Bytes of publishes and returns.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.committing
    }

    fn take_settles(&mut self, unacked: &mut Unacked) -> Vec<Settle> {
        let mut settles = Settles::default();
        for (settlement, entries) in std::mem::take(&mut self.settles) {
            for entry in entries {
                if let Some((holder, number)) = unacked.settle_aside(entry) {
                    settles.add(holder, number, settlement);
                }
            }
        }
        settles.take()
    }
}

impl Channel {
    pub(crate) fn tx(&mut self, method: tx::Method, out: &mut Out<'_>) -> Result<(), Fault> {
        match method {
            tx::Method::Select(_) => {
                if self.confirms.is_some() {
                    let text = "cannot switch from confirm to tx mode";
                    return Err(Fault::new(ReplyCode::PreconditionFailed, text, tx::Select::ID));
                }
                self.transaction.get_or_insert_default();
                out.reply(self.id, tx::SelectOk {});
                Ok(())
            }
            tx::Method::Commit(_) => self.commit(out),
            tx::Method::Rollback(_) => self.rollback(out),
            other @ (tx::Method::SelectOk(_)
            | tx::Method::CommitOk(_)
            | tx::Method::RollbackOk(_)) => Err(super::declare::only_servers(Cold::Tx(other))),
        }
    }

    /// Takes the transaction, and begins the next one (TX-09).
    fn end_transaction(&mut self, id: MethodId, out: &mut Out<'_>) -> Result<Transaction, Fault> {
        let Some(transaction) = self.transaction.as_mut().map(std::mem::take) else {
            let text = "channel is not transactional";
            return Err(Fault::new(ReplyCode::PreconditionFailed, text, id));
        };
        out.effects.transaction_bytes -= transaction.bytes;
        Ok(transaction)
    }

    fn commit(&mut self, out: &mut Out<'_>) -> Result<(), Fault> {
        let id = tx::Commit::ID;
        let mut transaction = self.end_transaction(id, out)?;
        // The bytes are held until the queues have answered.
        out.effects.transaction_bytes += transaction.bytes;
        self.transaction.get_or_insert_default().committing = transaction.bytes;
        self.traffic.acknowledged += transaction.acknowledged();
        let settles = transaction.take_settles(&mut self.unacked);
        for returned in &transaction.returns {
            self.send_return(returned, out);
        }
        let then = Then::Reply(Box::new(tx::CommitOk {}.into()));
        self.ask(id, false, then, Operation::Commit { settles }, out);
        Ok(())
    }

    /// A commit was answered, if one was pending.
    pub(crate) fn committed(&mut self, out: &mut Out<'_>) {
        if let Some(transaction) = &mut self.transaction {
            out.effects.transaction_bytes -= std::mem::take(&mut transaction.committing);
        }
    }

    /// The publishes are dropped, the deliveries unacked again (TX-08).
    fn rollback(&mut self, out: &mut Out<'_>) -> Result<(), Fault> {
        let transaction = self.end_transaction(tx::Rollback::ID, out)?;
        self.unacked.put_back(transaction.settles.into_iter().flat_map(|(_, entries)| entries));
        out.act(Action::RollBack(self.id));
        out.reply(self.id, tx::RollbackOk {});
        Ok(())
    }

    /// A publish of a transaction: an error in it is reported at once (TX-03).
    pub(crate) fn publish_later(
        &mut self,
        publish: Publish,
        returned: Option<Box<Returned>>,
        out: &mut Out<'_>,
    ) {
        let operation = Operation::Route(Box::new(publish));
        self.ask(hot::Publish::ID, false, Then::Routed { returned }, operation, out);
    }

    /// A publish of a transaction was routed: the broker keeps this number of its bytes.
    pub(crate) fn published_later(
        &mut self,
        routed: Option<usize>,
        returned: Option<Box<Returned>>,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        transaction.published += 1;
        let bytes = match (routed, returned) {
            (Some(bytes), _) => bytes,
            (None, Some(returned)) => {
                let bytes = returned.body.len();
                transaction.returns.push(returned.detached());
                bytes
            }
            (None, None) => {
                self.traffic.dropped += 1;
                return Ok(());
            }
        };
        transaction.bytes += bytes + PUBLISH_COST_BYTES;
        out.effects.transaction_bytes += bytes + PUBLISH_COST_BYTES;
        let bound =
            TRANSACTION_MESSAGES_MAX.saturating_mul(out.env.bounds.max_message_size.max(1 << 20));
        if out.effects.transaction_bytes as u64 > bound {
            let text = format!("open transactions of all channels are larger than {bound}");
            return Err(Fault::new(ReplyCode::ResourceError, text, hot::Publish::ID));
        }
        Ok(())
    }

    /// True while a commit is pending.
    pub(crate) fn commits(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Answer { id: tx::Commit::ID, .. }))
    }

    /// While a commit is pending, every frame except a close is a fault (TX-07).
    pub(crate) fn check_during_commit(&self, frame: &Frame) -> Result<(), Fault> {
        match MethodId::peek(&frame.payload) {
            Some(id) if frame.kind == Kind::Method && id != channel::Close::ID => {
                let text = "unexpected command while processing 'tx.commit'";
                Err(Fault::new(ReplyCode::ChannelError, text, id))
            }
            Some(MethodId { .. }) | None => Ok(()),
        }
    }
}
