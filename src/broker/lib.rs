//! The broker of one node, in rooms (DESIGN §4 to §7):
//!
//! - `front`: what a client's node does: it routes, proposes, delivers and settles.
//! - `leader`: what the leader of a group does: it makes entries, performs effects, sends dead letters.
//! - `names`: the catalog, and how queues are declared, deleted and given their settings.
//! - `cluster`: this node's starts, the other nodes' failures, alarms, draining.
//! - `peers`: messages between nodes, and from a node to itself.
//! - `views`: what lists, metrics and operators see and change.
//!
//! `base` holds what all rooms use; `node` puts the rooms together. `front` and `leader` do not call
//! each other: what one has for the other goes through `peers`, also on the same node.
//!
//! The path of a publish: `front::publish` routes it, `front::batch` and `front::proposer` number
//! and send it, `leader::sequencer` makes it part of an entry, `leader::executor` answers once the
//! entry is applied, and `front::confirm` sends the confirm to the connection.

mod base;
mod broker;
mod cluster;
mod context;
mod front;
mod leader;
mod names;
mod node;
mod once_per_minute;
mod peers;
mod registry;
mod settings;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_state;
mod views;

/// The generated messages of `proto/broker.proto`.
mod pb {
    include!(concat!(env!("OUT_DIR"), "/quorate.broker.v1.rs"));
}

// Requests of clients and the events that they get.
use quorate_client::{self as client, memory};

pub use broker::Broker;
pub use cluster::{
    alarm_settings::{AlarmBounds, AlarmSettings, Amount},
    entrance::{Applicant, Entrance, Joined, MemberError},
    maintenance::Left,
    operations::{ForgetError, Kept, Rebalanced},
};
pub use front::{access::ChangeError, connection::Connection};
pub use leader::{clock::WallClock, local::SpillSettings};
pub use names::{
    definitions::{ImportError, Imported},
    tasks::{TaskError, TaskRequest},
};
pub use quorate_client::{
    FrontSettings, SocketReport,
    memory::{Share, ShareFigures},
};
pub use quorate_raft::{DrainError, TransferError};
pub use settings::{BrokerSettings, NodeLimits};
pub use views::{
    administration::{DryRuns, MessageTasks, Operator, Views},
    browse,
    dry_run::{DryRun, QUEUES_MAX},
    excess::{Bounds, Excess},
    explain::{DeadLetterPath, Explanation, Nowhere},
    lookup::Lookup,
    operator::{Closing, PasswordError, hash_password},
    view,
};
