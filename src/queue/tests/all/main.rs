//! Tests of the queue machine: transcripts of rules, a model, replay from records, the store's
//! invariant, and sessions whose batches arrive twice or with gaps.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

mod bounds;
mod delays;
mod invariant;
mod letter_model;
mod letter_model_tasks;
mod letter_worker;
mod letters;
mod local;
mod look;
mod model;
mod model_queue;
mod model_rules;
mod model_test;
mod ops;
mod ops_entries;
mod replay;
mod retries;
mod sessions;
mod store;
mod tasks;
mod transcripts;
mod world;
