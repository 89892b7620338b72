//! The content of a trace.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing;
use proptest::{collection::vec, prelude::*};

/// A table that is nested so deeply that it is large and yet allowed.
fn table(names: &[String], bytes: usize) -> FieldTable {
    let value = |name: &String| {
        let name = ShortString::try_from(name.clone()).unwrap_or_default();
        (name, FieldValue::LongString(vec![b'x'; bytes].into()))
    };
    FieldTable(names.iter().map(value).collect())
}

/// The headers of a trace, by name.
fn headers_of(properties: &Properties) -> FieldTable {
    let mut bytes = properties.bytes_of(Property::Headers).unwrap();
    FieldTable::decode(&mut bytes).unwrap()
}

proptest! {
    /// The key of a trace names the event and its exchange or queue, cut at 255 bytes at the end of
    /// a character.
    #[test]
    fn a_key_is_what_was_seen_and_where(
        name in prop_oneof!["[a-zäß€]{0,90}", "[aä€]{110,130}"],
    ) {
        let connection = testing::lone_connection();
        let Ok(name) = ShortString::try_from(name) else { return Ok(()) };
        let (body, key) = (Bytes::new(), ShortString::EMPTY);
        let seen = Seen {
            what: "deliver",
            name: &name,
            connection: &connection,
            channel: ChannelId { number: 1, opened: 0 },
            exchange: &key,
            routing_key: &key,
            further_keys: &[],
            properties: Properties::default(),
            body: &body,
        };
        let (whole, key) = (format!("deliver.{name}"), seen.key());
        prop_assert!(whole.starts_with(key.as_str()));
        prop_assert!(key.len() == whole.len() || (251..=KEY_BYTES_MAX).contains(&key.len()));
    }

    /// A trace has the headers of the traced message as far as they fit into one frame, in the
    /// order of their names, and always the user and the node.
    #[test]
    fn prp_02_headers_of_a_trace_are_in_order_and_fit_in_a_frame(
        names in vec("[a-z]{1,8}", 0..6),
        bytes in prop_oneof![0..200_usize, 10_000..30_000_usize],
        keys in vec("[a-z]{1,200}", 0..4),
    ) {
        let connection = testing::lone_connection();
        let further: Vec<_> = keys.into_iter().map(|key| ShortString::try_from(key).unwrap()).collect();
        let (exchange, body) = (ShortString::from_static("x"), Bytes::new());
        let traced = table(&names, bytes);
        let seen = Seen {
            what: "publish",
            name: &exchange,
            connection: &connection,
            channel: ChannelId { number: 7, opened: 0 },
            exchange: &exchange,
            routing_key: &exchange,
            further_keys: &further,
            properties: with_headers(&traced).unwrap(),
            body: &body,
        };
        let trace = seen.headers("node-1", field("redelivered", FieldValue::I32(0)));
        prop_assert!(trace.raw.len() <= HEADERS_BYTES_MAX);
        let FieldTable(fields) = headers_of(&trace);
        prop_assert!(fields.is_sorted_by(|(a, _), (b, _)| a < b));
        let find = |name: &str| fields.iter().find(|(it, _)| it.as_str() == name).map(|it| &it.1);
        prop_assert_eq!(find("channel"), Some(&FieldValue::I32(7)));
        prop_assert_eq!(find("exchange_name"), Some(&text("x")));
        prop_assert_eq!(find("vhost"), Some(&text("/")));
        let is_small = names.len() * (bytes + 20) < HEADERS_BYTES_MAX - 2_000;
        if is_small {
            let inner = FieldTable(vec![field("headers", FieldValue::Table(traced))]);
            prop_assert_eq!(find("properties"), Some(&FieldValue::Table(inner)));
            let keys = std::iter::once(&exchange).chain(&further).map(|key| text(key.as_str()));
            prop_assert_eq!(find("routing_keys"), Some(&FieldValue::Array(keys.collect())));
        }
    }
}
