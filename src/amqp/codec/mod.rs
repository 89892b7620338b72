//! Bytes to frames to methods and back, in both directions, for servers and clients alike.
//!
//! `frame` cuts the stream, `hot` codes by hand what flows a hundred thousand times a second,
//! `cold` is everything else, `content` is the header and body behind a publish or a delivery.

pub mod cold;
pub mod content;
pub(crate) mod erlang;
pub mod frame;
pub mod hot;
pub mod method;
pub(crate) mod reader;
#[cfg(test)]
mod tests;

/// What a client sends first (CONN-01), and what a server answers to anything else.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
