//! One client connection, as pure machines: frames and time in, frames and actions out.

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
