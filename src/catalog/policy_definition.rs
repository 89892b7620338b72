//! What a policy sets: its keys (POL-05), the values that they may have (POL-21), the types that have
//! them (POL-08), how a policy and an operator policy are merged (OPP-03), and how a queue's
//! arguments and its policies become its effective settings (POL-07).

use crate::parameter::CommonSettings;
use quorate_queue::{DeadLetter, DelayedRetry, QUORUM_DELIVERY_LIMIT, QueueConfig, RetryAfter};
use quorate_types::{
    CatalogIndex, DelayedRetryArguments, LeaderLocator, MS_MAX, Overflow, QueueArguments,
    QueueType, ShortString,
};
use std::collections::BTreeMap;

use Merge::{Larger, Limit, Operators, Smaller};
use Shape::{Age, Integer, Text, Word};

/// What a key says about its values, and about where it may be set.
struct KeySpec {
    name: &'static str,
    /// What its error calls the value (POL-21).
    noun: &'static str,
    shape: Shape,
    /// Types whose queues have it. A policy with a key that they have not does not match them
    /// (POL-08, Q-12).
    queue_types: &'static [QueueType],
    /// How an operator policy's value is merged with the policy's (OPP-03); `None`: operator policies
    /// cannot have it (OPP-01).
    merge: Option<Merge>,
}

/// What the value of a key may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// An integer in this range.
    Integer(i64, i64),
    /// A text that is a name or a key.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A number and a unit, such as `7D`.
    Age,
}

/// The rule by which one of two values wins (OPP-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The smaller number.
    Smaller,
    /// The larger number.
    Larger,
    /// Merged by [`smaller_limit`].
    Limit,
    /// The value of the operator policy.
    Operators,
}

const COUNT: Shape = Integer(0, i64::MAX);
const TIME: Shape = Integer(0, MS_MAX);

const BOTH: &[QueueType] = &[QueueType::Classic, QueueType::Quorum];
const CLASSIC: &[QueueType] = &[QueueType::Classic];
const QUORUM: &[QueueType] = &[QueueType::Quorum];
const NONE: &[QueueType] = &[];

macro_rules! policy_keys {
    ($($key:ident = $name:literal, $noun:literal, $shape:expr, $types:expr, $merge:expr;)*) => {
        /// A key of a policy, in the order of the names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[expect(missing_docs, reason = "the names are RabbitMQ's own")]
        pub enum PolicyKey {
            $($key,)*
        }

        impl PolicyKey {
            /// All keys, in the order of their names.
            pub const ALL: &[Self] = &[$(Self::$key,)*];

            fn spec(self) -> &'static KeySpec {
                match self {
                    $(Self::$key => &KeySpec {
                        name: $name, noun: $noun, shape: $shape, queue_types: $types, merge: $merge,
                    },)*
                }
            }
        }
    };
}

// In the order of the names, which is the order in records: key = name, noun, values, types that
// have it, how an operator policy's value is merged.
policy_keys! {
    AlternateExchange = "alternate-exchange", "alternate exchange name", Text, BOTH, None;
    ConsumerDisconnectedTimeout = "consumer-disconnected-timeout", "consumer disconnected timeout",
        TIME, BOTH, None;
    ConsumerTimeout = "consumer-timeout", "consumer timeout", TIME, BOTH, None;
    DeadLetterExchange = "dead-letter-exchange", "dead letter exchange name", Text, BOTH, None;
    DeadLetterRoutingKey = "dead-letter-routing-key", "dead letter routing key", Text, BOTH, None;
    DeadLetterStrategy = "dead-letter-strategy", "dead letter strategy",
        Word(&["at-most-once", "at-least-once"]), BOTH, None;
    DelayedRetryMax = "delayed-retry-max", "delayed retry maximum", TIME, BOTH, Some(Smaller);
    DelayedRetryMin = "delayed-retry-min", "delayed retry minimum", TIME, BOTH, Some(Larger);
    DelayedRetryMultiplier = "delayed-retry-multiplier", "delayed retry multiplier",
        Integer(1, 1_000), BOTH, Some(Operators);
    DelayedRetryType = "delayed-retry-type", "delayed retry type",
        Word(&["disabled", "all", "failed", "returned"]), BOTH, Some(Operators);
    DeliveryCountMode = "delivery-count-mode", "delivery count mode",
        Word(&["returns", "failures"]), BOTH, None;
    DeliveryLimit = "delivery-limit", "delivery limit",
        Integer(i64::MIN, i64::MAX), BOTH, Some(Limit);
    Expires = "expires", "queue expiry", Integer(1, MS_MAX), BOTH, Some(Smaller);
    InitialClusterSize = "initial-cluster-size", "cluster size", COUNT, NONE, None;
    MaxAge = "max-age", "max age", Age, NONE, None;
    // RabbitMQ says the same of both.
    MaxInMemoryBytes = "max-in-memory-bytes", "maximum memory in bytes",
        COUNT, QUORUM, Some(Smaller);
    MaxInMemoryLength = "max-in-memory-length", "maximum memory in bytes",
        COUNT, QUORUM, Some(Smaller);
    MaxLength = "max-length", "maximum length", COUNT, BOTH, Some(Smaller);
    MaxLengthBytes = "max-length-bytes", "maximum length in bytes", COUNT, BOTH, Some(Smaller);
    MemberPlacementTag = "member-placement-tag", "member placement tag",
        Text, BOTH, Some(Operators);
    MessageTtl = "message-ttl", "message TTL", TIME, BOTH, Some(Smaller);
    Overflow = "overflow", "overflow value",
        Word(&["drop-head", "reject-publish", "reject-publish-dlx"]), BOTH, Some(Operators);
    QueueLeaderLocator = "queue-leader-locator", "queue leader locator value",
        Word(&["client-local", "balanced", "random", "least-leaders"]), BOTH, None;
    QueueMode = "queue-mode", "queue-mode value", Word(&["default", "lazy"]), CLASSIC, None;
    // Version 1 is no more, but policies that name it import.
    QueueVersion = "queue-version", "queue-version value", Integer(1, 2), BOTH, Some(Operators);
    StreamFilterSizeBytes = "stream-filter-size-bytes", "filter size. Valid range is 16-255",
        Integer(16, 255), BOTH, None;
    StreamMaxSegmentSizeBytes = "stream-max-segment-size-bytes", "segment size", COUNT, NONE, None;
    TargetGroupSize = "target-group-size", "qq target count value",
        Integer(1, i64::MAX), QUORUM, Some(Larger);
}

impl PolicyKey {
    /// The key's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The key of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }

    /// True if queues of the type support the key; a policy with an unsupported key does not match
    /// them (POL-08, Q-12).
    #[must_use]
    pub fn is_of(self, queue_type: QueueType) -> bool {
        self.spec().queue_types.contains(&queue_type)
    }

    /// How an operator policy's value is merged with the policy's (OPP-03); `None`: operator
    /// policies cannot set the key (OPP-01).
    #[must_use]
    pub fn merge(self) -> Option<Merge> {
        self.spec().merge
    }

    /// What its value may be.
    pub(crate) fn shape(self) -> Shape {
        self.spec().shape
    }

    /// What its error calls its value (POL-21).
    pub(crate) fn noun(self) -> &'static str {
        self.spec().noun
    }
}

/// DLM-01: of two delivery limits the smaller, but if either is negative (unlimited) the larger.
#[must_use]
pub fn smaller_limit(left: i64, right: i64) -> i64 {
    if left < 0 || right < 0 { left.max(right) } else { left.min(right) }
}

/// A value of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyValue {
    /// An integer within the bounds of its key.
    Integer(i64),
    /// A name or a word.
    Text(ShortString),
}

/// The settings of a policy. [`crate::PolicyText::parse`] has validated all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyDefinition(pub BTreeMap<PolicyKey, PolicyValue>);

impl PolicyDefinition {
    /// The integer of that key.
    #[must_use]
    pub fn integer(&self, key: PolicyKey) -> Option<i64> {
        match self.0.get(&key)? {
            PolicyValue::Integer(value) => Some(*value),
            PolicyValue::Text(_) => None,
        }
    }

    /// The integer of a key that cannot be negative.
    #[must_use]
    pub fn count(&self, key: PolicyKey) -> Option<u64> {
        self.integer(key).map(i64::unsigned_abs)
    }

    /// The text of that key.
    #[must_use]
    pub fn text(&self, key: PolicyKey) -> Option<&ShortString> {
        match self.0.get(&key)? {
            PolicyValue::Text(text) => Some(text),
            PolicyValue::Integer(_) => None,
        }
    }

    /// True if the text of that key equals the word.
    #[must_use]
    pub fn is(&self, key: PolicyKey, word: &str) -> bool {
        self.text(key).is_some_and(|text| text.as_str() == word)
    }

    /// True if queues of the type support all its keys (POL-08).
    #[must_use]
    pub fn is_of(&self, queue_type: QueueType) -> bool {
        self.0.keys().all(|key| key.is_of(queue_type))
    }

    /// This policy's settings merged with those of an operator policy, key by key (OPP-03).
    #[must_use]
    pub fn under(&self, operator: &Self) -> Self {
        let mut merged = self.clone();
        for (key, theirs) in &operator.0 {
            let value = match (self.0.get(key), theirs) {
                (Some(PolicyValue::Integer(ours)), PolicyValue::Integer(theirs)) => {
                    PolicyValue::Integer(match key.merge().unwrap_or(Merge::Operators) {
                        Merge::Smaller => *ours.min(theirs),
                        Merge::Larger => *ours.max(theirs),
                        Merge::Limit => smaller_limit(*ours, *theirs),
                        Merge::Operators => *theirs,
                    })
                }
                (_, theirs) => theirs.clone(),
            };
            merged.0.insert(*key, value);
        }
        merged
    }

    /// The settings as JSON, with the keys sorted.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let field = |(key, value): (&PolicyKey, &PolicyValue)| {
            let value = match value {
                PolicyValue::Integer(value) => serde_json::Value::from(*value),
                PolicyValue::Text(text) => serde_json::Value::from(text.as_str()),
            };
            (key.name().to_owned(), value)
        };
        serde_json::Value::Object(self.0.iter().map(field).collect())
    }
}

/// A queue's effective settings, from its arguments, what its policies come to
/// (`InForce::definition`), its type, whether it is durable and auto-delete, and what is common to
/// all queues ([`crate::Catalog::common_settings`]): the one place where they are resolved (POL-07,
///
#[must_use]
pub fn effective(
    arguments: &QueueArguments,
    policy: &PolicyDefinition,
    (queue_type, durable, auto_delete): (QueueType, bool, bool),
    common: CommonSettings,
    resolved_at: CatalogIndex,
) -> QueueConfig {
    let smaller = |argument: Option<u64>, key| smaller(argument, policy.count(key));
    QueueConfig {
        resolved_at,
        queue_type,
        durable,
        auto_delete,
        priority_max: arguments.priority_max,
        message_ttl_ms: smaller(arguments.message_ttl_ms, PolicyKey::MessageTtl),
        expires_ms: smaller(arguments.expires_ms, PolicyKey::Expires),
        length_max: smaller(arguments.length_max, PolicyKey::MaxLength),
        length_bytes_max: smaller(arguments.length_bytes_max, PolicyKey::MaxLengthBytes),
        overflow: overflow(arguments, policy, queue_type),
        delivery_limit: delivery_limit(arguments, policy, queue_type),
        delivery_count_failures: arguments
            .delivery_count_failures
            .unwrap_or_else(|| policy.is(PolicyKey::DeliveryCountMode, "failures")),
        dead_letter: dead_letter(arguments, policy),
        single_active_consumer: arguments.single_active_consumer,
        consumer_timeout_ms: smaller(arguments.consumer_timeout_ms, PolicyKey::ConsumerTimeout),
        letters_max: common.letters_max,
        delays: false,
        delayed_retry: common
            .delays_returns
            .then(|| delayed_retry(&arguments.delayed_retry, policy))
            .flatten(),
    }
}

/// Delayed retries (RQU-07). Of an argument and a policy, as of two policies (OPP-03), the larger
/// minimum and the smaller maximum count, and the policy's type and multiplier. Without a minimum
/// there is no delay; the maximum is the minimum unless it is given, and at least that.
fn delayed_retry(
    arguments: &DelayedRetryArguments,
    policy: &PolicyDefinition,
) -> Option<DelayedRetry> {
    let of_policy = policy.text(PolicyKey::DelayedRetryType);
    let which = of_policy.or(arguments.which.as_ref())?;
    let after = RetryAfter::parse(which.as_str())?;
    let min_ms = arguments.min_ms.max(policy.count(PolicyKey::DelayedRetryMin));
    let min_ms = min_ms.filter(|min_ms| *min_ms > 0)?;
    let max_ms = smaller(arguments.max_ms, policy.count(PolicyKey::DelayedRetryMax));
    let multiplier = policy.count(PolicyKey::DelayedRetryMultiplier).or(arguments.multiplier);
    let multiplier = multiplier.filter(|multiplier| *multiplier > 0);
    Some(DelayedRetry {
        after,
        min_ms,
        max_ms: max_ms.unwrap_or(min_ms).max(min_ms),
        multiplier: multiplier.map(|it| u32::try_from(it).unwrap_or(u32::MAX)),
    })
}

/// How the group of a new queue is selected: by its argument, else by its policy (ARG-13).
#[must_use]
pub fn leader_locator(arguments: &QueueArguments, policy: &PolicyDefinition) -> LeaderLocator {
    let of_policy = || {
        let name = policy.text(PolicyKey::QueueLeaderLocator)?;
        LeaderLocator::parse(name.as_bytes())
    };
    arguments.leader_locator.or_else(of_policy).unwrap_or_default()
}

/// The smaller of two limits, or the only one (POL-07).
fn smaller(argument: Option<u64>, policy: Option<u64>) -> Option<u64> {
    match (argument, policy) {
        (Some(argument), Some(policy)) => Some(argument.min(policy)),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => None,
    }
}

/// POL-07: for a quorum queue the policy wins over the argument, for a classic queue the argument
/// wins.
fn overflow(
    arguments: &QueueArguments,
    policy: &PolicyDefinition,
    queue_type: QueueType,
) -> Overflow {
    let of_policy = policy.text(PolicyKey::Overflow);
    let of_policy = of_policy.and_then(|name| Overflow::parse(name.as_bytes()));
    let chosen = match queue_type {
        QueueType::Quorum => of_policy.or(arguments.overflow),
        QueueType::Classic => arguments.overflow.or(of_policy),
    };
    chosen.unwrap_or(Overflow::DropHead)
}

/// Dead-letter exchange, routing key and strategy: each by argument, else by policy (POL-07).
fn dead_letter(arguments: &QueueArguments, policy: &PolicyDefinition) -> Option<DeadLetter> {
    let either = |argument: &Option<ShortString>, key| {
        argument.as_ref().or_else(|| policy.text(key)).map(ShortString::detached)
    };
    Some(DeadLetter {
        exchange: either(&arguments.dead_letter_exchange, PolicyKey::DeadLetterExchange)?,
        routing_key: either(&arguments.dead_letter_routing_key, PolicyKey::DeadLetterRoutingKey),
        at_least_once: arguments
            .dead_letter_at_least_once
            .unwrap_or_else(|| policy.is(PolicyKey::DeadLetterStrategy, "at-least-once")),
    })
}

/// Q-10, DLM-01: a negative limit means unlimited; the default is 20 for a quorum queue, unlimited
/// for a classic one.
fn delivery_limit(
    arguments: &QueueArguments,
    policy: &PolicyDefinition,
    queue_type: QueueType,
) -> Option<u32> {
    let limit = match (arguments.delivery_limit, policy.integer(PolicyKey::DeliveryLimit)) {
        (Some(argument), Some(policy)) => Some(smaller_limit(argument, policy)),
        (one, None) | (None, one) => one,
    };
    match (limit, queue_type) {
        (Some(limit), _) if limit < 0 => None,
        (Some(limit), _) => Some(u32::try_from(limit).unwrap_or(u32::MAX)),
        (None, QueueType::Quorum) => Some(QUORUM_DELIVERY_LIMIT),
        (None, QueueType::Classic) => None,
    }
}
