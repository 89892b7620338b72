//! One group's queues as a pure state machine: no clock, no randomness, no I/O but through
//! [`MessageStore`]. The same log gives the same state, byte for byte, on every replica (DESIGN §4).

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

mod apart;
mod enqueue;
mod level;
mod sweep;

mod active;
mod checkout;
mod consumer;
mod death;
mod delay;
mod held;
mod timeout;
mod turns;

mod get;
mod purge;
mod settle;

mod left_over;
mod node;

mod expire;
mod lease;
mod letter;
mod letter_block;
mod letter_view;
mod letter_worker;
mod limit;
mod number_set;
mod outbox;
mod tally;
mod transfer;
mod wake;
mod ways;

mod digest;
mod load;
mod view;

pub use command::{
    Batch, Command, ConsumerTerms, Counts, Detach, Entry, Got, MessageHead, Numbers, Origin,
    QueueReport, Reply, ReturnCause, RoutedLetters, Routes, Run, TransferAnswer,
};
pub use config::{DeadLetter, QUORUM_DELIVERY_LIMIT, QueueConfig};
pub use death::DeathReason;
pub use letter::{LETTERS_MAX, Letter, Routing, Stage, Transfer, Via};
pub use letter_view::{LetterView, TargetView, TransferView};
pub use letter_worker::{Destination, LetterWorker, LiveLetters, Unrouted};
pub use machine::Machine;
pub use outbox::RETRY_MAX;
pub use output::{Answer, Change, Delivery, Effect, Output, RecordKey};
pub use record::{
    ConsumerRecord, GetsRecord, GroupRecord, Held, LeftOver, LettersRecord, LevelRecord,
    NodeRecord, QueueRecord, Record, RecordError, ReturnedRecord, Round, SessionRecord,
};
pub use store::{MessageStore, RunHead, StoreError};
pub use tally::{DeadLetterFact, DeadLetterStrategy};
pub use view::{ConsumerView, QueueView};
