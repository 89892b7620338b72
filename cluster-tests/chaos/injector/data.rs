//! Faults of nodes' data directories: one that is not what it was, and files with a wrong bit.

use super::ended::last_lines;
use super::wal::synced_records;
use super::{Effect, Injector};
use crate::chaos::fault::{DamagedFile, Victim, WrongData};
use crate::harness::Node;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a node runs between the copy of its directory and its return.
const OLDER: Duration = Duration::from_secs(2);
/// Interval between two looks at a node that must not serve.
const LOOK: Duration = Duration::from_millis(100);

impl Injector<'_> {
    /// Starts a node on a directory that is not what it was.
    pub(super) async fn wrong_data(
        &self,
        victim: Victim,
        wrong: WrongData,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        self.may_end(&ids);
        let swap = Swap::of(node);
        let swapped = async {
            node.kill9();
            if wrong == WrongData::OldCopy {
                copy(&swap.folder, &swap.older)?;
                node.restart().await;
                sleep(OLDER).await;
                node.kill9();
            }
            swap.swap(wrong)
        };
        if let Err(error) = swapped.await {
            panic!("{wrong:?} in {}: {error}", swap.folder.display());
        }
        let effect = self.refuses(node, None, lasts).await;
        end(node);
        swap.swap_back().unwrap_or_else(|error| panic!("{}: {error}", swap.folder.display()));
        self.start(&ids).await;
        (ids, effect)
    }

    /// Starts a node on a directory in which one bit is wrong.
    pub(super) async fn damaged(
        &self,
        victim: Victim,
        file: DamagedFile,
        place: u32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        self.may_end(&ids);
        let damaged = match file {
            DamagedFile::Table => self.damaged_table(node, place, lasts).await,
            DamagedFile::Log => self.damaged_log(node, place, lasts).await,
        };
        let effect = damaged.unwrap_or_else(|error| panic!("{file:?} of node {id}: {error}"));
        self.start(&ids).await;
        (ids, effect)
    }

    /// The directory is not a copy: the node votes and acknowledges while the bit is wrong.
    async fn damaged_table(&self, node: &Node, place: u32, lasts: Duration) -> io::Result<Effect> {
        // At a start RocksDB writes its log into tables, so that they have what is needed soon.
        node.kill9();
        node.restart().await;
        node.kill9();
        let Some(bit) = Bit::of_tables(&data_folder(node), place)? else {
            return Ok(Effect::Missed("there is no table".to_owned()));
        };
        bit.flip()?;
        let logged = node.log().len();
        node.spawn();
        let (begun, mut ready) = (Instant::now(), false);
        while begun.elapsed() < lasts && node.runs() {
            ready |= is_ready(node).await;
            sleep(LOOK).await;
        }
        let how = self.how_it_ended(node, logged).await;
        end(node);
        // Without the file there is nothing to undo: its data were deleted, or a compaction has read
        // them, and RocksDB has verified their checksums.
        let is_there = bit.path.exists();
        if is_there {
            bit.flip()?;
        }
        Ok(Effect::Seen(format!(
            "{bit}; it was ready: {ready}; {how}; the file is left: {is_there}"
        )))
    }

    /// The directory is a copy, for RocksDB may remove what it cannot read.
    async fn damaged_log(&self, node: &Node, place: u32, lasts: Duration) -> io::Result<Effect> {
        node.kill9();
        let swap = Swap::of(node);
        fs::rename(&swap.folder, &swap.kept)?;
        copy(&swap.kept, &swap.folder)?;
        let bit = Bit::of_log(&swap.folder, place)?;
        let effect = match &bit {
            None => Effect::Missed("no log has two batches".to_owned()),
            Some(bit) => {
                bit.flip()?;
                self.refuses(node, Some(bit), lasts).await
            }
        };
        end(node);
        swap.swap_back()?;
        Ok(effect)
    }

    /// Starts a node that must refuse its directory, and looks whether it serves. It must name the
    /// file with this bit.
    async fn refuses(&self, node: &Node, bit: Option<&Bit>, lasts: Duration) -> Effect {
        let logged = node.log().len();
        node.spawn();
        let begun = Instant::now();
        while begun.elapsed() < lasts && node.runs() {
            if is_ready(node).await {
                let bit = bit.map(Bit::to_string).unwrap_or_default();
                return Effect::Wrong(format!("node {} serves {bit}", node.id()));
            }
            sleep(LOOK).await;
        }
        if node.runs() {
            return Effect::Seen("it does not serve".to_owned());
        }
        let how = self.how_it_ended(node, logged).await;
        let said = last_lines(node, logged);
        if let Some(bit) = bit.filter(|bit| !said.contains(&bit.file_name())) {
            self.found(format!("node {} does not name the file: {bit}\n{said}", node.id()));
        }
        Effect::Seen(how)
    }
}

async fn is_ready(node: &Node) -> bool {
    node.get("/health/ready").await.is_ok_and(|answer| answer.status == 200)
}

/// Ends a node that may have ended by itself.
pub(super) fn end(node: &Node) {
    if node.runs() {
        node.kill9();
    } else {
        node.reap();
    }
}

/// A node's data directory, which may be a link to one on a disk of its own.
pub(super) fn data_folder(node: &Node) -> PathBuf {
    node.data_dir().canonicalize().expect("the node's data directory")
}

/// A data directory, and where it is kept meanwhile.
struct Swap {
    folder: PathBuf,
    kept: PathBuf,
    older: PathBuf,
}

impl Swap {
    /// The directories stay on their disk.
    fn of(node: &Node) -> Self {
        let folder = data_folder(node);
        Self { kept: folder.with_extension("kept"), older: folder.with_extension("older"), folder }
    }

    fn swap(&self, wrong: WrongData) -> io::Result<()> {
        fs::rename(&self.folder, &self.kept)?;
        match wrong {
            WrongData::OldCopy => fs::rename(&self.older, &self.folder),
            WrongData::Wiped => fs::create_dir(&self.folder),
            WrongData::FlippedBit => self.damaged(|manifest| {
                let middle = manifest.len() / 2;
                manifest[middle] ^= 1;
            }),
            WrongData::Truncated => self.damaged(|manifest| manifest.truncate(manifest.len() / 2)),
        }
    }

    /// A copy whose lists of RocksDB's files are changed.
    fn damaged(&self, change: impl Fn(&mut Vec<u8>)) -> io::Result<()> {
        copy(&self.kept, &self.folder)?;
        for path in files(&self.folder, &|name| name.starts_with("MANIFEST-"))? {
            let mut bytes = fs::read(&path)?;
            change(&mut bytes);
            fs::write(&path, bytes)?;
        }
        Ok(())
    }

    fn swap_back(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.folder)?;
        fs::rename(&self.kept, &self.folder)
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cp: {status}"))) }
}

/// The files of a folder, and of the folders in it, whose names are like that; in order.
fn files(folder: &Path, is: &dyn Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, is)?);
        } else if path.file_name().is_some_and(|name| is(&name.to_string_lossy())) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A bit of a file.
#[derive(Debug, PartialEq, Eq)]
struct Bit {
    path: PathBuf,
    at: u64,
    mask: u8,
}

impl Bit {
    /// A bit of the tables below a folder, at this fraction of all their bytes; `None` without
    /// tables.
    fn of_tables(folder: &Path, place: u32) -> io::Result<Option<Self>> {
        let mut tables = Vec::new();
        for path in files(folder, &|name| name.ends_with(".sst"))? {
            let bytes = fs::metadata(&path)?.len();
            tables.push((path, bytes));
        }
        let mut at = scaled(place, tables.iter().map(|(_, bytes)| bytes).sum());
        for (path, bytes) in tables {
            if at < bytes {
                return Ok(Some(Self { path, at, mask: mask(place) }));
            }
            at -= bytes;
        }
        Ok(None)
    }

    /// A bit of the newest log below a folder that has more than one batch, at this fraction of what
    /// was certainly synced; `None` if there is none.
    fn of_log(folder: &Path, place: u32) -> io::Result<Option<Self>> {
        for path in files(folder, &|name| name.ends_with(".log"))?.into_iter().rev() {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let Some(number) = stem.and_then(|stem| stem.parse().ok()) else { continue };
            let records = synced_records(&fs::read(&path)?, number);
            let size = |records: &[std::ops::Range<usize>]| {
                records.iter().map(|record| record.len() as u64).sum()
            };
            // Bytes between records mean nothing.
            let mut at = scaled(place, size(&records));
            for record in records {
                if at < record.len() as u64 {
                    let at = record.start as u64 + at;
                    return Ok(Some(Self { path, at, mask: mask(place) }));
                }
                at -= record.len() as u64;
            }
        }
        Ok(None)
    }

    fn file_name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Synced, so that a loss of power does not undo it.
    fn flip(&self) -> io::Result<()> {
        let file = File::options().read(true).write(true).open(&self.path)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.at)?;
        let [byte] = byte;
        file.write_all_at(&[byte ^ self.mask], self.at)?;
        file.sync_all()
    }
}

impl std::fmt::Display for Bit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {} of {} with {:#04x} flipped", self.at, self.file_name(), self.mask)
    }
}

/// The fraction `place` / 2³² of `size` bytes.
fn scaled(place: u32, size: u64) -> u64 {
    let at = (u128::from(place) * u128::from(size)) >> 32;
    u64::try_from(at).unwrap_or_default()
}

fn mask(place: u32) -> u8 {
    1 << (place % 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_byte_of_all_tables_and_a_second_flip_undoes_the_first() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Bit::of_tables(folder.path(), 7).unwrap(), None);
        let below = folder.path().join("db");
        fs::create_dir(&below).unwrap();
        for (name, bytes) in [("1.sst", 1), ("2.sst", 3), ("3.log", 100)] {
            fs::write(below.join(name), vec![0; bytes]).unwrap();
        }
        let bit = |place| Bit::of_tables(folder.path(), place).unwrap().unwrap();
        assert_eq!((bit(0).file_name().as_str(), bit(0).at), ("1.sst", 0));
        let last = bit(u32::MAX);
        assert_eq!((last.file_name().as_str(), last.at, last.mask), ("2.sst", 2, 0x80));
        last.flip().unwrap();
        assert_eq!(fs::read(&last.path).unwrap(), [0, 0, 0x80]);
        last.flip().unwrap();
        assert_eq!(fs::read(&last.path).unwrap(), [0, 0, 0]);
    }
}
