//! The wall clock, and how a group's own clock goes on from one leader to the next (DESIGN §4,
//! *Time*).
//!
//! A group's clock is carried by the processes that live with it: whoever leads goes on by its
//! monotonic clock, and tells the others how it stands. Who has been told goes on from there, also
//! without entries; a process that begins is told by those that it is linked with, followers too.
//! Wall clocks differ between nodes, so they count only where nobody is left who knows: when the
//! whole group was down.
//!
//! A new leader tells all nodes how its groups' clocks stand, and so does each node to every node
//! that it is newly linked with. Entries that a process replays at its start do not set a clock.

use parking_lot::Mutex;
use quorate_types::{Timestamp, WallTime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The one place that wall time is read from.
#[derive(Clone, Copy, Debug)]
pub struct WallClock(pub fn() -> WallTime);

impl WallClock {
    /// Wall time of now.
    #[must_use]
    pub fn now(self) -> WallTime {
        (self.0)()
    }
}

impl Default for WallClock {
    /// The machine's.
    fn default() -> Self {
        Self(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
        })
    }
}

/// When this process began.
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

/// How a group's clock stood at some moment of this process; nothing if it has not lived with the
/// group's leaders yet.
#[derive(Debug, Default)]
pub(crate) struct GroupClock(Mutex<Known>);

impl GroupClock {
    /// Another process says that the clock stands there. One that is behind, as what was long on
    /// its way, changes nothing.
    pub(crate) fn learn(&self, time: Timestamp) {
        learn_at(&mut self.0.lock(), time, Instant::now());
    }

    /// Where it stands now.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.0.lock().map(|known| shows(known, Instant::now()))
    }

    /// A leadership of this process begins, with these last stamps in the state: where it lets the
    /// clock begin.
    pub(crate) fn lead(&self, time: Timestamp, wall: WallTime, process: ProcessStart) -> Timestamp {
        lead_at(&mut self.0.lock(), (time, wall), process, Instant::now())
    }
}

/// How a group's clock stood at some moment.
type Known = Option<(Timestamp, Instant)>;

fn learn_at(known: &mut Known, time: Timestamp, now: Instant) {
    if known.is_none_or(|known| shows(known, now) < time) {
        *known = Some((time, now));
    }
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

/// Where a leadership lets a group's clock begin: with the last entry's stamps, with what a process
/// that lived knows, and with when this process began by its wall clock and how long ago that was.
fn begins_at(
    (time, wall): (Timestamp, WallTime),
    known: Option<Timestamp>,
    (began, lived): (WallTime, Duration),
) -> Timestamp {
    match known {
        Some(known) => known.max(time),
        // Nothing has ever been stamped.
        None if wall == WallTime(0) => time,
        // All were down: what passed until this process began, if positive, and since.
        None => time.plus_ms(began.0.saturating_sub(wall.0).saturating_add(millis(lived))),
    }
}

#[cfg(test)]
mod tests;
