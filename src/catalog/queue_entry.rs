//! Queue entries: what a name leads to (NAM 2, 4, 8), and what a declare makes of its type,
//! properties and arguments (QUE-02 to QUE-08, Q-10).

use crate::{
    command::{CatalogReply, QueueEntry},
    machine::Catalog,
    output::{CatalogEvent, CatalogOutput},
    record::CatalogKey,
    refusal,
};
use quorate_queue::{DeadLetter, QueueConfig};
use quorate_types::{
    CatalogIndex, Exception, GroupId, Home, Overflow, QueueArguments, QueueId, QueueType,
    ResourceName,
};

/// What `x-delivery-limit` is on a quorum queue without it (Q-10, DLM-01).
const QUORUM_DELIVERY_LIMIT: u32 = 20;

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

    /// All queues that have an entry, in the order of their ids.
    pub fn queues(&self) -> impl Iterator<Item = &QueueEntry> {
        self.queues.values()
    }

    /// The queues of a group, in the order of their ids.
    pub fn queues_of_group(&self, group: GroupId) -> impl Iterator<Item = &QueueEntry> {
        let home = Home::Group(group);
        let first = QueueId { home, index: 0, position: 0 };
        let last = QueueId { home, index: u64::MAX, position: u32::MAX };
        self.queues.range(first..=last).map(|(_, entry)| entry)
    }

    /// Queues that have an entry.
    #[must_use]
    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The queue's effective settings as of this copy's version.
    #[must_use]
    pub fn config_of(&self, entry: &QueueEntry) -> QueueConfig {
        // They were accepted at declare, so they parse.
        let arguments = QueueArguments::parse(&entry.arguments, entry.queue_type);
        let arguments = arguments.unwrap_or_default();
        effective(&arguments, entry.queue_type, entry.durable, entry.auto_delete, self.version())
    }

    /// Of two entries for one name the first wins (NAM 2). Harmless when repeated.
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
            // Ids are never used again, so one proposer has taken an id for two names.
            return CatalogReply::NameTaken { by: other.id };
        }
        let kept = ResourceName { vhost: vhost.record.name.clone(), name: name.name.detached() };
        let arguments = crate::binding::detached(&entry.arguments);
        self.insert_queue(QueueEntry { name: kept, arguments, ..entry.clone() });
        self.changed(CatalogKey::Queue(entry.id), out);
        out.events.push(CatalogEvent::QueueAdded { id: entry.id });
        CatalogReply::Done
    }

    /// Puts an entry in place; its virtual host is there, its name and id are free.
    pub(crate) fn insert_queue(&mut self, entry: QueueEntry) {
        if let Some(vhost) = self.vhosts.get_mut(&entry.name.vhost) {
            vhost.queues.insert(entry.name.name.clone(), entry.id);
        }
        if let Home::Group(group) = entry.id.home {
            *self.queue_counts.entry(group).or_default() += 1;
        }
        self.queues.insert(entry.id, entry);
    }

    /// NAM 4: by id, never by name. Its bindings go with it (BND-06), and auto-delete exchanges
    /// with those (EXQ-06).
    pub(crate) fn remove_queue(&mut self, id: QueueId, out: &mut CatalogOutput) -> CatalogReply {
        self.remove_bindings_of(id, out);
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

/// The type of a new queue: as given, else the default, unless that cannot have these properties
/// (QUE-02, QUE-03).
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

/// QUE-08: properties that a quorum queue does not have, in the order that they are told.
/// `durable` as declared, before QUE-05.
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

/// A queue's effective settings. The one place where they are resolved; policies join here.
#[must_use]
pub fn effective(
    arguments: &QueueArguments,
    queue_type: QueueType,
    durable: bool,
    auto_delete: bool,
    resolved_at: CatalogIndex,
) -> QueueConfig {
    let dead_letter = arguments.dead_letter_exchange.as_ref().map(|exchange| DeadLetter {
        exchange: exchange.detached(),
        routing_key: arguments.dead_letter_routing_key.as_ref().map(|key| key.detached()),
        at_least_once: arguments.dead_letter_at_least_once.unwrap_or(false),
    });
    QueueConfig {
        resolved_at,
        queue_type,
        durable,
        auto_delete,
        priority_max: arguments.priority_max,
        message_ttl_ms: arguments.message_ttl_ms,
        expires_ms: arguments.expires_ms,
        length_max: arguments.length_max,
        length_bytes_max: arguments.length_bytes_max,
        overflow: arguments.overflow.unwrap_or(Overflow::DropHead),
        delivery_limit: delivery_limit(arguments.delivery_limit, queue_type),
        delivery_count_failures: arguments.delivery_count_failures.unwrap_or(false),
        dead_letter,
        single_active_consumer: arguments.single_active_consumer,
        consumer_timeout_ms: arguments.consumer_timeout_ms,
    }
}

/// Q-10, DLM-01: negative is no limit; absent is 20 on a quorum queue, none on a classic one.
fn delivery_limit(argument: Option<i64>, queue_type: QueueType) -> Option<u32> {
    match (argument, queue_type) {
        (Some(limit), _) if limit < 0 => None,
        (Some(limit), _) => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        (None, QueueType::Quorum) => Some(QUORUM_DELIVERY_LIMIT),
        (None, QueueType::Classic) => None,
    }
}
