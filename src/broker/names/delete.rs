//! Queues that end: by delete, with their connection, or on their own; and purging (DEL, EXQ-01,
//! EXQ-05, NAM 4).

use crate::{
    context::CallError,
    front::client_handle::QueueOperations,
    names::{declare::unexpected, exclusive::ExclusiveQueues, queues::Queues},
};
use quorate_catalog::{Access, CatalogCommand, QueueEntry, Resource, check_owner, refusal};
use quorate_queue::{Command, Reply};
use quorate_types::{Exception, QueueId, ReplyCode, ResourceName, ShortString};
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::oneshot;

impl QueueOperations<'_> {
    /// `queue.purge`: ready messages removed.
    ///
    /// # Errors
    /// 404, 405, 541.
    pub(crate) async fn queue_purge(&self, queue: ShortString) -> Result<u64, Exception> {
        self.client.check(Access::Read, Resource::Queue(&queue))?;
        let entry = self.client.find_queue(&queue).await?;
        self.client.node.queues.purge_queue(&entry).await
    }

    /// `queue.delete`: ready messages that went with it (DEL-01 to 03).
    ///
    /// # Errors
    /// 405, 406, 541.
    pub(crate) async fn queue_delete(
        &self,
        queue: ShortString,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        self.client.check(Access::Configure, Resource::Queue(&queue))?;
        let name = self.client.resource(&queue);
        let Some(entry) = self.client.base().known_queue(&name) else {
            let agreed = self.client.base().lease.agreed().await;
            agreed.map_err(|_| delete_timeout(&name))?;
            // A queue that is not there is deleted already (DEL-01); another connection's may be on its node (EXQ-02).
            let missing = self.client.node.exclusive.missing_queue(&name).await;
            return if missing.code == ReplyCode::NotFound { Ok(0) } else { Err(missing) };
        };
        check_owner(&entry, self.client.state.id, None)?;
        self.client.node.queues.check_free(&entry)?;
        let (sender, receiver) = oneshot::channel();
        let node = Arc::clone(self.client.node);
        let id = entry.id;
        self.client.base().context.spawn(async move {
            drop(sender.send(node.queues.delete_queue(&entry, if_unused, if_empty).await));
        });
        let deleted = receiver.await.unwrap_or_else(|_| Err(delete_timeout(&name)))?;
        self.client.state.held.lock().queues.remove(&id);
        Ok(deleted)
    }
}

impl Queues {
    /// Ends a queue that no entry of the catalog names, or whose entry is removed too. The receiver
    /// gets the queue's reply.
    pub(crate) fn end_unnamed(&self, id: QueueId) -> oneshot::Receiver<Reply> {
        let end = Command::EndQueue { queue: id, if_unused: false, if_empty: false };
        self.base.proposers.submit_for_reply(id.home, end)
    }

    /// Takes an ended queue's entry away, by id, here and in the catalog (NAM 4).
    pub(crate) async fn forget_queue(self: &Arc<Self>, id: QueueId) -> Result<(), CallError> {
        let was_local = self.base.led.local.forget(id);
        if self.base.catalog.read().queue_by_id(id).is_some() {
            let (index, _) =
                self.base.catalog_client.propose(CatalogCommand::RemoveQueue { queue: id }).await?;
            self.base.lease.barrier(index).await?;
        } else {
            // The catalog counts those that it knows.
            self.base.context.counters.queues_deleted.add(u64::from(was_local));
        }
        Ok(())
    }

    /// Ends a queue and takes its entry away.
    pub(crate) async fn delete_queue(
        self: &Arc<Self>,
        entry: &QueueEntry,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        let end = Command::EndQueue { queue: entry.id, if_unused, if_empty };
        let ready = match self.base.proposers.ask(entry.id.home, end).await {
            Ok(Reply::Ended { ready }) => ready,
            Ok(Reply::Gone) => 0,
            Ok(Reply::InUse) => return Err(refusal::queue_in_use(&entry.name)),
            Ok(Reply::NotEmpty) => return Err(refusal::queue_not_empty(&entry.name)),
            Ok(other) => return Err(unexpected(&entry.name, &other)),
            Err(_) => return Err(delete_timeout(&entry.name)),
        };
        self.forget_queue(entry.id).await.map_err(|_| delete_timeout(&entry.name))?;
        Ok(ready)
    }

    /// 404 for a queue that its group has ended, when its name leads nowhere any more: so that no node says
    /// afterwards that the queue is there.
    pub(crate) async fn gone(self: &Arc<Self>, entry: &QueueEntry) -> Exception {
        match self.forget_queue(entry.id).await {
            Ok(()) => refusal::no_queue(&entry.name),
            Err(_) => refusal::look_up_timeout(&entry.name),
        }
    }

    /// Removes a queue's ready messages (DEL-07).
    pub(crate) async fn purge_queue(
        self: &Arc<Self>,
        entry: &QueueEntry,
    ) -> Result<u64, Exception> {
        match self.base.proposers.ask(entry.id.home, Command::Purge { queue: entry.id }).await {
            Ok(Reply::Purged { messages }) => Ok(messages),
            Ok(Reply::Gone) => Err(self.gone(entry).await),
            Ok(other) => Err(unexpected(&entry.name, &other)),
            Err(_) => Err(purge_timeout(&entry.name)),
        }
    }
}

impl ExclusiveQueues {
    /// Takes entries out of the catalog, and waits until no routing node knows them: their names are free on all
    /// nodes then (NAM 5).
    async fn remove_everywhere(&self, entries: Vec<CatalogCommand>) -> Result<(), CallError> {
        let (index, _) = self.base.catalog_client.propose_all(entries).await?;
        self.base.lease.barrier(index).await
    }

    /// Ends exclusive queues with their connection; afterwards no publish through any node reaches
    /// them (EXQ-01, CONN-27).
    pub(crate) async fn end_exclusive(self: &Arc<Self>, queues: BTreeSet<QueueId>) {
        let mut entries = Vec::new();
        let mut ends = Vec::new();
        for id in queues {
            let was_local = self.base.led.local.forget(id);
            ends.push(self.queues.end_unnamed(id));
            if self.base.catalog.read().queue_by_id(id).is_some() {
                entries.push(CatalogCommand::RemoveQueue { queue: id });
            } else {
                self.base.context.counters.queues_deleted.add(u64::from(was_local));
            }
        }
        if !entries.is_empty() && self.remove_everywhere(entries).await.is_err() {
            tracing::warn!(
                "cannot delete the exclusive queues of a closed connection yet; will retry"
            );
        }
        for end in ends {
            // Without a reply, the queues end with the session (SES 6).
            if self.base.proposers.wait(end).await.is_err() {
                return;
            }
        }
    }

    /// Ends a connection-bound queue of this node whose name is not known.
    pub(crate) fn drop_local(&self, id: QueueId) {
        self.base.led.local.forget(id);
        self.queues.end_unnamed(id);
    }
}

impl Queues {
    /// A queue has ended, not by its own delete alone: its entry goes (NAM 4).
    pub(crate) fn queue_ended(self: &Arc<Self>, id: QueueId) {
        let queues = Arc::clone(self);
        self.base.context.spawn(async move {
            if queues.forget_queue(id).await.is_err() {
                tracing::warn!(
                    queue = %id, "cannot delete the name of an ended queue yet; will retry"
                );
            }
        });
    }
}

/// DEL-07, Q-60.
pub(crate) fn purge_timeout(name: &ResourceName) -> Exception {
    let text = format!("failed to purge queue {name} due to a timeout");
    Exception::new(ReplyCode::InternalError, text)
}

/// DEL-06, Q-60.
pub(crate) fn delete_timeout(name: &ResourceName) -> Exception {
    let text = format!("failed to delete queue {name} due to a timeout");
    Exception::new(ReplyCode::InternalError, text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::testing;
    use tokio::time::{Duration, timeout};

    /// A publish through another node may arrive before this node's own commands are applied.
    #[tokio::test(start_paused = true)]
    async fn conn_27_a_close_is_not_confirmed_before_the_queues_have_ended() {
        let node = testing::node();
        let queue = testing::local_queue(&node).await;
        node.exclusive.end_exclusive(BTreeSet::from([queue])).await;
        let left = node.base.led.with_machine(queue.home, |machine| machine.queue(queue).is_some());
        assert_eq!(left, Some(false));
        // A queue that has ended is no reason to wait.
        let again = node.exclusive.end_exclusive(BTreeSet::from([queue]));
        timeout(Duration::from_secs(1), again).await.unwrap();
    }
}
