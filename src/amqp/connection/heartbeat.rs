//! Heartbeats in both directions (HB-01 to HB-04). Time is given as milliseconds since the
//! connection was opened; nothing here reads a clock.

/// The outcome of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Nothing was written for half the timeout: a heartbeat is due (HB-01).
    pub(crate) send: bool,
    /// Nothing was received in two consecutive intervals: the connection is lost (HB-02).
    pub(crate) lost: bool,
}

/// Numbers of bytes so far, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) written: u64,
    pub(crate) received: u64,
}

/// The heartbeat of one connection.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// Negotiated; 0 turns heartbeats off (HB-04).
    timeout_ms: u64,
    send_at_ms: u64,
    receive_at_ms: u64,
    seen: Bytes,
    silent_checks: u8,
}

impl Heartbeat {
    pub(crate) fn new(timeout_s: u16, now_ms: u64) -> Self {
        let timeout_ms = u64::from(timeout_s) * 1000;
        Self {
            timeout_ms,
            send_at_ms: now_ms + timeout_ms / 2,
            receive_at_ms: now_ms + timeout_ms,
            seen: Bytes::default(),
            silent_checks: 0,
        }
    }

    /// When to check next.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        (self.timeout_ms > 0).then(|| self.send_at_ms.min(self.receive_at_ms))
    }

    /// Checks both directions. `reading` is false while the broker does not read the socket on
    /// purpose: then silence does not count (HB-03).
    pub(crate) fn check(&mut self, now_ms: u64, bytes: Bytes, reading: bool) -> Due {
        let mut due = Due::default();
        if self.timeout_ms == 0 {
            return due;
        }
        if now_ms >= self.send_at_ms {
            due.send = bytes.written == self.seen.written;
            self.seen.written = bytes.written;
            self.send_at_ms = now_ms + self.timeout_ms / 2;
        }
        if now_ms >= self.receive_at_ms {
            let silent = reading && bytes.received == self.seen.received;
            self.silent_checks = if silent { self.silent_checks + 1 } else { 0 };
            due.lost = self.silent_checks >= 2;
            self.seen.received = bytes.received;
            self.receive_at_ms = now_ms + self.timeout_ms;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn bytes(written: u64, received: u64) -> Bytes {
        Bytes { written, received }
    }

    /// HB-01: any bytes written count, and the check is every half timeout.
    #[test]
    fn hb_01_a_heartbeat_is_sent_when_nothing_else_was() {
        let mut heartbeat = Heartbeat::new(10, 0);
        assert_eq!(heartbeat.deadline_ms(), Some(5000));
        assert!(heartbeat.check(5000, bytes(0, 1), true).send);
        assert!(!heartbeat.check(9999, bytes(8, 2), true).send, "too early to check");
        assert!(!heartbeat.check(10_000, bytes(8, 3), true).send, "the heartbeat was written");
        assert!(heartbeat.check(15_000, bytes(8, 4), true).send);
    }

    /// HB-02: lost at the second silent check, 2t to 3t after the last byte.
    #[test]
    fn hb_02_two_silent_checks_lose_the_connection() {
        let mut heartbeat = Heartbeat::new(10, 0);
        assert!(!heartbeat.check(10_000, bytes(0, 7), true).lost);
        assert!(!heartbeat.check(20_000, bytes(0, 7), true).lost);
        assert!(heartbeat.check(30_000, bytes(0, 7), true).lost);
    }

    #[test]
    fn hb_02_one_byte_between_two_checks_is_life() {
        let mut heartbeat = Heartbeat::new(10, 0);
        for (check, received) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)] {
            assert!(!heartbeat.check(check * 10_000, bytes(0, received), true).lost);
        }
    }

    /// HB-03: silence does not count while the broker itself does not read.
    #[test]
    fn hb_03_silence_does_not_count_while_the_socket_is_not_read() {
        let mut heartbeat = Heartbeat::new(10, 0);
        for check in 1..10 {
            assert!(!heartbeat.check(check * 10_000, bytes(0, 0), false).lost);
        }
        assert!(!heartbeat.check(100_000, bytes(0, 0), true).lost);
        assert!(heartbeat.check(110_000, bytes(0, 0), true).lost);
    }

    /// HB-04: a timeout of 0 turns heartbeats off.
    #[test]
    fn hb_04_zero_switches_heartbeats_off() {
        let mut heartbeat = Heartbeat::new(0, 0);
        assert_eq!(heartbeat.deadline_ms(), None);
        assert_eq!(heartbeat.check(1_000_000, bytes(0, 0), true), Due::default());
    }
}
