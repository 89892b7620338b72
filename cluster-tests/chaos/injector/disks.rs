//! Faults of the nodes' disks and clocks.

use super::{CHECK_INTERVAL, Effect, Injector};
use crate::chaos::fault::{ClockFault, DiskCall, DiskFault, Victim, Victims};
use crate::harness::Node;
use crate::harness::disk::{CallFault, EIO, ENOSPC};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long after the end of a fault a node may still end because of it.
const AFTERMATH: Duration = Duration::from_secs(10);

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
            DiskFault::Damaged { victim, file, place } => {
                self.damaged(victim, file, place, lasts).await
            }
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
        self.may_end(&ids);
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
        self.start(&ids).await;
        let said = format!("the kernel shut the file systems of {cut:?} down");
        (ids, Effect::Seen(said))
    }

    async fn disk(
        &self,
        victim: Victim,
        fault: CallFault,
        value: u32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        let logged = node.log().len();
        // A node whose disk is only slow, or hangs, must live.
        let may_end = !matches!(fault, CallFault::SyncMs | CallFault::SyncHangs);
        if may_end {
            self.may_end(&ids);
        }
        let before = self.equipment.calls.hits(id);
        self.equipment.calls.set(id, fault, value);
        self.until_felt(lasts, || self.equipment.calls.hits(id) > before).await;
        let hits = self.equipment.calls.hits(id) - before;
        self.equipment.calls.set(id, fault, 0);
        if may_end {
            self.until_ended(node).await;
        }
        let how = self.how_it_ended(node, logged).await;
        if may_end {
            self.start(&ids).await;
        }
        let said = format!("{hits} calls obeyed; {how}");
        let effect = if hits > 0 { Effect::Seen(said) } else { Effect::Missed(said) };
        (ids, effect)
    }

    /// Waits until a node has ended because of a call that failed, which may take a moment; if it does not
    /// end, no such call is left.
    async fn until_ended(&self, node: &Node) {
        let end = Instant::now() + AFTERMATH;
        while node.runs() && Instant::now() < end {
            sleep(CHECK_INTERVAL).await;
        }
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
        DiskCall::Read => CallFault::ReadFails,
    }
}
