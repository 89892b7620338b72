//! Bindings: bind, unbind, and the indexes that find a binding by its identity, its source or its
//! destination (BND-01 to BND-09). The cost of each does not grow with the number of bindings.

use crate::{
    choice::weight,
    command::CatalogReply,
    digest::{Digest, Feed},
    headers::Matcher,
    machine::Catalog,
    objects::{Binding, Destination, ExchangeType},
    output::CatalogOutput,
    record::{BindingId, CatalogKey, CatalogRecordError},
    refusal,
    topic::{HASHES_MAX, hashes},
};
use bytes::{Bytes, BytesMut};
use quorate_types::{
    Exception, FieldTable, QueueId, QueueType, ReplyCode, ResourceName, ShortString,
};
use std::ops::Bound;

impl Binding {
    /// The destination with its virtual host.
    #[must_use]
    pub fn destination_name(&self) -> ResourceName {
        let name = self.destination.name().clone();
        ResourceName { vhost: self.source.vhost.clone(), name }
    }

    /// A hash that equal bindings share.
    fn identity(&self) -> u64 {
        let mut digest = Digest::default();
        self.source.feed(&mut digest);
        self.destination.feed(&mut digest);
        self.key.feed(&mut digest);
        digest.bytes(&canonical(&self.arguments));
        digest.0
    }

    /// BND-03: compares source, destination, key and arguments; the order of the arguments does not
    /// matter.
    fn same_as(&self, other: &Binding) -> bool {
        self.source == other.source
            && self.destination == other.destination
            && self.key == other.key
            && canonical(&self.arguments) == canonical(&other.arguments)
    }
}

/// A table's bytes with the fields sorted by name, so that tables compare as sets of fields.
fn canonical(table: &FieldTable) -> Bytes {
    if table.is_empty() {
        return Bytes::new();
    }
    let mut fields = table.0.clone();
    fields.sort_by(|(left, _), (right, _)| left.cmp(right));
    let mut bytes = BytesMut::new();
    FieldTable(fields).encode_content(&mut bytes);
    bytes.freeze()
}

impl Catalog {
    /// The answer that `queue.bind` or `exchange.bind` gets by this copy, except for permissions.
    ///
    /// # Errors
    /// As BND-01, BND-02, BND-07, BND-09 and RTE-08.
    pub fn check_bind(&self, binding: &Binding) -> Result<(), Exception> {
        check_ends(binding)?;
        let source = self
            .exchange_of(&binding.source)
            .ok_or_else(|| refusal::no_exchange(&binding.source))?;
        let destination =
            self.kept_destination(binding).ok_or_else(|| match binding.destination {
                Destination::Queue { .. } => refusal::no_queue(&binding.destination_name()),
                Destination::Exchange(_) => refusal::no_exchange(&binding.destination_name()),
            })?;
        match source.record.routing_kind() {
            ExchangeType::Direct
            | ExchangeType::Delayed
            | ExchangeType::Fanout
            | ExchangeType::ModulusHash
            | ExchangeType::Random => Ok(()),
            ExchangeType::ConsistentHash => weight(&binding.key).map(drop),
            ExchangeType::LocalRandom => self.check_local(binding, &destination),
            ExchangeType::Headers => Matcher::parse(&binding.arguments).map(drop),
            ExchangeType::Topic => match hashes(&binding.key) {
                count if count > HASHES_MAX => {
                    Err(refusal::too_many_hashes(&binding.key, count, HASHES_MAX))
                }
                _ => Ok(()),
            },
        }
    }

    /// EXC-15: an `x-local-random` exchange can be bound only to classic queues, without a key.
    fn check_local(&self, binding: &Binding, destination: &Destination) -> Result<(), Exception> {
        if !binding.key.is_empty() {
            return Err(refusal::local_random_key(&binding.key));
        }
        let queue = match destination {
            Destination::Queue { id, .. } => self.queue_by_id(*id),
            Destination::Exchange(_) => None,
        };
        match queue.map(|queue| queue.queue_type) {
            Some(QueueType::Classic) => Ok(()),
            Some(QueueType::Quorum) => Err(refusal::local_random_queue_type(QueueType::Quorum)),
            None => Err(refusal::local_random_exchange()),
        }
    }

    /// True if an equal binding exists (BND-03).
    #[must_use]
    pub fn is_bound(&self, binding: &Binding) -> bool {
        self.find_binding(binding).is_some()
    }

    /// All bindings except the implicit ones of the default exchanges, in the order in which they
    /// were made.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.bindings.values()
    }

    /// Those bindings with their ids, beginning after `after`.
    pub fn bindings_after(
        &self,
        after: Option<BindingId>,
    ) -> impl Iterator<Item = (BindingId, &Binding)> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.bindings.range((first, Bound::Unbounded)).map(|(id, binding)| (*id, binding))
    }

    /// The implicit bindings of the default exchange: every queue under its name (RTE-01).
    pub fn default_bindings(&self) -> impl Iterator<Item = Binding> {
        self.queues().map(|queue| Binding {
            source: ResourceName { vhost: queue.name.vhost.clone(), name: ShortString::EMPTY },
            destination: Destination::Queue { name: queue.name.name.clone(), id: queue.id },
            key: queue.name.name.clone(),
            arguments: FieldTable::default(),
        })
    }

    /// Bindings whose destination is the queue.
    pub fn bindings_of_queue(&self, queue: QueueId) -> impl Iterator<Item = &Binding> {
        self.ids_of_queue(queue).filter_map(|id| self.bindings.get(&id))
    }

    /// Bindings whose source is the exchange.
    pub fn bindings_from(&self, exchange: &ResourceName) -> impl Iterator<Item = &Binding> {
        let ids = self.exchange_of(exchange).map(|exchange| &exchange.outgoing);
        ids.into_iter().flatten().filter_map(|id| self.bindings.get(id))
    }

    /// Bindings whose destination is the exchange.
    pub fn bindings_to(&self, exchange: &ResourceName) -> impl Iterator<Item = &Binding> {
        let ids = self.exchange_of(exchange).map(|exchange| &exchange.incoming);
        ids.into_iter().flatten().filter_map(|id| self.bindings.get(id))
    }

    pub(crate) fn bind(&mut self, binding: &Binding, out: &mut CatalogOutput) -> CatalogReply {
        if let Err(refused) = self.check_bind(binding) {
            return CatalogReply::Refused(refused);
        }
        if self.is_bound(binding) {
            return CatalogReply::Done;
        }
        let id = self.next_binding_id();
        if let Err(error) = self.insert_binding(id, binding) {
            // The proposer has checked this already. A refusal is the same on all replicas and
            // stops none of them.
            let refused = Exception::new(ReplyCode::InternalError, error.to_string());
            return CatalogReply::Refused(refused);
        }
        self.changed(CatalogKey::Binding(id), out);
        CatalogReply::Done
    }

    pub(crate) fn unbind(&mut self, binding: &Binding, out: &mut CatalogOutput) -> CatalogReply {
        if let Err(refused) = check_ends(binding) {
            return CatalogReply::Refused(refused);
        }
        // BND-04: an unbind of a binding that does not exist succeeds.
        if let Some(id) = self.find_binding(binding) {
            let unused = self.remove_binding(id, out);
            self.remove_exchanges(unused.into_iter().collect(), out);
        }
        CatalogReply::Done
    }

    fn find_binding(&self, binding: &Binding) -> Option<BindingId> {
        let word = binding.identity();
        let alike =
            self.binding_identities.range((word, BindingId(0))..=(word, BindingId(u64::MAX)));
        alike
            .map(|(_, id)| *id)
            .find(|id| self.bindings.get(id).is_some_and(|present| present.same_as(binding)))
    }

    fn ids_of_queue(&self, queue: QueueId) -> impl Iterator<Item = BindingId> {
        let ids = (queue, BindingId(0))..=(queue, BindingId(u64::MAX));
        self.queue_bindings.range(ids).map(|(_, id)| *id)
    }

    /// The destination with names as the catalog stores them. `None` if it does not exist, or if
    /// its name belongs to another queue by now (NAM 4: by id, never by name).
    fn kept_destination(&self, binding: &Binding) -> Option<Destination> {
        match &binding.destination {
            Destination::Queue { id, .. } => {
                let entry = self.queues.get(id).filter(|entry| {
                    entry.name.vhost == binding.source.vhost
                        && entry.name.name == *binding.destination.name()
                })?;
                Some(Destination::Queue { name: entry.name.name.clone(), id: *id })
            }
            Destination::Exchange(name) => {
                let vhost = self.vhosts.get(&binding.source.vhost)?;
                vhost.exchanges.kept_name(name).cloned().map(Destination::Exchange)
            }
        }
    }

    /// Inserts a binding and updates the indexes and routing tables.
    ///
    /// # Errors
    /// The source or the destination does not exist.
    pub(crate) fn insert_binding(
        &mut self,
        id: BindingId,
        binding: &Binding,
    ) -> Result<(), CatalogRecordError> {
        let broken = |what: &str| CatalogRecordError(format!("binding {id}: {what}"));
        let destination = self.kept_destination(binding).ok_or_else(|| broken("no destination"))?;
        let source = self.exchange_mut(&binding.source).ok_or_else(|| broken("no source"))?;
        let kept = Binding {
            source: source.record.name.clone(),
            destination,
            key: binding.key.detached(),
            arguments: binding.arguments.detached(),
        };
        source.routes.add(id, &kept).map_err(|refused| broken(&refused.to_string()))?;
        source.outgoing.insert(id);
        match &kept.destination {
            Destination::Queue { id: queue, .. } => {
                self.queue_bindings.insert((*queue, id));
            }
            Destination::Exchange(_) => {
                if let Some(exchange) = self.exchange_mut(&kept.destination_name()) {
                    exchange.incoming.insert(id);
                }
            }
        }
        self.binding_identities.insert((kept.identity(), id));
        self.bindings.insert(id, kept);
        Ok(())
    }

    /// Removes a binding. Returns its source if that exchange must be removed too (EXC-09); the
    /// caller removes it.
    pub(crate) fn remove_binding(
        &mut self,
        id: BindingId,
        out: &mut CatalogOutput,
    ) -> Option<ResourceName> {
        let binding = self.bindings.remove(&id)?;
        self.binding_identities.remove(&(binding.identity(), id));
        match &binding.destination {
            Destination::Queue { id: queue, .. } => {
                self.queue_bindings.remove(&(*queue, id));
            }
            Destination::Exchange(_) => {
                if let Some(exchange) = self.exchange_mut(&binding.destination_name()) {
                    exchange.incoming.remove(&id);
                }
            }
        }
        self.changed(CatalogKey::Binding(id), out);
        let source = self.exchange_mut(&binding.source)?;
        source.outgoing.remove(&id);
        source.routes.remove(id, &binding);
        source.ends_unused().then(|| source.record.name.clone())
    }

    /// Removes all bindings of a queue, and the exchanges that are auto-deleted with their last
    /// binding.
    pub(crate) fn remove_bindings_of(&mut self, queue: QueueId, out: &mut CatalogOutput) {
        let ids: Vec<BindingId> = self.ids_of_queue(queue).collect();
        let unused = ids.into_iter().filter_map(|id| self.remove_binding(id, out)).collect();
        self.remove_exchanges(unused, out);
    }
}

/// BND-01, BND-04, BND-07: neither end may be the default exchange.
fn check_ends(binding: &Binding) -> Result<(), Exception> {
    let to_default = matches!(&binding.destination, Destination::Exchange(name) if name.is_empty());
    if binding.source.name.is_empty() || to_default {
        return Err(refusal::default_exchange());
    }
    Ok(())
}
