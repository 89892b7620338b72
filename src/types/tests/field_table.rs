//! Field tables (FRM-14, FRM-15): what is encoded is decoded again, and no bytes do any harm.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use quorate_types::{FieldTable, FieldTableError, FieldValue, ShortString, TABLE_DEPTH_MAX};

fn any_name() -> impl Strategy<Value = ShortString> {
    "[a-z\u{e4}\u{1f407}-]{0,12}".prop_map(|text| ShortString::try_from(text).unwrap())
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn any_scalar() -> impl Strategy<Value = FieldValue> {
    prop_oneof![
        any::<bool>().prop_map(FieldValue::Bool),
        any::<i8>().prop_map(FieldValue::I8),
        any::<u8>().prop_map(FieldValue::U8),
        any::<i16>().prop_map(FieldValue::I16),
        any::<u16>().prop_map(FieldValue::U16),
        any::<i32>().prop_map(FieldValue::I32),
        any::<u32>().prop_map(FieldValue::U32),
        any::<i64>().prop_map(FieldValue::I64),
        any::<f32>().prop_filter("NaN is not itself", |x| !x.is_nan()).prop_map(FieldValue::F32),
        any::<f64>().prop_filter("NaN is not itself", |x| !x.is_nan()).prop_map(FieldValue::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        any_bytes().prop_map(FieldValue::LongString),
        any_bytes().prop_map(FieldValue::ByteArray),
        any::<u64>().prop_map(FieldValue::Timestamp),
        Just(FieldValue::Void),
    ]
}

fn any_value() -> impl Strategy<Value = FieldValue> {
    any_scalar().prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(FieldValue::Array),
            prop::collection::vec((any_name(), inner), 0..5)
                .prop_map(|fields| FieldValue::Table(FieldTable(fields))),
        ]
    })
}

fn any_table() -> impl Strategy<Value = FieldTable> {
    prop::collection::vec((any_name(), any_value()), 0..8).prop_map(FieldTable)
}

fn content(table: &FieldTable) -> Bytes {
    let mut bytes = BytesMut::new();
    table.encode_content(&mut bytes);
    bytes.freeze()
}

proptest! {
    /// FRM-14, FRM-15: types, order and duplicates are kept.
    #[test]
    fn a_table_is_decoded_as_it_was_encoded(table in any_table(), behind in any_bytes()) {
        prop_assert_eq!(FieldTable::decode_content(content(&table)).unwrap(), table.clone());
        let mut bytes = BytesMut::new();
        table.encode(&mut bytes);
        bytes.put_slice(&behind);
        let mut bytes = bytes.freeze();
        prop_assert_eq!(FieldTable::decode(&mut bytes).unwrap(), table);
        prop_assert_eq!(bytes, behind, "no more is taken than the table");
    }

    /// A table cut short anywhere is refused or is a shorter table, never a panic.
    #[test]
    fn a_table_cut_short_is_no_table(table in any_table(), keep in 0.0..1.0f64) {
        let whole = content(&table);
        let mut bytes = BytesMut::new();
        table.encode(&mut bytes);
        let bytes = bytes.freeze();
        let cut = (bytes.len() as f64 * keep) as usize;
        prop_assert_eq!(
            FieldTable::decode(&mut bytes.slice(..cut)),
            Err(FieldTableError::Truncated)
        );
        drop(FieldTable::decode_content(whole.slice(..cut.min(whole.len()))));
    }

    /// Whatever the bytes, decoding ends with a table or a word; what was read can be written and
    /// read again.
    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(table) = FieldTable::decode_content(Bytes::from(bytes)) {
            let again = content(&table);
            let table = FieldTable::decode_content(again.clone()).unwrap();
            prop_assert_eq!(content(&table), again);
        }
    }

    /// The same, for bytes that look more like tables.
    #[test]
    fn no_letters_do_harm(
        fields in prop::collection::vec(
            (
                prop::sample::select(b"tbBsuIilLfdDSATFVxzZ\0".to_vec()),
                prop::collection::vec(any::<u8>(), 0..12),
            ),
            0..20,
        ),
    ) {
        let mut bytes = BytesMut::new();
        for (kind, value) in fields {
            bytes.put_slice(&[1, b'k', kind]);
            bytes.put_slice(&value);
        }
        drop(FieldTable::decode_content(bytes.freeze()));
    }
}

/// One field named `k`.
fn one(bytes: &[u8]) -> Result<FieldValue, FieldTableError> {
    let mut content = vec![1, b'k'];
    content.extend_from_slice(bytes);
    let mut table = FieldTable::decode_content(Bytes::from(content))?;
    Ok(table.0.remove(0).1)
}

#[test]
fn frm_14_every_letter_is_read_as_its_type() {
    let bytes = |letter: u8, value: &[u8]| [&[letter], value].concat();
    let cases = [
        (bytes(b't', &[1]), FieldValue::Bool(true), "bool"),
        (bytes(b'b', &[0xff]), FieldValue::I8(-1), "byte"),
        (bytes(b'B', &[0xff]), FieldValue::U8(255), "unsignedbyte"),
        (bytes(b's', &[0xff, 0xfe]), FieldValue::I16(-2), "short"),
        (bytes(b'u', &[0xff, 0xfe]), FieldValue::U16(65_534), "unsignedshort"),
        (bytes(b'I', &[0xff; 4]), FieldValue::I32(-1), "signedint"),
        (bytes(b'i', &[0xff; 4]), FieldValue::U32(u32::MAX), "unsignedint"),
        (bytes(b'l', &[0xff; 8]), FieldValue::I64(-1), "long"),
        (bytes(b'L', &[0xff; 8]), FieldValue::I64(-1), "long"),
        (bytes(b'f', &1.5f32.to_be_bytes()), FieldValue::F32(1.5), "float"),
        (bytes(b'd', &1.5f64.to_be_bytes()), FieldValue::F64(1.5), "double"),
        (bytes(b'D', &[2, 0, 0, 0, 7]), FieldValue::Decimal { scale: 2, value: 7 }, "decimal"),
        (bytes(b'S', &[0, 0, 0, 1, b'v']), FieldValue::text("v"), "longstr"),
        (bytes(b'A', &[0, 0, 0, 1, b'V']), FieldValue::Array(vec![FieldValue::Void]), "array"),
        (bytes(b'T', &[0, 0, 0, 0, 0, 0, 0, 9]), FieldValue::Timestamp(9), "timestamp"),
        (bytes(b'F', &[0, 0, 0, 0]), FieldValue::Table(FieldTable::default()), "table"),
        (bytes(b'V', &[]), FieldValue::Void, "void"),
        (bytes(b'x', &[0, 0, 0, 1, 7]), FieldValue::ByteArray(Bytes::from_static(&[7])), "binary"),
    ];
    for (bytes, value, name) in cases {
        assert_eq!(one(&bytes), Ok(value.clone()), "{}", char::from(bytes[0]));
        assert_eq!(value.type_name(), name);
    }
    assert_eq!(one(b"z"), Err(FieldTableError::UnknownType(b'z')));
}

#[test]
fn frm_15_both_64_bit_letters_are_written_as_l() {
    let table =
        FieldTable::decode_content(Bytes::from_static(b"\x01kL\0\0\0\0\0\0\0\x05")).unwrap();
    assert_eq!(content(&table), &b"\x01kl\0\0\0\0\0\0\0\x05"[..]);
}

#[test]
fn frm_11_a_name_that_is_not_utf8_and_a_length_that_is_not_there_are_refused() {
    let decode = |bytes: &'static [u8]| FieldTable::decode_content(Bytes::from_static(bytes));
    assert_eq!(decode(b"\x01\xffV"), Err(FieldTableError::Name));
    assert_eq!(decode(b"\x05k"), Err(FieldTableError::Truncated));
    assert_eq!(decode(b"\x01k"), Err(FieldTableError::Truncated));
    // A length of 4 GiB costs nothing.
    assert_eq!(decode(b"\x01kS\xff\xff\xff\xff"), Err(FieldTableError::Truncated));
    let mut bytes = Bytes::from_static(b"\xff\xff\xff\xff");
    assert_eq!(FieldTable::decode(&mut bytes), Err(FieldTableError::Truncated));
}

/// A table or array within another, `depth` of them.
fn nested(kind: u8, depth: usize) -> Bytes {
    let mut inner: Vec<u8> = Vec::new();
    for _ in 0..depth {
        let mut outer = if kind == b'F' { vec![0] } else { Vec::new() };
        outer.push(kind);
        outer.extend_from_slice(&u32::try_from(inner.len()).unwrap().to_be_bytes());
        outer.append(&mut inner);
        inner = outer;
    }
    let name: &[u8] = if kind == b'F' { &[] } else { &[0] };
    [name, &inner].concat().into()
}

#[test]
fn tables_and_arrays_nest_up_to_a_bound() {
    for kind in [b'F', b'A'] {
        let decode = |depth| FieldTable::decode_content(nested(kind, depth)).map(drop);
        assert_eq!(decode(TABLE_DEPTH_MAX - 1), Ok(()));
        assert_eq!(decode(TABLE_DEPTH_MAX), Err(FieldTableError::TooDeep));
        assert_eq!(decode(8_000), Err(FieldTableError::TooDeep));
    }
}

#[test]
fn the_first_of_two_fields_of_one_name_counts() {
    let key = || ShortString::from_static("k");
    let table = FieldTable(vec![(key(), FieldValue::U8(1)), (key(), FieldValue::U8(2))]);
    assert_eq!(table.get("k"), Some(&FieldValue::U8(1)));
    assert_eq!(table.get("K"), None);
    assert!(!table.is_empty() && FieldTable::default().is_empty());
}

#[test]
fn arg_10_integers_of_every_width_are_integers_and_nothing_else_is() {
    let integers =
        [FieldValue::I8(-7), FieldValue::I16(-7), FieldValue::I32(-7), FieldValue::I64(-7)];
    assert!(integers.iter().all(|value| value.as_integer() == Some(-7)));
    let unsigned = [FieldValue::U8(200), FieldValue::U16(200), FieldValue::U32(200)];
    assert!(unsigned.iter().all(|value| value.as_integer() == Some(200)));
    let others = [
        FieldValue::Bool(true),
        FieldValue::F32(7.0),
        FieldValue::F64(7.0),
        FieldValue::Decimal { scale: 0, value: 7 },
        FieldValue::text("7"),
        FieldValue::Timestamp(7),
        FieldValue::Void,
    ];
    assert!(others.iter().all(|value| value.as_integer().is_none()));
}
