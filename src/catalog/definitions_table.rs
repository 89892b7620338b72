//! Arguments in RabbitMQ's definitions: field tables as JSON, which has fewer types.

use bytes::Bytes;
use quorate_types::{
    FieldTable, FieldTableError, FieldValue, NameError, ShortString, TABLE_DEPTH_MAX,
};
use serde_json::{Map, Value};

/// A field table as definitions write it.
#[must_use]
pub fn to_json(table: &FieldTable) -> Value {
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
        FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => {
            Value::from(String::from_utf8_lossy(bytes).into_owned())
        }
        FieldValue::Timestamp(seconds) => Value::from(*seconds),
        FieldValue::Array(values) => values.iter().map(value_to_json).collect(),
        FieldValue::Table(table) => to_json(table),
        // All integer types were handled above.
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

/// Why a JSON object is not a field table.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// A field's name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The table could be written, but not decoded again.
    #[error(transparent)]
    Table(#[from] FieldTableError),
}

/// A field table from JSON, with the types that RabbitMQ chooses.
///
/// # Errors
/// A name is too long, or tables are nested too deep.
pub fn from_json(fields: &Map<String, Value>) -> Result<FieldTable, ArgumentsError> {
    table_from_json(fields, 0)
}

fn table_from_json(
    fields: &Map<String, Value>,
    depth: usize,
) -> Result<FieldTable, ArgumentsError> {
    check_depth(depth)?;
    let field = |(name, value): (&String, &Value)| {
        Ok((ShortString::try_from(name.as_str())?, value_from_json(value, depth)?))
    };
    fields.iter().map(field).collect::<Result<_, _>>().map(FieldTable)
}

fn check_depth(depth: usize) -> Result<(), FieldTableError> {
    if depth >= TABLE_DEPTH_MAX { Err(FieldTableError::TooDeep) } else { Ok(()) }
}

fn value_from_json(value: &Value, depth: usize) -> Result<FieldValue, ArgumentsError> {
    let inner = depth + 1;
    Ok(match value {
        Value::Null => FieldValue::Void,
        Value::Bool(value) => FieldValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => FieldValue::I64(integer),
            None => FieldValue::F64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => FieldValue::LongString(Bytes::copy_from_slice(text.as_bytes())),
        Value::Array(values) => {
            check_depth(inner)?;
            let values = values.iter().map(|value| value_from_json(value, inner));
            FieldValue::Array(values.collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => FieldValue::Table(table_from_json(fields, inner)?),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::BytesMut;
    use serde_json::json;

    /// A table from definitions can be decoded again wherever it is stored: it may be nested
    /// exactly as deep as the decoder allows.
    #[test]
    fn a_table_out_of_json_is_as_deep_as_can_be_decoded() {
        let nested = |depth: usize, table: bool| {
            let wrap = |inner, _| if table { json!({ "a": inner }) } else { json!([inner]) };
            let value = (0..depth).fold(json!(1), wrap);
            from_json(json!({ "a": value }).as_object().unwrap())
        };
        for table in [false, true] {
            let mut bytes = BytesMut::new();
            nested(TABLE_DEPTH_MAX - 1, table).unwrap().encode_content(&mut bytes);
            FieldTable::decode_content(bytes.freeze()).unwrap();
            assert!(matches!(
                nested(TABLE_DEPTH_MAX, table),
                Err(ArgumentsError::Table(FieldTableError::TooDeep))
            ));
        }
    }
}
