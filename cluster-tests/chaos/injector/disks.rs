//! Faults of the nodes' disks and clocks.

use super::{Effect, Injector};
use crate::chaos::fault::{ClockFault, DiskCall, DiskFault, Victim, Victims, WrongData};
use crate::harness::Node;
use crate::harness::disk::{CallFault, EIO, ENOSPC};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::{Instant, sleep};

impl Injector<'_> {
    /// Carries out a fault of disks.
    pub(super) async fn inject_into_disks(
        &self,
        fault: DiskFault,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        match fault {
            DiskFault::Slow { victim, sync_ms } => {
                self.disk(victim, CallFault::SyncMs, sync_ms, lasts).await
            }
            DiskFault::Stuck { victim } => self.disk(victim, CallFault::SyncHangs, 1, lasts).await,
            DiskFault::Broken { victim, call } => {
                self.disk(victim, failing(call), EIO, lasts).await
            }
            DiskFault::Full { victim } => {
                self.disk(victim, CallFault::WriteFails, ENOSPC, lasts).await
            }
            DiskFault::PowerLoss { victims } => self.power(self.all(victims).await, lasts).await,
            DiskFault::WrongData { victim, wrong } => self.wrong_data(victim, wrong, lasts).await,
        }
    }

    /// Carries out a fault of wall clocks.
    pub(super) async fn inject_into_clocks(
        &self,
        fault: ClockFault,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        match fault {
            ClockFault::Jump { victims, seconds } => {
                self.clocks(victims, CallFault::WallSeconds, seconds, lasts).await
            }
            ClockFault::Drift { victims, percent } => {
                self.clocks(victims, CallFault::WallPercent, percent, lasts).await
            }
        }
    }

    /// Cuts the power of these nodes' disks at the same time.
    async fn power(&self, ids: BTreeSet<u64>, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let disks = match &self.equipment.disks {
            Ok(disks) => disks,
            Err(reason) => return (ids, Effect::Skipped(reason.clone())),
        };
        for node in ids.iter().map(|id| self.cluster.node(*id)).filter(|node| node.runs()) {
            node.kill9();
        }
        let cut: Vec<u64> = disks
            .iter()
            .filter(|(id, _)| ids.contains(id))
            .map(|(id, disk)| {
                disk.cut_power();
                *id
            })
            .collect();
        sleep(lasts).await;
        self.start_ended().await;
        let said = format!("the kernel shut the file systems of {cut:?} down");
        (ids, Effect::Seen(said))
    }

    /// Starts a node on a directory that is not what it was.
    async fn wrong_data(
        &self,
        victim: Victim,
        wrong: WrongData,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let node = self.cluster.node(id);
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
        let effect = refuses(node, lasts).await;
        if node.runs() {
            node.kill9();
        } else {
            node.reap();
        }
        swap.swap_back().unwrap_or_else(|error| panic!("{}: {error}", swap.folder.display()));
        self.start_ended().await;
        (BTreeSet::from([id]), effect)
    }

    async fn disk(
        &self,
        victim: Victim,
        fault: CallFault,
        value: u32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let before = self.equipment.calls.hits(id);
        self.equipment.calls.set(id, fault, value);
        self.until_felt(lasts, || self.equipment.calls.hits(id) > before).await;
        let hits = self.equipment.calls.hits(id) - before;
        let ended = !self.cluster.node(id).runs();
        self.equipment.calls.set(id, fault, 0);
        self.start_ended().await;
        let said = format!("{hits} calls obeyed; the node ended: {ended}");
        let effect = if hits > 0 { Effect::Seen(said) } else { Effect::Missed(said) };
        (BTreeSet::from([id]), effect)
    }

    /// Wrong wall clocks from the begin of a fault to its end.
    async fn clocks(
        &self,
        victims: Victims,
        fault: CallFault,
        value: i32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let ids = self.all(victims).await;
        let hits = || ids.iter().map(|id| self.equipment.calls.hits(*id)).collect::<Vec<_>>();
        let before = hits();
        ids.iter().for_each(|id| self.equipment.calls.set(*id, fault, value.cast_unsigned()));
        let all_read = || hits().iter().zip(&before).all(|(now, before)| now > before);
        self.until_felt(lasts, all_read).await;
        let read: Vec<u32> = hits().iter().zip(before).map(|(now, before)| now - before).collect();
        ids.iter().for_each(|id| self.equipment.calls.set(*id, fault, 0));
        let said = format!("{value} at {ids:?}, whose nodes read their clocks {read:?} times");
        let all_read = read.iter().all(|count| *count > 0);
        (ids, if all_read { Effect::Seen(said) } else { Effect::Missed(said) })
    }
}

pub(super) const CALL_FAULTS: [CallFault; 7] = [
    CallFault::SyncFails,
    CallFault::SyncHangs,
    CallFault::SyncMs,
    CallFault::WriteFails,
    CallFault::ReadFails,
    CallFault::WallSeconds,
    CallFault::WallPercent,
];

fn failing(call: DiskCall) -> CallFault {
    match call {
        DiskCall::Sync => CallFault::SyncFails,
        DiskCall::Write => CallFault::WriteFails,
    }
}

/// How long a node runs between the copy of its directory and its return.
const OLDER: Duration = Duration::from_secs(2);
/// Interval between two looks at a node that must not serve.
const LOOK: Duration = Duration::from_millis(100);

/// Starts a node that must refuse its directory, and looks whether it serves.
async fn refuses(node: &Node, lasts: Duration) -> Effect {
    let said = node.log().len();
    node.spawn();
    let begun = Instant::now();
    while begun.elapsed() < lasts && node.runs() {
        if node.get("/health/ready").await.is_ok_and(|answer| answer.status == 200) {
            return Effect::Wrong(format!("node {} serves", node.id()));
        }
        sleep(LOOK).await;
    }
    if node.runs() {
        return Effect::Seen("it does not serve".to_owned());
    }
    let log = node.log();
    let last = log.get(said..).unwrap_or_default().lines().last().unwrap_or_default();
    Effect::Seen(format!("it ended: {last}"))
}

/// A data directory, and where it is kept meanwhile.
struct Swap {
    folder: PathBuf,
    kept: PathBuf,
    older: PathBuf,
}

impl Swap {
    fn of(node: &Node) -> Self {
        // The directory may be a link to one on a disk of its own; it stays on that disk.
        let folder = node.data_dir().canonicalize().expect("the node's data directory");
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
        for path in manifests(&self.folder)? {
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

/// The files called MANIFEST-… of a folder and of the folders in it.
fn manifests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(manifests(&path)?);
        } else if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("MANIFEST-")) {
            found.push(path);
        }
    }
    Ok(found)
}
