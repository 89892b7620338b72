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
mod connection_state;
mod mailbox;

mod ask;
mod batch;
mod client_handle;
mod clients;
mod cluster;
mod commit;
mod confirm;
mod dead_letter;
mod direct_replies;
mod front;
mod held_publishes;
mod lead;
mod leader;
mod proposer;
mod proposers;
mod publish;
mod publisher;
mod replies;
mod reply_to;
mod route_held;
mod routed;
mod spread;
mod tally;
mod trace;
mod tracer;
mod transaction;

mod clock;
mod executor;
mod from_leaders;
mod get_answer;
mod leaderships;
mod led_homes;
mod local;
mod relief;
mod sequencer;
mod spill;
mod timer;
mod unfinished;

mod ack_timeout;
mod base;
mod bodies;
mod consume;
mod consumer;
mod context;
mod settle;
mod turns;
mod unwritten;

mod access;
mod administration;
mod counts;
mod limits;
mod login;
mod operator;
mod peers;
mod publish_access;

mod delayed;
mod delete;
mod exchanges;
mod exclusive;
mod make_in_turn;
mod making;
mod queues;

mod configure;
mod configure_plan;
mod definitions;
mod policies;

mod in_flight;
mod links;

mod alarm;
mod alarm_settings;
mod alarms;
mod counters;
mod failure;
mod failures;
mod handler;
mod hearing;
mod liveness;
mod metrics;
mod names;
mod node;
mod once_per_minute;
mod query;
mod reconcile;
mod reconcile_plan;
mod reconciler;
mod registry;
mod sink;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod testing_state;
mod way;

/// The generated messages of `proto/broker.proto`.
mod pb {
    include!(concat!(env!("OUT_DIR"), "/quorate.broker.v1.rs"));
}

// What clients ask for and are told.
use quorate_client::{self as client, memory};

pub use access::ChangeError;
pub use administration::{Operator, Views};
pub use alarm_settings::{AlarmBounds, AlarmSettings, Amount};
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
