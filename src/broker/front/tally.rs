//! Counts of routed and unroutable publishes.

use crate::views::counters::{Counters, SizesCounted};

/// Publishes of one read of a socket, counted before they are added to the node's counters.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    received: u64,
    received_confirm: u64,
    routed: u64,
    returned: u64,
    dropped: u64,
    /// Unroutable publishes that were confirmed at once (CNF-03).
    confirmed: u64,
    sizes: SizesCounted,
}

impl Tally {
    /// Counts a publish that was received, with a body of that size.
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.received += 1;
        self.sizes.add(bytes);
    }

    /// Counts a publish that was routed or not; `None` if it was refused.
    pub(crate) fn count(&mut self, routed: Option<bool>, confirm: bool, mandatory: bool) {
        self.received_confirm += u64::from(confirm);
        match routed {
            Some(true) => self.routed += 1,
            Some(false) => self.unroutable(confirm, mandatory),
            None => {}
        }
    }

    /// Counts a publish that was routed to no queue.
    pub(crate) fn unroutable(&mut self, confirm: bool, mandatory: bool) {
        if mandatory {
            self.returned += 1;
        } else {
            self.dropped += 1;
        }
        self.confirmed += u64::from(confirm);
    }

    /// Adds the counts to the counters of the node.
    pub(crate) fn add_to(&self, counters: &Counters) {
        let Self { received, received_confirm, routed, returned, dropped, confirmed, .. } = *self;
        if received > 0 {
            counters.message_sizes.take(&self.sizes);
        }
        for (counter, count) in [
            (&counters.received, received),
            (&counters.received_confirm, received_confirm),
            (&counters.routed, routed),
            (&counters.unroutable_returned, returned),
            (&counters.unroutable_dropped, dropped),
            (&counters.confirmed, confirmed),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
    }
}
