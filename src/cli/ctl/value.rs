//! A cell of a list, and its text in each output format.

use quorate_types::{FieldTable, FieldValue};
use serde_json::json;

/// Value of a cell of a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// The row has no such property.
    Empty,
    /// A name, or other text that users choose.
    Text(String),
    /// A word that the broker chooses, such as the name of a node or a state.
    Word(String),
    Number(u64),
    /// A number that may be negative.
    Integer(i64),
    Bool(bool),
    Words(Vec<String>),
    Table(FieldTable),
    /// A JSON object.
    Json(serde_json::Value),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(crate) fn word(word: impl Into<String>) -> Self {
        Self::Word(word.into())
    }

    /// The text in tables and CSV.
    pub(crate) fn plain(&self) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text(text) | Self::Word(text) => visible(text),
            Self::Number(number) => number.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Bool(yes) => yes.to_string(),
            Self::Words(words) => format!("[{}]", visible(&words.join(", "))),
            Self::Table(table) => plain_table(table),
            Self::Json(value) => value.to_string(),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        match self {
            Self::Empty => json!(""),
            Self::Text(text) | Self::Word(text) => json!(text),
            Self::Number(number) => json!(number),
            Self::Integer(number) => json!(number),
            Self::Bool(yes) => json!(yes),
            Self::Words(words) => json!(words),
            Self::Table(table) => json_table(table),
            Self::Json(value) => value.clone(),
        }
    }

    /// The value as an Erlang term.
    pub(crate) fn erlang(&self) -> String {
        match self {
            Self::Empty => "''".to_owned(),
            Self::Text(text) => format!("<<{}>>", quoted(text)),
            Self::Word(word) => atom(word),
            Self::Number(number) => number.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Bool(yes) => yes.to_string(),
            Self::Words(words) => {
                let atoms: Vec<String> = words.iter().map(|word| atom(word)).collect();
                format!("[{}]", atoms.join(","))
            }
            Self::Table(table) => erlang_table(table),
            Self::Json(value) => erlang_json(value),
        }
    }
}

/// Escapes control characters, which could move columns or control the reader's terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars()
        .map(|letter| match letter {
            '\t' => "\\t".to_owned(),
            '\n' => "\\n".to_owned(),
            '\r' => "\\r".to_owned(),
            other if other.is_control() => format!("\\x{{{:x}}}", u32::from(other)),
            other => other.to_string(),
        })
        .collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", visible(&text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// A word as an Erlang atom; a word that begins with a lower-case letter needs no quotes.
fn atom(word: &str) -> String {
    let plain = word.starts_with(|letter: char| letter.is_ascii_lowercase())
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_@".contains(letter));
    if plain { word.to_owned() } else { format!("'{}'", visible(&word.replace('\'', "\\'"))) }
}

fn plain_table(table: &FieldTable) -> String {
    let fields: Vec<String> = table
        .0
        .iter()
        .map(|(name, value)| format!("{{{},{}}}", quoted(name.as_str()), plain_field(value)))
        .collect();
    format!("[{}]", fields.join(","))
}

fn plain_field(value: &FieldValue) -> String {
    match Field::of(value) {
        Field::List(values) => {
            let values: Vec<String> = values.iter().map(plain_field).collect();
            format!("[{}]", values.join(","))
        }
        Field::Table(table) => plain_table(table),
        Field::Text(text) => quoted(&text),
        Field::Plain(value) => value.to_string(),
    }
}

/// Name, type and value of every field, as in rabbitmqctl's JSON.
fn json_table(table: &FieldTable) -> serde_json::Value {
    let fields = table
        .0
        .iter()
        .map(|(name, value)| json!([name.as_str(), value.type_name(), json_field(value)]));
    fields.collect()
}

fn json_field(value: &FieldValue) -> serde_json::Value {
    match Field::of(value) {
        Field::List(values) => {
            values.iter().map(|value| json!([value.type_name(), json_field(value)])).collect()
        }
        Field::Table(table) => json_table(table),
        Field::Text(text) => json!(text),
        Field::Plain(value) => value,
    }
}

fn erlang_table(table: &FieldTable) -> String {
    let fields: Vec<String> = table
        .0
        .iter()
        .map(|(name, value)| {
            let name = quoted(name.as_str());
            format!("{{<<{name}>>,{},{}}}", value.type_name(), erlang_field(value))
        })
        .collect();
    format!("[{}]", fields.join(","))
}

fn erlang_field(value: &FieldValue) -> String {
    match Field::of(value) {
        Field::List(values) => {
            let values: Vec<String> = values
                .iter()
                .map(|value| format!("{{{},{}}}", value.type_name(), erlang_field(value)))
                .collect();
            format!("[{}]", values.join(","))
        }
        Field::Table(table) => erlang_table(table),
        Field::Text(text) => format!("<<{}>>", quoted(&text)),
        Field::Plain(value) => value.to_string(),
    }
}

fn erlang_json(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => format!("<<{}>>", quoted(text)),
        serde_json::Value::Array(values) => {
            let values: Vec<String> = values.iter().map(erlang_json).collect();
            format!("[{}]", values.join(","))
        }
        serde_json::Value::Object(fields) => {
            let field = |(name, value): (&String, &serde_json::Value)| {
                format!("<<{}>> => {}", quoted(name), erlang_json(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("#{{{}}}", fields.join(","))
        }
        serde_json::Value::Null | serde_json::Value::Bool(_) | serde_json::Value::Number(_) => {
            value.to_string()
        }
    }
}

/// A field, by how it is written.
enum Field<'a> {
    List(&'a [FieldValue]),
    Table(&'a FieldTable),
    Text(String),
    /// A number, a boolean, or null.
    Plain(serde_json::Value),
}

impl<'a> Field<'a> {
    fn of(value: &'a FieldValue) -> Self {
        match value {
            FieldValue::Array(values) => Self::List(values),
            FieldValue::Table(table) => Self::Table(table),
            FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => {
                Self::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            FieldValue::Decimal { scale, value } => Self::Text(format!("{value}e-{scale}")),
            FieldValue::Bool(yes) => Self::Plain(json!(yes)),
            FieldValue::I8(number) => Self::Plain(json!(number)),
            FieldValue::U8(number) => Self::Plain(json!(number)),
            FieldValue::I16(number) => Self::Plain(json!(number)),
            FieldValue::U16(number) => Self::Plain(json!(number)),
            FieldValue::I32(number) => Self::Plain(json!(number)),
            FieldValue::U32(number) => Self::Plain(json!(number)),
            FieldValue::I64(number) => Self::Plain(json!(number)),
            FieldValue::F32(number) => Self::Plain(json!(number)),
            FieldValue::F64(number) => Self::Plain(json!(number)),
            FieldValue::Timestamp(seconds) => Self::Plain(json!(seconds)),
            FieldValue::Void => Self::Plain(serde_json::Value::Null),
        }
    }
}
