//! Queues by name: declare (QUE, EQV, EXQ; NAM 1 to 4, 8).

use crate::{
    base::Base,
    client::{DeclareOk, QueueDeclare},
    context::CallError,
    front::client_handle::{Client, QueueOperations},
    names::queues::Queues,
};
use quorate_catalog::{
    Access, CatalogCommand, CatalogReply, QueueEntry, Redeclared, Resource, check_owner,
    check_queue_properties, effective, equivalent, is_reserved, leader_locator, refusal,
    resolve_queue_type,
};
use quorate_queue::{Command, QueueConfig, QueueReport, Reply};
use quorate_types::{
    CatalogIndex, Exception, Home, LeaderLocator, QueueArguments, QueueId, QueueType, ReplyCode,
    ResourceName, ShortString,
};
use std::sync::Arc;

/// What names that the server gives begin with (QUE-06).
const SERVER_GIVEN: &str = "amq.gen-";
/// Tries to declare a name that others declare and delete at the same time.
const TRIES: usize = 16;

/// A queue to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewQueue {
    pub(crate) name: ResourceName,
    pub(crate) declare: QueueDeclare,
    pub(crate) queue_type: QueueType,
    pub(crate) config: QueueConfig,
    pub(crate) locator: LeaderLocator,
}

/// What became of making a queue.
pub(crate) enum Made {
    Ok,
    /// Another was first: inspect that one.
    NameTaken,
    /// The catalog does not take it: the error for the client.
    Refused(Exception),
}

impl Client<'_> {
    pub(crate) fn resource(&self, name: &ShortString) -> ResourceName {
        ResourceName { vhost: self.state.info.vhost.clone(), name: name.clone() }
    }

    /// The queue of that name, if this connection may use it.
    ///
    /// # Errors
    /// 404, 405, 541.
    pub(crate) async fn find_queue(&self, name: &ShortString) -> Result<QueueEntry, Exception> {
        let name = self.resource(name);
        let found = self.node.base.known_queue(&name);
        self.node.base.lease.agreed().await.map_err(|_| refusal::look_up_timeout(&name))?;
        let Some(entry) = found else {
            return Err(self.node.exclusive.missing_queue(&name).await);
        };
        check_owner(&entry, self.state.id, None)?;
        Ok(entry)
    }
}

impl QueueOperations<'_> {
    /// `queue.declare`.
    ///
    /// # Errors
    /// What QUE, EQV, ARG and EXQ name.
    pub(crate) async fn queue_declare(
        &self,
        declare: QueueDeclare,
    ) -> Result<DeclareOk, Exception> {
        let declared = self.declare(declare).await;
        self.client.base().context.counters.queues_declared.add(u64::from(declared.is_ok()));
        declared
    }

    async fn declare(&self, mut declare: QueueDeclare) -> Result<DeclareOk, Exception> {
        if let Some(ok) = self.declare_reply_queue(&declare.queue).await? {
            return Ok(ok);
        }
        if is_reserved(&declare.queue) {
            return Err(refusal::reserved_queue_name(&self.client.resource(&declare.queue)));
        }
        // A server-given name is checked as one of its shape (ACL-07).
        let checked = match declare.queue.is_empty() {
            true => self.client.base().context.generated_name(SERVER_GIVEN),
            false => declare.queue.clone(),
        };
        self.client.check(Access::Configure, Resource::Queue(&checked))?;
        let name = self.client.resource(&declare.queue);
        declare.arguments =
            self.client.bounded(&declare.arguments, &format_args!("queue {name}"))?;
        for _ in 0..TRIES {
            let name = self.client.resource(&declare.queue);
            let known =
                if declare.queue.is_empty() { None } else { self.client.base().known_queue(&name) };
            if let Some(entry) = known {
                if let Some(ok) = self.redeclare(entry, &declare).await? {
                    return Ok(ok);
                }
                continue;
            }
            if let Some(ok) = self.declare_new(declare.clone()).await? {
                return Ok(ok);
            }
        }
        Err(declare_timeout(&self.client.resource(&declare.queue)))
    }

    /// Declares a queue that is there; `None` if it turns out to have ended: begin anew (NAM 3).
    async fn redeclare(
        &self,
        entry: QueueEntry,
        declare: &QueueDeclare,
    ) -> Result<Option<DeclareOk>, Exception> {
        check_owner(&entry, self.client.state.id, Some(declare.exclusive))?;
        let name = entry.name.clone();
        let Some(report) = self.client.node.queues.inspect(&entry, true).await? else {
            self.client
                .node
                .queues
                .forget_queue(entry.id)
                .await
                .map_err(|_| declare_timeout(&name))?;
            return Ok(None);
        };
        let default = self.default_type_of(declare);
        let arguments = QueueArguments::parse(&declare.arguments, default)
            .map_err(|error| refusal::invalid_argument(&error, &name))?;
        let queue_type = arguments.queue_type.unwrap_or(default);
        let redeclared = Redeclared {
            queue_type,
            durable: declare.durable && !declare.exclusive,
            auto_delete: declare.auto_delete,
            arguments: &declare.arguments,
            relaxed_redeclaration: self.client.base().context.settings.relaxed_redeclaration,
        };
        equivalent(&entry, &redeclared)?;
        self.client.base().lease.agreed().await.map_err(|_| declare_timeout(&name))?;
        Ok(Some(declare_ok(&name, report)))
    }

    /// QUE-02: the virtual host's, else the node's.
    fn default_type(&self) -> QueueType {
        let catalog = self.client.base().catalog.read();
        let of_vhost = catalog.vhost(&self.client.state.info.vhost);
        let of_vhost = of_vhost.and_then(|vhost| vhost.metadata.default_queue_type);
        of_vhost.unwrap_or(self.client.base().context.settings.default_queue_type)
    }

    /// What a queue without a type of its own becomes (QUE-02, QUE-03).
    fn default_type_of(&self, declare: &QueueDeclare) -> QueueType {
        let QueueDeclare { durable, exclusive, auto_delete, .. } = *declare;
        resolve_queue_type(None, self.default_type(), durable, exclusive, auto_delete)
    }

    /// DLX-05: a new queue that dead-letters is read, and its DLX written to.
    fn check_dead_letter(&self, declare: &QueueDeclare) -> Result<(), Exception> {
        let value = declare.arguments.get("x-dead-letter-exchange");
        let Some(bytes) = value.and_then(|value| value.as_long_string()) else { return Ok(()) };
        let Ok(exchange) = ShortString::from_bytes(bytes.clone()) else { return Ok(()) };
        let queue = match declare.queue.is_empty() {
            true => self.client.base().context.generated_name(SERVER_GIVEN),
            false => declare.queue.clone(),
        };
        self.client.check(Access::Read, Resource::Queue(&queue))?;
        self.client.check(Access::Write, Resource::Exchange(&exchange))
    }

    /// QUE-11. Queues of this node that have no entry are counted too.
    fn check_limit(&self, queue: &ResourceName) -> Result<(), Exception> {
        let in_cluster = self.client.base().context.settings.limits.cluster_queue_limit;
        let in_vhost = self.client.base().catalog.read().vhost_limits(&queue.vhost).queues_max;
        if in_vhost.is_none() && in_cluster.is_none() {
            return Ok(());
        }
        let local = self.client.base().led.local.entries.read();
        let catalog = self.client.base().catalog.read();
        let most = (catalog.queue_count() + local.len()) as u64;
        let in_cluster = in_cluster.filter(|max| most >= *max);
        if in_vhost.is_none() && in_cluster.is_none() {
            return Ok(());
        }
        let uncounted = || local.values().filter(|entry| catalog.queue_by_id(entry.id).is_none());
        let of_vhost = uncounted().filter(|entry| entry.name.vhost == queue.vhost);
        catalog.check_queue_limit(queue, of_vhost.count())?;
        match in_cluster {
            Some(max) if (catalog.queue_count() + uncounted().count()) as u64 >= max => {
                Err(refusal::cluster_queue_limit(queue, max))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Declares a queue that is not there; `None` if someone else was first.
    async fn declare_new(&self, declare: QueueDeclare) -> Result<Option<DeclareOk>, Exception> {
        let new = self.check_new(declare)?;
        if new.declare.exclusive {
            return self.declare_exclusive(new).await;
        }
        let name = new.name.clone();
        match self.client.node.queues.make_in_turn(new).await {
            Ok(Made::Ok) => {
                let empty = DeclareOk { queue: name.name, messages: 0, consumers: 0 };
                Ok(Some(empty))
            }
            Ok(Made::NameTaken) => Ok(None),
            Ok(Made::Refused(exception)) => Err(exception),
            Err(_) => Err(declare_timeout(&name)),
        }
    }

    /// QUE-10: name, arguments, properties.
    fn check_new(&self, declare: QueueDeclare) -> Result<NewQueue, Exception> {
        let given = self.client.resource(&declare.queue);
        let default = self.default_type_of(&declare);
        self.check_dead_letter(&declare)?;
        let arguments = QueueArguments::parse(&declare.arguments, default)
            .map_err(|error| refusal::invalid_argument(&error, &given))?;
        let (durable, exclusive, auto_delete) =
            (declare.durable, declare.exclusive, declare.auto_delete);
        let queue_type = arguments.queue_type.unwrap_or(default);
        if declare.queue.is_empty() && queue_type == QueueType::Quorum {
            return Err(refusal::server_named_quorum_queue());
        }
        self.check_limit(&given)?;
        check_queue_properties(&given, queue_type, durable, exclusive, auto_delete)?;
        let name = if declare.queue.is_empty() {
            self.client.resource(&self.client.base().context.generated_name(SERVER_GIVEN))
        } else {
            given
        };
        let catalog = self.client.base().catalog.read();
        let policy = catalog.queue_policies(&name, queue_type).definition();
        // A durable exclusive queue is kept as not durable (QUE-05).
        let (durable, resolved_at) = (durable && !exclusive, catalog.version());
        let (kind, common) = ((queue_type, durable, auto_delete), catalog.common_settings());
        let config = effective(&arguments, &policy, kind, common, resolved_at);
        let locator = leader_locator(&arguments, &policy);
        drop(catalog);
        Ok(NewQueue { name, declare, queue_type, config, locator })
    }

    /// `queue.declare` passive (QUE-12).
    ///
    /// # Errors
    /// 404, 405.
    pub(crate) async fn queue_passive(&self, queue: ShortString) -> Result<DeclareOk, Exception> {
        if let Some(ok) = self.declare_reply_queue(&queue).await? {
            return Ok(ok);
        }
        self.client.check_passive(Resource::Queue(&queue))?;
        let entry = self.client.find_queue(&queue).await?;
        // A quorum queue's lease is not renewed, so that monitoring keeps none alive.
        let renew = entry.queue_type == QueueType::Classic;
        match self.client.node.queues.inspect(&entry, renew).await? {
            Some(report) => Ok(declare_ok(&entry.name, report)),
            None => Err(self.client.node.queues.gone(&entry).await),
        }
    }
}

impl Base {
    /// The queue's entry: in the catalog, or of a connection-bound queue of this node.
    pub(crate) fn known_queue(&self, name: &ResourceName) -> Option<QueueEntry> {
        let entry = self.catalog.read().queue_by_name(name).cloned();
        entry.or_else(|| self.led.local.entries.read().get(name).cloned())
    }
}

impl Queues {
    /// Looks at a queue in its home; `None` if it has ended.
    async fn inspect(
        &self,
        entry: &QueueEntry,
        renew: bool,
    ) -> Result<Option<QueueReport>, Exception> {
        let inspect = Command::Inspect { queue: entry.id, renew };
        match self.base.proposers.ask(entry.id.home, inspect).await {
            Ok(Reply::Alive(report)) => Ok(Some(report)),
            Ok(Reply::Gone) => Ok(None),
            Ok(other) => Err(unexpected(&entry.name, &other)),
            Err(_) => Err(declare_timeout(&entry.name)),
        }
    }

    /// Renews the lease of a new queue, if it has one; false if the queue has ended meanwhile
    /// (NAM 3). Without a lease it is only asked where the name may have come too late.
    async fn renew(&self, queue: QueueId, asks: bool) -> bool {
        if !asks {
            return true;
        }
        let inspect = Command::Inspect { queue, renew: true };
        !matches!(self.base.proposers.ask(queue.home, inspect).await, Ok(Reply::Gone))
    }

    /// Creates a queue in its group, then makes its name visible (NAM 2).
    pub(crate) async fn make_queue(self: Arc<Self>, new: NewQueue) -> Result<Made, CallError> {
        let NewQueue { name, declare, queue_type, config, locator } = new;
        let (led, context) = (self.base.led.groups(), &self.base.context);
        let group = self.base.catalog.read().place(locator, &led, |it| context.is_reachable(it));
        let home = Home::Group(group);
        let create =
            Command::CreateQueue { name: name.clone(), config: config.clone(), bound: None };
        let Some(creator) = self.base.context.session() else {
            return Err(CallError::SessionEnded);
        };
        let reply = self.base.proposers.ask_until_answered(home, create).await?;
        let Reply::Created(id) = reply else {
            tracing::error!(%name, ?reply, "unexpected reply to the creation of a queue");
            return Err(CallError::SessionEnded);
        };
        let entry = QueueEntry {
            name,
            id,
            creator,
            queue_type,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            owner: None,
            arguments: declare.arguments,
        };
        let mut repeated = false;
        loop {
            let (added, again) = self
                .base
                .catalog_client
                .propose_counting_tries(CatalogCommand::AddQueue(entry.clone()))
                .await;
            repeated |= again;
            match added {
                Ok((index, CatalogReply::Done)) => {
                    self.base.context.counters.queues_created.add(1);
                    return self.finish_queue(&entry, &config, index, repeated).await;
                }
                Ok((_, CatalogReply::NameTaken { .. })) => {
                    self.end_unnamed(id);
                    return Ok(Made::NameTaken);
                }
                Ok((_, CatalogReply::Refused(exception))) => {
                    self.end_unnamed(id);
                    return Ok(Made::Refused(exception));
                }
                Ok((_, other)) => {
                    tracing::warn!(
                        queue = %entry.name, ?other, "unexpected reply to a new queue name"
                    );
                    self.end_unnamed(id);
                    return Err(CallError::SessionEnded);
                }
                // The entry may be in or not: only another try tells. The client has its answer.
                Err(CallError::TimedOut) => {}
                Err(CallError::SessionEnded) => return Err(CallError::SessionEnded),
            }
        }
    }

    /// The queue has got its name: waits until all routing nodes know it and it has its settings
    /// (NAM 2, 3). One that has ended meanwhile loses the name again.
    async fn finish_queue(
        self: &Arc<Self>,
        entry: &QueueEntry,
        config: &QueueConfig,
        index: CatalogIndex,
        repeated: bool,
    ) -> Result<Made, CallError> {
        let (vhost, resolved_at) = (&entry.name.vhost, config.resolved_at);
        // An earlier try may have given the queue its name, so that it could be deleted before this
        // one; or it was ended with its former virtual host.
        let late = repeated || self.base.catalog.read().is_of_former_vhost(vhost, resolved_at);
        let lives = self.renew(entry.id, config.expires_ms.is_some() || late);
        let configured = self.configurer.configure_new(entry, config);
        let (known, lives, _) = tokio::join!(self.base.lease.barrier(index), lives, configured);
        if !lives {
            self.queue_ended(entry.id);
            return Ok(Made::NameTaken);
        }
        known?;
        Ok(Made::Ok)
    }
}

fn declare_ok(name: &ResourceName, report: QueueReport) -> DeclareOk {
    let QueueReport { ready, consumers, .. } = report;
    DeclareOk { queue: name.name.clone(), messages: ready, consumers }
}

/// Q-60, QUE-16.
pub(crate) fn declare_timeout(name: &ResourceName) -> Exception {
    let text = format!("Could not declare queue {name} because the operation timed out");
    Exception::new(ReplyCode::InternalError, text)
}

pub(crate) fn unexpected(name: &ResourceName, reply: &Reply) -> Exception {
    tracing::error!(queue = %name, ?reply, "unexpected reply of a queue");
    Exception::new(ReplyCode::InternalError, format!("queue {name} gave an unexpected answer"))
}
