//! Makes a group's entries while this node leads it: merges what the nodes' proposers sent, and
//! paces entries by the disk (DESIGN §6).

use crate::leader::clock::{GroupClock, WallClock};
use parking_lot::Mutex;
use quorate_queue::{Batch, Command, Origin};
use quorate_storage::{
    CommandEntry,
    codec::{
        batch::{self, ProposedBatch},
        queue,
    },
};
use quorate_types::{Stamp, Timestamp};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Most entries that are proposed and not yet applied.
const IN_FLIGHT_MAX: usize = 8;
/// An entry is cut without waiting for the disk when this many bytes wait.
const ENTRY_BYTES: usize = 1 << 20;
/// Commands of the leader's own in one entry, so that applying it stays short.
const LEADER_COMMANDS_MAX: usize = 1_000;
/// Bytes that may wait here. A batch above this is dropped; its proposer sends it again when the
/// answer is overdue.
const WAITING_BYTES_MAX: usize = 256 << 20;

/// What caused an attempt to cut an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A batch or command has arrived.
    Arrival,
    /// The log writer has finished a cycle, an entry has been applied, or 3 ms are over.
    Pace,
}

/// The result of handing an entry to the group's log.
#[derive(Debug)]
pub(crate) enum Handed {
    /// The log has taken the entry.
    Taken,
    /// The log is full: the same entry is to be handed to it again.
    Busy(CommandEntry),
    /// This node is no longer the leader; the proposers send the batches again (SES 5).
    Lost,
}

/// Hands an entry to the group's log.
pub(crate) trait Propose: Fn(CommandEntry) -> Handed {}
impl<F: Fn(CommandEntry) -> Handed> Propose for F {}

/// One group's sequencer.
#[derive(Debug, Default)]
pub(crate) struct Sequencer {
    state: Mutex<State>,
    /// Whether anything waits; read without the lock.
    waiting: AtomicBool,
    /// The group's clock, also while another node leads.
    pub(crate) clock: GroupClock,
    wall: WallClock,
}

#[derive(Debug, Default)]
struct State {
    clock: Option<Clock>,
    batches: Vec<ProposedBatch>,
    commands: Vec<Command>,
    bytes: usize,
    in_flight: usize,
    /// An entry that the full log has refused so far.
    stalled: Option<CommandEntry>,
}

/// The group's clock while this node leads: it advances with the monotonic clock (DESIGN §4).
#[derive(Debug)]
struct Clock {
    base: Timestamp,
    since: Instant,
    wall: WallClock,
}

impl Clock {
    fn stamp(&self) -> Stamp {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        Stamp { time: self.base.plus_ms(elapsed), wall: self.wall.now() }
    }
}

impl Sequencer {
    /// A sequencer of a group that this node does not lead.
    pub(crate) fn new(wall: WallClock) -> Self {
        Self { wall, ..Self::default() }
    }

    /// Begins a leadership: the group's clock showed `time` at that instant.
    pub(crate) fn lead(&self, time: Timestamp, since: Instant) {
        let mut state = self.state.lock();
        let clock = Clock { base: time, since, wall: self.wall };
        *state = State { clock: Some(clock), ..State::default() };
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// The instant at which this leadership's clock shows that time; `None` without leadership.
    pub(crate) fn moment(&self, time: Timestamp) -> Option<Instant> {
        let state = self.state.lock();
        let clock = state.clock.as_ref()?;
        clock.since.checked_add(Duration::from_millis(time.ms_since(clock.base)))
    }

    /// The present time of this leadership's clock; `None` without leadership.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.state.lock().clock.as_ref().map(|clock| clock.stamp().time)
    }

    /// Ends the leadership. Proposers send what waits here to the next leader.
    pub(crate) fn stop(&self) {
        *self.state.lock() = State::default();
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// True if something waits to be cut.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes a proposer's batch. It is dropped if this node does not lead, if too much waits
    /// already, or if the same batch waits here: without a majority proposers send it repeatedly.
    pub(crate) fn push(&self, batch: ProposedBatch, propose: impl Propose) {
        let mut state = self.state.lock();
        let waits = |it: &ProposedBatch| {
            (it.sender, it.first, it.commands.len())
                == (batch.sender, batch.first, batch.commands.len())
        };
        if state.clock.is_none()
            || state.bytes > WAITING_BYTES_MAX
            || state.batches.iter().any(waits)
        {
            return;
        }
        state.bytes +=
            batch.runs.iter().flat_map(|run| &run.messages).map(|m| m.len()).sum::<usize>();
        state.batches.push(batch);
        self.cut(&mut state, Occasion::Arrival, propose);
    }

    /// Takes commands of the leader itself.
    pub(crate) fn commands(&self, commands: Vec<Command>, propose: impl Propose) {
        let mut state = self.state.lock();
        if state.clock.is_some() {
            state.commands.extend(commands);
            self.cut(&mut state, Occasion::Arrival, propose);
        }
    }

    /// Counts out an entry that has been applied.
    pub(crate) fn applied(&self, propose: impl Propose) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
        self.cut(&mut state, Occasion::Pace, propose);
    }

    /// Counts out a proposal that has been lost.
    pub(crate) fn lost(&self) {
        let mut state = self.state.lock();
        state.in_flight = state.in_flight.saturating_sub(1);
    }

    /// Cuts what waits: the log writer has finished a cycle, or time is up.
    pub(crate) fn pace(&self, propose: impl Propose) {
        if self.is_waiting() {
            self.cut(&mut self.state.lock(), Occasion::Pace, propose);
        }
    }

    fn cut(&self, state: &mut State, occasion: Occasion, propose: impl Propose) {
        while state.may_cut(occasion) {
            let Some(entry) = state.next_entry() else { break };
            match propose(entry) {
                Handed::Taken => state.in_flight += 1,
                Handed::Busy(entry) => {
                    state.stalled = Some(entry);
                    break;
                }
                Handed::Lost => break,
            }
        }
        self.waiting.store(!state.is_empty(), Ordering::Relaxed);
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.commands.is_empty() && self.stalled.is_none()
    }

    fn next_entry(&mut self) -> Option<CommandEntry> {
        if let Some(stalled) = self.stalled.take() {
            return Some(stalled);
        }
        let stamp = self.clock.as_ref()?.stamp();
        let batches = self.take_batches();
        let taken = batches.len();
        let (mut entry, bodies) = batch::merge(batches, stamp);
        let kept = entry.batches.len();
        assert!(kept == taken, "SES 2: a batch is kept whole in its entry: {taken}, {kept}");
        let count = self.commands.len().min(LEADER_COMMANDS_MAX);
        let commands: Vec<Command> = self.commands.drain(..count).collect();
        if !commands.is_empty() {
            entry.batches.push(Batch { origin: Origin::Leader, commands });
        }
        Some(CommandEntry { command: queue::encode_entry(&entry), bodies })
    }

    fn may_cut(&self, occasion: Occasion) -> bool {
        let pace = match occasion {
            Occasion::Arrival => self.in_flight == 0 || self.bytes >= ENTRY_BYTES,
            Occasion::Pace => true,
        };
        !self.is_empty() && self.in_flight < IN_FLIGHT_MAX && pace
    }

    /// Takes as many waiting batches as make one entry, at least one.
    fn take_batches(&mut self) -> Vec<ProposedBatch> {
        let mut bytes = 0;
        let mut count = 0;
        for batch in &self.batches {
            let size =
                batch.runs.iter().flat_map(|run| &run.messages).map(|m| m.len()).sum::<usize>();
            if count > 0 && bytes + size > 2 * ENTRY_BYTES {
                break;
            }
            bytes += size;
            count += 1;
        }
        self.bytes -= bytes;
        self.batches.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests;
