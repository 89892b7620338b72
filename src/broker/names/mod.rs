//! The catalog as this node uses it: its copy, proposals to the leader, and the routing lease that
//! says when the copy may be routed by.

mod catalog_client;
mod catalog_copy;
pub(crate) mod exclusive;
mod formation;
mod grants;
mod lease;
pub(crate) mod queues;

pub(crate) use catalog_client::CatalogClient;
pub(crate) use catalog_copy::CatalogCopy;
pub(crate) use grants::Granting;
pub(crate) use lease::RoutingLease;
