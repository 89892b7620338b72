//! What the cluster tests stand on: a harness that runs real clusters, a history of what clients saw,
//! and the invariants that every history must keep.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the crate is tests through and through: a failure is a panic that tells its story"
)]
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "tests"))]

pub mod chaos;
pub mod harness;
pub mod history;
pub mod invariant;
