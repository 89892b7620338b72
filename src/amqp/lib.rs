//! AMQP 0-9-1: the protocol between clients and the broker (amqp-semantics.md, sections A to F).
//!
//! Clients can use `codec` too. `connection` and `channel` are pure state machines; only `socket`
//! reads and writes, and only `listener` accepts connections.

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
mod ports;
mod session;
mod tls;

mod fuzz;

pub use fuzz::{fuzz_client, fuzz_frames, fuzz_payloads};
pub use listener::serve;
pub use ports::{Listeners, PortSwitch};
pub use tls::TlsListener;

#[cfg(test)]
mod transcript;
