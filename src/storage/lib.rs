//! What a node keeps on disk: one RocksDB, one writer, one sync for all groups (DESIGN §3, STO).

mod entry;

pub use entry::{CommandEntry, EntryId, LogEntry, Payload, RunBodies};
