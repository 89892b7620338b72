//! Streaming of a group. A thread holds the RocksDB snapshot and reads a few chunks ahead; it ends
//! with the last chunk, or when the reader is dropped. In a stepped database there is no thread:
//! the whole stream is made when the reader is created.

use super::{CHUNK_BYTES_MAX, Section};
use crate::{
    EntryId, StorageError,
    batch::{corrupt, state_family},
    checkpoint,
    codec::{cursor::put_len, key},
    engine::{Engine, Family, Snapshot, file},
};
use bytes::{BufMut, Bytes, BytesMut};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use quorate_types::{GroupId, LogIndex};
use std::sync::Arc;

/// Number of bytes after which the iterator is replaced by a new one: an iterator keeps old
/// memtables in memory, and a receiver may be slow. The snapshot itself keeps none.
const ITERATOR_BYTES_MAX: usize = 4 << 20;

/// Number of chunks read ahead.
const AHEAD: usize = 2;

type Piece = Result<Bytes, StorageError>;

/// The checkpoint's own record, once the snapshot is taken.
type Begun = Result<Option<(EntryId, Bytes)>, StorageError>;

/// A group's state as of one checkpoint, streamed. While it lives, RocksDB keeps records that were
/// removed since.
pub struct SnapshotReader {
    applied: EntryId,
    meta: Bytes,
    bytes: u64,
    pieces: Receiver<Piece>,
    stepped: bool,
}

impl SnapshotReader {
    /// Takes the RocksDB snapshot. `None`: the group has no checkpoint.
    pub(crate) fn open(engine: Arc<Engine>, group: GroupId) -> Result<Option<Self>, StorageError> {
        let bytes = bytes_of(&engine, group)?;
        let (begun, begin) = bounded(1);
        let stepped = engine.is_stepped();
        let (sender, pieces) = if stepped { unbounded() } else { bounded(AHEAD) };
        let read = move || stream(&engine, group, &begun, &sender);
        if stepped {
            read();
        } else {
            let thread = std::thread::Builder::new().name(format!("snapshot-{group}"));
            thread.spawn(read).map_err(file("cannot start to read a snapshot"))?;
        }
        let ended = |_| StorageError::Closed;
        Ok(begin.recv().map_err(ended)??.map(|(applied, meta)| Self {
            applied,
            meta,
            bytes,
            pieces,
            stepped,
        }))
    }

    /// Last entry that it contains.
    #[must_use]
    pub fn applied(&self) -> EntryId {
        self.applied
    }

    /// The data that the raft crate stored with the checkpoint.
    #[must_use]
    pub fn meta(&self) -> &Bytes {
        &self.meta
    }

    /// Approximate bytes of the stream: the size on disk.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True on a simulated disk, where [`SnapshotReader::next_chunk`] does not block.
    #[must_use]
    pub fn is_stepped(&self) -> bool {
        self.stepped
    }

    /// The next chunk, at most 256 KiB; `None` at the end. Blocks while it is read from disk.
    ///
    /// # Errors
    /// A failed read.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, StorageError> {
        self.pieces.recv().ok().transpose()
    }
}

/// Takes a snapshot, returns its metadata, and streams it.
fn stream(engine: &Engine, group: GroupId, begun: &Sender<Begun>, sender: &Sender<Piece>) {
    let snapshot = match engine.snapshot() {
        Ok(snapshot) => snapshot,
        Err(error) => return drop(begun.send(Err(error))),
    };
    let stream = Stream { snapshot: &snapshot, group };
    let header = stream.header();
    let applied = header.as_ref().ok().and_then(|h| h.as_ref().map(|h| h.0.index));
    if begun.send(header).is_ok()
        && let Some(applied) = applied
        && let Err(error) = stream.run(applied, sender)
    {
        // This fails only if the reader was dropped.
        drop(sender.send(Err(error)));
    }
}

/// Approximate bytes of a group on disk.
fn bytes_of(engine: &Engine, group: GroupId) -> Result<u64, StorageError> {
    let (start, end) = (key::group_start(group), key::group_end(group));
    let mut bytes = 0;
    for family in [Family::Heads, Family::Bodies, state_family(group)] {
        bytes += engine.range_bytes(family, &start, &end)?;
    }
    Ok(bytes)
}

/// The result of a part of a section.
enum Stretch {
    /// The section continues at this key.
    GoesOn(Vec<u8>),
    /// The section has ended.
    Ended,
    /// The reader was dropped.
    Unheard,
}

struct Stream<'a> {
    snapshot: &'a Snapshot<'a>,
    group: GroupId,
}

impl Stream<'_> {
    /// The checkpoint's own record in the snapshot.
    fn header(&self) -> Begun {
        self.snapshot
            .get(state_family(self.group), &key::checkpoint_key(self.group))?
            .map(|bytes| {
                checkpoint::decode_header(&bytes).map_err(corrupt("checkpoint", LogIndex(0)))
            })
            .transpose()
    }

    fn run(&self, applied: LogIndex, sender: &Sender<Piece>) -> Result<(), StorageError> {
        let mut out = Outgoing { open: BytesMut::new(), checksum: Default::default(), sender };
        for section in [Section::Heads, Section::Bodies, Section::State] {
            if !self.section(section, applied, &mut out)? {
                return Ok(());
            }
        }
        out.open.put_u8(Section::End as u8);
        out.finish();
        Ok(())
    }

    /// Streams a section; false: the reader was dropped.
    fn section(
        &self,
        section: Section,
        applied: LogIndex,
        out: &mut Outgoing<'_>,
    ) -> Result<bool, StorageError> {
        let Some(family) = section.family(self.group) else { return Ok(true) };
        let start = match section {
            Section::State => key::state_key(self.group, &[]).to_vec(),
            Section::Heads | Section::Bodies | Section::End => key::group_start(self.group),
        };
        let mut next = start;
        loop {
            match self.stretch(section, family, &next, applied, out)? {
                Stretch::GoesOn(from) => next = from,
                Stretch::Ended => return Ok(true),
                Stretch::Unheard => return Ok(false),
            }
        }
    }

    /// Streams records of a section from `start` on, a bounded number of bytes, with one iterator.
    fn stretch(
        &self,
        section: Section,
        family: Family,
        start: &[u8],
        applied: LogIndex,
        out: &mut Outgoing<'_>,
    ) -> Result<Stretch, StorageError> {
        let mut records = self.snapshot.long_scan(family, &key::group_end(self.group))?;
        records.seek(start);
        let mut bytes = 0;
        while let Some((key, value)) = records.item() {
            if bytes >= ITERATOR_BYTES_MAX {
                return Ok(Stretch::GoesOn(key.to_vec()));
            }
            bytes += key.len() + value.len();
            if (section == Section::State || self.is_covered(key, applied)?)
                && !out.record(section, key.get(2..).unwrap_or_default(), value)
            {
                return Ok(Stretch::Unheard);
            }
            records.next();
        }
        records.check()?;
        Ok(Stretch::Ended)
    }

    /// Only runs up to the checkpoint's index belong to the snapshot; later ones are sent with the
    /// log.
    fn is_covered(&self, key: &[u8], applied: LogIndex) -> Result<bool, StorageError> {
        let run = key::decode_run_key(self.group, key).map_err(corrupt("key of a run", applied))?;
        Ok(run.index <= applied)
    }
}

/// Chunks to be sent.
struct Outgoing<'a> {
    open: BytesMut,
    checksum: crc32fast::Hasher,
    sender: &'a Sender<Piece>,
}

impl Outgoing<'_> {
    fn record(&mut self, section: Section, key: &[u8], value: &[u8]) -> bool {
        self.open.put_u8(section as u8);
        put_len(&mut self.open, key.len());
        put_len(&mut self.open, value.len());
        self.open.put_slice(key);
        self.open.put_slice(value);
        while self.open.len() >= CHUNK_BYTES_MAX {
            let piece = self.open.split_to(CHUNK_BYTES_MAX).freeze();
            self.checksum.update(&piece);
            if self.sender.send(Ok(piece)).is_err() {
                return false;
            }
        }
        true
    }

    fn finish(mut self) {
        self.checksum.update(&self.open);
        self.open.put_u32(self.checksum.finalize());
        while !self.open.is_empty() {
            let length = self.open.len().min(CHUNK_BYTES_MAX);
            if self.sender.send(Ok(self.open.split_to(length).freeze())).is_err() {
                return;
            }
        }
    }
}
