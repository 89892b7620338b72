//! Where a message goes that a task takes, by what the broker has written down about its deaths.
//! Pure.

use crate::leader::dead_letter::annotate::reason_text;
use quorate_catalog::{TaskKind, TaskOrder, TaskTarget};
use quorate_queue::{DeathReason, Via};
use quorate_types::{FieldTable, FieldValue, Message, ShortString};

/// Where one message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// It is left alone: it has not died, or not elsewhere.
    Skip,
    /// It is deleted.
    Nowhere,
    /// It is published again.
    To {
        /// Exchange that routes it.
        exchange: ShortString,
        /// Keys that it is routed by: the first, and the others.
        keys: (ShortString, Vec<ShortString>),
        /// Exchange and key that it has afterwards.
        via: Via,
    },
}

/// A death of a message, by its table in `x-death`.
#[derive(Debug)]
struct Death {
    queue: ShortString,
    exchange: ShortString,
    keys: Vec<ShortString>,
}

impl Death {
    /// The deaths of a message, the latest first (DLX-29), without the moves of tasks.
    fn all(message: &Message) -> impl Iterator<Item = Self> + '_ {
        let deaths = match message.annotations.get("x-death") {
            Some(FieldValue::Array(deaths)) => deaths.as_slice(),
            Some(_) | None => &[],
        };
        deaths.iter().filter_map(Self::of)
    }

    fn of(table: &FieldValue) -> Option<Self> {
        let FieldValue::Table(death) = table else { return None };
        let reason = field(death, "reason").unwrap_or_default();
        if reason.as_str() == reason_text(DeathReason::Redriven) {
            return None;
        }
        let keys = match death.get("routing-keys") {
            Some(FieldValue::Array(keys)) => keys.iter().filter_map(short).collect(),
            Some(_) | None => Vec::new(),
        };
        let exchange = field(death, "exchange").unwrap_or_default();
        Some(Self { queue: field(death, "queue")?, exchange, keys })
    }

    /// The keys with which it had been published to the queue in which it died.
    fn keys_or(&self, own: &ShortString) -> (ShortString, Vec<ShortString>) {
        match self.keys.split_first() {
            Some((first, others)) => (first.clone(), others.to_vec()),
            None => (own.clone(), Vec::new()),
        }
    }
}

fn field(table: &FieldTable, name: &str) -> Option<ShortString> {
    table.get(name).and_then(short)
}

fn short(value: &FieldValue) -> Option<ShortString> {
    let bytes = value.as_long_string()?;
    std::str::from_utf8(bytes).ok().and_then(|text| ShortString::try_from(text).ok())
}

/// Where a message goes.
pub(super) fn aim(order: &TaskOrder, message: &Message) -> Aim {
    match order.kind {
        TaskKind::Delete => Aim::Nowhere,
        TaskKind::Redrive => {
            // A message that died in the queue in which it is now goes back to where it died before.
            let is_origin =
                |death: &Death| order.to != TaskTarget::Original || death.queue != order.name.name;
            let death = Death::all(message).find(is_origin);
            death.map_or(Aim::Skip, |death| back(&order.to, message, &death))
        }
        TaskKind::Move => moved(&order.to, message),
    }
}

/// A dead letter is put back: it looks as it did when it came into the queue in which it died. If it was
/// dead-lettered without another key, it has all of its keys still, also those of CC and BCC.
fn back(to: &TaskTarget, message: &Message, death: &Death) -> Aim {
    let keys = death.keys_or(&message.routing_key);
    let routing_key = (keys.0 != message.routing_key).then(|| keys.0.clone());
    let as_it_was = Via { exchange: death.exchange.clone(), routing_key };
    match to {
        TaskTarget::Nowhere => Aim::Nowhere,
        TaskTarget::Original => into_queue(&death.queue, as_it_was),
        TaskTarget::Queue(queue) => into_queue(queue, as_it_was),
        TaskTarget::Exchange(exchange) => {
            let via = Via { exchange: exchange.clone(), ..as_it_was };
            Aim::To { exchange: exchange.clone(), keys, via }
        }
    }
}

/// A message is moved as it is; an exchange routes it by the keys that it has.
fn moved(to: &TaskTarget, message: &Message) -> Aim {
    let as_it_is = Via { exchange: message.exchange.clone(), routing_key: None };
    match to {
        TaskTarget::Nowhere | TaskTarget::Original => Aim::Skip,
        TaskTarget::Queue(queue) => into_queue(queue, as_it_is),
        TaskTarget::Exchange(exchange) => {
            let keys = (message.routing_key.clone(), message.further_keys.clone());
            let via = Via { exchange: exchange.clone(), routing_key: None };
            Aim::To { exchange: exchange.clone(), keys, via }
        }
    }
}

/// The default exchange leads to the queue.
fn into_queue(queue: &ShortString, via: Via) -> Aim {
    Aim::To { exchange: ShortString::EMPTY, keys: (queue.clone(), Vec::new()), via }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_types::{GroupId, Home, QueueId, ResourceName};

    fn name(text: &str) -> ShortString {
        ShortString::try_from(text).unwrap()
    }

    fn order(kind: TaskKind, to: TaskTarget) -> TaskOrder {
        TaskOrder {
            kind,
            queue: QueueId { home: Home::Group(GroupId(1)), index: 1, position: 0 },
            name: ResourceName { vhost: name("/"), name: name("parking") },
            to,
            filter: Vec::new(),
            rate: None,
            max: None,
            dry_run: false,
        }
    }

    fn death(queue: &str) -> FieldValue {
        let keys = ["eu.new", "copy"].map(FieldValue::text).to_vec();
        FieldValue::Table(FieldTable(vec![
            (name("queue"), FieldValue::text(queue)),
            (name("exchange"), FieldValue::text("orders")),
            (name("routing-keys"), FieldValue::Array(keys)),
        ]))
    }

    fn message(deaths: Vec<FieldValue>) -> Message {
        Message {
            exchange: name("dlx"),
            routing_key: name("parked"),
            annotations: FieldTable(vec![(name("x-death"), FieldValue::Array(deaths))]),
            ..Message::default()
        }
    }

    fn to(exchange: &str, keys: &[&str], via: (&str, Option<&str>)) -> Aim {
        let (first, others) = keys.split_first().unwrap();
        let others = others.iter().map(|key| name(key)).collect();
        let via = Via { exchange: name(via.0), routing_key: via.1.map(name) };
        Aim::To { exchange: name(exchange), keys: (name(first), others), via }
    }

    #[test]
    fn a_dead_letter_goes_back_to_where_it_died_last_as_it_came_there() {
        let dead = message(vec![death("retry"), death("work")]);
        let aim_of = |target| aim(&order(TaskKind::Redrive, target), &dead);
        let was = ("orders", Some("eu.new"));
        assert_eq!(aim_of(TaskTarget::Original), to("", &["retry"], was));
        assert_eq!(aim_of(TaskTarget::Queue(name("q"))), to("", &["q"], was));
        let expected = to("x", &["eu.new", "copy"], ("x", Some("eu.new")));
        assert_eq!(aim_of(TaskTarget::Exchange(name("x"))), expected);
    }

    /// It has the keys of CC and BCC still, unless it was dead-lettered with another key.
    #[test]
    fn q_40_a_dead_letter_that_has_its_key_keeps_all_of_them() {
        let dead = Message { routing_key: name("eu.new"), ..message(vec![death("work")]) };
        let original = order(TaskKind::Redrive, TaskTarget::Original);
        assert_eq!(aim(&original, &dead), to("", &["work"], ("orders", None)));
    }

    #[test]
    fn q_47_the_original_queue_is_not_the_one_that_it_is_in_and_moves_are_no_deaths() {
        let mut moved = death("parking");
        if let FieldValue::Table(table) = &mut moved {
            table.0.push((name("reason"), FieldValue::text("redriven")));
        }
        let dead = message(vec![moved.clone(), death("parking"), death("work")]);
        let original = order(TaskKind::Redrive, TaskTarget::Original);
        let was = ("orders", Some("eu.new"));
        assert_eq!(aim(&original, &dead), to("", &["work"], was));
        assert_eq!(aim(&original, &message(vec![moved, death("parking")])), Aim::Skip);
    }

    #[test]
    fn what_has_not_died_is_not_put_back_but_may_be_moved() {
        let alive = Message { annotations: FieldTable::default(), ..message(Vec::new()) };
        let redrive = |target| aim(&order(TaskKind::Redrive, target), &alive);
        assert_eq!(redrive(TaskTarget::Original), Aim::Skip);
        assert_eq!(redrive(TaskTarget::Queue(name("q"))), Aim::Skip);
        assert_eq!(
            aim(&order(TaskKind::Redrive, TaskTarget::Original), &message(vec![])),
            Aim::Skip
        );
        let moves = |target| aim(&order(TaskKind::Move, target), &alive);
        assert_eq!(moves(TaskTarget::Queue(name("q"))), to("", &["q"], ("dlx", None)));
        let expected = to("x", &["parked"], ("x", None));
        assert_eq!(moves(TaskTarget::Exchange(name("x"))), expected);
        assert_eq!(aim(&order(TaskKind::Delete, TaskTarget::Nowhere), &alive), Aim::Nowhere);
    }
}
