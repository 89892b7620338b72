//! The catalog's machine: dispatches each command to the file that owns it, and keeps account of
//! what has changed.

use crate::{
    command::{Binding, CatalogCommand, CatalogEntry, CatalogReply, ClusterShape, QueueEntry},
    digest::{Digest, Feed},
    exchange::{Exchange, of_every_vhost},
    named::{ByName, Named},
    output::CatalogOutput,
    parameter::ParameterName,
    policy::Policies,
    record::{BindingId, CatalogKey, CatalogState, NodeEntry, UserRecord, VhostRecord},
};
use quorate_types::{BootNumber, CatalogIndex, GroupId, NodeId, QueueId, ShortString, VhostName};
use std::collections::{BTreeMap, BTreeSet};

/// The virtual host that is always there.
const DEFAULT_VHOST: ShortString = ShortString::from_static("/");

/// `guest`'s password is `guest` (ACL-22), kept as ACL-23 says.
const GUEST_PASSWORD_HASH: [u8; 36] = [
    81, 117, 111, 114, 63, 234, 200, 126, 198, 252, 247, 4, 150, 128, 179, 156, 248, 198, 84, 200,
    147, 132, 105, 217, 132, 218, 127, 56, 30, 40, 135, 191, 114, 102, 225, 7,
];

/// A full copy of what everyone has to know: nodes, virtual hosts, users, exchanges, bindings, and
/// which queue a name leads to. Every node holds one and routes from it (DESIGN §2).
///
/// Two are equal if their state and all that is derived from it are.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    version: CatalogIndex,
    digest: Digest,
    /// What [`Catalog::new`] made has not been handed out as changes.
    unsaved: bool,
    next_binding: u64,
    pub(crate) shape: Option<ClusterShape>,
    pub(crate) life: u64,
    pub(crate) life_boot: Option<BootNumber>,
    pub(crate) nodes: BTreeMap<NodeId, NodeEntry>,
    pub(crate) users: BTreeMap<ShortString, UserRecord>,
    pub(crate) vhosts: Named<Vhost>,
    pub(crate) queues: BTreeMap<QueueId, QueueEntry>,
    pub(crate) bindings: BTreeMap<BindingId, Binding>,
    /// Bindings by a word that equal ones share.
    pub(crate) binding_identities: BTreeSet<(u64, BindingId)>,
    /// Bindings by the queue that they lead to.
    pub(crate) queue_bindings: BTreeSet<(QueueId, BindingId)>,
    /// Queues of each group, for placement; no entry stands for none.
    pub(crate) queue_counts: BTreeMap<GroupId, u64>,
    pub(crate) policies: Policies,
    /// Runtime parameters, as JSON.
    pub(crate) parameters: BTreeMap<ParameterName, String>,
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
        catalog.insert_vhost(VhostRecord { name: DEFAULT_VHOST });
        of_every_vhost(&DEFAULT_VHOST).for_each(|record| catalog.insert_exchange(record));
        let name = ShortString::from_static("guest");
        let tags = vec![ShortString::from_static("administrator")];
        let guest = UserRecord { name, password_hash: GUEST_PASSWORD_HASH.to_vec(), tags };
        catalog.users.insert(guest.name.clone(), guest);
        catalog
    }

    pub(crate) fn empty() -> Self {
        Self {
            version: CatalogIndex(0),
            digest: Digest::default(),
            unsaved: false,
            next_binding: 1,
            shape: None,
            life: 0,
            life_boot: None,
            nodes: BTreeMap::new(),
            users: BTreeMap::new(),
            vhosts: Named::default(),
            queues: BTreeMap::new(),
            bindings: BTreeMap::new(),
            binding_identities: BTreeSet::new(),
            queue_bindings: BTreeSet::new(),
            queue_counts: BTreeMap::new(),
            policies: Policies::default(),
            parameters: BTreeMap::new(),
        }
    }

    /// Applies the entry at `index`. `out` is filled from where it stands; the caller clears it.
    ///
    /// # Panics
    /// If the entry is not above the ones applied before.
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
            CatalogCommand::SetPolicy(policy) => self.set_policy(policy, out),
            CatalogCommand::ClearPolicy(name) => self.clear_policy(name, out),
            CatalogCommand::SetParameter(parameter) => self.set_parameter(parameter, out),
            CatalogCommand::ClearParameter(name) => self.clear_parameter(name, out),
        }
    }

    /// Takes note of an entry of the log that carries no command (a leader's first one, a
    /// membership), so that [`Catalog::version`] follows the log. Not above: no effect.
    pub fn advance(&mut self, index: CatalogIndex) {
        self.version = self.version.max(index);
    }

    /// Index of the last entry applied.
    #[must_use]
    pub fn version(&self) -> CatalogIndex {
        self.version
    }

    /// Rolling digest of everything applied.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest.0
    }

    /// The user of that name.
    #[must_use]
    pub fn user(&self, name: &ShortString) -> Option<&UserRecord> {
        self.users.get(name)
    }

    /// All users, in the order of their names.
    pub fn users(&self) -> impl Iterator<Item = &UserRecord> {
        self.users.values()
    }

    /// True if there is that virtual host.
    #[must_use]
    pub fn has_vhost(&self, name: &VhostName) -> bool {
        self.vhosts.get(name).is_some()
    }

    /// All virtual hosts, in the order of their names.
    pub fn vhosts(&self) -> impl Iterator<Item = &VhostRecord> {
        self.vhosts.iter().map(|(_, vhost)| &vhost.record)
    }

    pub(crate) fn insert_vhost(&mut self, record: VhostRecord) {
        let name = record.name.clone();
        let vhost = Vhost { record, exchanges: Named::default(), queues: ByName::default() };
        self.vhosts.insert(name, vhost);
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
        }
    }

    pub(crate) fn set_state(&mut self, state: &CatalogState) {
        self.version = state.version;
        self.digest = Digest(state.digest);
        self.next_binding = state.next_binding;
        self.life = state.life;
        self.life_boot = state.life_boot;
        self.shape = state.shape;
    }

    /// The record of that key has changed, or is no more: every replica writes it, and the digest
    /// goes on.
    pub(crate) fn changed(&mut self, key: CatalogKey, out: &mut CatalogOutput) {
        let mut digest = self.digest;
        match &key {
            CatalogKey::State => {
                digest.word(1);
                digest.word(self.life);
                self.shape.iter().for_each(|shape| shape.feed(&mut digest));
            }
            CatalogKey::Vhost(name) => {
                note(&mut digest, 2, name, self.vhosts.get(name).map(|_| name))
            }
            CatalogKey::User(name) => note(&mut digest, 3, name, self.users.get(name)),
            CatalogKey::Node(node) => note(&mut digest, 4, node, self.nodes.get(node)),
            CatalogKey::Exchange(name) => note(&mut digest, 5, name, self.exchange(name)),
            CatalogKey::Binding(id) => note(&mut digest, 6, id, self.bindings.get(id)),
            CatalogKey::Queue(id) => note(&mut digest, 7, id, self.queues.get(id)),
            CatalogKey::Policy(name) => note(&mut digest, 8, name, self.policies.get(name)),
            CatalogKey::Parameter(name) => {
                note(&mut digest, 9, name, self.parameter(name).as_ref());
            }
        }
        self.digest = digest;
        out.changes.push(key);
    }
}

/// Takes in which record it is, and what it is now.
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
