//! Raft groups: openraft, with this project's log, replicas, links and leaderships around it.
//!
//! The crates above propose encoded entries, are informed of outcomes and leaderships through their
//! sinks, and never see openraft.

mod aligned_runtime;
mod codec;
mod openraft_rng;
mod type_config;

mod sink;
mod standing;

mod log_store;

mod catalog_replica;
mod digests;
mod machine;
mod queue_replica;
mod replica;
mod replica_name;
mod snapshot;

mod append_session;
mod inbox;
mod network;
mod pipeline;
mod placements;
mod placing;
mod service;
mod snapshot_session;

mod catch_up;
mod charter;
mod departures;
mod disk_wait;
mod draining;
mod followers;
mod founding;
mod gate;
mod group;
mod groups;
mod heartbeats;
mod lag;
mod last_resort;
mod leadership;
mod metrics;
mod purge;
mod reach;
mod read;
mod settings;
mod shared;
mod start_error;
mod starter;
mod succession;
mod watchdog;
mod written;

pub use charter::{
    CharterDenial, FoundingHello, FoundingStep, FoundingWait, next_founding_step, take_charter,
};
pub use codec::DecodeError;
pub use draining::DrainError;
pub use group::{Group, ProposeError, ReadError, WriteError};
pub use groups::{Groups, Sinks};
pub use inbox::Inbox;
pub use last_resort::{LastResortError, ReplicaSurvey, Survey};
pub use leadership::TransferError;
pub use machine::{GroupMachine, MachineError};
pub use metrics::{GroupMetrics, Number, Times};
pub use service::SERVICE_MAX;
pub use settings::{QUEUE_GROUPS, Settings};
pub use sink::{CatalogSink, FatalHook, GroupSink, QueueSink};
pub use standing::Leadership;
pub use start_error::StartError;
pub use written::written;
