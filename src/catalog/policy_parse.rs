//! The parser of policies: validates a policy before it becomes a command, with RabbitMQ's error
//! texts (POL-20 to POL-24, OPP-01).

use crate::{
    policy::{ApplyTo, PolicyKind, PolicyRecord},
    policy_definition::{PolicyDefinition, PolicyKey, PolicyValue, Shape},
    policy_pattern::PolicyPattern,
    term::{binary, settings, term},
};
use quorate_types::{ShortString, VhostName};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why a policy is invalid; the text is that of `rabbitmqctl`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// POL-23: the definition is not JSON.
    #[error("Could not parse JSON document: {{error,{{failed_to_decode_json,{0}}}}}")]
    Json(String),
    /// POL-20 to POL-22, POL-24: a line for each invalid part.
    #[error("Validation failed\n\n{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

/// A policy as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyText<'a> {
    /// Policy or operator policy.
    pub kind: PolicyKind,
    /// Name of the virtual host.
    pub vhost: &'a VhostName,
    /// Name of the policy.
    pub name: &'a ShortString,
    /// Regular expression that names are matched against.
    pub pattern: &'a str,
    /// `apply-to`: the kind of objects to which the policy applies.
    pub apply_to: &'a str,
    /// Priority; of several policies that match, the highest is in force.
    pub priority: i64,
}

impl PolicyText<'_> {
    /// The policy with a definition in JSON text.
    ///
    /// # Errors
    /// All that is invalid.
    pub fn parse(&self, definition: &str) -> Result<PolicyRecord, PolicyError> {
        match serde_json::from_str(definition) {
            Ok(value) => self.with(&value),
            Err(_) => Err(PolicyError::Json(binary(definition))),
        }
    }

    /// The policy with a definition.
    ///
    /// # Errors
    /// All that is invalid.
    pub fn with(&self, definition: &Value) -> Result<PolicyRecord, PolicyError> {
        let pattern = PolicyPattern::parse(self.pattern).map_err(|error| error.to_string());
        let apply_to = ApplyTo::parse(self.apply_to).ok_or_else(|| {
            format!(
                "apply-to '{}' unrecognised; should be one of: 'queues', 'classic_queues',  \
                 'quorum_queues', 'streams', 'exchanges', or 'all'",
                self.apply_to
            )
        });
        let definition = match definition.as_object() {
            Some(fields) => parse_definition(self.kind, fields),
            None => Err(format!("definition must be a dictionary: {}", term(definition))),
        };
        match (pattern, apply_to, definition) {
            (Ok(_), Ok(apply_to), Ok(definition)) => Ok(PolicyRecord {
                kind: self.kind,
                vhost: self.vhost.clone(),
                name: self.name.clone(),
                pattern: self.pattern.to_owned(),
                apply_to,
                priority: self.priority,
                definition,
            }),
            (pattern, apply_to, definition) => {
                // The order of RabbitMQ's messages.
                let wrong = [definition.err(), apply_to.err(), pattern.err()];
                Err(PolicyError::Invalid(wrong.into_iter().flatten().collect()))
            }
        }
    }
}

/// Checks values first, then unknown keys, in RabbitMQ's order.
fn parse_definition(
    kind: PolicyKind,
    fields: &Map<String, Value>,
) -> Result<PolicyDefinition, String> {
    if fields.is_empty() {
        return Err("no policy provided".to_owned());
    }
    let known = |name: &String| PolicyKey::parse(name).filter(|key| kind.allows(*key));
    let mut definition = BTreeMap::new();
    for (name, value) in fields {
        if let Some(key) = known(name) {
            definition.insert(key, parse_value(key, value)?);
        }
    }
    let mut unknown = fields.iter().filter(|(name, _)| known(name).is_none()).peekable();
    if unknown.peek().is_some() {
        return Err(format!("{} are not recognised policy settings", settings(unknown)));
    }
    let definition = PolicyDefinition(definition);
    check_delayed_retry(&definition)?;
    Ok(definition)
}

fn parse_value(key: PolicyKey, value: &Value) -> Result<PolicyValue, String> {
    let text = || value.as_str().and_then(|text| ShortString::try_from(text).ok());
    let parsed = match key.shape() {
        Shape::Integer(least, most) => {
            let number = value.as_i64().filter(|number| (least..=most).contains(number));
            number.map(PolicyValue::Integer)
        }
        Shape::Text => text().map(PolicyValue::Text),
        Shape::Word(words) => {
            text().filter(|text| words.contains(&text.as_str())).map(PolicyValue::Text)
        }
        Shape::Age => text().filter(|text| is_age(text.as_str())).map(PolicyValue::Text),
    };
    parsed.ok_or_else(|| format!("{} is not a valid {}", term(value), key.noun()))
}

fn is_age(text: &str) -> bool {
    let unit = text.strip_suffix(['Y', 'M', 'D', 'h', 'm', 's']);
    unit.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// POL-24: the keys of delayed retries must be consistent.
fn check_delayed_retry(definition: &PolicyDefinition) -> Result<(), String> {
    let (least, most) = (
        definition.integer(PolicyKey::DelayedRetryMin),
        definition.integer(PolicyKey::DelayedRetryMax),
    );
    let kind = definition.text(PolicyKey::DelayedRetryType).map(ShortString::as_str);
    match (kind, least, most) {
        (Some(kind), None, _) if kind != "disabled" => {
            Err(format!("delayed-retry-min is required for delayed-retry-type {}", binary(kind)))
        }
        (_, Some(least), Some(most)) if most < least => {
            Err(format!("delayed-retry-max {most} must not be less than delayed-retry-min {least}"))
        }
        _ => Ok(()),
    }
}
