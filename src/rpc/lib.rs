//! Links between the nodes of a cluster: who is there, and messages to them over gRPC.
//!
//! Each node dials every other one and opens two streams to it, a *control* lane for what is small
//! and urgent and a *bulk* lane for what is large (DESIGN §6). What A tells B goes over the streams
//! that A dialed; answers come back on them.

mod accept;
mod admission;
mod call;
mod connection;
mod dial;
mod frame;
mod hello;
mod join;
mod lane;
mod links;
mod payload;
mod peers;
mod rejection;
mod secret;
mod server;

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
pub use hello::{Cause, ClusterCell, PROTOCOL_VERSION, PeerHello, Refusal};
pub use lane::{FRAME_BYTES_MAX, Lane, MESSAGE_BYTES_MAX};
pub use links::{LinkConfig, LinkHandler, Links, Origin, Responder};
pub use payload::Payload;
pub use rejection::{Reason, Rejected};
pub use secret::{ClusterSecret, SECRET_BYTES_MIN, SecretError, SecretGuard};
pub use server::{ListenError, Listener, server};
