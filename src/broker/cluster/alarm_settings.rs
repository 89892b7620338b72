//! Watermarks of the alarms, as settings and operators give them.

use std::path::PathBuf;

/// Watermarks of this node's alarms.
#[derive(Clone, Copy, Debug)]
pub struct AlarmBounds {
    /// Resident memory above which publishers are blocked, bytes.
    pub memory_high_watermark: u64,
    /// Free space of the data directory's file system below which they are, bytes.
    pub disk_free_limit: u64,
}

/// Settings of this node's alarms.
#[derive(Clone, Debug)]
pub struct AlarmSettings {
    /// The watermarks until an operator sets others.
    pub bounds: AlarmBounds,
    /// Memory of the machine, bytes.
    pub machine_memory_bytes: u64,
    /// The data directory, whose file system is measured. Empty on a simulated disk, which is not.
    pub data_dir: PathBuf,
    /// Returns memory that the allocator keeps for later to the system. It may take some tens of
    /// milliseconds.
    pub return_free_memory: fn(),
}

/// An amount as an operator gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of bytes.
    Bytes(u64),
    /// A part of the machine's memory, 0 to 1.
    OfMemory(f64),
}

impl Amount {
    /// Bytes on a machine that has `memory_bytes`.
    #[must_use]
    pub fn bytes_of(self, memory_bytes: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a bound need not be exact, and what is below 0 becomes 0"
            )]
            Self::OfMemory(fraction) => (memory_bytes as f64 * fraction) as u64,
        }
    }
}
