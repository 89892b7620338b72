//! The catalog as a pure state machine: nodes, virtual hosts, exchanges, bindings, queue entries;
//! and routing from it. Every node holds a full copy and routes publishes from it (DESIGN §2).

mod command;
mod output;
mod record;

mod machine;

mod alternate;
mod binding;
mod exchange;
mod node;
mod queue_entry;

mod equivalence;
mod placement;
pub mod refusal;
mod server_name;

mod choice;
mod headers;
mod route;
mod targets;
mod topic;

mod digest;
mod named;

pub use command::{
    Binding, CatalogCommand, CatalogEntry, CatalogReply, ClusterShape, ConnectionId, Destination,
    ExchangeRecord, ExchangeType, QueueEntry,
};
pub use equivalence::{Redeclared, check_owner, equivalent};
pub use machine::Catalog;
pub use node::FORMER_BOOTS_MAX;
pub use output::{CatalogEvent, CatalogOutput};
pub use queue_entry::{check_queue_properties, effective, resolve_queue_type};
pub use record::{
    BindingId, CatalogKey, CatalogRecord, CatalogRecordError, CatalogState, NodeEntry, UserRecord,
    VhostRecord,
};
pub use route::{RouteError, RouteRequest};
pub use server_name::{server_given_name, server_named_queue};
