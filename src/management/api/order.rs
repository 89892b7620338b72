//! The order of lists: that of RabbitMQ's values. Pure.

use serde_json::Value;
use std::cmp::Ordering;

/// What values are sorted by: Erlang's order of their kinds, then their order among their kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Number(Number),
    Word(Option<bool>),
    Object,
    Array(Vec<Key>),
    Text(String),
}

/// A number, in the order of numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number(f64);

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Key {
    /// The key of a value; a missing one sorts as the number 0, as in RabbitMQ.
    pub(crate) fn of(value: Option<Value>) -> Self {
        match value {
            None => Self::Number(Number(0.0)),
            Some(Value::Number(number)) => {
                Self::Number(Number(number.as_f64().unwrap_or_default()))
            }
            Some(Value::Null) => Self::Word(None),
            Some(Value::Bool(value)) => Self::Word(Some(value)),
            Some(Value::Object(_)) => Self::Object,
            Some(Value::Array(values)) => {
                Self::Array(values.into_iter().map(|value| Self::of(Some(value))).collect())
            }
            Some(Value::String(text)) => Self::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_of_all_kinds_are_sorted() {
        let sorted = [
            json!(-1),
            json!(0.5),
            json!(2),
            json!(null),
            json!(false),
            json!(true),
            json!({}),
            json!([1]),
            json!([1, 0]),
            json!([2]),
            json!("a"),
            json!("b"),
        ];
        let keys: Vec<Key> = sorted.into_iter().map(|value| Key::of(Some(value))).collect();
        assert!(keys.is_sorted_by(|left, right| left < right), "{keys:?}");
        assert_eq!(Key::of(None), Key::of(Some(json!(0))));
    }
}
