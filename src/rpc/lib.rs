//! Links between the nodes of a cluster: who is there, and messages to them over gRPC.
//!
//! Each node dials every other one and opens two streams to it, a *control* lane for what is small
//! and urgent and a *bulk* lane for what is large (DESIGN §6). What A sends B goes over the streams
//! that A dialed; answers come back on them.
//!
//! The first message of a stream in each direction is a *hello*: who speaks, as which process, with
//! which data. What speaks against it is a *refusal*. One that will not pass by itself travels back
//! as a *rejection*, and when enough others reject a process that was never one of them it is
//! *rejected*: in the wrong place, and to end.

pub mod chance;

// The way of a message.
mod links;

mod call;
mod connection;
mod frame;
mod lane;
mod payload;

mod join;

// Both ends of a stream.
mod accept;
mod bounded;
mod dial;
mod server;
mod sockets;

// Who may come in.
mod door;
mod handshake;
mod secret;

// Who is there, and who belongs there.
mod hello;

mod peers;

mod admission;
mod rejection;

/// The generated messages of `proto/links.proto`.
mod wire {
    #![expect(
        clippy::allow_attributes_without_reason,
        clippy::too_many_lines,
        reason = "generated code"
    )]
    tonic::include_proto!("quorate.links.v1");
}

pub use accept::{Acceptor, LinkService};
pub use call::{CallError, NotifyError, PendingCall};
pub use door::{Connector, Door};
pub use handshake::HandshakeError;
pub use hello::{ClusterCell, PROTOCOL_VERSION, PeerHello, Refusal};
pub use lane::{FRAME_BYTES_MAX, Lane, MESSAGE_BYTES_MAX};
pub use links::{LinkConfig, LinkHandler, Links, Origin, Responder};
pub use payload::Payload;
pub use peers::Cause;
pub use rejection::{Reason, Rejected};
pub use secret::{ClusterSecret, SECRET_BYTES_MIN, SecretError};
pub use server::{ListenError, Listener, server};
pub use sockets::{Accept, SimulatedConnect, Socket};
