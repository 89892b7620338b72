//! Decoding of bytes to frames and methods, and encoding, in both directions, for servers and
//! clients.
//!
//! `frame` divides the stream into frames, `hot` codes the methods of every message by hand, `cold`
//! all other methods, and `content` the header and body of a publish or delivery.

pub mod cold;
pub mod content;
pub(crate) mod erlang;
pub mod frame;
pub mod hot;
pub mod method;
pub(crate) mod reader;
#[cfg(test)]
mod tests;

/// The header that a client sends first (CONN-01), and that a server sends in answer to any other
/// header.
pub const PROTOCOL_HEADER: [u8; 8] = *b"AMQP\x00\x00\x09\x01";
