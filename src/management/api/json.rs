//! Field tables and properties of messages as JSON, and back. Pure.

use crate::api::refusal::{Refusal, bad_request};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use quorate_catalog::{arguments_from_json, arguments_to_json};
use quorate_types::{FieldTable, Properties, PropertiesError, Property, ShortString};
use serde_json::{Map, Value, json};

/// Longest time that an expiration may name: ten years, ms (PRP-04).
const EXPIRATION_MS_MAX: u64 = 315_360_000_000;
/// The pseudo-queue of direct reply-to: a message from HTTP has no consumer of it (DRT-02).
const DIRECT_REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// A field table of the admin service as a JSON object.
pub(crate) fn table(bytes: &Bytes) -> Value {
    let table = FieldTable::decode(&mut bytes.clone());
    arguments_to_json(&table.unwrap_or_default())
}

/// A field table from a JSON object.
///
/// # Errors
/// 400: a name is too long, or tables are nested too deep.
pub(crate) fn from_object(what: &str, fields: &Map<String, Value>) -> Result<FieldTable, Refusal> {
    arguments_from_json(fields).map_err(|error| Refusal::BadRequest(format!("{what}: {error}")))
}

/// A short string from a text of a request.
///
/// # Errors
/// 400: it is longer than 255 bytes.
pub(crate) fn short(what: &str, text: &str) -> Result<ShortString, Refusal> {
    ShortString::try_from(text).map_err(|error| Refusal::BadRequest(format!("{what}: {error}")))
}

/// The properties in RabbitMQ's order, with their names in JSON.
const PROPERTIES: [(&str, Property); 14] = [
    ("content_type", Property::ContentType),
    ("content_encoding", Property::ContentEncoding),
    ("headers", Property::Headers),
    ("delivery_mode", Property::DeliveryMode),
    ("priority", Property::Priority),
    ("correlation_id", Property::CorrelationId),
    ("reply_to", Property::ReplyTo),
    ("expiration", Property::Expiration),
    ("message_id", Property::MessageId),
    ("timestamp", Property::Timestamp),
    ("type", Property::Type),
    ("user_id", Property::UserId),
    ("app_id", Property::AppId),
    ("cluster_id", Property::ClusterId),
];

/// What the value of a property is.
enum Shape {
    Text,
    Octet,
    Seconds,
    Headers,
}

fn shape(property: Property) -> Shape {
    match property {
        Property::Headers => Shape::Headers,
        Property::DeliveryMode | Property::Priority => Shape::Octet,
        Property::Timestamp => Shape::Seconds,
        Property::ContentType
        | Property::ContentEncoding
        | Property::CorrelationId
        | Property::ReplyTo
        | Property::Expiration
        | Property::MessageId
        | Property::Type
        | Property::UserId
        | Property::AppId
        | Property::ClusterId => Shape::Text,
    }
}

/// The properties of a message as JSON.
///
/// # Errors
/// They cannot be decoded.
pub(crate) fn properties(raw: &Bytes) -> Result<Value, PropertiesError> {
    if raw.is_empty() {
        return Ok(json!({}));
    }
    let properties = Properties::parse(raw.clone())?;
    let mut fields = Map::new();
    for (name, property) in PROPERTIES {
        let Some(bytes) = properties.bytes_of(property) else { continue };
        let value = match shape(property) {
            Shape::Headers => arguments_to_json(&properties.decode_headers()?.unwrap_or_default()),
            Shape::Octet => Value::from(bytes.first().copied().unwrap_or_default()),
            Shape::Seconds => {
                Value::from(bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))
            }
            // One byte of length stands before the text.
            Shape::Text => Value::from(String::from_utf8_lossy(bytes.get(1..).unwrap_or_default())),
        };
        fields.insert(name.to_owned(), value);
    }
    Ok(Value::Object(fields))
}

/// The properties of a message to publish, checked as those of `basic.publish` are. Names that
/// AMQP does not have are ignored, as RabbitMQ does.
///
/// # Errors
/// 400 that names the property.
pub(crate) fn to_properties(fields: &Map<String, Value>) -> Result<Properties, Refusal> {
    let (mut flags, mut rest) = (0u16, BytesMut::new());
    for (name, property) in PROPERTIES {
        let Some(value) = fields.get(name).filter(|value| !value.is_null()) else { continue };
        flags |= 1 << property as u16;
        match shape(property) {
            Shape::Text => {
                let Some(text) = value.as_str() else {
                    return bad_request(format!("expected string for {name}"));
                };
                check_text(property, text)?;
                let text = short(name, text)?;
                rest.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
                rest.put_slice(text.as_bytes());
            }
            Shape::Octet => match value.as_u64().and_then(|value| u8::try_from(value).ok()) {
                Some(octet) => rest.put_u8(octet),
                None => return bad_request(format!("expected an integer up to 255 for {name}")),
            },
            Shape::Seconds => match value.as_u64() {
                Some(seconds) => rest.put_u64(seconds),
                None => return bad_request(format!("expected an integer for {name}")),
            },
            Shape::Headers => headers(value)?.encode(&mut rest),
        }
    }
    let mut raw = BytesMut::with_capacity(2 + rest.len());
    raw.put_u16(flags);
    raw.put_slice(&rest);
    // It was written as it is read.
    Properties::parse(raw.freeze()).map_err(|error| Refusal::BadRequest(error.to_string()))
}

/// PRP-04, DRT-02: the texts that are more than texts.
fn check_text(property: Property, text: &str) -> Result<(), Refusal> {
    let is_number = || {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = text == "0" || !text.starts_with('0');
        digits && canonical && text.parse().is_ok_and(|ms: u64| ms <= EXPIRATION_MS_MAX)
    };
    if property == Property::Expiration && !is_number() {
        return bad_request(format!("invalid expiration '{text}'"));
    }
    if property == Property::ReplyTo && text == DIRECT_REPLY_TO {
        return bad_request("fast reply consumer does not exist");
    }
    Ok(())
}

/// Headers with the types that the broker asks for (PRP-09, Q-50). JSON has them sorted, each once
/// (PRP-02).
fn headers(value: &Value) -> Result<FieldTable, Refusal> {
    let Some(fields) = value.as_object() else {
        return bad_request("expected an object for headers");
    };
    let wrong =
        |name: &str, fits: fn(&Value) -> bool| fields.get(name).is_some_and(|value| !fits(value));
    for name in ["CC", "BCC"] {
        if wrong(name, Value::is_array) {
            return bad_request(format!("header {name} must be an array"));
        }
    }
    if wrong("x-opt-delivery-time", Value::is_i64) {
        return bad_request("header x-opt-delivery-time must be an integer");
    }
    let headers = from_object("headers", fields)?;
    // Text and floating-point numbers count too (EXC-17).
    if headers.get("x-delay").is_some_and(|delay| delay.as_whole_number().is_none()) {
        return bad_request("header x-delay must be a whole number");
    }
    Ok(headers)
}

/// A body as JSON shows it: as text if it is UTF-8 and that is wanted, else in base64.
pub(crate) fn payload(body: &[u8], base64: bool) -> (String, &'static str) {
    match std::str::from_utf8(body) {
        Ok(text) if !base64 => (text.to_owned(), "string"),
        Ok(_) | Err(_) => (STANDARD.encode(body), "base64"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn round(given: Value) -> Value {
        let parsed = to_properties(given.as_object().unwrap()).unwrap();
        assert!(parsed.headers_canonical, "{given}");
        properties(&parsed.raw).unwrap()
    }

    #[test]
    fn properties_come_back_as_they_were_given() {
        let all = json!({
            "content_type": "text/plain", "content_encoding": "gzip",
            "headers": { "a": 1, "b": "x", "c": { "d": [1, true, null] } },
            "delivery_mode": 2, "priority": 9, "correlation_id": "c", "reply_to": "r",
            "expiration": "60000", "message_id": "m", "timestamp": 1_795_204_472,
            "type": "t", "user_id": "guest", "app_id": "a", "cluster_id": "k",
        });
        assert_eq!(round(all.clone()), all);
        assert_eq!(round(json!({})), json!({}));
        assert_eq!(round(json!({ "unknown": 1, "priority": null })), json!({}));
        assert_eq!(properties(&Bytes::new()).unwrap(), json!({}));
    }

    #[test]
    fn prp_04_prp_09_wrong_properties_are_refused() {
        for wrong in [
            json!({ "content_type": 1 }),
            json!({ "content_type": "x".repeat(256) }),
            json!({ "priority": 256 }),
            json!({ "delivery_mode": "2" }),
            json!({ "timestamp": "now" }),
            json!({ "headers": [] }),
            json!({ "headers": { "CC": "a" } }),
            json!({ "headers": { "x-delay": "soon" } }),
            json!({ "expiration": "" }),
            json!({ "expiration": "-1" }),
            json!({ "expiration": "007" }),
            json!({ "expiration": "315360000001" }),
            json!({ "reply_to": "amq.rabbitmq.reply-to" }),
        ] {
            let refused = to_properties(wrong.as_object().unwrap());
            assert!(matches!(refused, Err(Refusal::BadRequest(_))), "{wrong}");
        }
    }

    #[test]
    fn a_body_that_is_no_text_is_shown_in_base64() {
        assert_eq!(payload(b"hi", false), ("hi".to_owned(), "string"));
        assert_eq!(payload(b"hi", true), ("aGk=".to_owned(), "base64"));
        assert_eq!(payload(&[0xff], false), ("/w==".to_owned(), "base64"));
    }
}
