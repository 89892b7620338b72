//! Snapshots of a group: its records in a RocksDB snapshot, streamed; received into files beside
//! the data (DESIGN §3).
//!
//! The stream is a sequence of records: section, lengths of key and value, key (without the group),
//! value; at the end a checksum of all earlier bytes. Keys of a section ascend.

mod download;
mod reader;

pub(crate) use download::{BODIES, Files, HEADS, read_state};
pub use download::{ReceivedSnapshot, SnapshotDownload};
pub use reader::SnapshotReader;

use crate::{codec::DecodeError, engine::Family};
use quorate_types::GroupId;

/// Maximum of bytes of one chunk of a stream.
pub(crate) const CHUNK_BYTES_MAX: usize = 256 << 10;

/// Sections of a stream, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Section {
    End = 0,
    Heads = 1,
    Bodies = 2,
    State = 3,
}

impl Section {
    fn of(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::End,
            1 => Self::Heads,
            2 => Self::Bodies,
            3 => Self::State,
            _ => return Err(DecodeError::Invalid("section")),
        })
    }

    /// The column family of its records.
    fn family(self, group: GroupId) -> Option<Family> {
        match self {
            Self::End => None,
            Self::Heads => Some(Family::Heads),
            Self::Bodies => Some(Family::Bodies),
            Self::State => Some(crate::batch::state_family(group)),
        }
    }
}
