//! Memory and disk alarms: while one is on anywhere, publishers are blocked everywhere (ALM-01).

use crate::{
    client::Event,
    cluster::{alarm_settings::Amount, alarms::Alarms},
    peers::{PeerMessage, message::Shortage},
    views::administration::Operator,
};
use quorate_types::NodeId;
use std::{io, sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How often memory is checked: large bodies can take hundreds of MiB more each second.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How often the disk is checked too, and the shortages are sent to all nodes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for the free disk space, so that a disk that hangs does not stop the memory's alarm.
const MEASURE_MAX: Duration = Duration::from_millis(100);

/// Memory must stay above its watermark this long before publishers are blocked: writing or
/// compacting large bodies takes some 50 MiB for a moment.
const SHORTAGE_DELAY: Duration = Duration::from_millis(500);
/// Memory must be short this long before incomplete contents are dropped, which cannot be completed
/// while no publisher is read. Mostly it is enough that publishers are blocked.
const DROP_UNFINISHED_AFTER: Duration = Duration::from_secs(5);

impl Operator<'_> {
    /// Sets the watermark of this node's memory alarm until the node is restarted. The alarm is on
    /// or off accordingly when this returns.
    pub fn set_memory_high_watermark(&self, amount: Amount) {
        let node = &self.0;
        let bytes = amount.bytes_of(node.base.context.settings.alarms.machine_memory_bytes);
        node.alarms.bounds.lock().memory_high_watermark = bytes;
        tracing::info!(bytes, "memory high watermark set");
        node.alarms.check_shortage();
    }

    /// Sets the limit of this node's disk alarm, as [`Operator::set_memory_high_watermark`] does.
    pub fn set_disk_free_limit(&self, amount: Amount) {
        let node = &self.0;
        let bytes = amount.bytes_of(node.base.context.settings.alarms.machine_memory_bytes);
        node.alarms.bounds.lock().disk_free_limit = bytes;
        tracing::info!(bytes, "disk free limit set");
        node.alarms.check_shortage();
    }
}

impl Alarms {
    /// Checks memory and disk at intervals; runs until the node stops.
    pub(crate) async fn watch_alarms(self: Arc<Self>) {
        let mut interval = tokio::time::interval(MEMORY_CHECK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut checked, mut over_since): (Option<Instant>, Option<Instant>) = (None, None);
        let mut measuring = None;
        loop {
            interval.tick().await;
            let due = checked.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL);
            let max = self.bounds().memory_high_watermark;
            // Memory that the allocator keeps free is no shortage, so it is returned before the
            // check.
            let high = if due { max - max / 4 } else { max };
            if resident_bytes().is_some_and(|bytes| bytes > high) {
                let returned = tokio::task::spawn_blocking(
                    self.base.context.settings.alarms.return_free_memory,
                );
                if let Err(error) = returned.await {
                    tracing::warn!(%error, "cannot return free memory to the operating system");
                }
            }
            let (was_short, _) = self.of(self.base.context.me);
            let is_over = self.is_above_watermark();
            over_since = is_over.then(|| over_since.unwrap_or_else(Instant::now));
            let over_for = over_since.map(|since| since.elapsed());
            // At the first check, and while the alarm is on, no momentary peak is assumed.
            let at_once = was_short || checked.is_none();
            let memory = over_for.is_some_and(|time| at_once || time >= SHORTAGE_DELAY);
            if due {
                self.measure_disk(&mut measuring).await;
            }
            if due || memory != was_short {
                self.report_shortage(memory);
            }
            if due {
                checked = Some(Instant::now());
                self.clients.drop_slow_clients();
                self.clear_alarms_of_lost_nodes();
                if over_for.is_some_and(|time| time >= DROP_UNFINISHED_AFTER) {
                    self.clients.drop_unfinished();
                }
            }
        }
    }

    /// Whether memory is short. Once it is, it stays so until a sixteenth below the watermark is
    /// reached, so that clients are not blocked and unblocked ten times a second.
    fn is_above_watermark(&self) -> bool {
        let (was_short, _) = self.of(self.base.context.me);
        let max = self.bounds().memory_high_watermark;
        let max = if was_short { max - max / 16 } else { max };
        resident_bytes().is_some_and(|bytes| bytes > max)
    }

    /// Measures the free disk space, on a thread that may wait for the disk. A measurement that hangs is
    /// not waited for, and none is begun beside it.
    async fn measure_disk(&self, measuring: &mut Option<JoinHandle<io::Result<u64>>>) {
        let data_dir = &self.base.context.settings.alarms.data_dir;
        if data_dir.as_os_str().is_empty() {
            return;
        }
        let running = measuring.get_or_insert_with(|| {
            let data_dir = data_dir.clone();
            tokio::task::spawn_blocking(move || quorate_storage::free_bytes(&data_dir))
        });
        let Ok(measured) = timeout(MEASURE_MAX, running).await else { return };
        *measuring = None;
        // The task does not panic, unless the process ends.
        let Ok(measured) = measured else { return };
        if let Err(error) = &measured {
            tracing::warn!(
                %error, path = %data_dir.display(), "cannot determine the free disk space"
            );
        }
        *self.disk_free.lock() = measured.ok();
    }

    /// Checks memory, and the disk as it was measured last, and sends the result to all nodes.
    fn check_shortage(&self) {
        self.report_shortage(self.is_above_watermark());
    }

    /// Sends the shortage of memory, and that of the disk as it was measured last, to all nodes.
    fn report_shortage(&self, memory: bool) {
        let limit = self.bounds().disk_free_limit;
        let disk = self.disk_free_bytes().is_some_and(|bytes| bytes < limit);
        let shortage = Shortage { memory, disk };
        // Applied here before the return: an operator's change is answered when it is in force.
        self.alarm(self.base.context.me, shortage);
        // Sent even if nothing has changed, for nodes that have just been linked.
        self.base.context.peers.send_to_others(&PeerMessage::Shortage(shortage));
    }

    /// Clears the alarms of nodes that are no longer linked.
    fn clear_alarms_of_lost_nodes(&self) {
        let lost: Vec<_> = {
            let nodes = self.nodes.lock();
            let here = |node| {
                node == self.base.context.me || self.base.context.peers.connected(node).is_some()
            };
            nodes.keys().copied().filter(|node| !here(*node)).collect()
        };
        lost.into_iter().for_each(|node| self.alarm(node, Shortage::default()));
    }

    /// Records what a node is short of. If the alarms have changed, clients are blocked or
    /// unblocked.
    pub(crate) fn alarm(&self, node: NodeId, shortage: Shortage) {
        let _changing = self.changing.lock();
        let before = self.reason();
        if !self.note(node, shortage) {
            return;
        }
        let after = self.reason();
        self.changed.notify_waiters();
        if before == after {
            return;
        }
        tracing::warn!(
            %node, ?shortage, reason = after.as_deref().unwrap_or("none"),
            "memory and disk alarms changed"
        );
        for connection in self.clients.connections.all() {
            connection.mailbox.put(match &after {
                Some(reason) => Event::Blocked { reason: reason.clone() },
                None => Event::Unblocked,
            });
        }
    }
}

/// Resident memory of this process, bytes; `None` where the system does not report it.
pub(crate) fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}
