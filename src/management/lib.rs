//! Interfaces for operators of a node: health and metrics over HTTP, and the admin service for
//! `quorate ctl`, which asks the other nodes if an answer needs them.

mod access;
mod admin;
mod api;
mod browser;
mod convert;
mod facts;
mod http;
mod liveness;
mod members;
mod merge;
mod message_json;
mod messages;
mod metrics;
mod peers;
mod policies;
mod readiness;
mod source;
#[cfg(test)]
mod tests;

/// The messages, clients and servers of `proto/admin.proto`, `proto/access.proto`,
/// `proto/members.proto` and `proto/messages.proto`.
pub mod wire {
    #![expect(
        missing_docs,
        clippy::too_many_lines,
        clippy::allow_attributes_without_reason,
        reason = "generated code"
    )]
    tonic::include_proto!("quorate.admin.v1");

    /// Version that callers name in every request.
    pub const VERSION: u32 = 1;

    /// The caller field of every request of this program.
    #[must_use]
    pub fn caller() -> Option<Caller> {
        Some(Caller { version: VERSION })
    }
}

pub use access::AccessService;
pub use admin::AdminService;
pub use api::api;
pub use axum::Router;
pub use browser::Browser;
pub use facts::{ListenerFacts, Naming, NodeFacts};
pub use http::{router, serve};
pub use liveness::Pulses;
pub use members::MemberService;
pub use messages::MessageService;
pub use peers::Peers;
pub use policies::PolicyService;
pub use readiness::log_readiness;
pub use source::Source;
