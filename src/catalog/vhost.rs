//! Virtual hosts: each has its own exchanges, queues, permissions, defaults and limits (EXC-01,
//! QUE-02, CONN-33).
//!
//! The queues of a virtual host live in many groups, so its deletion has two steps. The catalog
//! removes everything in the virtual host in one entry and names the queues, and the leaders of
//! their groups end them. The reconciler finds queues that were missed during a change of leaders:
//! queues without a name whose settings were resolved before their virtual host, or a later one of
//! the same name, was created (`Catalog::is_of_former_vhost`).

use crate::{
    command::CatalogReply,
    denial::Denial,
    exchange::of_every_vhost,
    machine::{Catalog, Vhost},
    named::{ByName, Named},
    output::{CatalogEvent, CatalogOutput},
    record::{CatalogKey, VhostRecord},
};
use quorate_types::{
    CatalogIndex, MachineVersion, QueueId, QueueType, ResourceName, ShortString, VhostName,
};

/// The virtual host that a new cluster has.
pub(crate) const DEFAULT_VHOST: ShortString = ShortString::from_static("/");

/// Properties of a virtual host that an operator sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostMetadata {
    /// Description, for people; it has no effect.
    pub description: String,
    /// Tags, for people; they have no effect.
    pub tags: Vec<ShortString>,
    /// Type of queues that are declared without one (QUE-02); `None`: the node's default.
    pub default_queue_type: Option<QueueType>,
}

/// The changes of `update_vhost_metadata`; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VhostUpdate {
    /// New description; `None` leaves it.
    pub description: Option<String>,
    /// New tags; `None` leaves them.
    pub tags: Option<Vec<ShortString>>,
    /// New type of queues that are declared without one; `None` leaves it.
    pub default_queue_type: Option<QueueType>,
}

impl VhostMetadata {
    /// The properties of a new cluster's virtual host.
    pub(crate) fn of_default() -> Self {
        Self { description: "Default virtual host".to_owned(), ..Self::default() }
    }

    fn update(&mut self, update: &VhostUpdate) {
        let VhostUpdate { description, tags, default_queue_type } = update.clone();
        self.description = description.unwrap_or_else(|| std::mem::take(&mut self.description));
        if let Some(tags) = tags {
            self.tags = tags.iter().map(ShortString::detached).collect();
        }
        self.default_queue_type = default_queue_type.or(self.default_queue_type);
    }
}

impl Catalog {
    /// The virtual host of that name.
    #[must_use]
    pub fn vhost(&self, name: &VhostName) -> Option<&VhostRecord> {
        self.vhosts.get(name).map(|vhost| &vhost.record)
    }

    /// True if the virtual host exists.
    #[must_use]
    pub fn has_vhost(&self, name: &VhostName) -> bool {
        self.vhosts.get(name).is_some()
    }

    /// All virtual hosts, sorted by name.
    pub fn vhosts(&self) -> impl Iterator<Item = &VhostRecord> {
        self.vhosts.iter().map(|(_, vhost)| &vhost.record)
    }

    /// True if publishes and deliveries in the virtual host are traced.
    #[must_use]
    pub fn is_traced(&self, name: &VhostName) -> bool {
        self.vhost(name).is_some_and(|vhost| vhost.tracing)
    }

    /// True if a queue without an entry, whose settings were resolved at `resolved_at`, belonged to
    /// a virtual host that was deleted, even if another one of its name exists now.
    #[must_use]
    pub fn is_of_former_vhost(&self, name: &VhostName, resolved_at: CatalogIndex) -> bool {
        self.vhost(name).is_none_or(|vhost| vhost.created > resolved_at)
    }

    /// Inserts an empty virtual host.
    pub(crate) fn insert_vhost(&mut self, record: VhostRecord) {
        let name = record.name.clone();
        let vhost = Vhost { record, exchanges: Named::default(), queues: ByName::default() };
        self.vhosts.insert(name, vhost);
    }

    /// `add_vhost`: adds the virtual host with the standard exchanges. An existing one stays as it
    /// is.
    pub(crate) fn add_vhost(
        &mut self,
        name: &VhostName,
        metadata: &VhostMetadata,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if self.has_vhost(name) {
            return CatalogReply::Done;
        }
        let name = name.detached();
        let tags = metadata.tags.iter().map(ShortString::detached).collect();
        let metadata = VhostMetadata { tags, ..metadata.clone() };
        let (created, limits) = (self.version(), Default::default());
        let (tracing, protected) = (false, false);
        let record =
            VhostRecord { name: name.clone(), created, metadata, limits, tracing, protected };
        self.insert_vhost(record);
        self.changed(CatalogKey::Vhost(name.clone()), out);
        for exchange in of_every_vhost(&name) {
            let key = CatalogKey::Exchange(exchange.name.clone());
            self.insert_exchange(exchange);
            self.changed(key, out);
        }
        CatalogReply::Done
    }

    /// rabbitmqctl's `update_vhost_metadata`.
    pub(crate) fn update_vhost(
        &mut self,
        name: &VhostName,
        update: &VhostUpdate,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(vhost) = self.vhosts.get_mut(name) else {
            return CatalogReply::Denied(Denial::NoSuchVhost(name.detached()));
        };
        let mut metadata = vhost.record.metadata.clone();
        metadata.update(update);
        if metadata != vhost.record.metadata {
            vhost.record.metadata = metadata;
            self.changed(CatalogKey::Vhost(name.detached()), out);
        }
        CatalogReply::Done
    }

    /// rabbitmqctl's `trace_on`, `trace_off`.
    pub(crate) fn set_tracing(
        &mut self,
        name: &VhostName,
        tracing: bool,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(vhost) = self.vhosts.get_mut(name) else {
            return CatalogReply::Denied(Denial::NoSuchVhost(name.detached()));
        };
        if std::mem::replace(&mut vhost.record.tracing, tracing) != tracing {
            self.changed(CatalogKey::Vhost(name.detached()), out);
        }
        CatalogReply::Done
    }

    /// Why no virtual host can be protected yet: binaries of earlier machine versions know neither
    /// the command nor the record (MEM 15).
    pub(crate) fn unprotectable(&self) -> Option<Denial> {
        let machine = self.machine();
        (machine < MachineVersion::RETRIES).then_some(Denial::ProtectionTooEarly { machine })
    }

    /// rabbitmqctl's `enable_vhost_protection_from_deletion`,
    /// `disable_vhost_protection_from_deletion`.
    pub(crate) fn set_protection(
        &mut self,
        name: &VhostName,
        protected: bool,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if let Some(denial) = self.unprotectable() {
            return CatalogReply::Denied(denial);
        }
        let Some(vhost) = self.vhosts.get_mut(name) else {
            return CatalogReply::Denied(Denial::NoSuchVhost(name.detached()));
        };
        if std::mem::replace(&mut vhost.record.protected, protected) != protected {
            self.changed(CatalogKey::Vhost(name.detached()), out);
        }
        CatalogReply::Done
    }

    /// `delete_vhost`: removes the virtual host with everything in it. Its queues end in their
    /// groups, by id (NAM 4); its connections are closed (CONN-33). If it does not exist (any more)
    /// the command succeeds, so that a repeat is harmless.
    pub(crate) fn delete_vhost(
        &mut self,
        name: &VhostName,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(vhost) = self.vhosts.get(name) else { return CatalogReply::Done };
        let name = vhost.record.name.clone();
        if vhost.record.protected {
            return CatalogReply::Denied(Denial::VhostProtected(name));
        }
        let named =
            |exchange: &ShortString| ResourceName { vhost: name.clone(), name: exchange.clone() };
        let exchanges: Vec<_> =
            vhost.exchanges.iter().map(|(exchange, _)| named(exchange)).collect();
        let queues: Vec<QueueId> = self
            .queues
            .values()
            .filter(|entry| entry.name.vhost == name)
            .map(|entry| entry.id)
            .collect();
        queues.iter().for_each(|queue| drop(self.remove_queue(*queue, out)));
        self.remove_exchanges(exchanges, out);
        self.remove_permissions(|of, _| *of == name, out);
        self.remove_policies_of(&name, out);
        self.remove_parameters_of(&name, out);
        self.vhosts.remove(&name);
        self.changed(CatalogKey::Vhost(name.clone()), out);
        out.events.push(CatalogEvent::VhostDeleted { vhost: name, queues });
        CatalogReply::Done
    }
}
