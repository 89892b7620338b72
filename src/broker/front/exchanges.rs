//! Exchanges and bindings: declare, delete, bind, unbind (EXC, BND).

use crate::{
    client::{BindRequest, ExchangeDeclare},
    front::{client_handle::ExchangeOperations, publisher::Publisher, reply_to},
};
use quorate_catalog::{
    Access, Binding, Catalog, CatalogCommand, CatalogReply, Destination, ExchangeRecord,
    ExchangeType, QueueEntry, Resource, check_deletable, check_owner, refusal,
};
use quorate_types::{Exception, ReplyCode, ResourceName, ShortString};
use tokio::time::Instant;

impl Publisher {
    /// Logs a message that was unroutable because its alternate exchange does not exist, at most
    /// once a minute (AE-03).
    pub(crate) fn warn_of_missing_alternate(&self, catalog: &Catalog, exchange: ResourceName) {
        let Some(alternate) = catalog.missing_alternate(&exchange) else { return };
        if self.warned_of_alternate.lock().is_due((), Instant::now()) {
            tracing::warn!(%exchange, %alternate, "alternate exchange does not exist");
        }
    }
}

impl ExchangeOperations<'_> {
    /// Proposes to the catalog, and waits until all routing nodes have applied it.
    async fn change_catalog(
        &self,
        command: CatalogCommand,
        timeout: Exception,
    ) -> Result<(), Exception> {
        match self.client.base().catalog_client.propose(command).await {
            Ok((index, CatalogReply::Done)) => {
                self.client.base().lease.barrier(index).await.map_err(|_| timeout)
            }
            Ok((_, CatalogReply::Refused(exception))) => Err(exception),
            Ok((
                _,
                CatalogReply::Denied(_)
                | CatalogReply::Fenced
                | CatalogReply::Started(_)
                | CatalogReply::NameTaken { .. },
            )) => Err(Exception::new(
                ReplyCode::InternalError,
                "the catalog gave an answer that does not fit",
            )),
            Err(_) => Err(timeout),
        }
    }

    /// `exchange.declare`.
    ///
    /// # Errors
    /// The exceptions of EXC-02 to EXC-04 and EXC-13.
    pub(crate) async fn exchange_declare(&self, declare: ExchangeDeclare) -> Result<(), Exception> {
        let kind = ExchangeType::parse(declare.kind.as_str())?;
        if declare.exchange.is_empty() {
            return Err(refusal::default_exchange());
        }
        let exchange = declare.exchange.clone();
        self.client.check(Access::Configure, Resource::Exchange(&exchange))?;
        let name = self.client.resource(&declare.exchange);
        let record = ExchangeRecord {
            kind,
            durable: declare.durable,
            auto_delete: declare.auto_delete,
            internal: declare.internal,
            arguments: self.client.bounded(&declare.arguments, &format_args!("exchange {name}"))?,
            name,
        };
        let there = self.client.base().catalog.read().check_exchange(&record)?.is_some();
        let timeout = refusal::exchange_declare_timeout(&record.name);
        if there {
            self.client.node.queues.make_delay_queue(&record, &timeout).await?;
            return self.client.base().lease.agreed().await.map_err(|_| timeout);
        }
        // Checked only for a new exchange (EXC-03, ACL-08).
        if let Some(alternate) = Catalog::declared_alternate(&record.arguments) {
            self.client.check(Access::Read, Resource::Exchange(&exchange))?;
            self.client.check(Access::Write, Resource::Exchange(&alternate))?;
        }
        self.check_exchange_limit(&record.name)?;
        self.client.node.queues.make_delay_queue(&record, &timeout).await?;
        let declared = CatalogCommand::DeclareExchange(record.clone());
        let timed_out = timeout.clone();
        self.change_catalog(declared, timeout).await.inspect_err(|error| {
            // A declare that timed out may still be applied; without its queue the exchange would
            // keep nothing.
            if *error != timed_out {
                self.client.node.queues.drop_delay_queue(&record);
            }
        })
    }

    /// Checks the limit of exchanges (EXC-12). All that lists show count, also the default exchange
    /// of each virtual host.
    fn check_exchange_limit(&self, exchange: &ResourceName) -> Result<(), Exception> {
        let Some(max) = self.client.base().context.settings.limits.cluster_exchange_limit else {
            return Ok(());
        };
        let catalog = self.client.base().catalog.read();
        let count = catalog.exchange_count() + catalog.vhosts().count();
        if count as u64 >= max { Err(refusal::exchange_limit(exchange, max)) } else { Ok(()) }
    }

    /// `exchange.declare` passive (EXC-06).
    ///
    /// # Errors
    /// 404, 403, 541.
    pub(crate) async fn exchange_exists(&self, exchange: &ShortString) -> Result<(), Exception> {
        if exchange.is_empty() {
            return Err(refusal::default_exchange());
        }
        self.client.check_passive(Resource::Exchange(exchange))?;
        let (name, base) = (self.client.resource(exchange), self.client.base());
        let found = base.catalog.read().declared_exchange(&name).map(drop);
        base.lease.agreed().await.map_err(|_| refusal::exchange_declare_timeout(&name))?;
        found
    }

    /// `exchange.delete` (EXC-07, 08).
    ///
    /// # Errors
    /// 403, 406, 541.
    pub(crate) async fn exchange_delete(
        &self,
        exchange: ShortString,
        if_unused: bool,
    ) -> Result<(), Exception> {
        let exchange = self.client.resource(&exchange);
        check_deletable(&exchange)?;
        self.client.check(Access::Configure, Resource::Exchange(&exchange.name))?;
        let timeout = refusal::exchange_delete_timeout(&exchange);
        self.change_catalog(CatalogCommand::DeleteExchange { exchange, if_unused }, timeout).await
    }

    /// Checks rights: write on the destination, read on the source. Neither may be the default
    /// exchange (BND-07).
    fn check_exchange_bind(&self, bind: &BindRequest) -> Result<(), Exception> {
        if bind.destination.is_empty() {
            return Err(refusal::default_exchange());
        }
        self.client.check(Access::Write, Resource::Exchange(&bind.destination))?;
        self.client.check_source(&bind.source, &bind.routing_key)
    }

    /// Checks rights: write on the queue, then those of the source (BND-01).
    fn check_queue_bind(&self, bind: &BindRequest) -> Result<(), Exception> {
        self.client.check(Access::Write, Resource::Queue(&bind.destination))?;
        self.client.check_source(&bind.source, &bind.routing_key)
    }

    fn exchange_binding(&self, bind: BindRequest) -> Binding {
        Binding {
            source: self.client.resource(&bind.source),
            destination: Destination::Exchange(bind.destination),
            key: bind.routing_key,
            arguments: bind.arguments,
        }
    }

    /// `exchange.bind` (BND-07).
    ///
    /// # Errors
    /// 403, 404, 541.
    pub(crate) async fn exchange_bind(&self, bind: BindRequest) -> Result<(), Exception> {
        self.check_exchange_bind(&bind)?;
        self.add_binding(self.exchange_binding(bind)).await
    }

    /// Adds a binding, unless it is too large or the limit of bindings is reached.
    async fn add_binding(&self, mut binding: Binding) -> Result<(), Exception> {
        binding.arguments = self.client.bounded(&binding.arguments, &binding.object())?;
        if let Some(max) = self.client.base().context.settings.limits.cluster_binding_limit {
            let catalog = self.client.base().catalog.read();
            if catalog.binding_count() as u64 >= max && !catalog.is_bound(&binding) {
                return Err(refusal::binding_limit(&binding, max));
            }
        }
        self.change_catalog(CatalogCommand::Bind(binding), refusal::bind_timeout()).await
    }

    /// `exchange.unbind` (BND-04).
    ///
    /// # Errors
    /// 403, 541.
    pub(crate) async fn exchange_unbind(&self, bind: BindRequest) -> Result<(), Exception> {
        self.check_exchange_bind(&bind)?;
        let binding = self.exchange_binding(bind);
        self.change_catalog(CatalogCommand::Unbind(binding), refusal::unbind_timeout()).await
    }

    fn queue_binding(&self, bind: BindRequest, entry: &QueueEntry) -> Binding {
        Binding {
            source: self.client.resource(&bind.source),
            destination: Destination::Queue { name: bind.destination, id: entry.id },
            key: bind.routing_key,
            arguments: bind.arguments,
        }
    }

    /// `queue.bind` (BND-01 to 03).
    ///
    /// # Errors
    /// 403, 404, 405, 541.
    pub(crate) async fn queue_bind(&self, bind: BindRequest) -> Result<(), Exception> {
        reply_to::check_not_bound(&bind.destination)?;
        self.check_queue_bind(&bind)?;
        let queue = self.client.resource(&bind.destination);
        let source = self.client.resource(&bind.source);
        let Some(entry) = self.client.base().known_queue(&queue) else {
            // The error of a missing source comes first (BND-02).
            self.client.base().catalog.read().declared_exchange(&source)?;
            return Err(self.client.node.exclusive.missing_queue(&queue).await);
        };
        check_owner(&entry, self.client.state.id, None)?;
        self.client.node.queues.check_free(&entry)?;
        self.client.base().catalog.read().declared_exchange(&source)?;
        self.client
            .node
            .exclusive
            .publish_entry(&entry, self.client.state.id)
            .await
            .map_err(|_| refusal::bind_timeout())?;
        self.add_binding(self.queue_binding(bind, &entry)).await
    }

    /// `queue.unbind` (BND-04).
    ///
    /// # Errors
    /// 403, 405, 541.
    pub(crate) async fn queue_unbind(&self, bind: BindRequest) -> Result<(), Exception> {
        reply_to::check_not_bound(&bind.destination)?;
        self.check_queue_bind(&bind)?;
        let Some(entry) = self.client.base().known_queue(&self.client.resource(&bind.destination))
        else {
            let agreed = self.client.base().lease.agreed().await;
            return agreed.map_err(|_| refusal::unbind_timeout());
        };
        let binding = self.queue_binding(bind, &entry);
        if self.client.base().catalog.read().is_bound(&binding) {
            check_owner(&entry, self.client.state.id, None)?;
        }
        self.change_catalog(CatalogCommand::Unbind(binding), refusal::unbind_timeout()).await
    }
}
