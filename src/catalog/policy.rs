//! Policies and operator policies: which policy is in force for a queue or an exchange (POL-02,
//! POL-03, POL-08, OPP-02), and how both are merged (OPP-03).

use crate::{
    command::CatalogReply,
    machine::Catalog,
    output::{CatalogEvent, CatalogOutput},
    policy_definition::{PolicyDefinition, PolicyKey},
    policy_pattern::{PolicyPattern, PolicyPatternError},
    record::CatalogKey,
    refusal,
};
use quorate_types::{QueueType, ResourceName, ShortString, VhostName};
use std::{borrow::Cow, collections::BTreeMap};

/// The kind of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// A policy that users set.
    User,
    /// An operator policy, which limits the values of policies and arguments.
    Operator,
}

impl PolicyKind {
    /// OPP-01: true if a policy of this kind may set the key.
    #[must_use]
    pub fn allows(self, key: PolicyKey) -> bool {
        self == Self::User || key.merge().is_some()
    }
}

/// The kind of objects to which a policy applies (POL-02).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are RabbitMQ's own")]
pub enum ApplyTo {
    All,
    Queues,
    ClassicQueues,
    QuorumQueues,
    Streams,
    Exchanges,
}

impl ApplyTo {
    const ALL: [Self; 6] = [
        Self::All,
        Self::Queues,
        Self::ClassicQueues,
        Self::QuorumQueues,
        Self::Streams,
        Self::Exchanges,
    ];

    /// The name in rabbitmqctl's syntax.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Queues => "queues",
            Self::ClassicQueues => "classic_queues",
            Self::QuorumQueues => "quorum_queues",
            Self::Streams => "streams",
            Self::Exchanges => "exchanges",
        }
    }

    /// The value of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    fn takes_queue(self, queue_type: QueueType) -> bool {
        match self {
            Self::All | Self::Queues => true,
            Self::ClassicQueues => queue_type == QueueType::Classic,
            Self::QuorumQueues => queue_type == QueueType::Quorum,
            Self::Streams | Self::Exchanges => false,
        }
    }

    fn takes_exchange(self) -> bool {
        matches!(self, Self::All | Self::Exchanges)
    }
}

/// A policy or operator policy, as it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// Policy or operator policy.
    pub kind: PolicyKind,
    /// Name of the virtual host.
    pub vhost: VhostName,
    /// Name, unique within kind and virtual host.
    pub name: ShortString,
    /// Regular expression, searched for in the names of queues and exchanges.
    pub pattern: String,
    /// The kind of objects to which it applies.
    pub apply_to: ApplyTo,
    /// Of several policies that match, the one with the highest priority is in force.
    pub priority: i64,
    /// The settings.
    pub definition: PolicyDefinition,
}

/// The full name of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyName {
    /// Policy or operator policy.
    pub kind: PolicyKind,
    /// Name of the virtual host.
    pub vhost: VhostName,
    /// Name, unique within kind and virtual host.
    pub name: ShortString,
}

impl PolicyRecord {
    /// Its full name.
    #[must_use]
    pub fn full_name(&self) -> PolicyName {
        PolicyName { kind: self.kind, vhost: self.vhost.clone(), name: self.name.clone() }
    }
}

/// A policy with its compiled pattern, which is derived from the record.
#[derive(Clone, Debug, PartialEq)]
struct Policy {
    record: PolicyRecord,
    pattern: PolicyPattern,
}

/// The policies of all virtual hosts, each host's in the order of precedence: highest priority
/// first, policies of equal priority by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Policies {
    user: BTreeMap<VhostName, Vec<Policy>>,
    operator: BTreeMap<VhostName, Vec<Policy>>,
}

impl Policies {
    fn of(&self, kind: PolicyKind, vhost: &VhostName) -> &[Policy] {
        let all = match kind {
            PolicyKind::User => &self.user,
            PolicyKind::Operator => &self.operator,
        };
        all.get(vhost).map_or(&[], Vec::as_slice)
    }

    fn remove(&mut self, name: &PolicyName) -> bool {
        let all = match name.kind {
            PolicyKind::User => &mut self.user,
            PolicyKind::Operator => &mut self.operator,
        };
        let Some(of_vhost) = all.get_mut(&name.vhost) else { return false };
        let before = of_vhost.len();
        of_vhost.retain(|policy| policy.record.name != name.name);
        let removed = of_vhost.len() < before;
        if of_vhost.is_empty() {
            all.remove(&name.vhost);
        }
        removed
    }

    fn insert(&mut self, policy: Policy) {
        self.remove(&policy.record.full_name());
        let all = match policy.record.kind {
            PolicyKind::User => &mut self.user,
            PolicyKind::Operator => &mut self.operator,
        };
        let of_vhost = all.entry(policy.record.vhost.clone()).or_default();
        let rank = |policy: &Policy| {
            (std::cmp::Reverse(policy.record.priority), policy.record.name.clone())
        };
        let at = of_vhost.partition_point(|other| rank(other) < rank(&policy));
        of_vhost.insert(at, policy);
    }

    pub(crate) fn get(&self, name: &PolicyName) -> Option<&PolicyRecord> {
        let of_vhost = self.of(name.kind, &name.vhost);
        of_vhost.iter().map(|policy| &policy.record).find(|record| record.name == name.name)
    }

    /// All full names, sorted.
    pub(crate) fn names(&self) -> Vec<PolicyName> {
        let all = self.user.values().chain(self.operator.values()).flatten();
        let mut names: Vec<_> = all.map(|policy| policy.record.full_name()).collect();
        names.sort();
        names
    }

    /// The first policy of the kind that matches.
    fn first(
        &self,
        kind: PolicyKind,
        of: &ResourceName,
        takes: impl Fn(&PolicyRecord) -> bool,
    ) -> Option<&PolicyRecord> {
        let matching =
            |policy: &&Policy| takes(&policy.record) && policy.pattern.matches(of.name.as_bytes());
        self.of(kind, &of.vhost).iter().find(matching).map(|policy| &policy.record)
    }
}

/// The policies in force for one queue or exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct InForce<'a> {
    /// The policy in force; `None` if none matches.
    pub policy: Option<&'a PolicyRecord>,
    /// The operator policy.
    pub operator: Option<&'a PolicyRecord>,
}

impl<'a> InForce<'a> {
    /// The merged settings of both, RabbitMQ's `effective_policy_definition` (POL-11, OPP-03).
    #[must_use]
    pub fn definition(&self) -> Cow<'a, PolicyDefinition> {
        match (self.policy, self.operator) {
            (None, None) => Cow::Owned(PolicyDefinition::default()),
            (Some(one), None) | (None, Some(one)) => Cow::Borrowed(&one.definition),
            (Some(policy), Some(operator)) => {
                Cow::Owned(policy.definition.under(&operator.definition))
            }
        }
    }
}

impl Catalog {
    /// The policies in force for a queue of that name and type, whether it exists or not.
    #[must_use]
    pub fn queue_policies(&self, queue: &ResourceName, queue_type: QueueType) -> InForce<'_> {
        let takes = |policy: &PolicyRecord| {
            policy.apply_to.takes_queue(queue_type) && policy.definition.is_of(queue_type)
        };
        InForce {
            policy: self.policies.first(PolicyKind::User, queue, takes),
            operator: self.policies.first(PolicyKind::Operator, queue, takes),
        }
    }

    /// The policies in force for an exchange of that name. The default exchange has none (AE-05).
    #[must_use]
    pub fn exchange_policies(&self, exchange: &ResourceName) -> InForce<'_> {
        if exchange.name.is_empty() {
            return InForce::default();
        }
        let takes = |policy: &PolicyRecord| policy.apply_to.takes_exchange();
        InForce {
            policy: self.policies.first(PolicyKind::User, exchange, takes),
            operator: self.policies.first(PolicyKind::Operator, exchange, takes),
        }
    }

    /// The alternate exchange that the policy in force names.
    #[must_use]
    pub fn policy_alternate(&self, exchange: &ResourceName) -> Option<ShortString> {
        let policy = self.exchange_policies(exchange).policy?;
        policy.definition.text(PolicyKey::AlternateExchange).cloned()
    }

    /// Policies of one kind of a virtual host, sorted by name.
    #[must_use]
    pub fn policies(&self, kind: PolicyKind, vhost: &VhostName) -> Vec<&PolicyRecord> {
        let of_vhost = self.policies.of(kind, vhost).iter();
        let mut records: Vec<_> = of_vhost.map(|policy| &policy.record).collect();
        records.sort_by(|left, right| left.name.cmp(&right.name));
        records
    }

    /// Sets a policy, or replaces the one of that name (POL-01).
    pub(crate) fn set_policy(
        &mut self,
        record: &PolicyRecord,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let Some(vhost) = self.vhosts.kept_name(&record.vhost).cloned() else {
            return CatalogReply::Refused(refusal::no_such_vhost(&record.vhost));
        };
        let name = record.full_name();
        if self.policies.get(&name) == Some(record) {
            return CatalogReply::Done;
        }
        let record = PolicyRecord { vhost, name: record.name.detached(), ..record.clone() };
        if self.insert_policy(record).is_err() {
            // The pattern was compiled at the proposer, by a version that supports more syntax.
            return CatalogReply::Refused(refusal::unknown_pattern(&name.name));
        }
        self.policies_changed(name, out);
        CatalogReply::Done
    }

    /// The policy of that name.
    #[must_use]
    pub fn policy(&self, name: &PolicyName) -> Option<&PolicyRecord> {
        self.policies.get(name)
    }

    /// Clears a policy. The proposer reports a missing policy (POL-25); here it may be a repeat.
    pub(crate) fn clear_policy(
        &mut self,
        name: &PolicyName,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if self.policies.remove(name) {
            self.policies_changed(name.clone(), out);
        }
        CatalogReply::Done
    }

    /// Removes the policies of a virtual host that is removed.
    pub(crate) fn remove_policies_of(&mut self, vhost: &VhostName, out: &mut CatalogOutput) {
        for name in self.policies.names().into_iter().filter(|name| name.vhost == *vhost) {
            self.clear_policy(&name, out);
        }
    }

    fn policies_changed(&mut self, name: PolicyName, out: &mut CatalogOutput) {
        self.changed(CatalogKey::Policy(name), out);
        out.events.push(CatalogEvent::PoliciesChanged);
    }

    /// Inserts a policy; false if its pattern does not compile.
    pub(crate) fn insert_policy(&mut self, record: PolicyRecord) -> Result<(), PolicyPatternError> {
        let pattern = PolicyPattern::parse(&record.pattern)?;
        self.policies.insert(Policy { record, pattern });
        Ok(())
    }
}
