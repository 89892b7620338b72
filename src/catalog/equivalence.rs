//! Compares a redeclared queue with the existing one (EQV-01 to EQV-08).

use crate::{
    objects::QueueEntry,
    refusal::{self, Subject},
};
use quorate_types::{Exception, FieldTable, FieldValue, QueueType, compared_arguments};

/// The arguments that relaxed checks compare when a quorum queue is redeclared as classic (EQV-07).
const RELAXED: [&str; 7] = [
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-single-active-consumer",
    "x-message-ttl",
];

/// The properties of a redeclare. The exclusive owner has been checked before (EXQ-02, EXQ-03).
#[derive(Clone, Copy, Debug)]
pub struct Redeclared<'a> {
    /// Type, as declared or by default (EQV-06).
    pub queue_type: QueueType,
    /// `durable`, false for an exclusive queue (QUE-05).
    pub durable: bool,
    /// `auto-delete`: it ends with its last consumer or binding.
    pub auto_delete: bool,
    /// Arguments, as declared.
    pub arguments: &'a FieldTable,
    /// Setting `quorum_queue.property_equivalence.relaxed_checks_on_redeclaration` (EQV-07).
    pub relaxed_redeclaration: bool,
}

/// Compares a redeclare with the existing queue.
///
/// # Errors
/// 406 that names the first difference; the queue does not change (EQV-08).
pub fn equivalent(entry: &QueueEntry, declared: &Redeclared<'_>) -> Result<(), Exception> {
    let subject = Subject { kind: "queue", name: &entry.name };
    let softened = declared.relaxed_redeclaration
        && declared.queue_type == QueueType::Classic
        && entry.queue_type == QueueType::Quorum;
    if softened {
        return equal_arguments(subject, RELAXED, declared.arguments, &entry.arguments);
    }
    let properties = [
        ("durable", declared.durable, entry.durable),
        ("auto_delete", declared.auto_delete, entry.auto_delete),
    ];
    for (name, received, current) in properties {
        if received != current {
            return Err(subject.different(name, &received.to_string(), &current.to_string()));
        }
    }
    let (received, current) = (declared.queue_type, entry.queue_type);
    if received != current {
        return Err(subject.different("x-queue-type", received.name(), current.name()));
    }
    let names = compared_arguments(entry.queue_type);
    equal_arguments(subject, names, declared.arguments, &entry.arguments)
}

/// EXQ-02, EXQ-03: refuses a queue that belongs to another connection, or that is exclusive on one
/// side only. `exclusive` is `None` if the operation does not state it (passive declare, consume,
/// get, ...).
///
/// # Errors
/// 405.
pub fn check_owner(
    entry: &QueueEntry,
    connection: crate::ConnectionId,
    exclusive: Option<bool>,
) -> Result<(), Exception> {
    let own = match entry.owner {
        Some(owner) => owner == connection && exclusive != Some(false),
        None => exclusive != Some(true),
    };
    if own { Ok(()) } else { Err(refusal::exclusive_queue(&entry.name)) }
}

fn equal_arguments(
    subject: Subject<'_>,
    names: impl IntoIterator<Item = &'static str>,
    declared: &FieldTable,
    current: &FieldTable,
) -> Result<(), Exception> {
    for name in names {
        let (received, current) = (declared.get(name), current.get(name));
        if !same_value(received, current) {
            return Err(subject.different_argument(name, received, current));
        }
    }
    Ok(())
}

/// EQV-05: compares integers of different widths by value, everything else by type and value. Two
/// absent values are equal.
pub(crate) fn same_value(left: Option<&FieldValue>, right: Option<&FieldValue>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => match (left.as_integer(), right.as_integer()) {
            (Some(left), Some(right)) => left == right,
            (None, None) => left == right,
            (Some(_), None) | (None, Some(_)) => false,
        },
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}
