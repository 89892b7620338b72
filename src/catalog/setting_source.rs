//! Where each effective setting of a queue comes from: an argument of its declare, its policy, its
//! operator policy, or none of them (POL-07, OPP-03).
//!
//! The values are those of `effective`, the one place where settings are resolved. A source is the
//! first of argument, policy and operator policy that names the setting with just that value: of
//! several limits the one that counts has it.

use crate::{
    delayed::delays_for,
    machine::Catalog,
    objects::QueueEntry,
    policy::{InForce, PolicyRecord},
    policy_definition::{PolicyKey, PolicyValue},
};
use quorate_queue::QueueConfig;
use quorate_types::{Overflow, QueueArguments, ShortString};
use serde_json::Value;

/// One effective setting of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name, as policies have it.
    pub setting: &'static str,
    /// Its value; null: none, or no limit.
    pub value: Value,
    /// Where that value comes from.
    pub source: SettingSource,
}

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The argument of that name.
    Argument(&'static str),
    /// The policy of that name.
    Policy(ShortString),
    /// The operator policy of that name.
    OperatorPolicy(ShortString),
    /// The global parameter of that name.
    GlobalParameter(&'static str),
    /// Nothing sets it.
    Default,
}

impl SettingSource {
    /// The kind of the source.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Argument(_) => "argument",
            Self::Policy(_) => "policy",
            Self::OperatorPolicy(_) => "operator_policy",
            Self::GlobalParameter(_) => "global_parameter",
            Self::Default => "default",
        }
    }

    /// The name of the argument, policy or parameter.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Argument(name) | Self::GlobalParameter(name) => Some(name),
            Self::Policy(name) | Self::OperatorPolicy(name) => Some(name.as_str()),
            Self::Default => None,
        }
    }
}

/// How a setting is named, given and resolved.
struct Row {
    name: &'static str,
    argument: &'static str,
    /// The key of policies; `None`: policies cannot set it.
    key: Option<PolicyKey>,
    /// What the argument says; `None`: it is not given.
    given: fn(&QueueArguments) -> Option<Value>,
    /// What is in force.
    resolved: fn(&QueueConfig) -> Value,
}

fn text(text: Option<&ShortString>) -> Value {
    text.map_or(Value::Null, |text| Value::from(text.as_str()))
}

fn overflow(overflow: Overflow) -> Value {
    Value::from(match overflow {
        Overflow::DropHead => "drop-head",
        Overflow::RejectPublish => "reject-publish",
        Overflow::RejectPublishDlx => "reject-publish-dlx",
    })
}

fn strategy(at_least_once: bool) -> Value {
    Value::from(if at_least_once { "at-least-once" } else { "at-most-once" })
}

fn count_mode(failures: bool) -> Value {
    Value::from(if failures { "failures" } else { "returns" })
}

/// A delivery limit as it is resolved: a negative one is none (DLM-01).
fn delivery_limit(limit: i64) -> Value {
    match u64::try_from(limit) {
        Ok(limit) => Value::from(limit.min(u64::from(u32::MAX))),
        Err(_) => Value::Null,
    }
}

const fn row(
    name: &'static str,
    argument: &'static str,
    key: PolicyKey,
    given: fn(&QueueArguments) -> Option<Value>,
    resolved: fn(&QueueConfig) -> Value,
) -> Row {
    Row { name, argument, key: Some(key), given, resolved }
}

const fn argument_only(
    name: &'static str,
    argument: &'static str,
    given: fn(&QueueArguments) -> Option<Value>,
    resolved: fn(&QueueConfig) -> Value,
) -> Row {
    Row { name, argument, key: None, given, resolved }
}

/// All settings, in the order in which they are shown.
const ROWS: &[Row] = &[
    row(
        "message-ttl",
        "x-message-ttl",
        PolicyKey::MessageTtl,
        |it| it.message_ttl_ms.map(Value::from),
        |it| Value::from(it.message_ttl_ms),
    ),
    row(
        "expires",
        "x-expires",
        PolicyKey::Expires,
        |it| it.expires_ms.map(Value::from),
        |it| Value::from(it.expires_ms),
    ),
    row(
        "max-length",
        "x-max-length",
        PolicyKey::MaxLength,
        |it| it.length_max.map(Value::from),
        |it| Value::from(it.length_max),
    ),
    row(
        "max-length-bytes",
        "x-max-length-bytes",
        PolicyKey::MaxLengthBytes,
        |it| it.length_bytes_max.map(Value::from),
        |it| Value::from(it.length_bytes_max),
    ),
    row(
        "overflow",
        "x-overflow",
        PolicyKey::Overflow,
        |it| it.overflow.map(overflow),
        |it| overflow(it.overflow),
    ),
    row(
        "dead-letter-exchange",
        "x-dead-letter-exchange",
        PolicyKey::DeadLetterExchange,
        |it| it.dead_letter_exchange.as_ref().map(|name| text(Some(name))),
        |it| text(it.dead_letter.as_ref().map(|it| &it.exchange)),
    ),
    row(
        "dead-letter-routing-key",
        "x-dead-letter-routing-key",
        PolicyKey::DeadLetterRoutingKey,
        |it| it.dead_letter_routing_key.as_ref().map(|key| text(Some(key))),
        |it| text(it.dead_letter.as_ref().and_then(|it| it.routing_key.as_ref())),
    ),
    row(
        "dead-letter-strategy",
        "x-dead-letter-strategy",
        PolicyKey::DeadLetterStrategy,
        |it| it.dead_letter_at_least_once.map(strategy),
        |it| it.dead_letter.as_ref().map_or(Value::Null, |it| strategy(it.at_least_once)),
    ),
    row(
        "delivery-limit",
        "x-delivery-limit",
        PolicyKey::DeliveryLimit,
        |it| it.delivery_limit.map(delivery_limit),
        |it| Value::from(it.delivery_limit),
    ),
    row(
        "delivery-count-mode",
        "x-delivery-count-mode",
        PolicyKey::DeliveryCountMode,
        |it| it.delivery_count_failures.map(count_mode),
        |it| count_mode(it.delivery_count_failures),
    ),
    row(
        "consumer-timeout",
        "x-consumer-timeout",
        PolicyKey::ConsumerTimeout,
        |it| it.consumer_timeout_ms.map(Value::from),
        |it| Value::from(it.consumer_timeout_ms),
    ),
    row(
        "delayed-retry-type",
        "x-delayed-retry-type",
        PolicyKey::DelayedRetryType,
        |it| it.delayed_retry.which.as_ref().map(|which| text(Some(which))),
        |it| Value::from(it.delayed_retry.map_or("disabled", |it| it.after.name())),
    ),
    row(
        "delayed-retry-min",
        "x-delayed-retry-min",
        PolicyKey::DelayedRetryMin,
        |it| it.delayed_retry.min_ms.map(Value::from),
        |it| Value::from(it.delayed_retry.map(|it| it.min_ms)),
    ),
    row(
        "delayed-retry-max",
        "x-delayed-retry-max",
        PolicyKey::DelayedRetryMax,
        |it| it.delayed_retry.max_ms.map(Value::from),
        |it| Value::from(it.delayed_retry.map(|it| it.max_ms)),
    ),
    row(
        "delayed-retry-multiplier",
        "x-delayed-retry-multiplier",
        PolicyKey::DelayedRetryMultiplier,
        |it| it.delayed_retry.multiplier.map(Value::from),
        |it| Value::from(it.delayed_retry.and_then(|it| it.multiplier)),
    ),
    argument_only(
        "max-priority",
        "x-max-priority",
        |it| it.priority_max.map(Value::from),
        |it| Value::from(it.priority_max),
    ),
    argument_only(
        "single-active-consumer",
        "x-single-active-consumer",
        |it| it.single_active_consumer.then_some(Value::Bool(true)),
        |it| Value::Bool(it.single_active_consumer),
    ),
];

/// The setting of all queues that is a global parameter.
const LETTERS_MAX: &str = "dead_letters_max";

impl Row {
    /// What a policy says; `None`: it does not name the setting.
    fn of_policy(&self, policy: &PolicyRecord) -> Option<Value> {
        let key = self.key?;
        Some(match policy.definition.0.get(&key)? {
            PolicyValue::Integer(limit) if key == PolicyKey::DeliveryLimit => {
                delivery_limit(*limit)
            }
            PolicyValue::Integer(value) => Value::from(*value),
            PolicyValue::Text(value) => text(Some(value)),
        })
    }

    fn setting(
        &self,
        arguments: &QueueArguments,
        policies: InForce<'_>,
        config: &QueueConfig,
    ) -> Setting {
        let value = (self.resolved)(config);
        let names_it = |given: Option<Value>| given.is_some_and(|given| given == value);
        let of_policy = |policy: &&PolicyRecord| names_it(self.of_policy(policy));
        let source = if names_it((self.given)(arguments)) {
            SettingSource::Argument(self.argument)
        } else if let Some(policy) = policies.policy.filter(of_policy) {
            SettingSource::Policy(policy.name.clone())
        } else if let Some(policy) = policies.operator.filter(of_policy) {
            SettingSource::OperatorPolicy(policy.name.clone())
        } else {
            SettingSource::Default
        };
        Setting { setting: self.name, value, source }
    }
}

impl Catalog {
    /// All effective settings of a queue, and where they come from.
    #[must_use]
    pub fn settings_of(&self, entry: &QueueEntry) -> Vec<Setting> {
        let config = self.config_of(entry);
        let is_delay_queue = delays_for(&entry.name.name).is_some();
        // Neither policies nor arguments apply to the queue of a delayed exchange (EXC-17).
        let (arguments, policies) = if is_delay_queue {
            (QueueArguments::default(), InForce::default())
        } else {
            // The arguments were valid at declare, so they parse.
            let arguments = QueueArguments::parse(&entry.arguments, entry.queue_type);
            (arguments.unwrap_or_default(), self.queue_policies(&entry.name, entry.queue_type))
        };
        let settings = ROWS.iter().map(|row| row.setting(&arguments, policies, &config));
        let letters_max = Setting {
            setting: LETTERS_MAX,
            value: Value::from(config.letters_max),
            source: if self.has_letters_max() {
                SettingSource::GlobalParameter(LETTERS_MAX)
            } else {
                SettingSource::Default
            },
        };
        settings.chain([letters_max]).collect()
    }
}
