//! AMQP 0-9-1: bytes to what a client means, and back (amqp-semantics.md, sections A to F).
//!
//! `codec` is for clients too. `connection` and `channel` are pure machines; `socket` is the only
//! place that reads and writes, `listener` the only one that accepts.

pub mod codec;

mod sasl;

mod channel;
mod connection;

mod outbox;
mod socket;

mod accounts;
mod client;
mod handshakes;
mod listener;
mod session;

mod fuzz;

pub use fuzz::{fuzz_client, fuzz_frames, fuzz_payloads};
pub use listener::serve;

#[cfg(test)]
mod transcript;
