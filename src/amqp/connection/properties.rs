//! The client properties that are stored while the client is connected (CONN-09): those that lists
//! show, and a bounded part of the others.

use quorate_types::{FieldTable, FieldValue, ShortString};

/// Properties that are kept in preference to all others.
const KNOWN: [&str; 7] = [
    "connection_name",
    "product",
    "version",
    "platform",
    "information",
    "copyright",
    "capabilities",
];
/// Maximum of values and of bytes in memory.
const VALUES_MAX: usize = 128;
const BYTES_MAX: usize = 16 * 1024;

/// The properties without those beyond the bounds, in their order; they do not keep their frame in
/// memory.
pub(crate) fn kept(given: &FieldTable) -> FieldTable {
    let known = |(name, _): &&(ShortString, FieldValue)| KNOWN.contains(&name.as_str());
    let first = given.0.iter().filter(known).chain(given.0.iter().filter(|field| !known(field)));
    let (mut values, mut bytes) = (0, 0);
    let mut names = Vec::new();
    for (name, value) in first.take(VALUES_MAX) {
        let size = FieldTable(vec![(name.clone(), value.clone())]).size();
        if values + size.values <= VALUES_MAX && bytes + size.bytes <= BYTES_MAX {
            (values, bytes) = (values + size.values, bytes + size.bytes);
            names.push(name);
        }
    }
    let fields = given.0.iter().filter(|(name, _)| names.contains(&name)).take(names.len());
    FieldTable(fields.cloned().collect()).detached()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn field(name: &str, value: FieldValue) -> (ShortString, FieldValue) {
        (ShortString::try_from(name).unwrap(), value)
    }

    #[test]
    fn ordinary_properties_are_kept_as_they_are() {
        let capabilities = FieldTable(vec![field("basic.nack", FieldValue::Bool(true))]);
        let given = FieldTable(vec![
            field("product", FieldValue::text("lapin")),
            field("custom", FieldValue::I64(7)),
            field("capabilities", FieldValue::Table(capabilities)),
        ]);
        assert_eq!(kept(&given), given);
    }

    /// A client with 128 KiB of properties keeps only its name and a bounded part of the others.
    #[test]
    fn what_is_too_much_is_left_out_but_not_the_name() {
        let mut fields = vec![field("voids", FieldValue::Array(vec![FieldValue::Void; 100_000]))];
        fields.extend((0..1_000).map(|n| field(&format!("x{n}"), FieldValue::I64(n))));
        fields.push(field("connection_name", FieldValue::text("mine")));
        let kept = kept(&FieldTable(fields));
        assert!(kept.get("connection_name").is_some() && kept.get("voids").is_none());
        assert!(kept.get("x0").is_some(), "as many of the rest as fit");
        let size = kept.size();
        assert!(size.values <= VALUES_MAX && size.bytes <= BYTES_MAX, "{size:?}");
    }
}
