//! One client connection, as pure state machines: their input is frames and time, their output
//! frames and actions.

pub(crate) mod close;
pub(crate) mod handshake;
#[cfg(test)]
mod handshake_tests;
pub(crate) mod heartbeat;
pub(crate) mod held;
pub(crate) mod machine;
#[cfg(test)]
mod machine_tests;
pub(crate) mod progress;
pub(crate) mod properties;
pub(crate) mod report;
