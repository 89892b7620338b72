//! A record of what is known to be on disk, apart from the database: a file with the position up to
//! which the database was synced. A database that has less when it is opened has lost data, and is
//! refused: its votes and acknowledgements would have gaps.
//!
//! The file is written once a second, and at the end, so that it costs a write nothing. It covers
//! losses that RocksDB cannot detect: at the end of its log, and of its manifest.
//!
//! A loss of the last second before a kill is not detected here if nothing follows it in the log.
//! `wal` detects it if RocksDB had closed that log file, since the manifest has the synced size of
//! closed files, except for a moment after the next one was begun. If entries of that second were
//! acknowledged to a leader, that leader detects it, as long as it leads (`raft/followers`).

use crate::{
    StorageError,
    engine::{Engine, RocksEngine, file},
};
use parking_lot::{Condvar, Mutex};
use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Name of the file in the data directory.
pub(crate) const NAME: &str = "SYNCED";

/// Interval of the checks.
const TICK: Duration = Duration::from_secs(1);

const VERSION: u8 = 1;

/// Bytes of a mark: version, number, sequence, manifest (number, bytes, checksum), checksum.
const MARK_BYTES: usize = 1 + 4 * 8 + 2 * 4;

/// The two places of marks, which are written alternately, so that a torn write leaves the other
/// one. They are apart, so that no disk writes them together.
const PLACES: [u64; 2] = [0, 4096];

/// The position up to which the database was synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    /// Number of the mark.
    number: u64,
    /// RocksDB's sequence number; 0: nothing was synced yet.
    sequence: u64,
    manifest: Manifest,
}

/// The synced beginning of a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Manifest {
    number: u64,
    bytes: u64,
    checksum: u32,
}

/// The open file, and its contents.
pub(crate) struct SyncedFile {
    path: PathBuf,
    file: File,
    mark: Mark,
}

impl SyncedFile {
    /// Opens the file, or creates it for a directory without a database.
    pub(crate) fn open(dir: &Path) -> Result<Self, StorageError> {
        let path = dir.join(NAME);
        let failed = file("cannot open the file SYNCED");
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => {
                let mark = read(&file).map_err(failed)?;
                let mark = mark.ok_or_else(|| damaged(&path, "the file is damaged"))?;
                Ok(Self { path, file, mark })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if dir.join("db").exists() {
                    return Err(damaged(&path, "the file is missing"));
                }
                Self::make(dir, path)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn make(dir: &Path, path: PathBuf) -> Result<Self, StorageError> {
        let make = || {
            let new = path.with_extension("new");
            let options =
                OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
            let file = options.open(&new)?;
            // Both places, so that a later mark changes only their bytes.
            for place in PLACES {
                file.write_all_at(&Mark::default().encode(), place)?;
            }
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(dir)?.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(file("cannot create the file SYNCED"))?;
        Ok(Self { path, file, mark: Mark::default() })
    }

    /// True if the database does not exist yet.
    pub(crate) fn is_new(&self) -> bool {
        self.mark.sequence == 0
    }

    /// Refuses a database whose manifest has lost or changed synced bytes, before RocksDB rewrites
    /// it.
    pub(crate) fn check_manifest(&self, db: &Path) -> Result<(), StorageError> {
        if self.is_new() {
            return Ok(());
        }
        let known = self.mark.manifest;
        let current = db.join("CURRENT");
        let name = fs::read_to_string(&current)
            .map_err(|error| damaged(&current, &format!("cannot be read: {error}")))?;
        let number = manifest_number(&name)
            .ok_or_else(|| damaged(&current, "the file does not name a manifest"))?;
        if number < known.number {
            let what = format!(
                "the file names manifest {number}, but manifest {} was in use",
                known.number
            );
            return Err(damaged(&current, &what));
        }
        if number == known.number {
            let path = db.join(name.trim_end());
            let mut found = Manifest { number, ..Manifest::default() };
            let read = |error| damaged(&path, &format!("cannot be read: {error}"));
            let mut manifest = File::open(&path).map_err(read)?;
            found.read_on(&mut manifest, known.bytes).map_err(read)?;
            if found != known {
                return Err(damaged(&path, "the file is damaged or truncated"));
            }
        }
        Ok(())
    }

    /// Refuses an opened database that ends before the synced position.
    pub(crate) fn check_sequence(&self, engine: &RocksEngine) -> Result<(), StorageError> {
        let found = engine.sequence();
        if found >= self.mark.sequence {
            return Ok(());
        }
        let what = format!(
            "the database ends at write {found}, but write {} had been synced: the end of the \
             write-ahead log (db/*.log) is lost",
            self.mark.sequence
        );
        Err(damaged(&self.path, &what))
    }

    /// Writes a mark if anything was synced since the last one.
    fn keep_up(&mut self, engine: &Engine) -> std::io::Result<()> {
        let sequence = engine.synced();
        let mut manifest = self.mark.manifest;
        follow_manifest(&self.path.with_file_name("db"), &mut manifest)?;
        if (sequence, manifest) == (self.mark.sequence, self.mark.manifest) {
            return Ok(());
        }
        let mark = Mark { number: self.mark.number + 1, sequence, manifest };
        let [even, odd] = PLACES;
        let place = if mark.number.is_multiple_of(2) { even } else { odd };
        self.file.write_all_at(&mark.encode(), place)?;
        self.file.sync_data()?;
        self.mark = mark;
        Ok(())
    }
}

impl Mark {
    fn encode(&self) -> Vec<u8> {
        let Self { number, sequence, manifest } = self;
        let mut bytes = vec![VERSION];
        for value in [*number, *sequence, manifest.number, manifest.bytes] {
            bytes.extend_from_slice(&value.to_be_bytes());
        }
        bytes.extend_from_slice(&manifest.checksum.to_be_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// `None`: torn, or damaged.
    fn decode(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if u32::from_be_bytes(*checksum) != crc32fast::hash(content) {
            return None;
        }
        let (version, content) = content.split_first()?;
        let (values, manifest_checksum) = content.split_last_chunk::<4>()?;
        let value = |at: usize| {
            let bytes = values.get(8 * at..)?.first_chunk()?;
            Some(u64::from_be_bytes(*bytes))
        };
        let checksum = u32::from_be_bytes(*manifest_checksum);
        let manifest = Manifest { number: value(2)?, bytes: value(3)?, checksum };
        (*version == VERSION).then_some(Self { number: value(0)?, sequence: value(1)?, manifest })
    }
}

/// The later of the two marks that can be decoded.
fn read(file: &File) -> std::io::Result<Option<Mark>> {
    let mut latest: Option<Mark> = None;
    for place in PLACES {
        let mut bytes = [0; MARK_BYTES];
        match file.read_exact_at(&mut bytes, place) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => continue,
            read => read?,
        }
        let mark = Mark::decode(&bytes);
        if mark.is_some_and(|mark| latest.is_none_or(|latest| latest.number < mark.number)) {
            latest = mark;
        }
    }
    Ok(latest)
}

/// Extends the known part of the manifest to its present end, and syncs it.
fn follow_manifest(db: &Path, known: &mut Manifest) -> std::io::Result<()> {
    let name = fs::read_to_string(db.join("CURRENT"))?;
    let Some(number) = manifest_number(&name) else { return Ok(()) };
    let mut manifest = match File::open(db.join(name.trim_end())) {
        // A new manifest has just replaced it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        manifest => manifest?,
    };
    let bytes = manifest.metadata()?.len();
    if (number, bytes) == (known.number, known.bytes) {
        return Ok(());
    }
    manifest.sync_data()?;
    if known.number != number {
        *known = Manifest { number, ..Manifest::default() };
    }
    known.read_on(&mut manifest, bytes)
}

impl Manifest {
    /// Continues to read up to `end`, or to the file's end before it.
    fn read_on(&mut self, file: &mut File, end: u64) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut bytes = Vec::new();
        file.take(end.saturating_sub(self.bytes)).read_to_end(&mut bytes)?;
        let mut checksum = crc32fast::Hasher::new_with_initial_len(self.checksum, self.bytes);
        checksum.update(&bytes);
        self.checksum = checksum.finalize();
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// The number in the name of a manifest in CURRENT.
fn manifest_number(name: &str) -> Option<u64> {
    name.strip_suffix('\n')?.strip_prefix("MANIFEST-")?.parse().ok()
}

fn damaged(path: &Path, what: &str) -> StorageError {
    StorageError::Damaged { file: path.display().to_string().into(), what: what.into() }
}

/// The thread that keeps the file up to date.
pub(crate) struct SyncedKeeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    engine: Arc<Engine>,
    file: Mutex<SyncedFile>,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl SyncedKeeper {
    /// Starts the thread.
    pub(crate) fn start(engine: Arc<Engine>, synced: SyncedFile) -> Result<Self, StorageError> {
        let shared = Arc::new(Shared {
            engine,
            file: Mutex::new(synced),
            closed: Mutex::new(false),
            changed: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("synced".to_owned())
            .spawn({
                let shared = shared.clone();
                move || shared.run()
            })
            .map_err(file("cannot start the thread that writes the file SYNCED"))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Writes a last mark and ends the thread. All writers have ended before.
    pub(crate) fn close(&self) {
        *self.shared.closed.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the file SYNCED has panicked");
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let closed = self.sleep();
            if let Err(error) = self.file.lock().keep_up(&self.engine) {
                // The log writer uses the same disk, and ends the process if necessary.
                tracing::warn!("cannot update the file SYNCED: {error}");
            }
            if closed {
                return;
            }
        }
    }

    /// Waits a tick; true if the database closes.
    fn sleep(&self) -> bool {
        let until = Instant::now() + TICK;
        let mut closed = self.closed.lock();
        while !*closed {
            if self.changed.wait_until(&mut closed, until).timed_out() {
                break;
            }
        }
        *closed
    }
}
