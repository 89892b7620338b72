//! Interfaces for operators of a node: health, metrics, an API and a page over HTTP, and the admin service for
//! `quorate ctl`, which asks the other nodes if an answer needs them.

mod access;
mod admin;
mod api;
mod audit;
mod browser;
mod certificates;
mod changes;
mod convert;
mod facts;
mod http;
mod liveness;
mod members;
mod memory_uses;
mod merge;
mod message_json;
mod messages;
mod metrics;
mod name_filter;
mod page;
mod parts;
mod peers;
mod places;
mod policies;
mod process;
mod rates;
mod readiness;
mod shared_page;
mod source;
mod tasks;
#[cfg(test)]
mod tests;

/// The messages, clients and servers of `proto/admin.proto`, `proto/access.proto`,
/// `proto/events.proto`, `proto/members.proto`, `proto/messages.proto`, `proto/parts.proto`,
/// `proto/process.proto`, `proto/statistics.proto` and `proto/tasks.proto`.
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

    impl QueueCounts {
        /// RabbitMQ's consumer capacity at this moment: 1 if consumers take messages as they come, 0 if
        /// some wait or nobody consumes.
        #[must_use]
        pub fn consumer_capacity(&self) -> u64 {
            crate::convert::consumer_capacity(self.consumers, self.ready)
        }
    }
}

pub use access::AccessService;
pub use admin::AdminService;
pub use api::{FLAGS as FEATURE_FLAGS, api};
pub use audit::OPERATOR_METADATA;
pub use axum::Router;
pub use browser::Browser;
pub use certificates::{PERIOD_UNITS, certificates};
pub use facts::{ListenerFacts, Naming, NodeFacts};
pub use http::{health_pages, metric_pages, serve};
pub use liveness::Pulses;
pub use members::MemberService;
pub use memory_uses::memory_by_category;
pub use messages::MessageService;
pub use page::{EventRecorder, EventService, Sessions, event_json, page};
pub use parts::PartService;
pub use peers::Peers;
pub use policies::PolicyService;
pub use process::{LogLine, Process, ProcessService};
pub use rates::{Rates, Sampling, StatisticsService};
pub use readiness::log_readiness;
pub use source::Source;
pub use tasks::TaskService;
