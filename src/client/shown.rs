//! The properties of a stored message as clients get them (PRP-02, CON-20, CON-22, Q-32).

use bytes::Bytes;
use quorate_types::{
    Counts, FieldTable, FieldValue, Message, Properties, PropertiesError, ShortString,
};

/// The properties that a client gets: as published, byte by byte, unless the broker has
/// something to add to the headers: deaths, or counts on a redelivery (CON-20, CON-22, Q-32).
#[must_use]
pub fn delivery_properties(message: &Message, counts: Option<Counts>) -> Bytes {
    let counts = counts.filter(|counts| counts.acquired > 0);
    if message.annotations.is_empty() && counts.is_none() {
        return message.properties.clone();
    }
    with_additions(message, counts.unwrap_or_default()).unwrap_or_else(|error| {
        tracing::warn!(
            %error, "cannot decode stored message properties; delivering them unchanged"
        );
        message.properties.clone()
    })
}

fn with_additions(message: &Message, counts: Counts) -> Result<Bytes, PropertiesError> {
    let properties = if message.properties.is_empty() {
        Properties { raw: Bytes::from_static(&[0, 0]), ..Properties::default() }
    } else {
        Properties::parse(message.properties.clone())?
    };
    let mut added = message.annotations.0.clone();
    let mut count = |name, count: u32| {
        if count > 0 {
            added.push((ShortString::from_static(name), FieldValue::I64(i64::from(count))));
        }
    };
    count("x-acquired-count", counts.acquired);
    count("x-delivery-count", counts.returned);
    // Broker entries win over the client's; of the client's duplicates the first is kept; sorted
    // by name (PRP-02).
    added.extend(properties.decode_headers()?.unwrap_or_default().0);
    added.sort_by(|(a, _), (b, _)| a.cmp(b));
    added.dedup_by(|(later, _), (kept, _)| later == kept);
    properties.with_headers(Some(&FieldTable(added)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::{BufMut, BytesMut};

    fn field(name: &str, value: i64) -> (ShortString, FieldValue) {
        (ShortString::try_from(name).unwrap(), FieldValue::I64(value))
    }

    fn message(headers: Option<Vec<(ShortString, FieldValue)>>) -> Message {
        let mut raw = BytesMut::new();
        raw.put_u16(if headers.is_some() { 1 << 13 | 1 << 11 } else { 1 << 11 });
        if let Some(headers) = headers {
            FieldTable(headers).encode(&mut raw);
        }
        raw.put_u8(7);
        Message { properties: raw.freeze(), ..Message::default() }
    }

    fn headers(raw: Bytes) -> Option<FieldTable> {
        let properties = Properties::parse(raw).unwrap();
        assert_eq!(properties.priority, Some(7), "the other properties stay");
        properties.decode_headers().unwrap()
    }

    const ONCE: Option<Counts> = Some(Counts { acquired: 1, returned: 0 });
    const TWICE: Option<Counts> = Some(Counts { acquired: 2, returned: 1 });

    /// CON-22: on a first delivery nothing changes.
    #[test]
    fn con_22_a_first_delivery_carries_the_bytes_as_published() {
        let sent = message(Some(vec![field("a", 1), field("x-delivery-count", 77)]));
        for counts in [None, Some(Counts::default())] {
            assert_eq!(delivery_properties(&sent, counts), sent.properties);
        }
        let sent = message(None);
        assert_eq!(delivery_properties(&sent, None), sent.properties);
    }

    /// CON-20, CON-22, Q-32: the delivery counts replace headers of the same name from the client.
    #[test]
    fn con_20_a_redelivery_carries_its_counts_over_the_clients() {
        let sent = message(Some(vec![field("x-delivery-count", 77), field("b", 1), field("a", 2)]));
        assert_eq!(
            headers(delivery_properties(&sent, TWICE)),
            Some(FieldTable(vec![
                field("a", 2),
                field("b", 1),
                field("x-acquired-count", 2),
                field("x-delivery-count", 1),
            ]))
        );
        assert_eq!(
            headers(delivery_properties(&message(None), ONCE)),
            Some(FieldTable(vec![field("x-acquired-count", 1)]))
        );
    }

    /// PRP-02: broker entries win, of a client's duplicates the first is kept.
    #[test]
    fn prp_02_what_the_broker_knows_is_merged_into_the_headers() {
        let mut sent = message(Some(vec![field("x-death", 5), field("b", 1), field("b", 2)]));
        sent.annotations = FieldTable(vec![field("x-death", 9)]);
        assert_eq!(
            headers(delivery_properties(&sent, None)),
            Some(FieldTable(vec![field("b", 1), field("x-death", 9)]))
        );
    }
}
