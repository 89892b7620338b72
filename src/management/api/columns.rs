//! The columns that a list is cut to. Pure.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The columns that are wanted; paths of names, such as `message_stats.publish`.
#[derive(Debug, Default)]
pub(crate) enum Columns {
    #[default]
    All,
    Only(Vec<Vec<String>>),
}

impl Columns {
    /// The names of the fields that have wanted columns; `None`: all fields are wanted.
    pub(crate) fn first_names(&self) -> Option<BTreeSet<&str>> {
        match self {
            Self::All => None,
            Self::Only(paths) => {
                Some(paths.iter().filter_map(|path| path.first()).map(String::as_str).collect())
            }
        }
    }

    /// The object with the wanted columns only.
    pub(crate) fn of(&self, item: Value) -> Value {
        match self {
            Self::All => item,
            Self::Only(paths) => {
                let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
                cut(item, &paths)
            }
        }
    }
}

/// Cuts an object, or each object of an array, to the fields at these paths.
fn cut(value: Value, paths: &[&[String]]) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let below: Vec<&[String]> = paths
                    .iter()
                    .filter_map(|path| path.split_first())
                    .filter(|(first, _)| **first == name)
                    .map(|(_, rest)| rest)
                    .collect();
                if below.iter().any(|rest| rest.is_empty()) {
                    kept.insert(name, value);
                } else if !below.is_empty() {
                    kept.insert(name, cut(value, &below));
                }
            }
            Value::Object(kept)
        }
        Value::Array(values) => values.into_iter().map(|value| cut(value, paths)).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other,
    }
}
