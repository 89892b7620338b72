//! The wall clock, and how a group's own clock continues from one leader to the next (DESIGN §4,
//! *Time*).
//!
//! Processes carry a group's clock: the leader advances it by its monotonic clock, and sends the
//! time to the others. A process that has received the time advances it too, also without entries.
//! A new process gets it from the processes that it is linked with, followers included. Wall clocks
//! differ between nodes, so they count only when no process knows the time: when the whole group
//! was down.
//!
//! A new leader sends all nodes the times of its groups' clocks, and each node sends those that it
//! knows to a newly linked node. Entries that a process replays at its start do not set a clock.
//!
//! The time of a message is received later than it was sent. So processes' clocks lag by different
//! amounts, and the leader's own is the group's: the others take its time, also if theirs is later.
//! Otherwise the group's clock would jump ahead when one of them led, and messages would expire too
//! early by that much. The leader repeats its time, so that a message that was late or lost does
//! little harm; what others tell it while it leads means nothing.

use parking_lot::Mutex;
use quorate_types::{Timestamp, WallTime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The only source of wall time.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(pub fn() -> WallTime);

impl WallClock {
    /// The present wall time.
    #[must_use]
    pub fn now(self) -> WallTime {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The machine's clock.
    fn default() -> Self {
        Self(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }
}

/// Whose time a process has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeOf {
    /// The group's leader's.
    Leader,
    /// That of a process that does not lead the group.
    Other,
    /// Any process's, while this one leads the group.
    Follower,
}

/// When this process started, by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessStart {
    at: Instant,
    wall: WallTime,
}

impl ProcessStart {
    pub(crate) fn now(wall: WallClock) -> Self {
        Self { at: Instant::now(), wall: wall.now() }
    }
}

/// A time of the group's clock, and the instant when it was known here; `None` until a leader or
/// another process has sent it.
#[derive(Debug, Default)]
pub(crate) struct GroupClock(Mutex<Known>);

impl GroupClock {
    /// Takes a time that another process has sent: sets the clock to the leader's, and advances it to
    /// another's. An earlier one of another process, from a late message, changes nothing.
    pub(crate) fn learn(&self, time: Timestamp, of: TimeOf) {
        let (mut known, now) = (self.0.lock(), Instant::now());
        match of {
            TimeOf::Leader => follow_at(&mut known, time, now),
            TimeOf::Other => learn_at(&mut known, time, now),
            TimeOf::Follower => {}
        }
    }

    /// The present time of the clock.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.0.lock().map(|known| shows(known, Instant::now()))
    }

    /// Begins a leadership of this process, whose state has these last stamps. Returns the time at
    /// which the clock continues, and when it shows that.
    pub(crate) fn lead(
        &self,
        time: Timestamp,
        wall: WallTime,
        process: ProcessStart,
    ) -> (Timestamp, Instant) {
        let now = Instant::now();
        (lead_at(&mut self.0.lock(), (time, wall), process, now), now)
    }
}

/// A time of a group's clock, and the instant when it was known.
type Known = Option<(Timestamp, Instant)>;

fn learn_at(known: &mut Known, time: Timestamp, now: Instant) {
    if known.is_none_or(|known| shows(known, now) < time) {
        *known = Some((time, now));
    }
}

fn follow_at(known: &mut Known, time: Timestamp, now: Instant) {
    *known = Some((time, now));
}

fn lead_at(
    known: &mut Known,
    stamps: (Timestamp, WallTime),
    process: ProcessStart,
    now: Instant,
) -> Timestamp {
    let shown = known.map(|known| shows(known, now));
    let lived = now.saturating_duration_since(process.at);
    let begins = begins_at(stamps, shown, (process.wall, lived));
    *known = Some((begins, now));
    begins
}

fn shows((time, at): (Timestamp, Instant), now: Instant) -> Timestamp {
    time.plus_ms(millis(now.saturating_duration_since(at)))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time at which a new leader continues a group's clock. It follows from the stamps of the last
/// entry, the time known to this process, its start by the wall clock, and its age.
fn begins_at(
    (time, wall): (Timestamp, WallTime),
    known: Option<Timestamp>,
    (began, lived): (WallTime, Duration),
) -> Timestamp {
    match known {
        Some(known) => known.max(time),
        // No entry has been stamped yet.
        None if wall == WallTime(0) => time,
        // All were down: adds the time from the last stamp to the start of this process, and its
        // age.
        None => time.plus_ms(began.0.saturating_sub(wall.0).saturating_add(millis(lived))),
    }
}

#[cfg(test)]
mod tests;
