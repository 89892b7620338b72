//! The catalog's state machine: dispatches each command to the file that owns it, and records which
//! records have changed.

use crate::{
    command::{CatalogCommand, CatalogEntry, CatalogReply},
    digest::{Digest, Feed},
    exchange::{Exchange, of_every_vhost},
    member::Membership,
    named::{ByName, Named},
    objects::{Binding, ClusterShape, QueueEntry},
    output::CatalogOutput,
    parameter::ParameterName,
    permission::{Rights, RowKey, TopicRights, TopicRowKey},
    policy::Policies,
    record::{BindingId, CatalogKey, CatalogState, NodeEntry, UserRecord, VhostRecord},
    task::Tasks,
    user::{GUEST, guest},
    vhost::{DEFAULT_VHOST, VhostMetadata},
};
use quorate_types::{
    BootNumber, CatalogIndex, GroupId, MachineVersion, NodeId, QueueId, ShortString,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// A full copy of the catalog: nodes, virtual hosts, users, exchanges, bindings, and the queue
/// behind each name. Every node holds a copy and routes by it (DESIGN §2).
///
/// Two catalogs are equal if their state and all indexes derived from it are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    version: CatalogIndex,
    digest: Digest,
    /// The records that [`Catalog::new`] made have not been returned as changes yet.
    unsaved: bool,
    next_binding: u64,
    pub(crate) shape: Option<ClusterShape>,
    pub(crate) machine: MachineVersion,
    pub(crate) life: u64,
    pub(crate) life_boot: Option<BootNumber>,
    pub(crate) nodes: BTreeMap<NodeId, NodeEntry>,
    pub(crate) membership: Membership,
    pub(crate) users: BTreeMap<ShortString, UserRecord>,
    pub(crate) vhosts: Named<Vhost>,
    pub(crate) rights: BTreeMap<RowKey, Arc<Rights>>,
    pub(crate) topic_rights: BTreeMap<TopicRowKey, TopicRights>,
    /// The last change of users, virtual hosts, permissions or limits.
    pub(crate) access_version: DerivedIndex,
    /// The last change of anything but tasks.
    routing_version: DerivedIndex,
    pub(crate) queues: BTreeMap<QueueId, QueueEntry>,
    pub(crate) bindings: BTreeMap<BindingId, Binding>,
    /// Bindings by a hash that equal bindings share.
    pub(crate) binding_identities: BTreeSet<(u64, BindingId)>,
    /// Bindings by their destination queue.
    pub(crate) queue_bindings: BTreeSet<(QueueId, BindingId)>,
    /// Number of queues of each group, for placement; a group without an entry has no queues.
    pub(crate) queue_counts: BTreeMap<GroupId, u64>,
    pub(crate) policies: Policies,
    /// Runtime parameters, as JSON.
    pub(crate) parameters: BTreeMap<ParameterName, String>,
    pub(crate) tasks: Tasks,
}

/// Index of the last change of something, or of the load. Not part of the state: any two compare as
/// equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerivedIndex(pub(crate) CatalogIndex);

impl PartialEq for DerivedIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vhost {
    pub(crate) record: VhostRecord,
    pub(crate) exchanges: Named<Exchange>,
    pub(crate) queues: ByName<QueueId>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

impl Catalog {
    /// The catalog of a cluster that has just been formed: virtual host `/` with its exchanges
    /// (EXC-01), user `guest` (ACL-22).
    #[must_use]
    pub fn new() -> Self {
        let mut catalog = Self::empty();
        catalog.unsaved = true;
        catalog.insert_vhost(VhostRecord {
            name: DEFAULT_VHOST,
            created: CatalogIndex(0),
            metadata: VhostMetadata::of_default(),
            limits: Default::default(),
            tracing: false,
            protected: false,
        });
        of_every_vhost(&DEFAULT_VHOST).for_each(|record| catalog.insert_exchange(record));
        catalog.users.insert(GUEST, guest());
        catalog.rights.insert((DEFAULT_VHOST, GUEST), Arc::new(Rights::all()));
        catalog
    }

    pub(crate) fn empty() -> Self {
        Self {
            version: CatalogIndex(0),
            digest: Digest::default(),
            unsaved: false,
            next_binding: 1,
            shape: None,
            machine: MachineVersion::FIRST,
            life: 0,
            life_boot: None,
            nodes: BTreeMap::new(),
            membership: Membership::default(),
            users: BTreeMap::new(),
            vhosts: Named::default(),
            rights: BTreeMap::new(),
            topic_rights: BTreeMap::new(),
            access_version: DerivedIndex(CatalogIndex(0)),
            routing_version: DerivedIndex(CatalogIndex(0)),
            queues: BTreeMap::new(),
            bindings: BTreeMap::new(),
            binding_identities: BTreeSet::new(),
            queue_bindings: BTreeSet::new(),
            queue_counts: BTreeMap::new(),
            policies: Policies::default(),
            parameters: BTreeMap::new(),
            tasks: Tasks::new(),
        }
    }

    /// Applies the entry at `index`. The output is appended to `out`; the caller clears it.
    ///
    /// # Panics
    /// If the entry is not above those applied before.
    pub fn apply(&mut self, index: CatalogIndex, entry: &CatalogEntry, out: &mut CatalogOutput) {
        assert!(index > self.version, "catalog entry {index} applied after {}", self.version);
        self.version = index;
        if std::mem::take(&mut self.unsaved) {
            self.keys().into_iter().for_each(|key| self.changed(key, out));
        }
        for command in &entry.commands {
            let reply = self.command(command, out);
            out.replies.push(reply);
        }
        self.digest.word(index.0);
        out.changes.push(CatalogKey::State);
    }

    fn command(&mut self, command: &CatalogCommand, out: &mut CatalogOutput) -> CatalogReply {
        match command {
            CatalogCommand::RaiseMachine(to) => self.raise_machine(*to, out),
            CatalogCommand::Form(shape) => self.form(*shape, out),
            CatalogCommand::NodeStarted { node, incarnation, boot, rpc_address, amqp_address } => {
                let announced = NodeEntry {
                    incarnation: *incarnation,
                    boot: *boot,
                    rpc_address: rpc_address.clone(),
                    amqp_address: amqp_address.clone(),
                    ..NodeEntry::default()
                };
                self.node_started(*node, announced, out)
            }
            CatalogCommand::NodeDown { node, start } => self.node_down(*node, *start, out),
            CatalogCommand::NewLife { boot } => self.new_life(*boot, out),
            CatalogCommand::DeclareExchange(exchange) => self.declare_exchange(exchange, out),
            CatalogCommand::DeleteExchange { exchange, if_unused } => {
                self.delete_exchange(exchange, *if_unused, out)
            }
            CatalogCommand::Bind(binding) => self.bind(binding, out),
            CatalogCommand::Unbind(binding) => self.unbind(binding, out),
            CatalogCommand::AddQueue(entry) => self.add_queue(entry, out),
            CatalogCommand::RemoveQueue { queue } => self.remove_queue(*queue, out),
            CatalogCommand::Access(command) => self.access_command(command, out),
            CatalogCommand::Members(command) => self.member_command(command, out),
            CatalogCommand::Tasks(command) => self.task_command(command, out),
            CatalogCommand::SetPolicy(policy) => self.set_policy(policy, out),
            CatalogCommand::ClearPolicy(name) => self.clear_policy(name, out),
            CatalogCommand::SetParameter(parameter) => self.set_parameter(parameter, out),
            CatalogCommand::ClearParameter(name) => self.clear_parameter(name, out),
        }
    }

    /// Records that the log has an entry without commands (a leader's first one, or a membership),
    /// so that [`Catalog::version`] follows the log. An index that is not above the last one has no
    /// effect.
    pub fn advance(&mut self, index: CatalogIndex) {
        self.version = self.version.max(index);
    }

    /// Index of the last entry applied.
    #[must_use]
    pub fn version(&self) -> CatalogIndex {
        self.version
    }

    /// Index of the last entry that may have changed where messages go, or of the load.
    #[must_use]
    pub fn routing_version(&self) -> CatalogIndex {
        self.routing_version.0
    }

    /// Rolling digest of all applied changes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.0
    }

    pub(crate) fn next_binding_id(&mut self) -> BindingId {
        let id = BindingId(self.next_binding);
        self.next_binding += 1;
        id
    }

    pub(crate) fn state(&self) -> CatalogState {
        CatalogState {
            version: self.version,
            digest: self.digest.0,
            next_binding: self.next_binding,
            life: self.life,
            life_boot: self.life_boot,
            shape: self.shape,
            machine: self.machine,
            next_replica: self.membership.next_replica,
        }
    }

    pub(crate) fn set_state(&mut self, state: &CatalogState) {
        self.version = state.version;
        self.access_version = DerivedIndex(state.version);
        self.routing_version = DerivedIndex(state.version);
        self.digest = Digest(state.digest);
        self.next_binding = state.next_binding;
        self.life = state.life;
        self.life_boot = state.life_boot;
        self.shape = state.shape;
        self.machine = state.machine;
        self.membership.next_replica = state.next_replica;
    }

    /// The record of that key has changed or was removed: every replica writes it, and the digest
    /// is continued.
    pub(crate) fn changed(&mut self, key: CatalogKey, out: &mut CatalogOutput) {
        let mut digest = self.digest;
        match &key {
            CatalogKey::State => {
                digest.word(1);
                digest.word(self.life);
                self.shape.iter().for_each(|shape| shape.feed(&mut digest));
                // A binary that only knows the first version computes the digest without this field.
                if self.machine > MachineVersion::FIRST {
                    digest.word(u64::from(self.machine.0));
                }
            }
            CatalogKey::Vhost(name) => note(&mut digest, 2, name, self.vhost(name)),
            CatalogKey::User(name) => note(&mut digest, 3, name, self.users.get(name)),
            CatalogKey::Node(node) => note(&mut digest, 4, node, self.nodes.get(node)),
            CatalogKey::Exchange(name) => note(&mut digest, 5, name, self.exchange(name)),
            CatalogKey::Binding(id) => note(&mut digest, 6, id, self.bindings.get(id)),
            CatalogKey::Queue(id) => note(&mut digest, 7, id, self.queues.get(id)),
            CatalogKey::Policy(name) => note(&mut digest, 10, name, self.policies.get(name)),
            CatalogKey::Parameter(name) => {
                note(&mut digest, 11, name, self.parameter(name).as_ref());
            }
            CatalogKey::Member(node) => note(&mut digest, 12, node, self.member(*node)),
            CatalogKey::Forgotten(id) => note(&mut digest, 13, id, self.forgotten(*id)),
            CatalogKey::Placement(group) => note(&mut digest, 14, group, self.placement(*group)),
            CatalogKey::Task(id) => note(&mut digest, 15, id, self.tasks.get(id)),
            CatalogKey::Permission { vhost, user } => {
                let row = (vhost.clone(), user.clone());
                note(&mut digest, 8, &row, self.permission_record(&row).as_ref());
            }
            CatalogKey::TopicPermission { vhost, user, exchange } => {
                let row = (vhost.clone(), user.clone(), exchange.clone());
                note(&mut digest, 9, &row, self.topic_permission_record(&row).as_ref());
            }
        }
        self.note_version(&key);
        self.digest = digest;
        out.changes.push(key);
    }

    fn note_version(&mut self, key: &CatalogKey) {
        if key.decides_access() {
            self.access_version = DerivedIndex(self.version);
        }
        if !matches!(key, CatalogKey::Task(_)) {
            self.routing_version = DerivedIndex(self.version);
        }
    }
}

/// Adds the kind and key of a record and its present value.
fn note<T: Feed>(digest: &mut Digest, kind: u64, key: &impl Feed, record: Option<&T>) {
    digest.word(kind);
    key.feed(digest);
    match record {
        Some(record) => {
            digest.word(1);
            record.feed(digest);
        }
        None => digest.word(0),
    }
}

impl Feed for NodeId {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.0));
    }
}

impl Feed for BindingId {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.0);
    }
}
