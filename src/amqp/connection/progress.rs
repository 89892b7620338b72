//! Checks whether a client reads what it is sent. Time is given as milliseconds since the
//! connection was opened; nothing here reads a clock.

/// How often progress is checked while something waits to be written.
const CHECK_MS: u64 = 1_000;

/// How long a client may read nothing while the node's memory for deliveries is used up.
const PRESSED_MS: u64 = 5_000;

/// How often a client is looked at whose socket is not read because its publishes cannot be routed.
pub(crate) const PRESENCE_MS: u64 = 500;

/// The progress of what is written to one client.
#[derive(Debug)]
pub(crate) struct Progress {
    timeout_ms: u64,
    /// Number of bytes written, and the time at which it last changed or nothing waited.
    seen: Option<(u64, u64)>,
    check_at_ms: u64,
}

impl Progress {
    /// With a heartbeat, the client may read nothing for twice the interval; otherwise for
    /// `timeout_ms`.
    pub(crate) fn new(heartbeat_s: u16, timeout_ms: u64) -> Self {
        let timeout_ms = match heartbeat_s {
            0 => timeout_ms,
            seconds => 2_000 * u64::from(seconds),
        };
        Self { timeout_ms, seen: None, check_at_ms: 0 }
    }

    /// When to check next, given whether something waits to be written.
    pub(crate) fn deadline_ms(&mut self, now_ms: u64, written: u64, waits: bool) -> Option<u64> {
        if !waits {
            self.seen = None;
            return None;
        }
        if self.seen.is_none() {
            self.seen = Some((written, now_ms));
            self.check_at_ms = now_ms + self.timeout_ms.min(CHECK_MS);
        }
        Some(self.check_at_ms)
    }

    /// True if the client has read nothing for too long. The limit is shorter while `pressed`.
    pub(crate) fn is_lost(&mut self, now_ms: u64, written: u64, pressed: bool) -> bool {
        let Some((seen, since_ms)) = self.seen else { return false };
        if now_ms < self.check_at_ms {
            return false;
        }
        self.check_at_ms = now_ms + self.timeout_ms.min(CHECK_MS);
        if seen != written {
            self.seen = Some((written, now_ms));
            return false;
        }
        let bound_ms = if pressed { self.timeout_ms.min(PRESSED_MS) } else { self.timeout_ms };
        now_ms - since_ms >= bound_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first second at which a client is lost that has read `written(s)` bytes by then.
    fn lost_at(mut progress: Progress, written: impl Fn(u64) -> u64, pressed: bool) -> Option<u64> {
        (0..300).find(|second| {
            let (now_ms, written) = (second * 1000, written(*second));
            let lost = progress.is_lost(now_ms, written, pressed);
            assert!(progress.deadline_ms(now_ms, written, true).is_some());
            lost
        })
    }

    #[test]
    fn who_takes_nothing_is_lost_after_twice_its_heartbeat_or_the_setting() {
        assert_eq!(lost_at(Progress::new(10, 60_000), |_| 7, false), Some(20));
        assert_eq!(lost_at(Progress::new(0, 60_000), |_| 7, false), Some(60));
    }

    #[test]
    fn one_byte_in_that_time_is_progress() {
        assert_eq!(lost_at(Progress::new(0, 60_000), |second| second / 50, false), None);
        assert_eq!(lost_at(Progress::new(0, 60_000), |second| second.min(30), false), Some(90));
    }

    #[test]
    fn while_memory_is_short_it_is_lost_sooner() {
        assert_eq!(lost_at(Progress::new(60, 60_000), |_| 7, true), Some(5));
        assert_eq!(lost_at(Progress::new(1, 60_000), |_| 7, true), Some(2));
    }

    #[test]
    fn nothing_is_checked_while_nothing_waits() {
        let mut progress = Progress::new(0, 2_000);
        assert_eq!(progress.deadline_ms(0, 5, false), None);
        assert!(!progress.is_lost(10_000, 5, false));
        assert_eq!(progress.deadline_ms(10_000, 5, true), Some(11_000));
        assert!(!progress.is_lost(11_000, 5, false));
        assert_eq!(progress.deadline_ms(11_500, 5, false), None, "all was written");
        assert_eq!(progress.deadline_ms(12_000, 5, true), Some(13_000));
        assert!(!progress.is_lost(13_000, 5, false) && progress.is_lost(14_000, 5, false));
    }
}
