//! The catalog as a pure state machine: nodes, virtual hosts, exchanges, bindings, queue entries;
//! and routing from it. Every node holds a full copy and routes publishes from it (DESIGN §2).

mod command;

pub use command::{
    Binding, CatalogCommand, CatalogEntry, CatalogReply, ClusterShape, ConnectionId, Destination,
    ExchangeRecord, ExchangeType, QueueEntry,
};
