//! JSON in the notation of RabbitMQ's error texts: as an Erlang term (`<<"text">>`, `#{<<"k">> =>
//! 1}`).

use serde_json::Value;

/// A value in the notation of Erlang's `~tp`.
pub(crate) fn term(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => binary(text),
        Value::Array(values) => format!("[{}]", joined(values.iter().map(term))),
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(key, value)| format!("{} => {}", binary(key), term(value)));
            format!("#{{{}}}", joined(fields))
        }
    }
}

/// Settings with their values: `[{<<"foo">>,3}]`.
pub(crate) fn settings<'a>(settings: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    format!(
        "[{}]",
        joined(settings.map(|(key, value)| format!("{{{},{}}}", binary(key), term(value))))
    )
}

/// A string as `<<"text">>`; as a list of bytes if it contains control characters.
pub(crate) fn binary(text: &str) -> String {
    if text.is_empty() {
        return "<<>>".to_owned();
    }
    if text.chars().any(char::is_control) {
        return format!("<<{}>>", joined(text.bytes().map(|byte| byte.to_string())));
    }
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    let encoding = if text.is_ascii() { "" } else { "/utf8" };
    format!("<<\"{quoted}\"{encoding}>>")
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}
