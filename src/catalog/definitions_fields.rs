//! The objects of a definitions file, read field by field; every error names the object.

use crate::{definitions_import::DefinitionsError, definitions_table};
use quorate_types::{FieldTable, FieldValue, ShortString};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// One object of a definitions file, read field by field.
pub(crate) struct Fields<'a> {
    /// The kind of object, such as `queue`.
    kind: &'static str,
    /// The enclosing object, if there is one: errors name that one.
    within: Option<String>,
    fields: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The whole document.
    pub(crate) fn document(document: &'a Value) -> Result<Self, DefinitionsError> {
        let fields = document.as_object();
        let fields =
            fields.ok_or_else(|| DefinitionsError::Json("not a JSON object".to_owned()))?;
        Ok(Self { kind: "definitions", within: None, fields })
    }

    /// Reads every object of a list; the document may lack the list.
    pub(crate) fn each(
        &self,
        list: &str,
        kind: &'static str,
        mut read: impl FnMut(&Fields<'a>) -> Result<(), DefinitionsError>,
    ) -> Result<(), DefinitionsError> {
        let Some(objects) = self.fields.get(list) else { return Ok(()) };
        let not = |what: &str| DefinitionsError::Json(format!("{list}: {what}"));
        for object in objects.as_array().ok_or_else(|| not("not a list"))? {
            let fields = object.as_object().ok_or_else(|| not("an element is not an object"))?;
            read(&Fields { kind, within: None, fields })?;
        }
        Ok(())
    }

    /// The object as errors name it: `queue 'q' in vhost '/'`.
    pub(crate) fn object(&self) -> String {
        if let Some(within) = &self.within {
            return within.clone();
        }
        let text = |name: &str| self.fields.get(name).and_then(Value::as_str);
        let mut object = self.kind.to_owned();
        let named = text("name").map(|name| format!(" '{name}'"));
        let user = text("user").map(|user| format!(" of user '{user}'"));
        let ends = text("source").zip(text("destination"));
        let ends = ends.map(|(source, to)| format!(" from '{source}' to '{to}'"));
        let vhost = text("vhost").map(|vhost| format!(" in vhost '{vhost}'"));
        object.extend([named, user, ends, vhost].into_iter().flatten());
        object
    }

    /// The error that the object has, with the reason.
    pub(crate) fn wrong(&self, reason: impl ToString) -> DefinitionsError {
        DefinitionsError::Object { object: self.object(), reason: reason.to_string() }
    }

    fn must(&self, name: &str, what: &str) -> DefinitionsError {
        self.wrong(format!("'{name}' must be {what}"))
    }

    /// True if the object has the field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// A required field.
    pub(crate) fn value(&self, name: &str) -> Result<&'a Value, DefinitionsError> {
        self.fields.get(name).ok_or_else(|| self.wrong(format!("'{name}' is missing")))
    }

    /// An optional field; `null` counts as absent.
    fn optional(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, DefinitionsError> {
        self.value(name)?.as_str().ok_or_else(|| self.must(name, "a string"))
    }

    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&'a str>, DefinitionsError> {
        let value = self.optional(name);
        value.map(|value| value.as_str().ok_or_else(|| self.must(name, "a string"))).transpose()
    }

    pub(crate) fn optional_flag(&self, name: &str) -> Result<Option<bool>, DefinitionsError> {
        let value = self.optional(name);
        value
            .map(|value| value.as_bool().ok_or_else(|| self.must(name, "a truth value")))
            .transpose()
    }

    pub(crate) fn short(&self, name: &str) -> Result<ShortString, DefinitionsError> {
        let text = self.text(name)?;
        ShortString::try_from(text).map_err(|error| self.wrong(format!("'{name}': {error}")))
    }

    /// A boolean; false if it is absent.
    pub(crate) fn truth(&self, name: &str) -> Result<bool, DefinitionsError> {
        self.truth_or(name, false)
    }

    /// A boolean, with the value that it has if it is absent.
    pub(crate) fn truth_or(&self, name: &str, absent: bool) -> Result<bool, DefinitionsError> {
        let value = self.optional(name);
        value.map_or(Ok(absent), |value| {
            value.as_bool().ok_or_else(|| self.must(name, "true or false"))
        })
    }

    /// An integer, which may be written as `2.0`.
    pub(crate) fn optional_integer(&self, name: &str) -> Result<Option<i64>, DefinitionsError> {
        let whole = |value: &Value| {
            let of_float = || FieldValue::F64(value.as_f64()?).as_whole_number();
            value.as_i64().or_else(of_float)
        };
        let value = self.optional(name);
        value.map(|value| whole(value).ok_or_else(|| self.must(name, "an integer"))).transpose()
    }

    /// A list of words, or a text of words separated by commas, as older versions wrote it.
    pub(crate) fn words(&self, name: &str) -> Result<Vec<ShortString>, DefinitionsError> {
        let Some(value) = self.optional(name) else { return Ok(Vec::new()) };
        let texts: Option<Vec<&str>> = match value {
            Value::String(text) => {
                Some(text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect())
            }
            Value::Array(values) => values.iter().map(Value::as_str).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        let texts = texts.ok_or_else(|| self.must(name, "a list of strings"))?;
        let word = |text: &&str| ShortString::try_from(*text);
        let words: Result<_, _> = texts.iter().map(word).collect();
        words.map_err(|error| self.wrong(format!("'{name}': {error}")))
    }

    /// An object within this object; RabbitMQ writes an empty one as an empty list.
    pub(crate) fn optional_object(&self, name: &str) -> Result<Option<Self>, DefinitionsError> {
        match self.optional(name) {
            None => Ok(None),
            Some(Value::Array(values)) if values.is_empty() => Ok(None),
            Some(Value::Object(fields)) => {
                Ok(Some(Self { kind: self.kind, within: Some(self.object()), fields }))
            }
            Some(_) => Err(self.must(name, "an object")),
        }
    }

    pub(crate) fn required_object(&self, name: &str) -> Result<Self, DefinitionsError> {
        let object = self.optional_object(name)?;
        object.ok_or_else(|| self.must(name, "an object"))
    }

    /// An object; `rabbitmqctl export_definitions` writes that of an operator policy as a list of
    /// pairs.
    pub(crate) fn object_or_pairs(&self, name: &str) -> Result<Cow<'a, Value>, DefinitionsError> {
        let value = self.value(name)?;
        let Value::Array(pairs) = value else { return Ok(Cow::Borrowed(value)) };
        let pair = |pair: &Value| match pair.as_array()?.as_slice() {
            [Value::String(key), value] => Some((key.clone(), value.clone())),
            _ => None,
        };
        let fields: Option<Map<String, Value>> = pairs.iter().map(pair).collect();
        let fields = fields.ok_or_else(|| self.must(name, "an object"))?;
        Ok(Cow::Owned(Value::Object(fields)))
    }

    /// Arguments; an empty table if they are absent.
    pub(crate) fn table(&self, name: &str) -> Result<FieldTable, DefinitionsError> {
        match self.optional_object(name)? {
            None => Ok(FieldTable::default()),
            Some(object) => definitions_table::from_json(object.fields)
                .map_err(|error| self.wrong(format!("'{name}': {error}"))),
        }
    }
}
