//! Bindings of a headers exchange: compares their arguments with a message's headers (RTE-05 to
//! RTE-08).

use crate::refusal::term;
use quorate_types::{Exception, FieldTable, FieldValue, ReplyCode, ShortString};

/// The arguments of a binding, decoded once when the binding is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matcher {
    any: bool,
    /// The arguments that are compared: without `x-match`, and without `x-` arguments unless
    /// `x-match` is one of the `-with-x` forms.
    compared: Vec<(ShortString, FieldValue)>,
}

impl Matcher {
    /// Decodes a binding's arguments.
    ///
    /// # Errors
    /// 406 for an `x-match` that is not one of the four forms (RTE-08).
    pub(crate) fn parse(arguments: &FieldTable) -> Result<Self, Exception> {
        let (any, with_x) = match arguments.get("x-match") {
            None => (false, false),
            Some(FieldValue::LongString(mode)) => match mode.as_ref() {
                b"all" => (false, false),
                b"any" => (true, false),
                b"all-with-x" => (false, true),
                b"any-with-x" => (true, true),
                _ => return Err(unknown_mode(&FieldValue::LongString(mode.clone()))),
            },
            Some(other) => return Err(mode_of_wrong_type(other)),
        };
        let is_compared = |name: &ShortString| {
            let name = name.as_bytes();
            name != b"x-match" && (with_x || !name.starts_with(b"x-"))
        };
        let compared = arguments.0.iter().filter(|(name, _)| is_compared(name)).cloned().collect();
        Ok(Self { any, compared })
    }

    /// RTE-07: with no arguments to compare, `all` always matches and `any` never does.
    pub(crate) fn matches(&self, headers: &Headers<'_>) -> bool {
        let fits = |(name, wanted): &(ShortString, FieldValue)| headers.fits(name, wanted);
        if self.any { self.compared.iter().any(fits) } else { self.compared.iter().all(fits) }
    }
}

/// A message's headers sorted by name, for binary search.
pub(crate) struct Headers<'a>(Vec<(&'a ShortString, &'a FieldValue)>);

impl<'a> Headers<'a> {
    /// If several headers have one name, the first counts.
    pub(crate) fn of(table: &'a FieldTable) -> Self {
        let mut fields: Vec<_> = table.0.iter().map(|(name, value)| (name, value)).collect();
        // Published headers are sorted already (PRP-02); then this sort is one pass.
        fields.sort_by_key(|(name, _)| *name);
        fields.dedup_by_key(|(name, _)| *name);
        Self(fields)
    }

    /// RTE-06: a void value requires only that the header is present.
    fn fits(&self, name: &ShortString, wanted: &FieldValue) -> bool {
        let place = self.0.binary_search_by_key(&name, |(header, _)| header).ok();
        let present = place.and_then(|place| self.0.get(place));
        present.is_some_and(|(_, value)| matches!(wanted, FieldValue::Void) || equal(wanted, value))
    }
}

/// Compares by value, whatever the types: numbers as numbers, bytes as bytes (RTE-06). Inside
/// arrays and tables the types must be equal too.
fn equal(left: &FieldValue, right: &FieldValue) -> bool {
    match (Plain::of(left), Plain::of(right)) {
        (Plain::Integer(left), Plain::Integer(right)) => left == right,
        (Plain::Float(left), Plain::Float(right)) => left == right,
        (Plain::Integer(integer), Plain::Float(float))
        | (Plain::Float(float), Plain::Integer(integer)) => same_number(integer, float),
        (Plain::Bytes(left), Plain::Bytes(right)) => left == right,
        (Plain::Other(left), Plain::Other(right)) => left == right,
        (Plain::Integer(_) | Plain::Float(_) | Plain::Bytes(_) | Plain::Other(_), _) => false,
    }
}

fn same_number(integer: i128, float: f64) -> bool {
    // Every integer on the wire is far below 2^127, at which the cast back would saturate.
    float.fract() == 0.0 && float as i128 == integer
}

enum Plain<'a> {
    Integer(i128),
    Float(f64),
    Bytes(&'a [u8]),
    Other(&'a FieldValue),
}

impl<'a> Plain<'a> {
    fn of(value: &'a FieldValue) -> Self {
        match value {
            FieldValue::I8(_)
            | FieldValue::U8(_)
            | FieldValue::I16(_)
            | FieldValue::U16(_)
            | FieldValue::I32(_)
            | FieldValue::U32(_)
            | FieldValue::I64(_) => Plain::Integer(i128::from(value.as_integer().unwrap_or(0))),
            FieldValue::Timestamp(seconds) => Plain::Integer(i128::from(*seconds)),
            FieldValue::F32(value) => Plain::Float(f64::from(*value)),
            FieldValue::F64(value) => Plain::Float(*value),
            FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => Plain::Bytes(bytes),
            FieldValue::Bool(_)
            | FieldValue::Decimal { .. }
            | FieldValue::Array(_)
            | FieldValue::Table(_)
            | FieldValue::Void => Plain::Other(value),
        }
    }
}

fn unknown_mode(mode: &FieldValue) -> Exception {
    Exception::new(
        ReplyCode::PreconditionFailed,
        format!(
            "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x",
            term(mode)
        ),
    )
}

fn mode_of_wrong_type(mode: &FieldValue) -> Exception {
    Exception::new(
        ReplyCode::PreconditionFailed,
        format!(
            "Invalid x-match field type {} (value {}); expected longstr",
            mode.type_name(),
            term(mode)
        ),
    )
}
