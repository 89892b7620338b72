//! Content properties (FRM-11, FRM-16, PRP-01): read where they are, changed alone.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use quorate_types::{FieldTable, FieldValue, Properties, PropertiesError, Property, ShortString};

/// One property: its bit, and its bytes.
type Part = (u16, Bytes);

const HEADERS: u16 = 13;
const EXPIRATION: u16 = 8;

fn short(text: &str) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(u8::try_from(text.len()).unwrap());
    bytes.put_slice(text.as_bytes());
    bytes.freeze()
}

fn table(names: &[String]) -> FieldTable {
    let field = |name: &String| (ShortString::try_from(name.as_str()).unwrap(), FieldValue::U8(7));
    FieldTable(names.iter().map(field).collect())
}

fn encoded(table: &FieldTable) -> Bytes {
    let mut bytes = BytesMut::new();
    table.encode(&mut bytes);
    bytes.freeze()
}

/// Any choice of the 14 properties, in the order of the wire.
fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    let texts = prop::collection::vec("[a-z]{0,20}", 14);
    let names = prop::collection::vec("[a-z]{1,5}", 0..4);
    (texts, names, any::<u16>(), any::<u8>(), any::<u64>()).prop_map(
        |(texts, names, chosen, byte, time)| {
            let part = |bit: u16, text: &String| match bit {
                HEADERS => encoded(&table(&names)),
                11 | 12 => Bytes::copy_from_slice(&[byte]),
                6 => Bytes::copy_from_slice(&time.to_be_bytes()),
                _ => short(text),
            };
            (2..16u16)
                .rev()
                .zip(&texts)
                .filter(|(bit, _)| chosen & (1 << bit) != 0)
                .map(|(bit, text)| (bit, part(bit, text)))
                .collect()
        },
    )
}

/// The property of that bit.
fn property(bit: u16) -> Property {
    use Property as P;
    let of_bits = [
        P::ClusterId,
        P::AppId,
        P::UserId,
        P::Type,
        P::Timestamp,
        P::MessageId,
        P::Expiration,
        P::ReplyTo,
        P::CorrelationId,
        P::Priority,
        P::DeliveryMode,
        P::Headers,
        P::ContentEncoding,
        P::ContentType,
    ];
    of_bits[usize::from(bit - 2)]
}

fn raw(parts: &[Part]) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u16(parts.iter().fold(0, |flags, (bit, _)| flags | 1 << bit));
    parts.iter().for_each(|(_, part)| bytes.put_slice(part));
    bytes.freeze()
}

/// The same with one property put in place of what is there, or taken out.
fn with(parts: &[Part], bit: u16, bytes: Option<Bytes>) -> Bytes {
    let mut parts: Vec<Part> = parts.iter().filter(|(other, _)| *other != bit).cloned().collect();
    parts.extend(bytes.map(|bytes| (bit, bytes)));
    parts.sort_by_key(|(bit, _)| std::cmp::Reverse(*bit));
    raw(&parts)
}

fn bytes_of(parts: &[Part], bit: u16) -> Option<Bytes> {
    parts.iter().find(|(other, _)| *other == bit).map(|(_, bytes)| bytes.clone())
}

fn text_of(parts: &[Part], bit: u16) -> Option<ShortString> {
    bytes_of(parts, bit).map(|bytes| ShortString::from_bytes(bytes.slice(1..)).unwrap())
}

proptest! {
    /// PRP-01: each property is found as it stands, and what is not there is not.
    #[test]
    fn a_property_is_found_where_it_is(parts in any_parts()) {
        let properties = Properties::parse(raw(&parts)).unwrap();
        for bit in 2..16 {
            let expected = parts.iter().find(|(of, _)| *of == bit).map(|(_, bytes)| bytes);
            prop_assert_eq!(properties.bytes_of(property(bit)), expected.cloned());
        }
    }

    /// PRP-01: what the broker reads is found, whatever else is there, and the raw bytes stay.
    #[test]
    fn properties_are_found_among_any_others(parts in any_parts()) {
        let raw = raw(&parts);
        let found = Properties::parse(raw.clone()).unwrap();
        prop_assert_eq!(&found.raw, &raw);
        prop_assert_eq!(&found.reply_to, &text_of(&parts, 9));
        prop_assert_eq!(&found.expiration, &text_of(&parts, EXPIRATION));
        prop_assert_eq!(&found.user_id, &text_of(&parts, 4));
        prop_assert_eq!(found.delivery_mode, bytes_of(&parts, 12).map(|bytes| bytes[0]));
        prop_assert_eq!(found.priority, bytes_of(&parts, 11).map(|bytes| bytes[0]));
        let headers = bytes_of(&parts, HEADERS).map(|bytes| bytes.slice(4..));
        prop_assert_eq!(&found.headers, &headers);
        let decoded = headers.map(|content| FieldTable::decode_content(content).unwrap());
        prop_assert_eq!(found.decode_headers().unwrap(), decoded);
    }

    /// One property is changed, set or taken out, and no byte besides.
    #[test]
    fn a_replaced_property_leaves_the_others_as_they_were(
        parts in any_parts(),
        names in prop::option::of(prop::collection::vec("[a-z]{1,5}", 0..4)),
        expiration in prop::option::of("[0-9]{1,5}"),
    ) {
        let found = Properties::parse(raw(&parts)).unwrap();
        let headers = names.map(|names| table(&names));
        let changed = found.with_headers(headers.as_ref()).unwrap();
        prop_assert_eq!(changed, with(&parts, HEADERS, headers.as_ref().map(encoded)));
        let text = expiration.map(|text| ShortString::try_from(text).unwrap());
        let changed = found.with_expiration(text.as_ref()).unwrap();
        prop_assert_eq!(changed, with(&parts, EXPIRATION, text.map(|text| short(text.as_str()))));
    }

    /// Properties cut short, or with bytes behind them, are refused (FRM-11, FRM-16).
    #[test]
    fn properties_that_do_not_fit_are_refused(parts in any_parts(), keep in 0.0..1.0f64) {
        let raw = raw(&parts);
        let cut = (raw.len() as f64 * keep) as usize;
        prop_assert!(Properties::parse(raw.slice(..cut)).is_err());
        let longer = Bytes::from([raw.as_ref(), &[0]].concat());
        prop_assert_eq!(Properties::parse(longer), Err(PropertiesError::LeftOver));
    }

    /// Whatever the bytes, there is an answer.
    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Ok(found) = Properties::parse(Bytes::from(bytes)) {
            prop_assert!(found.decode_headers().is_ok());
            prop_assert!(found.with_headers(None).is_ok());
            prop_assert!(found.with_expiration(Some(&ShortString::EMPTY)).is_ok());
        }
    }
}

#[test]
fn frm_16_the_continuation_bit_alone_is_ignored_and_bytes_behind_it_are_refused() {
    assert!(Properties::parse(Bytes::from_static(&[0, 1])).is_ok());
    assert_eq!(
        Properties::parse(Bytes::from_static(&[0, 1, 0, 0])),
        Err(PropertiesError::LeftOver)
    );
    assert_eq!(Properties::parse(Bytes::from_static(&[0])), Err(PropertiesError::Truncated));
}

#[test]
fn frm_16_an_empty_table_stays_an_empty_table() {
    let empty = raw(&[(HEADERS, encoded(&FieldTable::default()))]);
    let found = Properties::parse(empty.clone()).unwrap();
    assert_eq!(found.decode_headers(), Ok(Some(FieldTable::default())));
    assert_eq!(found.with_expiration(None).unwrap(), empty);
    let none = Properties::parse(Bytes::from_static(&[0, 0])).unwrap();
    assert_eq!(none.decode_headers(), Ok(None));
}

#[test]
fn frm_11_text_that_is_not_utf8_and_headers_that_are_no_table_are_refused() {
    // message-id.
    assert_eq!(
        Properties::parse(Bytes::from_static(&[0, 1 << 7, 1, 0xff])),
        Err(PropertiesError::Text)
    );
    let headers = [1 << 5, 0, 0, 0, 0, 3, 1, b'k', b'z'];
    assert!(matches!(
        Properties::parse(Bytes::copy_from_slice(&headers)),
        Err(PropertiesError::Headers(_))
    ));
    // Headers of 4 GiB cost nothing.
    let headers = [1 << 5, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(
        Properties::parse(Bytes::copy_from_slice(&headers)),
        Err(PropertiesError::Truncated)
    );
}
