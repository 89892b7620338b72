//! `memory_breakdown`. Only the whole of a node's memory is known, which is that of its process.

use super::super::exit::{Exit, Failure};
use super::super::job::Job;
use serde_json::{Value, json};

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

/// The memory of the process by use, as text and as JSON.
pub(super) fn breakdown(bytes: u64, unit: Unit) -> (String, Value) {
    let Unit(name, size) = unit;
    let (whole, parts) = (bytes / size, bytes % size * 10_000 / size);
    let amount = if size == 1 { whole.to_string() } else { format!("{whole}.{parts:04}") };
    let text = format!("other_system: {amount} {name} (100.0%)\n");
    let percentage = if bytes == 0 { 0.0 } else { 100.0 };
    (text, json!({ "other_system": { "bytes": bytes, "percentage": percentage } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_the_unit_that_is_asked_for() {
        let shown = |bytes, unit| breakdown(bytes, unit).0;
        let gb = Unit("gb", 1_000_000_000);
        assert_eq!(shown(59_180_000, gb), "other_system: 0.0591 gb (100.0%)\n");
        assert_eq!(shown(1_500, Unit("bytes", 1)), "other_system: 1500 bytes (100.0%)\n");
    }
}
