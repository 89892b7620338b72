//! The node's half of every client's work: routes, proposes, delivers, declares (DESIGN §4 to §7).
//!
//! The way of a publish: `publish` routes it, `batch` and `proposer` number and send it,
//! `sequencer` makes it part of an entry on the group's leader, `executor` answers once it is
//! applied, `confirm` tells the connection.

mod broker;
mod front_end;
mod settings;
pub mod view;

mod connection;
mod mailbox;

mod ask;
mod batch;
mod confirm;
mod dead_letter;
mod held_publishes;
mod proposer;
mod publish;
mod reply_to;
mod routed;
mod spread;
mod trace;
mod transaction;

mod clock;
mod executor;
mod local;
mod pace;
mod relief;
mod sequencer;
mod spill;
mod timer;
mod untold;

mod bodies;
mod consume;
mod consumer;
mod settle;
mod turns;
mod unwritten;

mod access;
mod limits;
mod login;
mod operator;

mod delayed;
mod delete;
mod exchanges;
mod exclusive;
mod making;
mod queues;

mod configure;
mod definitions;
mod policies;

mod catalog_client;
mod grants;
mod in_flight;
mod lease;
mod links;

mod alarm;
mod counters;
mod failure;
mod handler;
mod hearing;
mod metrics;
mod node;
mod once_per_minute;
mod query;
mod reconcile;
mod registry;
mod sink;
#[cfg(test)]
mod testing;
mod way;
mod wire;

/// The generated messages of `proto/broker.proto`.
mod pb {
    include!(concat!(env!("OUT_DIR"), "/quorate.broker.v1.rs"));
}

// What clients ask for and are told.
use quorate_client::{self as client, memory};

pub use access::ChangeError;
pub use alarm::{AlarmBounds, AlarmSettings, Amount};
pub use broker::Broker;
pub use clock::WallClock;
pub use connection::Connection;
pub use definitions::ImportError;
pub use local::SpillSettings;
pub use login::PASSWORD_BYTES_MAX;
pub use operator::{Closing, hash_password};
pub use quorate_client::{
    FrontSettings, SocketReport,
    memory::{Share, ShareFigures},
};
pub use settings::{BrokerSettings, NodeLimits};
