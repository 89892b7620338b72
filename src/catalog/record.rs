//! The state as records, which a checkpoint writes and a start reads. All other data of the catalog
//! (routing tables, indexes by name, source and destination) is derived from them.

use crate::{
    limits::{UserLimits, VhostLimits},
    machine::Catalog,
    member::{ForgottenRecord, MemberRecord},
    objects::{Binding, ClusterShape, ExchangeRecord, QueueEntry},
    parameter::{ParameterName, ParameterRecord},
    password::PasswordHash,
    permission::{Rights, TopicRights},
    policy::{PolicyName, PolicyRecord},
    replica_placement::PlacementRecord,
    task::TaskRecord,
    vhost::VhostMetadata,
};
use quorate_types::{
    BootNumber, CatalogIndex, GroupId, Incarnation, MachineVersion, NodeId, QueueId, ReplicaNumber,
    ResourceName, ShortString, StartNumber, TaskId, VhostName,
};
use std::{fmt, sync::Arc};

/// A binding's number: assigned in the order of the log, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId(pub u64);

impl fmt::Display for BindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key of one record of the catalog in column family `catalog`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogKey {
    /// The catalog's own record: version, digest, counters, life, shape.
    State,
    /// A virtual host.
    Vhost(VhostName),
    /// Key of a user.
    User(ShortString),
    /// Key of a node.
    Node(NodeId),
    /// Key of an exchange.
    Exchange(ResourceName),
    /// Key of a binding.
    Binding(BindingId),
    /// A queue's entry.
    Queue(QueueId),
    /// A user's permissions in a virtual host.
    Permission {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Name of the user.
        user: ShortString,
    },
    /// A user's permissions on the topics of an exchange.
    TopicPermission {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Name of the user.
        user: ShortString,
        /// Name of the exchange.
        exchange: ShortString,
    },
    /// A policy or operator policy.
    Policy(PolicyName),
    /// A runtime parameter.
    Parameter(ParameterName),
    /// A member (MEM 1).
    Member(NodeId),
    /// A directory that was forgotten (MEM 11).
    Forgotten(Incarnation),
    /// The replicas that a group shall have (MEM 6).
    Placement(GroupId),
    /// A task.
    Task(TaskId),
}

impl CatalogKey {
    /// True if the permissions of a user may depend on the record.
    pub(crate) fn decides_access(&self) -> bool {
        match self {
            Self::Vhost(_)
            | Self::User(_)
            | Self::Permission { .. }
            | Self::TopicPermission { .. } => true,
            Self::State
            | Self::Node(_)
            | Self::Exchange(_)
            | Self::Binding(_)
            | Self::Queue(_)
            | Self::Policy(_)
            | Self::Parameter(_)
            | Self::Member(_)
            | Self::Forgotten(_)
            | Self::Placement(_)
            | Self::Task(_) => false,
        }
    }
}

/// One record. Its key is a [`CatalogKey`] of the same variant.
#[derive(Clone, Debug, PartialEq)]
pub enum CatalogRecord {
    /// The catalog's own record.
    State(CatalogState),
    /// A virtual host.
    Vhost(VhostRecord),
    /// Record of a user.
    User(UserRecord),
    /// Record of a node.
    Node(NodeEntry),
    /// Record of an exchange.
    Exchange(ExchangeRecord),
    /// Record of a binding.
    Binding(Binding),
    /// A queue's entry.
    Queue(QueueEntry),
    /// A user's permissions in a virtual host.
    Permission(PermissionRecord),
    /// A user's permissions on the topics of an exchange.
    TopicPermission(TopicPermissionRecord),
    /// A policy or operator policy.
    Policy(PolicyRecord),
    /// A runtime parameter.
    Parameter(ParameterRecord),
    /// A member (MEM 1).
    Member(MemberRecord),
    /// A directory that was forgotten (MEM 11).
    Forgotten(ForgottenRecord),
    /// The replicas that a group shall have (MEM 6).
    Placement(PlacementRecord),
    /// A task.
    Task(TaskRecord),
}

/// The catalog's own record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatalogState {
    /// Index of the last entry applied.
    pub version: CatalogIndex,
    /// Rolling digest of all changes (`quorate ctl audit`).
    pub digest: u64,
    /// Number of the next binding.
    pub next_binding: u64,
    /// Number of lives that have begun (DESIGN §7, Q-11); 0 until the whole cluster was stopped
    /// once.
    pub life: u64,
    /// The process that began the present life; identifies a repeat.
    pub life_boot: Option<BootNumber>,
    /// The cluster's shape; `None` until it is formed.
    pub shape: Option<ClusterShape>,
    /// Version of the replicated machine (MEM 15).
    pub machine: MachineVersion,
    /// Number of the next new replica (MEM 5); 0 before machine version 2, in which it is not stored.
    pub next_replica: ReplicaNumber,
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostRecord {
    /// Name of the virtual host.
    pub name: VhostName,
    /// Index of the entry that added it; distinguishes it from an earlier virtual host of the same
    /// name.
    pub created: CatalogIndex,
    /// Description, tags and default queue type.
    pub metadata: VhostMetadata,
    /// Limits of the virtual host (VLM-01).
    pub limits: VhostLimits,
    /// True if every publish and delivery in it is also published to `amq.rabbitmq.trace`.
    pub tracing: bool,
    /// True if it cannot be deleted until the protection is lifted.
    pub protected: bool,
}

/// A user: hash of the password, tags and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    /// Name of the user.
    pub name: ShortString,
    /// Hash of the password (ACL-23).
    pub password: PasswordHash,
    /// Tags, such as `administrator` (ACL-20).
    pub tags: Vec<ShortString>,
    /// Limits of the user (VLM-02).
    pub limits: UserLimits,
}

/// The permissions of a user in a virtual host: regular expressions (ACL-02).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionRecord {
    /// Name of the virtual host.
    pub vhost: VhostName,
    /// Name of the user.
    pub user: ShortString,
    /// Names that the user may declare and delete.
    pub configure: String,
    /// Names that the user may write to.
    pub write: String,
    /// Names that the user may read from.
    pub read: String,
}

/// The topics of an exchange that a user may use: regular expressions (ACL-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPermissionRecord {
    /// Name of the virtual host.
    pub vhost: VhostName,
    /// Name of the user.
    pub user: ShortString,
    /// Name of the exchange.
    pub exchange: ShortString,
    /// Routing keys that the user may publish with.
    pub write: String,
    /// Binding keys that the user may bind with.
    pub read: String,
}

/// The record of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEntry {
    /// Identity of its data directory.
    pub incarnation: Incarnation,
    /// The process of its latest start.
    pub boot: BootNumber,
    /// Its latest start (SES 1).
    pub start: StartNumber,
    /// Starts up to this one are fenced (SES 6). Below `start` while the latest start may be alive.
    pub fenced: StartNumber,
    /// Former processes of the node, latest last, at most [`crate::FORMER_BOOTS_MAX`]: a late
    /// announcement of one of them has no effect.
    pub former_boots: Vec<BootNumber>,
    /// Address of its rpc port.
    pub rpc_address: String,
    /// Address of its AMQP port.
    pub amqp_address: String,
}

/// Why records cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored catalog: {0}")]
pub struct CatalogRecordError(pub String);

pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T, CatalogRecordError> {
    Err(CatalogRecordError(what.into()))
}

impl Catalog {
    /// The present record of that key; `None` if it was removed.
    #[must_use]
    pub fn record(&self, key: &CatalogKey) -> Option<CatalogRecord> {
        match key {
            CatalogKey::State => Some(CatalogRecord::State(self.state())),
            CatalogKey::Vhost(name) => {
                self.vhosts.get(name).map(|vhost| CatalogRecord::Vhost(vhost.record.clone()))
            }
            CatalogKey::User(name) => self.users.get(name).cloned().map(CatalogRecord::User),
            CatalogKey::Node(node) => self.nodes.get(node).cloned().map(CatalogRecord::Node),
            CatalogKey::Exchange(name) => self.exchange(name).cloned().map(CatalogRecord::Exchange),
            CatalogKey::Binding(id) => self.bindings.get(id).cloned().map(CatalogRecord::Binding),
            CatalogKey::Queue(id) => self.queues.get(id).cloned().map(CatalogRecord::Queue),
            CatalogKey::Permission { vhost, user } => self
                .permission_record(&(vhost.clone(), user.clone()))
                .map(CatalogRecord::Permission),
            CatalogKey::TopicPermission { vhost, user, exchange } => self
                .topic_permission_record(&(vhost.clone(), user.clone(), exchange.clone()))
                .map(CatalogRecord::TopicPermission),
            CatalogKey::Policy(name) => self.policies.get(name).cloned().map(CatalogRecord::Policy),
            CatalogKey::Parameter(name) => self.parameter(name).map(CatalogRecord::Parameter),
            CatalogKey::Member(node) => self.member(*node).cloned().map(CatalogRecord::Member),
            CatalogKey::Forgotten(id) => self.forgotten(*id).copied().map(CatalogRecord::Forgotten),
            CatalogKey::Placement(group) => {
                self.placement(*group).cloned().map(CatalogRecord::Placement)
            }
            CatalogKey::Task(id) => self.tasks.get(id).cloned().map(CatalogRecord::Task),
        }
    }

    /// The keys of all records but [`CatalogKey::State`], in ascending order.
    #[must_use]
    pub fn keys(&self) -> Vec<CatalogKey> {
        let vhosts = self.vhosts.iter().map(|(name, _)| CatalogKey::Vhost(name.clone()));
        let users = self.users.keys().cloned().map(CatalogKey::User);
        let nodes = self.nodes.keys().copied().map(CatalogKey::Node);
        let exchanges =
            self.exchanges().map(|exchange| CatalogKey::Exchange(exchange.name.clone()));
        let bindings = self.bindings.keys().copied().map(CatalogKey::Binding);
        let queues = self.queues.keys().copied().map(CatalogKey::Queue);
        let permissions = self.rights.keys().cloned();
        let permissions = permissions.map(|(vhost, user)| CatalogKey::Permission { vhost, user });
        let topics = self.topic_rights.keys().cloned();
        let topics = topics.map(|(vhost, user, exchange)| CatalogKey::TopicPermission {
            vhost,
            user,
            exchange,
        });
        let named = vhosts.chain(users).chain(nodes).chain(exchanges);
        let policies = self.policies.names().into_iter().map(CatalogKey::Policy);
        let parameters = self.parameters.keys().cloned().map(CatalogKey::Parameter);
        let named = named.chain(bindings).chain(queues).chain(permissions).chain(topics);
        let tasks = self.tasks.keys().copied().map(CatalogKey::Task);
        let named = named.chain(policies).chain(parameters);
        named.chain(self.membership.keys()).chain(tasks).collect()
    }

    /// A catalog from the records of a checkpoint, in any order; without records, a new catalog.
    ///
    /// # Errors
    /// Records that contradict each other, or lack one that they refer to.
    pub fn load(
        records: impl IntoIterator<Item = (CatalogKey, CatalogRecord)>,
    ) -> Result<Self, CatalogRecordError> {
        let mut records: Vec<_> = records.into_iter().collect();
        if records.is_empty() {
            return Ok(Self::new());
        }
        // Records that others refer to come first: virtual hosts before exchanges, exchanges and
        // queues before bindings.
        records.sort_by(|(left, _), (right, _)| (phase(left), left).cmp(&(phase(right), right)));
        let mut catalog = Self::empty();
        let mut has_state = false;
        for (key, record) in records {
            has_state |= key == CatalogKey::State;
            catalog.load_record(key, record)?;
        }
        if has_state { Ok(catalog) } else { broken("there are records, but not its own") }
    }

    fn load_record(
        &mut self,
        key: CatalogKey,
        record: CatalogRecord,
    ) -> Result<(), CatalogRecordError> {
        match (key, record) {
            (CatalogKey::State, CatalogRecord::State(state)) => self.set_state(&state),
            (CatalogKey::Vhost(name), CatalogRecord::Vhost(record)) if name == record.name => {
                self.insert_vhost(record);
            }
            (CatalogKey::User(name), CatalogRecord::User(record)) if name == record.name => {
                self.users.insert(name, record);
            }
            (CatalogKey::Node(node), CatalogRecord::Node(record)) => {
                self.nodes.insert(node, record);
            }
            (CatalogKey::Exchange(name), CatalogRecord::Exchange(record))
                if name == record.name =>
            {
                if !self.has_vhost(&name.vhost) {
                    return broken(format!("exchange {name} has no virtual host"));
                }
                self.insert_exchange(record);
            }
            (CatalogKey::Queue(id), CatalogRecord::Queue(record)) if id == record.id => {
                self.load_queue(record)?;
            }
            (CatalogKey::Binding(id), CatalogRecord::Binding(record)) => {
                self.insert_binding(id, &record)?;
            }
            (CatalogKey::Permission { vhost, user }, CatalogRecord::Permission(record))
                if vhost == record.vhost && user == record.user =>
            {
                self.load_permission(&record)?;
            }
            (
                CatalogKey::TopicPermission { vhost, user, exchange },
                CatalogRecord::TopicPermission(record),
            ) if vhost == record.vhost && user == record.user && exchange == record.exchange => {
                self.load_topic_permission(&record)?;
            }
            (key, record) => self.load_policy_record(key, record)?,
        }
        Ok(())
    }

    fn load_policy_record(
        &mut self,
        key: CatalogKey,
        record: CatalogRecord,
    ) -> Result<(), CatalogRecordError> {
        match (key, record) {
            (CatalogKey::Policy(name), CatalogRecord::Policy(record))
                if name == record.full_name() =>
            {
                self.load_policy(record)?;
            }
            (CatalogKey::Parameter(name), CatalogRecord::Parameter(record))
                if name == record.name =>
            {
                self.parameters.insert(name, record.value);
            }
            (CatalogKey::Task(id), CatalogRecord::Task(record)) if id == record.id => {
                self.tasks.insert(id, record);
            }
            (key, record) => self.membership.load(key, record)?,
        }
        Ok(())
    }

    fn load_permission(&mut self, record: &PermissionRecord) -> Result<(), CatalogRecordError> {
        let (vhost, user) = (record.vhost.clone(), record.user.clone());
        let rights = Rights::compile(record);
        match rights {
            Ok(rights) if self.has_vhost(&vhost) && self.users.contains_key(&user) => {
                self.rights.insert((vhost, user), Arc::new(rights));
                Ok(())
            }
            Ok(_) => {
                broken(format!("permissions of {user} in {vhost}: one of the two is not there"))
            }
            Err(error) => broken(format!("permissions of {user} in {vhost}: {error}")),
        }
    }

    fn load_topic_permission(
        &mut self,
        record: &TopicPermissionRecord,
    ) -> Result<(), CatalogRecordError> {
        let (vhost, user) = (record.vhost.clone(), record.user.clone());
        let rights = TopicRights::compile(record);
        match rights {
            Ok(rights) if self.has_vhost(&vhost) && self.users.contains_key(&user) => {
                self.topic_rights.insert((vhost, user, record.exchange.clone()), rights);
                Ok(())
            }
            Ok(_) => broken(format!(
                "topic permissions of {user} in {vhost}: one of the two is not there"
            )),
            Err(error) => broken(format!("topic permissions of {user} in {vhost}: {error}")),
        }
    }

    fn load_policy(&mut self, record: PolicyRecord) -> Result<(), CatalogRecordError> {
        let name = record.name.clone();
        self.insert_policy(record).or_else(|error| broken(format!("policy '{name}': {error}")))
    }

    fn load_queue(&mut self, record: QueueEntry) -> Result<(), CatalogRecordError> {
        let name = record.name.clone();
        if !self.has_vhost(&name.vhost) {
            return broken(format!("queue {name} has no virtual host"));
        }
        if let Some(by) = self.queue_by_name(&name) {
            return broken(format!("queue {name} is both {} and {}", by.id, record.id));
        }
        self.insert_queue(record);
        Ok(())
    }
}

fn phase(key: &CatalogKey) -> u8 {
    match key {
        CatalogKey::State
        | CatalogKey::Vhost(_)
        | CatalogKey::User(_)
        | CatalogKey::Node(_)
        | CatalogKey::Member(_)
        | CatalogKey::Forgotten(_)
        | CatalogKey::Placement(_)
        | CatalogKey::Task(_) => 0,
        CatalogKey::Exchange(_)
        | CatalogKey::Queue(_)
        | CatalogKey::Permission { .. }
        | CatalogKey::TopicPermission { .. }
        | CatalogKey::Policy(_)
        | CatalogKey::Parameter(_) => 1,
        CatalogKey::Binding(_) => 2,
    }
}
