//! Connection-bound queues: declared and named, and how their names go when they have ended (NAM 8,
//! EXQ-01).
//!
//! Only the node of a connection-bound queue knows whether the queue has ended. So this node alone
//! compares the names with the queues, every second and whenever a queue has answered "gone".

use crate::{
    client::DeclareOk,
    context::CallError,
    front::{client_handle::QueueOperations, connection_state::ConnectionState},
    leader::reconcile_plan::Named,
    names::{
        declare::{NewQueue, declare_timeout},
        exclusive::ExclusiveQueues,
    },
};
use quorate_catalog::{
    CatalogCommand, CatalogReply, ConnectionId, QueueEntry, bound_position, refusal,
    server_given_name, server_named_queue,
};
use quorate_queue::{Command, Reply};
use quorate_rpc::chance;
use quorate_types::{Exception, Home, QueueId, ResourceName, SessionId, StartNumber};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// The names of this node's connection-bound queues are compared with the queues this often.
const COMPARE: Duration = Duration::from_secs(1);
/// And no more often, when somebody asks for queues that are gone.
const PAUSE: Duration = Duration::from_millis(100);

impl ConnectionState {
    /// Notes that a queue ends with the connection; false if the connection has ended already.
    fn own(&self, queue: QueueId) -> bool {
        let mut held = self.held.lock();
        if !held.closed {
            held.queues.insert(queue);
        }
        !held.closed
    }
}

impl QueueOperations<'_> {
    /// NAM 8: on this node, in memory; only a name that the client chose is in the catalog. `None`
    /// if someone else was first. Finished whatever becomes of the client, so that no name stays
    /// behind.
    pub(crate) async fn declare_exclusive(
        &self,
        new: NewQueue,
    ) -> Result<Option<DeclareOk>, Exception> {
        let name = new.name.clone();
        let (sender, receiver) = oneshot::channel();
        let (node, state) = (Arc::clone(self.client.node), Arc::clone(self.client.state));
        self.client.base().context.spawn(async move {
            drop(sender.send(node.exclusive.make_exclusive(&state, new).await))
        });
        receiver.await.unwrap_or_else(|_| Err(declare_timeout(&name)))
    }
}

impl ExclusiveQueues {
    async fn make_exclusive(
        self: &Arc<Self>,
        owner: &ConnectionState,
        new: NewQueue,
    ) -> Result<Option<DeclareOk>, Exception> {
        let NewQueue { name, declare, queue_type, config, .. } = new;
        let home = self.base.led.own_home();
        // The name that the server gives says where the queue is, and nothing else does.
        let chance = chance::random();
        let server_named = declare.queue.is_empty();
        let bound = Some(if server_named { bound_position(&name.vhost, chance) } else { chance });
        let create = Command::CreateQueue { name: name.clone(), config: config.clone(), bound };
        let Ok(Reply::Created(id)) = self.base.proposers.ask(home, create).await else {
            return Err(declare_timeout(&name));
        };
        let session = SessionId { node: self.base.context.me, start: StartNumber(id.index) };
        let name = match server_named {
            true => ResourceName { name: server_given_name(session, chance), vhost: name.vhost },
            false => name,
        };
        let entry = QueueEntry {
            name: name.clone(),
            id,
            creator: session,
            queue_type,
            durable: false,
            auto_delete: declare.auto_delete,
            owner: Some(owner.id),
            arguments: declare.arguments,
        };
        if !owner.own(id) {
            self.queues.end_unnamed(id);
            return Err(declare_timeout(&name));
        }
        self.base.led.local.entries.write().insert(name.clone(), entry.clone());
        // A server-given name is known only now.
        self.queues.configurer.configure_new(&entry, &config).await;
        if !server_named && !self.name_exclusive(owner, entry).await? {
            return Ok(None);
        }
        self.base.context.counters.queues_created.add(1);
        Ok(Some(DeclareOk { queue: name.name, messages: 0, consumers: 0 }))
    }

    /// Makes the name known; false if another queue has it.
    async fn name_exclusive(
        self: &Arc<Self>,
        owner: &ConnectionState,
        entry: QueueEntry,
    ) -> Result<bool, Exception> {
        let (id, name) = (entry.id, entry.name.clone());
        match self.base.catalog_client.propose(CatalogCommand::AddQueue(entry)).await {
            Ok((index, CatalogReply::Done)) => {
                if owner.held.lock().closed {
                    // When the connection ended this node did not know the entry yet.
                    self.queues.queue_ended(id);
                    return Err(declare_timeout(&name));
                }
                self.base.lease.barrier(index).await.map_err(|_| declare_timeout(&name))?;
                Ok(true)
            }
            Ok((_, CatalogReply::NameTaken { .. })) => {
                owner.held.lock().queues.remove(&id);
                self.drop_local(id);
                Ok(false)
            }
            Ok((_, CatalogReply::Refused(exception))) => {
                self.drop_local(id);
                Err(exception)
            }
            Ok((_, CatalogReply::Fenced | CatalogReply::Started(_) | CatalogReply::Denied(_)))
            | Err(_) => {
                self.drop_local(id);
                Err(declare_timeout(&name))
            }
        }
    }

    /// Puts a connection-bound queue's entry into the catalog, if it is not yet there (NAM 8).
    pub(crate) async fn publish_entry(
        self: &Arc<Self>,
        entry: &QueueEntry,
        owner: ConnectionId,
    ) -> Result<(), CallError> {
        let missing = self.base.catalog.read().queue_by_id(entry.id).is_none();
        if missing && entry.owner == Some(owner) {
            self.base.catalog_client.propose(CatalogCommand::AddQueue(entry.clone())).await?;
        }
        Ok(())
    }

    /// The error for a queue that this node does not know: 404; or 405 if the name is
    /// one that another node has given to a queue of a connection of its own, which lives.
    pub(crate) async fn missing_queue(&self, name: &ResourceName) -> Exception {
        let elsewhere = server_named_queue(&name.vhost, &name.name).filter(|id| {
            let catalog = self.base.catalog.read();
            let live = |node| catalog.live_session(node).map(|session| session.start.0);
            match id.home {
                Home::Node(node) => node != self.base.context.me && live(node) == Some(id.index),
                Home::Group(_) => false,
            }
        });
        let Some(id) = elsewhere else { return refusal::no_queue(name) };
        // Only its own node knows; if that does not answer, the queue may live.
        match self.base.proposers.ask(id.home, Command::Inspect { queue: id, renew: false }).await {
            Ok(Reply::Gone) => refusal::no_queue(name),
            Ok(_) | Err(_) => refusal::exclusive_queue(name),
        }
    }

    /// Takes the names of this node's connection-bound queues away that have ended, whatever has
    /// kept them: an entry that came after the end, a removal that found no majority. This node is
    /// the only one that knows, so nothing can come in between. Runs as long as the node.
    pub(crate) async fn compare_own_names(self: Arc<Self>) {
        loop {
            // A request to such a queue was answered "gone", or the interval is over.
            let _ = tokio::time::timeout(COMPARE, self.gone.notified()).await;
            let ended = self.own_names_of_ended_queues();
            let remove = |queue| CatalogCommand::RemoveQueue { queue };
            let removals: Vec<_> = ended.into_iter().map(remove).collect();
            if !removals.is_empty()
                && let Err(error) = self.base.catalog_client.propose_all(removals).await
            {
                tracing::warn!(%error, "cannot delete the names of ended exclusive queues yet");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn own_names_of_ended_queues(&self) -> Vec<QueueId> {
        let Some(session) = self.base.context.session() else { return Vec::new() };
        let named = Named::of_run(&self.base.catalog.read(), session);
        self.base.led.local.read(|machine| named.ended(machine)).unwrap_or_default()
    }
}
