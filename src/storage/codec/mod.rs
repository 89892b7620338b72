//! The encodings of everything on disk and in log entries. Each value begins with a format version.

pub mod answer;
pub mod batch;
pub mod catalog;
mod catalog_access;
mod catalog_members;
mod catalog_parts;
mod catalog_policy;
mod catalog_record;
pub mod catalog_reply;
mod catalog_tasks;
mod chain;
mod command;
mod config;
pub(crate) mod cursor;
pub(crate) mod key;
mod letter;
pub mod log;
pub mod message;
pub mod queue;
mod queued_message;
mod record;
mod reply;
pub(crate) mod run;
mod task;

use quorate_types::MachineVersion;

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("truncated")]
    Truncated,
    /// A format version that this build does not know.
    #[error("unknown format version {0}")]
    Version(u8),
    /// A version of the replicated machine that this binary does not know (MEM 15).
    #[error(
        "the cluster's machine version is {found}, and this binary knows versions up to {newest}: \
         a newer quorate is needed"
    )]
    Machine {
        /// The version that was found.
        found: u32,
        /// The newest version known here.
        newest: MachineVersion,
    },
    /// A value that is not defined.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// Bytes are left after the value.
    #[error("trailing bytes")]
    LeftOver,
}
