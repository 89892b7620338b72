//! Queue entries: the queue behind a name (NAM 2, 4, 8), and how type, properties and arguments of
//! a declare are resolved (QUE-02 to QUE-08, Q-10).

use crate::{
    command::CatalogReply,
    delayed::{delay_config, delays_for},
    machine::Catalog,
    objects::QueueEntry,
    output::{CatalogEvent, CatalogOutput},
    policy_definition::effective,
    record::CatalogKey,
    refusal,
};
use quorate_queue::QueueConfig;
use quorate_types::{
    Exception, FieldValue, Home, Levels, QueueArguments, QueueId, QueueType, ResourceName,
};

use std::ops::Bound;

impl Catalog {
    /// The queue of that name.
    #[must_use]
    pub fn queue_by_name(&self, name: &ResourceName) -> Option<&QueueEntry> {
        let id = self.vhosts.get(&name.vhost)?.queues.get(&name.name)?;
        self.queues.get(id)
    }

    /// The queue of that id.
    #[must_use]
    pub fn queue_by_id(&self, id: QueueId) -> Option<&QueueEntry> {
        self.queues.get(&id)
    }

    /// All queues that have an entry, sorted by id.
    pub fn queues(&self) -> impl Iterator<Item = &QueueEntry> {
        self.queues.values()
    }

    /// The queues that have an entry, sorted by id, beginning after `after`.
    pub fn queues_after(&self, after: Option<QueueId>) -> impl Iterator<Item = &QueueEntry> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.queues.range((first, Bound::Unbounded)).map(|(_, entry)| entry)
    }

    /// The queues of a home, sorted by id, beginning after `after`.
    pub fn queues_of_home(
        &self,
        home: Home,
        after: Option<QueueId>,
    ) -> impl Iterator<Item = &QueueEntry> {
        // Indexes begin at 1.
        let after = after.unwrap_or(QueueId { home, index: 0, position: 0 });
        let last = QueueId { home, index: u64::MAX, position: u64::MAX };
        let range = (Bound::Excluded(after), Bound::Included(last));
        self.queues.range(range).map(|(_, entry)| entry)
    }

    /// Number of bindings in all virtual hosts.
    #[must_use]
    pub fn binding_count(&self) -> usize {
        self.bindings.len()
    }

    /// Number of exchanges in all virtual hosts, without the default ones.
    #[must_use]
    pub fn exchange_count(&self) -> usize {
        self.vhosts.iter().map(|(_, vhost)| vhost.exchanges.len()).sum()
    }

    /// Number of queues that have an entry.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The queue's effective settings by this version of the catalog.
    #[must_use]
    pub fn config_of(&self, entry: &QueueEntry) -> QueueConfig {
        if let Some(exchange) = delays_for(&entry.name.name) {
            return delay_config(exchange, self.version());
        }
        // The arguments were valid at declare, so they parse.
        let arguments = QueueArguments::parse(&entry.arguments, entry.queue_type);
        let arguments = arguments.unwrap_or_default();
        let policy = self.queue_policies(&entry.name, entry.queue_type).definition();
        let kind = (entry.queue_type, entry.durable, entry.auto_delete);
        effective(&arguments, &policy, kind, self.common_settings(), self.version())
    }

    /// Of two entries for one name the first wins (NAM 2). A repeat is harmless.
    pub(crate) fn add_queue(
        &mut self,
        entry: &QueueEntry,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if self.is_fenced(entry.creator) || self.is_over(entry.id) {
            return CatalogReply::Fenced;
        }
        let name = &entry.name;
        let Some(vhost) = self.vhosts.get(&name.vhost) else {
            return CatalogReply::Refused(refusal::no_vhost(&name.vhost));
        };
        match vhost.queues.get(&name.name) {
            Some(by) if *by == entry.id => return CatalogReply::Done,
            Some(by) => return CatalogReply::NameTaken { by: *by },
            None => {}
        }
        if let Err(refused) = Self::check_new_entry(vhost, name) {
            return CatalogReply::Refused(refused);
        }
        if let Some(other) = self.queues.get(&entry.id) {
            // Ids are never reused, so a proposer has used one id for two names.
            return CatalogReply::NameTaken { by: other.id };
        }
        let kept = ResourceName { vhost: vhost.record.name.clone(), name: name.name.detached() };
        let arguments = entry.arguments.detached();
        self.insert_queue(QueueEntry { name: kept, arguments, ..entry.clone() });
        self.changed(CatalogKey::Queue(entry.id), out);
        CatalogReply::Done
    }

    /// Inserts an entry; its virtual host exists, its name and id are free.
    pub(crate) fn insert_queue(&mut self, entry: QueueEntry) {
        if let Some(vhost) = self.vhosts.get_mut(&entry.name.vhost) {
            vhost.queues.insert(entry.name.name.clone(), entry.id);
        }
        if let Home::Group(group) = entry.id.home {
            *self.queue_counts.entry(group).or_default() += 1;
        }
        self.queues.insert(entry.id, entry);
    }

    /// NAM 4: removes by id, never by name. Removes the queue's bindings too (BND-06), and the
    /// auto-delete exchanges that lose their last binding (EXQ-06).
    pub(crate) fn remove_queue(&mut self, id: QueueId, out: &mut CatalogOutput) -> CatalogReply {
        self.remove_bindings_of(id, out);
        self.end_tasks_of(id, out);
        let Some(entry) = self.queues.remove(&id) else { return CatalogReply::Done };
        if let Some(vhost) = self.vhosts.get_mut(&entry.name.vhost) {
            vhost.queues.remove(&entry.name.name);
        }
        if let Home::Group(group) = id.home
            && let Some(count) = self.queue_counts.get_mut(&group)
        {
            *count -= 1;
            if *count == 0 {
                self.queue_counts.remove(&group);
            }
        }
        self.changed(CatalogKey::Queue(id), out);
        out.events.push(CatalogEvent::QueueRemoved { id, name: entry.name });
        CatalogReply::Done
    }
}

impl QueueEntry {
    /// The queue's priority levels; policies cannot change them (PRI-05, POL-06).
    #[must_use]
    pub fn levels(&self) -> Levels {
        let max = self.arguments.get("x-max-priority").and_then(FieldValue::as_integer);
        let max = max.and_then(|max| u8::try_from(max).ok()).filter(|max| *max > 0);
        Levels::new(self.queue_type, max)
    }
}

/// The type of a new queue: as declared, else the default, unless the default type does not support
/// these properties (QUE-02, QUE-03).
#[must_use]
pub fn resolve_queue_type(
    given: Option<QueueType>,
    default: QueueType,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> QueueType {
    let plain = durable && !exclusive && !auto_delete;
    match (given, default) {
        (Some(given), _) => given,
        (None, QueueType::Quorum) if plain => QueueType::Quorum,
        (None, QueueType::Quorum | QueueType::Classic) => QueueType::Classic,
    }
}

/// QUE-08: refuses properties that a quorum queue does not support, in RabbitMQ's order. `durable`
/// is as declared, before QUE-05.
///
/// # Errors
/// 406 that names the property.
pub fn check_queue_properties(
    name: &ResourceName,
    queue_type: QueueType,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> Result<(), Exception> {
    let wrong = match queue_type {
        QueueType::Classic => None,
        QueueType::Quorum if auto_delete => Some("auto-delete"),
        QueueType::Quorum if exclusive => Some("exclusive-owner"),
        QueueType::Quorum if !durable => Some("non-durable"),
        QueueType::Quorum => None,
    };
    wrong.map_or(Ok(()), |property| Err(refusal::invalid_property(name, property)))
}
