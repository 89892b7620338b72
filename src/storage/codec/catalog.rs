//! Entries and state records of the catalog group.

use super::DecodeError;
use bytes::Bytes;
use quorate_catalog::CatalogEntry;

/// Encodes an entry.
#[must_use]
pub fn encode_entry(entry: &CatalogEntry) -> Bytes {
    let _ = entry;
    todo!()
}

/// Decodes an entry.
///
/// # Errors
/// Octets that are no entry.
pub fn decode_entry(octets: &[u8]) -> Result<CatalogEntry, DecodeError> {
    let _ = octets;
    todo!()
}
