//! What is seen and changed of a node by lists, metrics and operators.

pub(crate) mod administration;
pub(crate) mod attempts;
pub mod browse;
pub(crate) mod cluster;
pub(crate) mod counters;
pub(crate) mod dry_run;
pub(crate) mod excess;
pub(crate) mod exchange_counters;
pub(crate) mod explain;
pub(crate) mod figures;
pub(crate) mod group_view;
pub(crate) mod lookup;
pub(crate) mod member_view;
pub(crate) mod metrics;
pub(crate) mod operator;
pub(crate) mod query;
pub(crate) mod sampled;
pub(crate) mod turns;
pub mod view;
pub(crate) mod waits;
