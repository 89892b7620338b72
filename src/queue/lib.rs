//! One group's queues as a pure state machine: no clock, no randomness, no I/O except through
//! [`MessageStore`]. The same log gives the same state, byte for byte, on every replica (DESIGN
//! §4).

mod command;
mod config;
mod output;
mod record;
mod store;

mod apply;
mod inbound;
mod machine;

mod lifecycle;
mod queue;

mod enqueue;
mod level;
mod refused_letters;
mod sweep;

mod active;
mod checkout;
mod consumer;
mod death;
mod death_reason;
mod delay;
mod service_queue;
mod timeout;
mod unacked;

mod get;
mod purge;
mod retries;
mod retry;
mod settle;
mod task;

mod last_resort;
mod left_over;
mod node;

mod expire;
mod letter;
mod letter_block;
mod letter_view;
mod letter_worker;
mod limit;
mod number_set;
mod outbox;
mod queue_ttl;
mod tally;
mod traffic;
mod transfer;
mod transfer_map;
mod wake;

mod digest;
mod load;
mod look;
mod look_merge;
mod view;
mod walk;

pub use command::{
    Batch, Command, ConsumerTerms, Counts, Detach, Entry, Got, MessageHead, Numbers, Origin,
    QueueReport, Reply, RequeueCause, RoutedLetters, Routes, Run, Take, TakeTo, TaskStep,
    TransferAnswer,
};
pub use config::{DeadLetter, QUORUM_DELIVERY_LIMIT, QueueConfig};
pub use death_reason::DeathReason;
pub use letter::{LETTERS_MAX, Letter, Routing, Stage, Taken, Transfer, Via};
pub use letter_view::{LetterView, TargetView, TransferView};
pub use letter_worker::{Destination, LetterWorker, LiveLetters, TargetState, Unrouted};
pub use look::{HeldPlace, LevelLook, MessagePlace, RankPlace};
pub use look_merge::{LookedAt, Part, Standing, merge};
pub use machine::Machine;
pub use outbox::RETRY_MAX;
pub use output::{Answer, Change, Delivery, Effect, Output, RecordKey};
pub use record::{
    Attempt, ConsumerRecord, DelayedRecord, GetsRecord, GroupRecord, LeftOver, LettersRecord,
    LevelRecord, NodeRecord, QueueRecord, QueuedMessage, Record, RecordError, RequeuedRecord,
    SessionRecord,
};
pub use retry::{DelayedRetry, RetryAfter};
pub use store::{MessageStore, RunHead, StoreError};
pub use tally::{DeadLetterFact, DeadLetterStrategy};
pub use task::{TASKS_OF_QUEUE_MAX, TaskCounts, TaskProgress};
pub use traffic::{Traffic, WAIT_BOUNDS_MS, Waits};
pub use view::{ConsumerView, QueueFigures, QueueView};
pub use walk::Walk;
