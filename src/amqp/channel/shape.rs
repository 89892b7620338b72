//! The shape of what a publish says about itself: expiration, CC and BCC, reserved headers (PRP-04,
//! PRP-09, Q-50); and of what is returned (PUB-04).

use crate::codec::erlang;
use bytes::Bytes;
use quorate_types::{
    Exception, FieldTable, FieldValue, Properties, PropertiesError, ReplyCode, ShortString,
};

/// Longest time that an expiration may name: ten years, ms.
const EXPIRATION_MS_MAX: &str = "315360000000";

/// Why a publish is refused, or why its properties cannot be read.
#[derive(Debug)]
pub(crate) enum ShapeError {
    Refused(Exception),
    Malformed(PropertiesError),
}

impl From<PropertiesError> for ShapeError {
    fn from(error: PropertiesError) -> Self {
        Self::Malformed(error)
    }
}

/// Checks a publish's properties in the order of PUB-01, and brings its expiration into canonical
/// form (PRP-04).
pub(crate) fn check(properties: Properties) -> Result<Properties, ShapeError> {
    let properties = match &properties.expiration {
        None => properties,
        Some(sent) => {
            let canonical = expiration(sent).map_err(|reason| {
                let text = format!("invalid expiration '{sent}': {reason}");
                ShapeError::Refused(Exception::new(ReplyCode::PreconditionFailed, text))
            })?;
            if canonical == *sent {
                properties
            } else {
                Properties::parse(properties.with_expiration(Some(&canonical))?)?
            }
        }
    };
    if may_have_checked(properties.headers.as_ref())
        && let Some(headers) = properties.decode_headers()?
    {
        for (name, fits) in CHECKED {
            check_header(&headers, name, fits).map_err(ShapeError::Refused)?;
        }
    }
    Ok(properties)
}

/// Headers whose type is checked: further routing keys (PRP-09), and those that are reserved for a
/// time to come.
const CHECKED: [(&str, fn(&FieldValue) -> bool); 4] = [
    ("CC", is_array),
    ("BCC", is_array),
    ("x-delay", is_integer),
    ("x-opt-delivery-time", is_integer),
];

/// How the names of [`CHECKED`] begin in the octets of a table.
const BEGINNINGS: [&[u8; 3]; 4] = [b"\x02CC", b"BCC", b"x-d", b"x-o"];

fn is_array(value: &FieldValue) -> bool {
    matches!(value, FieldValue::Array(_))
}

fn is_integer(value: &FieldValue) -> bool {
    value.as_integer().is_some()
}

/// True unless no header can be one that is checked: spares most messages a look into the table.
fn may_have_checked(headers: Option<&Bytes>) -> bool {
    let is_beginning = |octets: &[u8]| BEGINNINGS.iter().any(|beginning| octets == *beginning);
    headers.is_some_and(|content| content.windows(3).any(is_beginning))
}

fn check_header(
    headers: &FieldTable,
    name: &str,
    fits: fn(&FieldValue) -> bool,
) -> Result<(), Exception> {
    match headers.get(name) {
        Some(other) if !fits(other) => {
            let text = format!(
                "invalid message: {{unacceptable_type_in_header,{},{}}}",
                erlang::string(name),
                other.type_name()
            );
            Err(Exception::new(ReplyCode::PreconditionFailed, text))
        }
        Some(_) | None => Ok(()),
    }
}

/// The canonical form of an expiration, or RabbitMQ's reason why it is none.
fn expiration(sent: &ShortString) -> Result<ShortString, String> {
    let text = sent.as_str();
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let (digits, rest) = unsigned.split_at(end);
    if digits.is_empty() {
        return Err("no_integer".to_owned());
    }
    if !rest.is_empty() {
        return Err(format!("{{leftover_string,{}}}", erlang::string(rest)));
    }
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        digits => digits,
    };
    if negative && digits != "0" {
        return Err(format!("{{value_negative,-{digits}}}"));
    }
    // Of two numbers without leading zeros, the longer one is larger.
    if (digits.len(), digits) > (EXPIRATION_MS_MAX.len(), EXPIRATION_MS_MAX) {
        return Err(format!("{{value_too_large,{digits}}}"));
    }
    if digits == text {
        return Ok(sent.clone());
    }
    ShortString::try_from(digits).map_err(|_| "no_integer".to_owned())
}

/// Properties as they are returned: headers sorted, each once, without `BCC` (PUB-04).
pub(crate) fn as_returned(properties: &Properties) -> Bytes {
    let tidied = || -> Result<Option<Bytes>, PropertiesError> {
        let Some(mut headers) = properties.decode_headers()? else { return Ok(None) };
        headers.0.retain(|(name, _)| name.as_bytes() != b"BCC");
        // Of duplicates the first is kept, as this sort keeps equal ones in order (PRP-02).
        headers.0.sort_by(|(left, _), (right, _)| left.cmp(right));
        headers.0.dedup_by(|(later, _), (earlier, _)| later == earlier);
        properties.with_headers(Some(&headers)).map(Some)
    };
    // They have been parsed before.
    tidied().ok().flatten().unwrap_or_else(|| properties.raw.clone())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

    use super::*;
    use bytes::{BufMut, BytesMut};

    fn short(text: &str) -> ShortString {
        ShortString::try_from(text).unwrap()
    }

    fn with_header(name: &str, value: FieldValue) -> Properties {
        let mut raw = BytesMut::new();
        raw.put_u16(1 << 13);
        FieldTable(vec![(short("a"), FieldValue::I32(1)), (short(name), value)]).encode(&mut raw);
        Properties::parse(raw.freeze()).unwrap()
    }

    /// PRP-04.
    #[test]
    fn prp_04_an_expiration_is_a_decimal_number_in_canonical_form() {
        for (sent, canonical) in [
            ("0", "0"),
            ("060000", "60000"),
            ("+5", "5"),
            ("-0", "0"),
            ("315360000000", "315360000000"),
        ] {
            assert_eq!(expiration(&short(sent)), Ok(short(canonical)));
        }
        for (sent, reason) in [
            ("abc", "no_integer"),
            ("", "no_integer"),
            (" 1", "no_integer"),
            ("+", "no_integer"),
            ("1x", "{leftover_string,\"x\"}"),
            ("1.5", "{leftover_string,\".5\"}"),
            ("-1", "{value_negative,-1}"),
            ("315360000001", "{value_too_large,315360000001}"),
            ("99999999999999999999999", "{value_too_large,99999999999999999999999}"),
        ] {
            assert_eq!(expiration(&short(sent)), Err(reason.to_owned()), "{sent}");
        }
    }

    /// PRP-04: what is sent on is the canonical form, the rest unchanged.
    #[test]
    fn prp_04_the_canonical_form_is_what_is_published() {
        let mut raw = BytesMut::new();
        raw.put_u16(1 << 12 | 1 << 8 | 1 << 7);
        raw.put_slice(b"\x02\x03007\x02id");
        let checked = check(Properties::parse(raw.freeze()).unwrap()).unwrap();
        assert_eq!(checked.raw.get(2..), Some(&b"\x02\x017\x02id"[..]));
        assert_eq!(checked.expiration, Some(short("7")));
    }

    /// PRP-09.
    #[test]
    fn prp_09_cc_and_bcc_are_arrays() {
        for name in ["CC", "BCC"] {
            assert!(check(with_header(name, FieldValue::Array(vec![]))).is_ok());
            let ShapeError::Refused(exception) =
                check(with_header(name, FieldValue::text("x"))).unwrap_err()
            else {
                panic!("not refused");
            };
            assert_eq!(
                exception.reply_text(),
                format!(
                    "PRECONDITION_FAILED - invalid message: \
                     {{unacceptable_type_in_header,\"{name}\",longstr}}"
                )
            );
        }
    }

    ///
    #[test]
    fn q_50_reserved_headers_are_integers() {
        for name in ["x-delay", "x-opt-delivery-time"] {
            for integer in [FieldValue::I64(5), FieldValue::U8(5), FieldValue::I32(-5)] {
                assert!(check(with_header(name, integer)).is_ok());
            }
            for (other, kind) in [
                (FieldValue::text("5"), "longstr"),
                (FieldValue::Bool(true), "bool"),
                (FieldValue::F64(5.0), "double"),
            ] {
                let ShapeError::Refused(exception) = check(with_header(name, other)).unwrap_err()
                else {
                    panic!("not refused");
                };
                assert_eq!(
                    exception.reply_text(),
                    format!(
                        "PRECONDITION_FAILED - invalid message: \
                         {{unacceptable_type_in_header,\"{name}\",{kind}}}"
                    )
                );
            }
        }
    }

    /// PUB-04.
    #[test]
    fn pub_04_headers_are_returned_in_order_and_without_bcc() {
        let properties = with_header("BCC", FieldValue::Array(vec![]));
        let returned = Properties::parse(as_returned(&properties)).unwrap();
        let headers = returned.decode_headers().unwrap().unwrap();
        assert_eq!(headers, FieldTable(vec![(short("a"), FieldValue::I32(1))]));
        // "a" stands before "CC", which sorts before it; "a" again is not kept.
        for (name, names) in [("CC", ["CC", "a"].as_slice()), ("a", &["a"])] {
            let properties = with_header(name, FieldValue::Array(vec![]));
            let returned = Properties::parse(as_returned(&properties)).unwrap();
            let headers = returned.decode_headers().unwrap().unwrap();
            let found: Vec<_> = headers.0.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(found, names);
            assert_eq!(headers.get("a"), Some(&FieldValue::I32(1)));
        }
    }
}
