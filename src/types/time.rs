//! Time as the log carries it. Nothing here reads a clock.

use std::fmt;

/// Milliseconds on a group's replicated clock. It goes on from entry to entry by the leader's
/// monotonic clock and never back, so a clock that jumps moves no expiry (DESIGN §4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment plus `ms` milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds since `earlier`, 0 if that is later.
    #[must_use]
    pub fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Milliseconds since the Unix epoch; shown to people and in `x-death`, decides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

/// What a leader stamps an entry with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The replicated clock: decides expiry and leases.
    pub time: Timestamp,
    /// Wall time beside it.
    pub wall: WallTime,
}
