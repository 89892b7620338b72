//! The catalog as this node uses it: its copy, proposals to the leader, and the routing lease that
//! says when the copy may be routed by.

pub(crate) mod configure;
pub(crate) mod configure_plan;
pub(crate) mod declare;
pub(crate) mod declare_exclusive;
pub(crate) mod definitions;
pub(crate) mod delayed;
pub(crate) mod delete;
pub(crate) mod make_in_turn;
pub(crate) mod making;
pub(crate) mod policies;
pub(crate) mod tasks;

mod catalog_client;
mod catalog_copy;
pub(crate) mod exclusive;
mod formation;
mod grants;
mod lease;
pub(crate) mod queues;

pub(crate) use catalog_client::CatalogClient;
pub(crate) use catalog_copy::CatalogCopy;
pub(crate) use grants::{BOUND as LEASE_BOUND, Granting};
pub(crate) use lease::RoutingLease;
