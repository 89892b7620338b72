//! Links between the nodes of a cluster: membership of processes, and messages over gRPC.
//!
//! Each node dials every other one and opens two streams to it, a *control* lane for small and
//! urgent messages and a *bulk* lane for large ones (DESIGN §6). A sends to B over the streams that
//! A dialed; answers return on them.
//!
//! The first message of a stream in each direction is a *hello*: node, process and data directory
//! of the sender. An objection to it is a *refusal*. A permanent refusal is sent back as a
//! *rejection*. When enough others reject a process that was never one of them it is *rejected*: it
//! does not belong to the cluster, and should end.

pub mod chance;

// Sending of messages.
mod link_config;
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
mod roster;
mod server;
mod sockets;

// Authentication.
mod door;
mod handshake;
mod secret;

// Processes, and membership.
mod hello;
mod machine;

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
pub use bounded::Caller;
pub use call::{CallError, NotifyError, PendingCall};
pub use door::{Connector, Door};
pub use handshake::HandshakeError;
pub use hello::{ClusterCell, PROTOCOL_VERSION, PeerHello, Refusal};
pub use lane::{FRAME_BYTES_MAX, Lane, MESSAGE_BYTES_MAX};
pub use link_config::LinkConfig;
pub use links::{LinkHandler, Links, Origin, Responder};
pub use machine::MachineCell;
pub use payload::Payload;
pub use peers::Cause;
pub use rejection::{Reason, Rejected};
pub use secret::{ClusterSecret, SECRET_BYTES_MIN, SecretError};
pub use server::{ListenError, Listener, server};
pub use sockets::{Accept, SimulatedConnect, Socket};
