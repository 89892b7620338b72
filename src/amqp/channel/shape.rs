//! Checks the properties of a publish: expiration, CC and BCC, reserved headers (PRP-04, PRP-09,
//! Q-50); and makes the properties of a returned message (PUB-04).
//!
//! Deliveries are the bytes that are stored, so properties are made canonical once, when a message
//! is published: the expiration is normalized, and headers are sorted by name and occur once
//! (PRP-02, PRP-04). Only messages that are not canonical yet are encoded again.

use crate::codec::erlang;
use bytes::Bytes;
use quorate_types::{
    Exception, FieldTable, FieldValue, Properties, PropertiesError, ReplyCode, ShortString,
};

/// Pseudo-queue of direct reply-to (DRT).
pub(crate) const DIRECT_REPLY_TO: &str = "amq.rabbitmq.reply-to";

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

/// Checks a publish's properties in the order of PUB-01. Replaces the pseudo-queue by `reply_name`,
/// the name to which replies to the channel are sent (DRT-02), and makes the expiration (PRP-04)
/// and the headers (PRP-02) canonical.
pub(crate) fn check(
    properties: Properties,
    reply_name: Option<&ShortString>,
) -> Result<Properties, ShapeError> {
    let properties = with_reply_name(properties, reply_name)?;
    let properties = with_canonical_expiration(properties)?;
    if may_have_checked(properties.headers.as_ref())
        && let Some(headers) = properties.decode_headers()?
    {
        for (name, fits) in CHECKED {
            check_header(&headers, name, fits).map_err(ShapeError::Refused)?;
        }
    }
    with_canonical_headers(properties)
}

fn with_reply_name(
    properties: Properties,
    reply_name: Option<&ShortString>,
) -> Result<Properties, ShapeError> {
    Ok(match (&properties.reply_to, reply_name) {
        (Some(sent), Some(name)) if sent.as_str() == DIRECT_REPLY_TO => {
            Properties::parse(properties.with_reply_to(name)?)?
        }
        (Some(sent), None) if sent.as_str() == DIRECT_REPLY_TO => {
            let text = "fast reply consumer does not exist";
            let exception = Exception::new(ReplyCode::PreconditionFailed, text);
            return Err(ShapeError::Refused(exception));
        }
        (Some(_) | None, _) => properties,
    })
}

fn with_canonical_expiration(properties: Properties) -> Result<Properties, ShapeError> {
    let Some(sent) = &properties.expiration else { return Ok(properties) };
    let canonical = expiration(sent).map_err(|reason| {
        let text = format!("invalid expiration '{sent}': {reason}");
        ShapeError::Refused(Exception::new(ReplyCode::PreconditionFailed, text))
    })?;
    if canonical == *sent {
        return Ok(properties);
    }
    Ok(Properties::parse(properties.with_expiration(Some(&canonical))?)?)
}

/// Headers sorted by name, of several with one name the first (PRP-02, FRM-15).
fn with_canonical_headers(properties: Properties) -> Result<Properties, ShapeError> {
    if properties.headers_canonical {
        return Ok(properties);
    }
    let Some(mut headers) = properties.decode_headers()? else { return Ok(properties) };
    headers.0.sort_by(|(a, _), (b, _)| a.cmp(b));
    headers.0.dedup_by(|(later, _), (kept, _)| later == kept);
    Ok(Properties::parse(properties.with_headers(Some(&headers))?)?)
}

/// True if a header's value has the required type.
type Fits = fn(&FieldValue) -> bool;

/// Headers whose type is checked: further routing keys (PRP-09), and headers reserved for later use
///
const CHECKED: [(&str, Fits); 4] = [
    ("CC", is_array),
    ("BCC", is_array),
    ("x-delay", is_whole_number),
    ("x-opt-delivery-time", is_integer),
];

/// The first bytes of the names of [`CHECKED`] in an encoded table.
const BEGINNINGS: [&[u8; 3]; 4] = [b"\x02CC", b"BCC", b"x-d", b"x-o"];

fn is_array(value: &FieldValue) -> bool {
    matches!(value, FieldValue::Array(_))
}

fn is_integer(value: &FieldValue) -> bool {
    value.as_integer().is_some()
}

/// Libraries for .NET, PHP and JavaScript send delays as floating-point numbers or text (EXC-17).
fn is_whole_number(value: &FieldValue) -> bool {
    value.as_whole_number().is_some()
}

/// False if no header can be a checked one: most messages then need no search of the table.
fn may_have_checked(headers: Option<&Bytes>) -> bool {
    let is_beginning = |bytes: &[u8]| BEGINNINGS.iter().any(|beginning| bytes == *beginning);
    headers.is_some_and(|content| content.windows(3).any(is_beginning))
}

fn check_header(headers: &FieldTable, name: &str, fits: Fits) -> Result<(), Exception> {
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

/// The canonical form of an expiration, or RabbitMQ's reason for refusing it.
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

/// The properties of a returned message: headers sorted, each once, without `BCC` (PUB-04).
pub(crate) fn as_returned(properties: &Properties) -> Bytes {
    let tidied = || -> Result<Option<Bytes>, PropertiesError> {
        let Some(mut headers) = properties.decode_headers()? else { return Ok(None) };
        headers.0.retain(|(name, _)| name.as_bytes() != b"BCC");
        // The first of duplicates is kept, since this sort is stable (PRP-02).
        headers.0.sort_by(|(left, _), (right, _)| left.cmp(right));
        headers.0.dedup_by(|(later, _), (earlier, _)| later == earlier);
        properties.with_headers(Some(&headers)).map(Some)
    };
    // The properties were parsed before.
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

    /// PRP-04: the forms of `expiration` that are accepted, and their canonical form.
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

    /// PRP-04: the message is published with the canonical form, the rest unchanged.
    #[test]
    fn prp_04_the_canonical_form_is_what_is_published() {
        let mut raw = BytesMut::new();
        raw.put_u16(1 << 12 | 1 << 8 | 1 << 7);
        raw.put_slice(b"\x02\x03007\x02id");
        let checked = check(Properties::parse(raw.freeze()).unwrap(), None).unwrap();
        assert_eq!(checked.raw.get(2..), Some(&b"\x02\x017\x02id"[..]));
        assert_eq!(checked.expiration, Some(short("7")));
    }

    /// PRP-02, FRM-15: order by name, the first of duplicates, `l` for `L`; nested tables as sent.
    #[test]
    fn prp_02_headers_are_sorted_and_unique() {
        let field = |name, value| (short(name), FieldValue::I32(value));
        let nested = FieldTable(vec![field("z", 1), field("a", 2)]);
        let sent = vec![
            field("b", 1),
            (short("t"), FieldValue::Table(nested.clone())),
            field("a", 2),
            field("b", 3),
        ];
        let mut raw = BytesMut::new();
        raw.put_u16(1 << 13 | 1 << 11);
        FieldTable(sent).encode(&mut raw);
        raw.put_u8(7);
        let checked = check(Properties::parse(raw.freeze()).unwrap(), None).unwrap();
        let expected = vec![field("a", 2), field("b", 1), (short("t"), FieldValue::Table(nested))];
        assert_eq!(checked.decode_headers().unwrap(), Some(FieldTable(expected)));
        assert_eq!(checked.priority, Some(7));
        assert!(checked.headers_canonical);

        let mut raw = BytesMut::new();
        raw.put_slice(b"\x20\0\0\0\0\x0b\x01nL\0\0\0\0\0\0\0\x05");
        let checked = check(Properties::parse(raw.freeze()).unwrap(), None).unwrap();
        assert_eq!(&checked.raw[..], b"\x20\0\0\0\0\x0b\x01nl\0\0\0\0\0\0\0\x05");
    }

    /// PRP-02, PRP-10: headers in order are kept byte by byte, an empty table and none at all
    /// too, and names that the broker uses mean nothing when a client writes them.
    #[test]
    fn prp_10_headers_named_like_the_brokers_own_pass_unchanged() {
        let text = |name, value| (short(name), FieldValue::text(value));
        let own = vec![
            (short("x-death"), FieldValue::Array(vec![])),
            text("x-delivery-count", "many"),
            text("x-first-death-queue", "q"),
        ];
        for headers in [Some(own), Some(vec![]), None] {
            let mut raw = BytesMut::new();
            raw.put_u16(if headers.is_some() { 1 << 13 } else { 0 });
            if let Some(headers) = headers {
                FieldTable(headers).encode(&mut raw);
            }
            let sent = raw.freeze();
            let checked = check(Properties::parse(sent.clone()).unwrap(), None).unwrap();
            assert_eq!(checked.raw, sent);
        }
    }

    /// PRP-09: other types of `CC` and `BCC` are refused.
    #[test]
    fn prp_09_cc_and_bcc_are_arrays() {
        for name in ["CC", "BCC"] {
            assert!(check(with_header(name, FieldValue::Array(vec![])), None).is_ok());
            let ShapeError::Refused(exception) =
                check(with_header(name, FieldValue::text("x")), None).unwrap_err()
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

    /// other types of headers that Quorate interprets are refused. EXC-17: a delay may be text or a double.
    #[test]
    fn q_50_reserved_headers_are_integers() {
        for whole in [FieldValue::text("5"), FieldValue::F64(5.0), FieldValue::F32(-5.0)] {
            assert!(check(with_header("x-delay", whole), None).is_ok());
        }
        let (text, double) = (FieldValue::text, FieldValue::F64);
        let of_delay = [(text("5s"), "longstr"), (text(""), "longstr"), (double(5.5), "double")];
        let of_time = [(text("5"), "longstr"), (double(5.0), "double"), (double(5.5), "double")];
        for (name, others) in [("x-delay", of_delay), ("x-opt-delivery-time", of_time)] {
            for integer in [FieldValue::I64(5), FieldValue::U8(5), FieldValue::I32(-5)] {
                assert!(check(with_header(name, integer), None).is_ok());
            }
            for (other, kind) in others.into_iter().chain([(FieldValue::Bool(true), "bool")]) {
                let ShapeError::Refused(exception) =
                    check(with_header(name, other), None).unwrap_err()
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

    /// PUB-04: the headers of a returned message.
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
