//! A policy as users write it: validated at the edge, with RabbitMQ's texts (POL-20 to POL-24,
//! OPP-01), before it becomes a command.

use crate::{
    policy::{ApplyTo, PolicyKind, PolicyRecord},
    policy_definition::{PolicyDefinition, PolicyKey, PolicyValue},
    policy_pattern::PolicyPattern,
    term::{binary, settings, term},
};
use quorate_types::{MS_MAX, ShortString, VhostName};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why a policy cannot be taken, as `rabbitmqctl` tells it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// POL-23.
    #[error("Could not parse JSON document: {{error,{{failed_to_decode_json,{0}}}}}")]
    Json(String),
    /// POL-20 to POL-22, POL-24: a line for each part that is wrong.
    #[error("Validation failed\n\n{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

/// A policy as it is given.
#[derive(Clone, Copy, Debug)]
pub struct PolicyText<'a> {
    /// Policy or operator policy.
    pub kind: PolicyKind,
    /// Virtual host.
    pub vhost: &'a VhostName,
    /// Name.
    pub name: &'a ShortString,
    /// Regular expression.
    pub pattern: &'a str,
    /// `apply-to`.
    pub apply_to: &'a str,
    /// Priority.
    pub priority: i64,
}

impl PolicyText<'_> {
    /// The policy with a definition written in JSON.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(&self, definition: &str) -> Result<PolicyRecord, PolicyError> {
        match serde_json::from_str(definition) {
            Ok(value) => self.with(&value),
            Err(_) => Err(PolicyError::Json(binary(definition))),
        }
    }

    /// The policy with a definition.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn with(&self, definition: &Value) -> Result<PolicyRecord, PolicyError> {
        let pattern = PolicyPattern::parse(self.pattern).map_err(|error| error.to_string());
        let apply_to = ApplyTo::parse(self.apply_to).ok_or_else(|| {
            format!(
                "apply-to '{}' unrecognised; should be one of: 'queues', 'classic_queues',  \
                 'quorum_queues', 'streams', 'exchanges', or 'all'",
                self.apply_to
            )
        });
        let definition = match definition {
            Value::Object(fields) => parse_definition(self.kind, fields),
            other => Err(format!("definition must be a dictionary: {}", term(other))),
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
                let wrong = [pattern.err(), apply_to.err(), definition.err()];
                Err(PolicyError::Invalid(wrong.into_iter().flatten().collect()))
            }
        }
    }
}

/// Values first, then keys that nobody knows, as RabbitMQ looks at them.
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

/// What the value of a key may be.
enum Shape {
    /// An integer in this range.
    Integer(i64, i64),
    /// A text that is a name or a key.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number and a unit, such as `7D`.
    Age,
}

fn parse_value(key: PolicyKey, value: &Value) -> Result<PolicyValue, String> {
    let (shape, noun) = shape(key);
    let text = || value.as_str().and_then(|text| ShortString::try_from(text).ok());
    let parsed = match shape {
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
    parsed.ok_or_else(|| format!("{} is not a valid {noun}", term(value)))
}

fn is_age(text: &str) -> bool {
    let unit = text.strip_suffix(['Y', 'M', 'D', 'h', 'm', 's']);
    unit.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|octet| octet.is_ascii_digit())
    })
}

/// The shape of a key's value, and what its error calls it (POL-21).
fn shape(key: PolicyKey) -> (Shape, &'static str) {
    const COUNT: Shape = Shape::Integer(0, i64::MAX);
    const TIME: Shape = Shape::Integer(0, MS_MAX);
    match key {
        PolicyKey::AlternateExchange => (Shape::Text, "alternate exchange name"),
        PolicyKey::ConsumerDisconnectedTimeout => (TIME, "consumer disconnected timeout"),
        PolicyKey::ConsumerTimeout => (TIME, "consumer timeout"),
        PolicyKey::DeadLetterExchange => (Shape::Text, "dead letter exchange name"),
        PolicyKey::DeadLetterRoutingKey => (Shape::Text, "dead letter routing key"),
        PolicyKey::DeadLetterStrategy => {
            (Shape::Word(&["at-most-once", "at-least-once"]), "dead letter strategy")
        }
        PolicyKey::DelayedRetryMax => (TIME, "delayed retry maximum"),
        PolicyKey::DelayedRetryMin => (TIME, "delayed retry minimum"),
        PolicyKey::DelayedRetryType => {
            (Shape::Word(&["disabled", "all", "failed", "returned"]), "delayed retry type")
        }
        PolicyKey::DeliveryCountMode => {
            (Shape::Word(&["returns", "failures"]), "delivery count mode")
        }
        PolicyKey::DeliveryLimit => (Shape::Integer(i64::MIN, i64::MAX), "delivery limit"),
        PolicyKey::Expires => (Shape::Integer(1, MS_MAX), "queue expiry"),
        PolicyKey::InitialClusterSize => (COUNT, "cluster size"),
        PolicyKey::MaxAge => (Shape::Age, "max age"),
        PolicyKey::MaxInMemoryBytes => (COUNT, "maximum memory in bytes"),
        PolicyKey::MaxInMemoryLength => (COUNT, "maximum memory in messages"),
        PolicyKey::MaxLength => (COUNT, "maximum length"),
        PolicyKey::MaxLengthBytes => (COUNT, "maximum length in bytes"),
        PolicyKey::MemberPlacementTag => (Shape::Text, "member placement tag"),
        PolicyKey::MessageTtl => (TIME, "message TTL"),
        PolicyKey::Overflow => {
            (Shape::Word(&["drop-head", "reject-publish", "reject-publish-dlx"]), "overflow value")
        }
        PolicyKey::QueueLeaderLocator => (
            Shape::Word(&["client-local", "balanced", "random", "least-leaders"]),
            "queue leader locator value",
        ),
        PolicyKey::QueueMode => (Shape::Word(&["default", "lazy"]), "queue-mode value"),
        // Version 1 is no more, but policies that name it import.
        PolicyKey::QueueVersion => (Shape::Integer(1, 2), "queue version"),
        PolicyKey::StreamFilterSizeBytes => {
            (Shape::Integer(16, 255), "filter size. Valid range is 16-255")
        }
        PolicyKey::StreamMaxSegmentSizeBytes => (COUNT, "segment size"),
        PolicyKey::TargetGroupSize => (Shape::Integer(1, i64::MAX), "target group size"),
    }
}

/// POL-24.
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
