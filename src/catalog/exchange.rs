//! Exchanges: declare, delete, and the objects that are removed with them (EXC-01 to EXC-11).

use crate::{
    alternate::{ALTERNATE, check_alternate},
    choice::{Choice, check_hashed},
    command::CatalogReply,
    delayed::{DELAYED_TYPE, check_delayed},
    equivalence::same_value,
    headers::Matcher,
    machine::{Catalog, Vhost},
    named::ByName,
    objects::{Binding, Destination, ExchangeRecord, ExchangeType},
    output::CatalogOutput,
    record::{BindingId, CatalogKey},
    refusal::{self, Subject},
    targets::Targets,
    topic::Topic,
};
use quorate_types::{Exception, FieldTable, ResourceName, ShortString, VhostName};
use std::collections::{BTreeMap, BTreeSet};

impl ExchangeType {
    /// The type of that name on the wire.
    ///
    /// # Errors
    /// 406 for any other name (EXC-02).
    pub fn parse(name: &str) -> Result<Self, Exception> {
        match name {
            "direct" => Ok(Self::Direct),
            "fanout" => Ok(Self::Fanout),
            "topic" => Ok(Self::Topic),
            "headers" => Ok(Self::Headers),
            "x-consistent-hash" => Ok(Self::ConsistentHash),
            "x-modulus-hash" => Ok(Self::ModulusHash),
            "x-random" => Ok(Self::Random),
            "x-local-random" => Ok(Self::LocalRandom),
            "x-delayed-message" => Ok(Self::Delayed),
            other => Err(refusal::unknown_exchange_type(other)),
        }
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
            Self::ConsistentHash => "x-consistent-hash",
            Self::ModulusHash => "x-modulus-hash",
            Self::Random => "x-random",
            Self::LocalRandom => "x-local-random",
            Self::Delayed => "x-delayed-message",
        }
    }
}

/// An exchange with the ids of its bindings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) record: ExchangeRecord,
    /// Bindings whose source is the exchange.
    pub(crate) outgoing: BTreeSet<BindingId>,
    /// Bindings whose destination is the exchange.
    pub(crate) incoming: BTreeSet<BindingId>,
    pub(crate) routes: Routes,
}

/// The outgoing bindings, indexed for routing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Routes {
    Direct(ByName<Targets>),
    Fanout(Targets),
    Topic(Topic),
    Headers(BTreeMap<BindingId, (Matcher, Targets)>),
    /// The message goes to one of all destinations (EXC-14, EXC-15).
    Choice(Choice),
}

impl Routes {
    fn new(exchange: &ExchangeRecord) -> Self {
        match exchange.routing_kind() {
            ExchangeType::Direct | ExchangeType::Delayed => Self::Direct(ByName::default()),
            ExchangeType::Fanout => Self::Fanout(Targets::default()),
            ExchangeType::Topic => Self::Topic(Topic::default()),
            ExchangeType::Headers => Self::Headers(BTreeMap::new()),
            ExchangeType::ConsistentHash => Self::Choice(Choice::consistent(exchange)),
            ExchangeType::ModulusHash => Self::Choice(Choice::by_modulus()),
            ExchangeType::Random => Self::Choice(Choice::by_chance()),
            ExchangeType::LocalRandom => Self::Choice(Choice::local()),
        }
    }

    /// Adds a binding.
    ///
    /// # Errors
    /// The arguments are invalid; `check_bind` refuses such a binding (RTE-08).
    pub(crate) fn add(&mut self, id: BindingId, binding: &Binding) -> Result<(), Exception> {
        match self {
            Self::Direct(keys) => {
                keys.entry(binding.key.clone()).or_default().add(&binding.destination);
            }
            Self::Fanout(targets) => targets.add(&binding.destination),
            Self::Topic(patterns) => patterns.add(&binding.key, &binding.destination),
            Self::Headers(matchers) => {
                let mut targets = Targets::default();
                targets.add(&binding.destination);
                matchers.insert(id, (Matcher::parse(&binding.arguments)?, targets));
            }
            Self::Choice(choice) => choice.add(binding)?,
        }
        Ok(())
    }

    /// Removes a binding.
    pub(crate) fn remove(&mut self, id: BindingId, binding: &Binding) {
        match self {
            Self::Direct(keys) => {
                let Some(targets) = keys.get_mut(&binding.key) else { return };
                targets.remove(&binding.destination);
                if targets.is_empty() {
                    keys.remove(&binding.key);
                }
            }
            Self::Fanout(targets) => targets.remove(&binding.destination),
            Self::Topic(patterns) => patterns.remove(&binding.key, &binding.destination),
            Self::Headers(matchers) => drop(matchers.remove(&id)),
            Self::Choice(choice) => choice.remove(binding),
        }
    }
}

impl Exchange {
    pub(crate) fn new(record: ExchangeRecord) -> Self {
        let routes = Routes::new(&record);
        Self { record, outgoing: BTreeSet::new(), incoming: BTreeSet::new(), routes }
    }

    /// EXC-09: an auto-delete exchange ends with the last binding that it is the source of.
    pub(crate) fn ends_unused(&self) -> bool {
        self.record.auto_delete && self.outgoing.is_empty()
    }
}

/// The exchanges of every virtual host; the default exchange is implicit (EXC-01).
pub(crate) fn of_every_vhost(vhost: &VhostName) -> impl Iterator<Item = ExchangeRecord> {
    let listed = [
        ("amq.direct", ExchangeType::Direct, false),
        ("amq.fanout", ExchangeType::Fanout, false),
        ("amq.headers", ExchangeType::Headers, false),
        ("amq.match", ExchangeType::Headers, false),
        ("amq.rabbitmq.trace", ExchangeType::Topic, true),
        ("amq.topic", ExchangeType::Topic, false),
    ];
    let vhost = vhost.clone();
    listed.into_iter().map(move |(name, kind, internal)| ExchangeRecord {
        name: ResourceName { vhost: vhost.clone(), name: ShortString::from_static(name) },
        kind,
        durable: true,
        auto_delete: false,
        internal,
        arguments: FieldTable::default(),
    })
}

/// Whether no client can declare an exchange or a queue of this name (EXC-03, QUE-09).
#[must_use]
pub fn is_reserved(name: &ShortString) -> bool {
    name.as_bytes().starts_with(b"amq.")
}

/// EXC-07: refuses a name that cannot be deleted, even if no such exchange exists, and before
/// permissions are checked (ACL-06).
///
/// # Errors
/// 403.
pub fn check_deletable(name: &ResourceName) -> Result<(), Exception> {
    if name.name.is_empty() {
        return Err(refusal::default_exchange());
    }
    if is_reserved(&name.name) {
        return Err(refusal::system_exchange(name));
    }
    Ok(())
}

/// EXC-04: the error names the first difference.
fn equivalent(current: &ExchangeRecord, declared: &ExchangeRecord) -> Result<(), Exception> {
    let subject = Subject { kind: "exchange", name: &current.name };
    if declared.kind != current.kind {
        return Err(subject.different("type", declared.kind.name(), current.kind.name()));
    }
    let properties = [
        ("durable", declared.durable, current.durable),
        ("auto_delete", declared.auto_delete, current.auto_delete),
        ("internal", declared.internal, current.internal),
    ];
    for (name, received, current) in properties {
        if received != current {
            return Err(subject.different(name, &received.to_string(), &current.to_string()));
        }
    }
    // For the other types the argument has no meaning (EXC-17).
    let delayed = (current.kind == ExchangeType::Delayed).then_some(DELAYED_TYPE);
    for argument in delayed.into_iter().chain([ALTERNATE]) {
        let (received, current) =
            (declared.arguments.get(argument), current.arguments.get(argument));
        if !same_value(received, current) {
            return Err(subject.different_argument(argument, received, current));
        }
    }
    Ok(())
}

impl Catalog {
    /// The answer that `exchange.declare` gets by this copy: the exchange if it exists and is
    /// equal, `None` if it would be new.
    ///
    /// # Errors
    /// As EXC-02 to EXC-04.
    pub fn check_exchange(
        &self,
        declared: &ExchangeRecord,
    ) -> Result<Option<&ExchangeRecord>, Exception> {
        let name = &declared.name;
        if name.name.is_empty() {
            return Err(refusal::default_exchange());
        }
        let vhost = self.vhosts.get(&name.vhost).ok_or_else(|| refusal::no_vhost(&name.vhost))?;
        if let Some(exchange) = vhost.exchanges.get(&name.name) {
            return equivalent(&exchange.record, declared).map(|()| Some(&exchange.record));
        }
        if is_reserved(&name.name) {
            return Err(refusal::reserved_exchange_name(name));
        }
        check_alternate(declared)?;
        check_hashed(declared)?;
        check_delayed(declared)?;
        Ok(None)
    }

    /// Checks that clients may publish to the exchange; permissions are checked elsewhere (PUB-01,
    /// EXC-10).
    ///
    /// # Errors
    /// 404, 403.
    pub fn check_publishable(&self, name: &ResourceName) -> Result<(), Exception> {
        if name.name.is_empty() {
            return Ok(());
        }
        match self.exchange(name) {
            Some(exchange) if exchange.internal => Err(refusal::internal_exchange(name)),
            Some(_) => Ok(()),
            None => Err(refusal::no_exchange(name)),
        }
    }

    /// The alternate exchange that the arguments of a declare name.
    #[must_use]
    pub fn declared_alternate(arguments: &FieldTable) -> Option<ShortString> {
        let bytes = arguments.get(ALTERNATE)?.as_long_string()?;
        ShortString::from_bytes(bytes.clone()).ok()
    }

    /// A passive `exchange.declare` (EXC-06): a read.
    ///
    /// # Errors
    /// 403 for the default exchange, 404 for an exchange that does not exist.
    pub fn declared_exchange(&self, name: &ResourceName) -> Result<&ExchangeRecord, Exception> {
        if name.name.is_empty() {
            return Err(refusal::default_exchange());
        }
        self.exchange(name).ok_or_else(|| refusal::no_exchange(name))
    }

    /// The exchange of that name. The default exchange is implicit and has no record.
    #[must_use]
    pub fn exchange(&self, name: &ResourceName) -> Option<&ExchangeRecord> {
        self.exchange_of(name).map(|exchange| &exchange.record)
    }

    /// All exchanges except the default ones, sorted by name.
    pub fn exchanges(&self) -> impl Iterator<Item = &ExchangeRecord> {
        fn of(vhost: &Vhost) -> impl Iterator<Item = &ExchangeRecord> {
            vhost.exchanges.iter().map(|(_, exchange)| &exchange.record)
        }
        self.vhosts.iter().flat_map(|(_, vhost)| of(vhost))
    }

    pub(crate) fn exchange_of(&self, name: &ResourceName) -> Option<&Exchange> {
        self.vhosts.get(&name.vhost)?.exchanges.get(&name.name)
    }

    pub(crate) fn exchange_mut(&mut self, name: &ResourceName) -> Option<&mut Exchange> {
        self.vhosts.get_mut(&name.vhost)?.exchanges.get_mut(&name.name)
    }

    pub(crate) fn declare_exchange(
        &mut self,
        declared: &ExchangeRecord,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        match self.check_exchange(declared) {
            Err(refused) => CatalogReply::Refused(refused),
            Ok(Some(_)) => CatalogReply::Done,
            Ok(None) => {
                let record = self.kept_exchange(declared);
                let key = CatalogKey::Exchange(record.name.clone());
                self.insert_exchange(record);
                self.changed(key, out);
                CatalogReply::Done
            }
        }
    }

    /// A copy of the record whose names do not share the memory of the log entry.
    fn kept_exchange(&self, declared: &ExchangeRecord) -> ExchangeRecord {
        let vhost = self.vhosts.kept_name(&declared.name.vhost).unwrap_or(&declared.name.vhost);
        let name = ResourceName { vhost: vhost.clone(), name: declared.name.name.detached() };
        ExchangeRecord { name, arguments: declared.arguments.detached(), ..declared.clone() }
    }

    /// Inserts an exchange without bindings; its virtual host exists.
    pub(crate) fn insert_exchange(&mut self, record: ExchangeRecord) {
        if let Some(vhost) = self.vhosts.get_mut(&record.name.vhost) {
            vhost.exchanges.insert(record.name.name.clone(), Exchange::new(record));
        }
    }

    pub(crate) fn delete_exchange(
        &mut self,
        name: &ResourceName,
        if_unused: bool,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if let Err(refused) = check_deletable(name) {
            return CatalogReply::Refused(refused);
        }
        let Some(exchange) = self.exchange_of(name) else { return CatalogReply::Done };
        if if_unused && !exchange.outgoing.is_empty() {
            return CatalogReply::Refused(refusal::exchange_in_use(name));
        }
        self.remove_exchanges(vec![name.clone()], out);
        CatalogReply::Done
    }

    /// Removes exchanges with all their bindings, and the auto-delete exchanges that lose their
    /// last binding (EXC-08, EXC-09). The cost is a few microseconds for each binding.
    pub(crate) fn remove_exchanges(
        &mut self,
        mut names: Vec<ResourceName>,
        out: &mut CatalogOutput,
    ) {
        while let Some(name) = names.pop() {
            let Some(exchange) = self.exchange_of(&name) else { continue };
            let delay_queue = exchange.record.delay_queue();
            let ends: BTreeSet<BindingId> =
                exchange.outgoing.union(&exchange.incoming).copied().collect();
            for id in ends {
                names.extend(self.remove_binding(id, out).filter(|source| *source != name));
            }
            if let Some(vhost) = self.vhosts.get_mut(&name.vhost) {
                vhost.exchanges.remove(&name.name);
            }
            self.changed(CatalogKey::Exchange(name), out);
            if let Some(queue) = delay_queue {
                self.remove_delay_queue(&queue, out);
            }
        }
    }
}

impl Destination {
    /// The name of the queue or exchange.
    #[must_use]
    pub fn name(&self) -> &ShortString {
        match self {
            Self::Queue { name, .. } | Self::Exchange(name) => name,
        }
    }
}
