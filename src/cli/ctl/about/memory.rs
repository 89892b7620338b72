//! `memory_breakdown`: the memory of a node's process by use.

use super::super::exit::{Exit, Failure};
use super::super::job::Job;
use quorate_management::{memory_by_category, wire::Node};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;

/// Units, and their bytes.
const UNITS: [(&str, u64); 5] = [
    ("bytes", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// A unit of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit(&'static str, u64);

/// The unit of `--unit`.
pub(super) fn unit(job: &Job<'_>) -> Result<Unit, Failure> {
    let given = job.invocation.options.value("unit").unwrap_or("gb");
    let found = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(given));
    found.map(|(name, bytes)| Unit(name, *bytes)).ok_or_else(|| {
        let text = format!(
            "Error:\nunit '{given}' is not supported. Please use one of: bytes, kb, mb, gb, tb\n"
        );
        Failure::new(Exit::Data, text)
    })
}

/// The memory of a process by use, as text and as JSON: what takes most is first, as RabbitMQ shows it.
pub(super) fn breakdown(node: &Node, unit: Unit) -> (String, Value) {
    let Unit(name, size) = unit;
    let mut uses: Vec<_> = memory_by_category(node).collect();
    uses.sort_by_key(|(_, bytes)| Reverse(*bytes));
    let all = uses.iter().map(|(_, bytes)| bytes).sum::<u64>().max(1);
    let (mut text, mut json) = (String::new(), Map::new());
    for (category, bytes) in uses {
        let (whole, parts) = (bytes / size, bytes % size * 10_000 / size);
        let amount = if size == 1 { whole.to_string() } else { format!("{whole}.{parts:04}") };
        let share = (bytes as f64 * 10_000.0 / all as f64).round() / 100.0;
        text += &format!("{category}: {amount} {name} ({share:?}%)\n");
        json.insert(category.to_owned(), json!({ "bytes": bytes, "percentage": share }));
    }
    (text, json.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_by_use_in_the_unit_that_is_asked_for() {
        let memory_uses = [("connection_readers".to_owned(), 1_500)].into();
        let node = Node { memory_bytes: 59_180_000, memory_uses, ..Node::default() };
        let first = |unit| {
            let (text, _) = breakdown(&node, unit);
            text.lines().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            first(Unit("gb", 1_000_000_000)),
            [
                "other_system: 0.0591 gb (100.0%)",
                "connection_readers: 0.0000 gb (0.0%)",
                "connection_writers: 0.0000 gb (0.0%)",
            ]
        );
        assert!(
            first(Unit("bytes", 1)).contains(&"connection_readers: 1500 bytes (0.0%)".to_owned())
        );
        let (_, json) = breakdown(&node, Unit("bytes", 1));
        let rest = json!({ "bytes": 59_178_500, "percentage": 100.0 });
        assert_eq!(json.get("other_system"), Some(&rest));
    }
}
