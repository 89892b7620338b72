//! A catalog for tests: short constructors of commands, one entry for each command.

#![expect(dead_code, reason = "every test file takes what it needs")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

pub mod members;

use quorate_catalog::{
    AccessCommand, Binding, Catalog, CatalogCommand, CatalogEntry, CatalogEvent, CatalogKey,
    CatalogOutput, CatalogReply, ConnectionId, Denial, Destination, ExchangeRecord, ExchangeType,
    Locality, PolicyKind, PolicyRecord, PolicyText, QueueEntry, RouteError, RouteRequest,
};
use quorate_types::{
    BootNumber, CatalogIndex, FieldTable, FieldValue, GroupId, Home, Incarnation, NodeId,
    Properties, QueueId, QueueType, ResourceName, SessionId, ShortString, Stamp, StartNumber,
};
use std::cell::Cell;

pub fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

pub fn name(text: &str) -> ResourceName {
    ResourceName { vhost: short("/"), name: short(text) }
}

pub fn table(fields: &[(&str, FieldValue)]) -> FieldTable {
    FieldTable(fields.iter().map(|(name, value)| (short(name), value.clone())).collect())
}

pub fn text(value: &str) -> FieldValue {
    FieldValue::text(value)
}

/// A replicated queue's id in group 1.
pub fn id(index: u64) -> QueueId {
    QueueId { home: Home::Group(GroupId(1)), index, position: 0 }
}

/// A connection-bound queue's id.
pub fn bound_id(node: u16, start: u64, position: u64) -> QueueId {
    QueueId { home: Home::Node(NodeId(node)), index: start, position }
}

pub fn session(node: u16, start: u64) -> SessionId {
    SessionId { node: NodeId(node), start: StartNumber(start) }
}

pub fn connection(node: u16, start: u64, number: u64) -> ConnectionId {
    ConnectionId { session: session(node, start), number }
}

pub fn exchange(text: &str, kind: ExchangeType) -> ExchangeRecord {
    ExchangeRecord {
        name: name(text),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: FieldTable::default(),
    }
}

pub fn queue(text: &str, id: QueueId) -> QueueEntry {
    QueueEntry {
        name: name(text),
        id,
        creator: session(99, 1),
        queue_type: QueueType::Classic,
        durable: true,
        auto_delete: false,
        owner: None,
        arguments: FieldTable::default(),
    }
}

pub fn to_queue(source: &str, key: &str, queue: &str, id: QueueId) -> Binding {
    Binding {
        source: name(source),
        destination: Destination::Queue { name: short(queue), id },
        key: short(key),
        arguments: FieldTable::default(),
    }
}

pub fn to_exchange(source: &str, key: &str, exchange: &str) -> Binding {
    Binding {
        source: name(source),
        destination: Destination::Exchange(short(exchange)),
        key: short(key),
        arguments: FieldTable::default(),
    }
}

/// A policy of virtual host `/`, its definition written in JSON.
pub fn policy(
    text: &str,
    kind: PolicyKind,
    pattern: &str,
    apply_to: &str,
    priority: i64,
    definition: &str,
) -> PolicyRecord {
    let (vhost, name) = (short("/"), short(text));
    let text = PolicyText { kind, vhost: &vhost, name: &name, pattern, apply_to, priority };
    text.parse(definition).unwrap()
}

/// Properties of a message that has only headers.
pub fn with_headers(table: &FieldTable) -> Properties {
    let plain = Properties::parse(bytes::Bytes::from_static(&[0, 0])).unwrap();
    Properties::parse(plain.with_headers(Some(table)).unwrap()).unwrap()
}

thread_local! {
    /// A counter of each test: one that all of them shared would skip numbers, so that a test would not choose evenly.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Replaces the random source: consecutive numbers.
pub fn in_turn() -> u64 {
    NEXT.with(|next| next.replace(next.get() + 1))
}

/// All queues except these are local.
#[derive(Debug, Default)]
pub struct Elsewhere(pub Vec<QueueId>);

impl Locality for Elsewhere {
    fn is_local(&self, queue: QueueId) -> bool {
        !self.0.contains(&queue)
    }

    fn is_known(&self, home: Home) -> bool {
        !matches!(home, Home::Node(node) if node.0 > 9)
    }
}

/// A catalog and the index of its last entry.
pub struct World {
    pub catalog: Catalog,
    pub index: u64,
    pub out: CatalogOutput,
    pub elsewhere: Elsewhere,
}

impl World {
    pub fn new() -> Self {
        let (out, elsewhere) = (CatalogOutput::default(), Elsewhere::default());
        Self { catalog: Catalog::new(), index: 0, out, elsewhere }
    }

    /// Applies one entry; its output stays in `out`.
    pub fn apply(&mut self, commands: Vec<CatalogCommand>) -> Vec<CatalogReply> {
        self.index += 1;
        self.out.clear();
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        self.catalog.apply(CatalogIndex(self.index), &entry, &mut self.out);
        self.out.replies.clone()
    }

    pub fn one(&mut self, command: CatalogCommand) -> CatalogReply {
        self.apply(vec![command]).pop().unwrap()
    }

    pub fn done(&mut self, command: CatalogCommand) {
        let reply = self.one(command.clone());
        assert_eq!(reply, CatalogReply::Done, "{command:?}");
    }

    pub fn access(&mut self, command: AccessCommand) {
        self.done(CatalogCommand::Access(command));
    }

    /// The refusal of an operator's command.
    pub fn denial(&mut self, command: AccessCommand) -> Denial {
        let reply = self.one(CatalogCommand::Access(command));
        let CatalogReply::Denied(denial) = reply else { panic!("not denied: {reply:?}") };
        denial
    }

    pub fn declare(&mut self, text: &str, kind: ExchangeType) {
        self.done(CatalogCommand::DeclareExchange(exchange(text, kind)));
    }

    pub fn add(&mut self, text: &str, index: u64) {
        self.done(CatalogCommand::AddQueue(queue(text, id(index))));
    }

    pub fn bind(&mut self, binding: Binding) {
        self.done(CatalogCommand::Bind(binding));
    }

    pub fn started(&mut self, node: u16, boot: u64) -> CatalogReply {
        self.one(started(node, boot))
    }

    /// Ids of the queues that a message goes to, sorted; without headers or further keys.
    pub fn route(&self, exchange: &str, key: &str) -> Vec<QueueId> {
        self.route_by(exchange, &[key], None).unwrap()
    }

    pub fn route_by(
        &self,
        exchange: &str,
        keys: &[&str],
        headers: Option<&FieldTable>,
    ) -> Result<Vec<QueueId>, RouteError> {
        let keys: Vec<ShortString> = keys.iter().map(|key| short(key)).collect();
        let (routing_key, further_keys) = keys.split_first().unwrap();
        let properties = headers.map(with_headers).unwrap_or_default();
        self.route_with(exchange, routing_key, further_keys, &properties)
    }

    pub fn route_with(
        &self,
        exchange: &str,
        routing_key: &ShortString,
        further_keys: &[ShortString],
        properties: &Properties,
    ) -> Result<Vec<QueueId>, RouteError> {
        let (vhost, exchange) = (short("/"), short(exchange));
        let request = RouteRequest {
            vhost: &vhost,
            exchange: &exchange,
            routing_key,
            further_keys,
            properties,
            chance: in_turn,
            locality: &self.elsewhere,
            by_broker: false,
        };
        let mut targets = Vec::new();
        self.catalog.route(&request, &mut targets)?;
        targets.sort_unstable();
        Ok(targets)
    }

    /// The text of the refusal that the client gets.
    pub fn refusal(&mut self, command: CatalogCommand) -> String {
        let reply = self.one(command);
        let CatalogReply::Refused(exception) = reply else { panic!("not refused: {reply:?}") };
        format!("{} {}", exception.code.number(), exception.reply_text())
    }

    pub fn events(&self) -> &[CatalogEvent] {
        &self.out.events
    }

    /// A catalog from this one's records.
    pub fn reloaded(&self) -> Catalog {
        let keys = std::iter::once(CatalogKey::State).chain(self.catalog.keys());
        let records = keys.map(|key| {
            let record = self.catalog.record(&key).unwrap();
            (key, record)
        });
        Catalog::load(records.collect::<Vec<_>>()).unwrap()
    }
}

pub fn started(node: u16, boot: u64) -> CatalogCommand {
    CatalogCommand::NodeStarted {
        node: NodeId(node),
        incarnation: Incarnation(u64::from(node)),
        boot: BootNumber(boot),
        rpc_address: format!("host{node}:7672"),
        amqp_address: format!("host{node}:5672"),
    }
}
