//! One group's queues as a pure state machine: no clock, no randomness, no I/O but through
//! [`MessageStore`]. The same log gives the same state, byte for byte, on every replica (DESIGN §4).

mod command;
mod config;
mod machine;
mod output;
mod record;
mod store;

pub use command::{
    Batch, Command, ConsumerTerms, Counts, Detach, Entry, Got, MessageHead, Numbers, Origin,
    QueueReport, Reply, ReturnCause, Run,
};
pub use config::{DeadLetter, QueueConfig};
pub use machine::{ConsumerView, Machine, QueueView};
pub use output::{Answer, Change, Delivery, Effect, Output, RecordKey};
pub use record::{
    ConsumerRecord, GetsRecord, GroupRecord, Held, LeftOver, LevelRecord, NodeRecord, QueueRecord,
    Record, RecordError, ReturnedRecord, SessionRecord,
};
pub use store::{MessageStore, RunHead, StoreError};
