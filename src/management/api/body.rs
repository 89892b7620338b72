//! The JSON body of a request, read field by field with RabbitMQ's refusals. Pure.

use crate::api::json;
use crate::api::refusal::{Refusal, bad_request};
use quorate_types::{FieldTable, ShortString};
use serde_json::{Map, Value};

/// Most values in a body. Each takes far more memory than text.
const VALUES_MAX: usize = 100_000;

/// About how many values a JSON text has: what begins or separates them, outside of strings.
fn values(text: &[u8]) -> usize {
    let (mut quoted, mut escaped, mut count) = (false, false, 0);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' | b',' if !quoted => count += 1,
            _ => {}
        }
    }
    count
}

/// The fields of a body.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The fields of an object within a body.
    pub(crate) fn of(fields: Map<String, Value>) -> Self {
        Self(fields)
    }

    /// Reads a body; an empty one has no fields.
    ///
    /// # Errors
    /// 400: it is not a JSON object.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        if values(body) > VALUES_MAX {
            return bad_request("the body has too many values");
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(Value::Null) => Ok(Self::default()),
            Ok(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => {
                bad_request("not_json")
            }
        }
    }

    /// Refuses a field of another name: a word that is mistaken would be left out without a sign.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => bad_request(format!("{name:.40}: there is no such field")),
        }
    }

    /// The value of a field; a field that is null is not there.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// The value of a field that must be there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn required(&self, name: &str) -> Result<&Value, Refusal> {
        self.get(name).ok_or_else(|| Refusal::BadRequest(format!("{{key_missing,{name}}}")))
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn text(&self, name: &str) -> Result<&str, Refusal> {
        self.required(name)?.as_str().ok_or_else(|| wrong(name, "a string"))
    }

    /// A text, or `None` if it is not there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        self.get(name)
            .map(|value| value.as_str().ok_or_else(|| wrong(name, "a string")))
            .transpose()
    }

    /// A short string; empty if it is not there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn short_or_empty(&self, name: &str) -> Result<ShortString, Refusal> {
        json::short(name, self.optional_text(name)?.unwrap_or_default())
    }

    /// A truth value, also written as a text.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => bad_request(format!("{{not_boolean,{name}}}: {other}")),
        }
    }

    /// An integer, also written as a text; `None` if it is not there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn optional_integer(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_i64().or_else(|| value.as_str()?.parse().ok()) {
            Some(integer) => Ok(Some(integer)),
            None => bad_request(format!("{{not_integer,{name}}}: {value}")),
        }
    }

    /// An object; empty if it is not there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn object(&self, name: &str) -> Result<Map<String, Value>, Refusal> {
        match self.get(name) {
            None => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields.clone()),
            // Clients in languages with one kind of table write an empty one so.
            Some(Value::Array(values)) if values.is_empty() => Ok(Map::new()),
            Some(_) => Err(wrong(name, "an object")),
        }
    }

    /// The field `arguments` as a field table.
    ///
    /// # Errors
    /// 400.
    pub(crate) fn arguments(&self) -> Result<FieldTable, Refusal> {
        json::from_object("arguments", &self.object("arguments")?)
    }

    /// Words: an array of texts, or a text with commas between them; `None` if it is not there.
    ///
    /// # Errors
    /// 400 that names it.
    pub(crate) fn words(&self, name: &str) -> Result<Option<Vec<ShortString>>, Refusal> {
        let words: Vec<&str> = match self.get(name) {
            None => return Ok(None),
            Some(Value::String(text)) => text.split(',').map(str::trim).collect(),
            Some(Value::Array(values)) => {
                let texts: Option<Vec<_>> = values.iter().map(Value::as_str).collect();
                texts.ok_or_else(|| wrong(name, "an array of strings"))?
            }
            Some(_) => return Err(wrong(name, "a string or an array of strings")),
        };
        let words = words.into_iter().filter(|word| !word.is_empty());
        words.map(|word| json::short(name, word)).collect::<Result<_, _>>().map(Some)
    }
}

fn wrong(name: &str, what: &str) -> Refusal {
    Refusal::BadRequest(format!("{name} must be {what}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn fields(body: &str) -> Fields {
        Fields::parse(body.as_bytes()).unwrap()
    }

    #[test]
    fn a_body_is_an_object_or_empty() {
        for empty in ["", "  \n", "null", "{}"] {
            assert_eq!(fields(empty), Fields::default());
        }
        for wrong in ["[]", "1", "{", "\"a\""] {
            assert_eq!(Fields::parse(wrong.as_bytes()), bad_request("not_json"));
        }
        assert_eq!(Fields::parse(&[0xff]), bad_request("not_json"));
    }

    #[test]
    fn fields_are_read_as_rabbitmq_reads_them() {
        let given = fields(
            r#"{"durable":"true","auto_delete":false,"count":"7","size":3,"tags":"a, b,","none":null,
                "list":["x"],"arguments":[],"name":"n"}"#,
        );
        assert_eq!(given.flag("durable", false), Ok(true));
        assert_eq!(given.flag("auto_delete", true), Ok(false));
        assert_eq!(given.flag("other", true), Ok(true));
        assert_eq!(given.optional_integer("count"), Ok(Some(7)));
        assert_eq!(given.optional_integer("size"), Ok(Some(3)));
        assert_eq!(given.optional_integer("none"), Ok(None));
        let words = |name| given.words(name).unwrap().unwrap();
        assert_eq!(words("tags"), ["a", "b"].map(ShortString::from_static));
        assert_eq!(words("list"), ["x"].map(ShortString::from_static));
        assert_eq!(given.words("none"), Ok(None));
        assert_eq!(given.arguments(), Ok(FieldTable::default()));
        assert_eq!(given.text("name"), Ok("n"));
    }

    #[test]
    fn wrong_fields_are_refused_by_name() {
        let given = fields(r#"{"a":1,"b":"x","c":{},"d":[1],"arguments":{"x":{"y":1}}}"#);
        let refused = |result: Result<(), Refusal>| match result {
            Err(Refusal::BadRequest(text)) => text,
            other => format!("{other:?}"),
        };
        assert_eq!(refused(given.text("z").map(drop)), "{key_missing,z}");
        assert_eq!(refused(given.text("a").map(drop)), "a must be a string");
        assert_eq!(refused(given.flag("b", true).map(drop)), "{not_boolean,b}: \"x\"");
        assert_eq!(refused(given.optional_integer("b").map(drop)), "{not_integer,b}: \"x\"");
        assert_eq!(
            refused(given.words("c").map(drop)),
            "c must be a string or an array of strings"
        );
        assert_eq!(refused(given.words("d").map(drop)), "d must be an array of strings");
        assert_eq!(refused(given.object("b").map(drop)), "b must be an object");
        assert!(given.arguments().is_ok());
    }
}
