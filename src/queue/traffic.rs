//! What has passed through queues since this replica was loaded, for rates and metrics. It is no
//! part of the state: neither stored nor in the digest, and without effect on the output. Every
//! replica counts; the figures that are shown are the leader's.

use quorate_types::Timestamp;

/// Counts of one queue's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages of publishers that were enqueued, without dead letters of other queues.
    pub published: u64,
    /// Messages assigned to consumers that acknowledge.
    pub delivered: u64,
    /// Messages assigned to consumers that do not acknowledge.
    pub delivered_no_ack: u64,
    /// Messages taken by basic.get.
    pub got: u64,
    /// Uses of basic.get that found no message.
    pub got_empty: u64,
    /// Messages assigned or got that a client had been shown before.
    pub redelivered: u64,
    /// Messages acknowledged by consumers and gets.
    pub acknowledged: u64,
}

impl Traffic {
    /// Counts messages assigned to a consumer.
    pub(crate) fn assigned(&mut self, count: u64, redelivered: u64, no_ack: bool) {
        if no_ack {
            self.delivered_no_ack += count;
        } else {
            self.delivered += count;
        }
        self.redelivered += redelivered;
    }
}

/// Upper bounds of the buckets of [`Waits`], ms.
pub const WAIT_BOUNDS_MS: [u64; 14] = [
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 300_000, 1_800_000, 7_200_000, 86_400_000,
];

/// How long messages were in their queues until they were assigned to a consumer or got for the
/// first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Number of messages by the bound that their time is below; the last has no bound.
    pub counts: [u64; WAIT_BOUNDS_MS.len() + 1],
    /// Sum of the times, ms.
    pub sum_ms: u64,
}

impl Waits {
    /// Counts a message that leaves its queue for the first time.
    #[inline]
    pub(crate) fn add(&mut self, enqueued_at: Timestamp, now: Timestamp) {
        let waited_ms = now.ms_since(enqueued_at);
        let bucket = WAIT_BOUNDS_MS.partition_point(|bound| *bound < waited_ms);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(waited_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_the_first_bucket_that_holds_it() {
        let mut waits = Waits::default();
        for ms in [0, 1, 2, 100_000_000] {
            waits.add(Timestamp(5), Timestamp(5 + ms));
        }
        assert_eq!(waits.counts.first(), Some(&2));
        assert_eq!(waits.counts.get(1), Some(&1));
        assert_eq!(waits.counts.last(), Some(&1));
        assert_eq!(waits.sum_ms, 100_000_003);
    }
}
