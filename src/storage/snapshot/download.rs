//! Receiving a group's snapshot: the stream goes to a file; when it is complete, its runs are
//! written to table files that RocksDB ingests at once, so that the install itself is short (STO
//! 6).

use super::Section;
use crate::{
    EntryId, StorageError,
    codec::DecodeError,
    engine::{Engine, Family, Folder, Output, Table, file},
};
use bytes::Bytes;
use quorate_types::GroupId;
use std::{
    io::{BufReader, BufWriter, Read, Write},
    sync::Arc,
};

/// Maximum of bytes of a key; no valid key is longer.
const KEY_BYTES_MAX: u64 = 1024;

/// Maximum of bytes of a value: a run is at most one entry.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// Bytes received between two checks of the disk's free space.
const CHECK_BYTES: u64 = 8 << 20;

/// Names of the files of a received snapshot.
pub(crate) const HEADS: &str = "heads.sst";
pub(crate) const BODIES: &str = "bodies.sst";
const STATE: &str = "state";
const STREAM: &str = "stream";

/// The files of one received snapshot. They are removed when dropped, unless an install has taken
/// them over.
pub(crate) struct Files {
    pub(crate) folder: Folder,
    keep: bool,
}

impl Files {
    pub(crate) fn of(folder: Folder) -> Self {
        Self { folder, keep: false }
    }

    /// Whether the files are kept when this is dropped.
    pub(crate) fn keep(&mut self, keep: bool) {
        self.keep = keep;
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = self.folder.remove_all()
        {
            let name = String::from_utf8_lossy(self.folder.name());
            tracing::warn!("cannot remove the received snapshot {name}: {error}");
        }
    }
}

/// A snapshot that is being received. When dropped, it removes its files.
pub struct SnapshotDownload {
    engine: Arc<Engine>,
    group: GroupId,
    applied: EntryId,
    meta: Bytes,
    stream: BufWriter<Box<dyn Output>>,
    files: Files,
    /// Bytes that the sender has announced; it may send more.
    expected: u64,
    received: u64,
    /// Bytes received at which the disk's free space is checked.
    next_check: u64,
}

impl SnapshotDownload {
    pub(crate) fn begin(
        engine: Arc<Engine>,
        group: GroupId,
        applied: EntryId,
        expected: u64,
        meta: Bytes,
    ) -> Result<Self, StorageError> {
        // Space for the stream, and for the tables made of it.
        engine.check_room(expected.saturating_mul(2))?;
        let files = Files::of(engine.new_folder(&format!("g{group}-{}", applied.index)));
        let action = "cannot create the files of a snapshot";
        let stream = BufWriter::new(files.folder.create(STREAM).map_err(file(action))?);
        let (received, next_check) = (0, CHECK_BYTES);
        Ok(Self { engine, group, applied, meta, stream, files, expected, received, next_check })
    }

    /// Writes the next chunk. Blocks for the disk.
    ///
    /// # Errors
    /// `NoRoom`, or a failed write.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), StorageError> {
        self.received += chunk.len() as u64;
        if self.received >= self.next_check {
            self.next_check = self.received + CHECK_BYTES;
            // The rest of the stream, and the tables of the whole stream.
            let whole = self.expected.max(self.received + CHECK_BYTES);
            self.engine.check_room((whole - self.received).saturating_add(whole))?;
        }
        self.stream.write_all(chunk).map_err(file("cannot write a snapshot"))
    }

    /// Called after the last chunk: makes the files that an install ingests. Blocks for the disk.
    ///
    /// # Errors
    /// A failed write, or an incomplete stream.
    pub fn complete(self) -> Result<ReceivedSnapshot, StorageError> {
        let Self { engine, group, applied, meta, mut stream, files, .. } = self;
        stream.flush().map_err(file("cannot write a snapshot"))?;
        drop(stream);
        check(&files.folder)?;
        convert(&engine, group, &files.folder)?;
        files.folder.remove(STREAM).map_err(file("cannot remove a snapshot's stream"))?;
        files.folder.sync_names().map_err(file("cannot sync a snapshot's directory"))?;
        Ok(ReceivedSnapshot { group, applied, meta, files })
    }
}

/// A completely received snapshot, for [`crate::GroupStore::install`]. When dropped, it removes its
/// files.
pub struct ReceivedSnapshot {
    pub(crate) group: GroupId,
    pub(crate) applied: EntryId,
    pub(crate) meta: Bytes,
    pub(crate) files: Files,
}

impl ReceivedSnapshot {
    /// Last entry that it contains.
    #[must_use]
    pub fn applied(&self) -> EntryId {
        self.applied
    }

    /// The data that the sender's raft crate stored with its checkpoint.
    #[must_use]
    pub fn meta(&self) -> &Bytes {
        &self.meta
    }
}

fn invalid(what: &'static str) -> StorageError {
    StorageError::Corrupt { what: "received snapshot".into(), source: DecodeError::Invalid(what) }
}

/// Checks the checksum at the end of the stream.
fn check(folder: &Folder) -> Result<(), StorageError> {
    let action = "cannot read a received snapshot";
    let (mut stream, length) = folder.open(STREAM).map_err(file(action))?;
    let mut left = length.checked_sub(4).ok_or_else(|| invalid("length"))?;
    let mut checksum = crc32fast::Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let part = buffer.get_mut(..wanted).unwrap_or_default();
        stream.read_exact(part).map_err(file(action))?;
        checksum.update(part);
        left -= wanted as u64;
    }
    let mut found = [0; 4];
    stream.read_exact(&mut found).map_err(file(action))?;
    if u32::from_be_bytes(found) == checksum.finalize() { Ok(()) } else { Err(invalid("checksum")) }
}

/// Divides the stream: runs into table files, state into a separate file, all synced.
fn convert(engine: &Engine, group: GroupId, folder: &Folder) -> Result<(), StorageError> {
    let (heads, bodies) =
        (engine.table_options(Family::Heads), engine.table_options(Family::Bodies));
    let mut heads = Table::new(&heads, folder, HEADS);
    let mut bodies = Table::new(&bodies, folder, BODIES);
    let write = "cannot write a snapshot's state";
    let mut state = BufWriter::new(folder.create(STATE).map_err(file(write))?);
    let (stream, _) = folder.open(STREAM).map_err(file("cannot read a received snapshot"))?;
    let mut records = Records { stream: BufReader::with_capacity(1 << 20, stream) };
    while let Some((section, key, value)) = records.next(group)? {
        match section {
            Section::Heads => heads.put(&key, &value)?,
            Section::Bodies => bodies.put(&key, &value)?,
            Section::State => put_state(&mut state, &key, &value).map_err(file(write))?,
            Section::End => {}
        }
    }
    heads.finish()?;
    bodies.finish()?;
    let mut state = state.into_inner().map_err(|error| file(write)(error.into_error()))?;
    state.sync().map_err(file(write))
}

fn put_state(state: &mut impl Write, key: &[u8], value: &[u8]) -> std::io::Result<()> {
    state.write_all(&(key.len() as u32).to_be_bytes())?;
    state.write_all(&(value.len() as u32).to_be_bytes())?;
    state.write_all(key)?;
    state.write_all(value)
}

/// Section, key with the group added, value.
type StreamRecord = (Section, Vec<u8>, Vec<u8>);

/// Records of a stream whose checksum was checked.
struct Records<R> {
    stream: R,
}

impl<R: Read> Records<R> {
    /// `None` at the end.
    fn next(&mut self, group: GroupId) -> Result<Option<StreamRecord>, StorageError> {
        let [section] = self.array()?;
        let section = Section::of(section).map_err(|_| invalid("section"))?;
        if section == Section::End {
            return Ok(None);
        }
        let (key_bytes, value_bytes) = (self.int()?, self.int()?);
        if key_bytes > KEY_BYTES_MAX || value_bytes > VALUE_BYTES_MAX {
            return Err(invalid("length of a record"));
        }
        let mut key = group.0.to_be_bytes().to_vec();
        self.append(&mut key, key_bytes)?;
        let mut value = Vec::new();
        self.append(&mut value, value_bytes)?;
        Ok(Some((section, key, value)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StorageError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(file("a received snapshot is truncated"))?;
        Ok(bytes)
    }

    fn append(&mut self, to: &mut Vec<u8>, bytes: u64) -> Result<(), StorageError> {
        let action = "cannot read a received snapshot";
        let read = self.stream.by_ref().take(bytes).read_to_end(to).map_err(file(action))?;
        if read as u64 == bytes { Ok(()) } else { Err(invalid("length of a record")) }
    }

    fn int(&mut self) -> Result<u64, StorageError> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(invalid("integer"))
    }
}

/// Reads the state file of a snapshot.
pub(crate) fn read_state(
    folder: &Folder,
    mut record: impl FnMut(&[u8], &[u8]),
) -> Result<(), StorageError> {
    let action = "cannot read a snapshot's state";
    let (state, mut left) = folder.open(STATE).map_err(file(action))?;
    let mut records = Records { stream: BufReader::with_capacity(1 << 20, state) };
    while left > 0 {
        let key_bytes = u32::from_be_bytes(records.array()?);
        let value_bytes = u32::from_be_bytes(records.array()?);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        records.append(&mut key, u64::from(key_bytes))?;
        records.append(&mut value, u64::from(value_bytes))?;
        record(&key, &value);
        left = left.saturating_sub(8 + u64::from(key_bytes) + u64::from(value_bytes));
    }
    Ok(())
}
