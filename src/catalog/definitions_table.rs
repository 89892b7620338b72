//! Arguments in RabbitMQ's definitions: field tables as JSON, which has fewer types.

use bytes::Bytes;
use quorate_types::{FieldTable, FieldValue, NameError, ShortString};
use serde_json::{Map, Value};

/// A table as definitions show it.
pub(crate) fn to_json(table: &FieldTable) -> Value {
    let field =
        |(name, value): &(ShortString, FieldValue)| (name.to_string(), value_to_json(value));
    Value::Object(table.0.iter().map(field).collect())
}

fn value_to_json(value: &FieldValue) -> Value {
    if let Some(integer) = value.as_integer() {
        return Value::from(integer);
    }
    match value {
        FieldValue::Bool(value) => Value::from(*value),
        FieldValue::F32(value) => Value::from(f64::from(*value)),
        FieldValue::F64(value) => Value::from(*value),
        FieldValue::Decimal { scale, value } => Value::from(format!("{value}e-{scale}")),
        FieldValue::LongString(octets) | FieldValue::ByteArray(octets) => {
            Value::from(String::from_utf8_lossy(octets).into_owned())
        }
        FieldValue::Timestamp(seconds) => Value::from(*seconds),
        FieldValue::Array(values) => values.iter().map(value_to_json).collect(),
        FieldValue::Table(table) => to_json(table),
        // Integers have been taken above.
        FieldValue::Void
        | FieldValue::I8(_)
        | FieldValue::U8(_)
        | FieldValue::I16(_)
        | FieldValue::U16(_)
        | FieldValue::I32(_)
        | FieldValue::U32(_)
        | FieldValue::I64(_) => Value::Null,
    }
}

/// A table out of JSON, its types as RabbitMQ chooses them.
///
/// # Errors
/// A name that is too long.
pub(crate) fn from_json(fields: &Map<String, Value>) -> Result<FieldTable, NameError> {
    let field = |(name, value): (&String, &Value)| {
        Ok((ShortString::try_from(name.as_str())?, value_from_json(value)?))
    };
    fields.iter().map(field).collect::<Result<_, _>>().map(FieldTable)
}

fn value_from_json(value: &Value) -> Result<FieldValue, NameError> {
    Ok(match value {
        Value::Null => FieldValue::Void,
        Value::Bool(value) => FieldValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => FieldValue::I64(integer),
            None => FieldValue::F64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => FieldValue::LongString(Bytes::copy_from_slice(text.as_bytes())),
        Value::Array(values) => {
            FieldValue::Array(values.iter().map(value_from_json).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => FieldValue::Table(from_json(fields)?),
    })
}
