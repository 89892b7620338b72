//! The settings of a policy: its keys (POL-05), the queue types that support each key (POL-08), and
//! the merge of a policy and an operator policy (OPP-03).

use quorate_types::{QueueType, ShortString};
use std::collections::BTreeMap;

/// A key of a policy; the variants are sorted by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are RabbitMQ's own")]
pub enum PolicyKey {
    AlternateExchange,
    ConsumerDisconnectedTimeout,
    ConsumerTimeout,
    DeadLetterExchange,
    DeadLetterRoutingKey,
    DeadLetterStrategy,
    DelayedRetryMax,
    DelayedRetryMin,
    DelayedRetryType,
    DeliveryCountMode,
    DeliveryLimit,
    Expires,
    InitialClusterSize,
    MaxAge,
    MaxInMemoryBytes,
    MaxInMemoryLength,
    MaxLength,
    MaxLengthBytes,
    MemberPlacementTag,
    MessageTtl,
    Overflow,
    QueueLeaderLocator,
    QueueMode,
    QueueVersion,
    StreamFilterSizeBytes,
    StreamMaxSegmentSizeBytes,
    TargetGroupSize,
}

impl PolicyKey {
    /// All keys, sorted by name.
    pub const ALL: [Self; 27] = [
        Self::AlternateExchange,
        Self::ConsumerDisconnectedTimeout,
        Self::ConsumerTimeout,
        Self::DeadLetterExchange,
        Self::DeadLetterRoutingKey,
        Self::DeadLetterStrategy,
        Self::DelayedRetryMax,
        Self::DelayedRetryMin,
        Self::DelayedRetryType,
        Self::DeliveryCountMode,
        Self::DeliveryLimit,
        Self::Expires,
        Self::InitialClusterSize,
        Self::MaxAge,
        Self::MaxInMemoryBytes,
        Self::MaxInMemoryLength,
        Self::MaxLength,
        Self::MaxLengthBytes,
        Self::MemberPlacementTag,
        Self::MessageTtl,
        Self::Overflow,
        Self::QueueLeaderLocator,
        Self::QueueMode,
        Self::QueueVersion,
        Self::StreamFilterSizeBytes,
        Self::StreamMaxSegmentSizeBytes,
        Self::TargetGroupSize,
    ];

    /// The key's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::AlternateExchange => "alternate-exchange",
            Self::ConsumerDisconnectedTimeout => "consumer-disconnected-timeout",
            Self::ConsumerTimeout => "consumer-timeout",
            Self::DeadLetterExchange => "dead-letter-exchange",
            Self::DeadLetterRoutingKey => "dead-letter-routing-key",
            Self::DeadLetterStrategy => "dead-letter-strategy",
            Self::DelayedRetryMax => "delayed-retry-max",
            Self::DelayedRetryMin => "delayed-retry-min",
            Self::DelayedRetryType => "delayed-retry-type",
            Self::DeliveryCountMode => "delivery-count-mode",
            Self::DeliveryLimit => "delivery-limit",
            Self::Expires => "expires",
            Self::InitialClusterSize => "initial-cluster-size",
            Self::MaxAge => "max-age",
            Self::MaxInMemoryBytes => "max-in-memory-bytes",
            Self::MaxInMemoryLength => "max-in-memory-length",
            Self::MaxLength => "max-length",
            Self::MaxLengthBytes => "max-length-bytes",
            Self::MemberPlacementTag => "member-placement-tag",
            Self::MessageTtl => "message-ttl",
            Self::Overflow => "overflow",
            Self::QueueLeaderLocator => "queue-leader-locator",
            Self::QueueMode => "queue-mode",
            Self::QueueVersion => "queue-version",
            Self::StreamFilterSizeBytes => "stream-filter-size-bytes",
            Self::StreamMaxSegmentSizeBytes => "stream-max-segment-size-bytes",
            Self::TargetGroupSize => "target-group-size",
        }
    }

    /// The key of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// True if queues of the type support the key; a policy with an unsupported key does not match
    /// them (POL-08, Q-12).
    #[must_use]
    pub fn is_of(self, queue_type: QueueType) -> bool {
        let quorum = queue_type == QueueType::Quorum;
        match self {
            Self::MaxAge | Self::StreamMaxSegmentSizeBytes | Self::InitialClusterSize => false,
            Self::QueueMode => !quorum,
            Self::MaxInMemoryBytes | Self::MaxInMemoryLength | Self::TargetGroupSize => quorum,
            Self::AlternateExchange
            | Self::ConsumerDisconnectedTimeout
            | Self::ConsumerTimeout
            | Self::DeadLetterExchange
            | Self::DeadLetterRoutingKey
            | Self::DeadLetterStrategy
            | Self::DelayedRetryMax
            | Self::DelayedRetryMin
            | Self::DelayedRetryType
            | Self::DeliveryCountMode
            | Self::DeliveryLimit
            | Self::Expires
            | Self::MaxLength
            | Self::MaxLengthBytes
            | Self::MemberPlacementTag
            | Self::MessageTtl
            | Self::Overflow
            | Self::QueueLeaderLocator
            | Self::QueueVersion
            | Self::StreamFilterSizeBytes => true,
        }
    }

    /// How an operator policy's value is merged with the policy's (OPP-03); `None`: operator
    /// policies cannot set the key (OPP-01).
    #[must_use]
    pub fn merge(self) -> Option<Merge> {
        match self {
            Self::Expires
            | Self::MessageTtl
            | Self::MaxLength
            | Self::MaxLengthBytes
            | Self::MaxInMemoryLength
            | Self::MaxInMemoryBytes
            | Self::DelayedRetryMax => Some(Merge::Smaller),
            Self::DelayedRetryMin | Self::TargetGroupSize => Some(Merge::Larger),
            Self::DeliveryLimit => Some(Merge::Limit),
            Self::Overflow
            | Self::QueueVersion
            | Self::MemberPlacementTag
            | Self::DelayedRetryType => Some(Merge::Operators),
            Self::AlternateExchange
            | Self::ConsumerDisconnectedTimeout
            | Self::ConsumerTimeout
            | Self::DeadLetterExchange
            | Self::DeadLetterRoutingKey
            | Self::DeadLetterStrategy
            | Self::DeliveryCountMode
            | Self::InitialClusterSize
            | Self::MaxAge
            | Self::QueueLeaderLocator
            | Self::QueueMode
            | Self::StreamFilterSizeBytes
            | Self::StreamMaxSegmentSizeBytes => None,
        }
    }
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
