//! Reports of a connection's channels for lists.

use crate::connection::machine::Machine;
use quorate_client::{ChannelId, ChannelReport};
use std::collections::BTreeMap;

impl Machine {
    /// Reports of the open channels that have changed since the last call.
    pub(crate) fn reports(&mut self) -> Vec<(ChannelId, ChannelReport)> {
        let now: BTreeMap<ChannelId, ChannelReport> = self
            .channels
            .values()
            .filter(|channel| !channel.is_closing())
            .map(|channel| (channel.id, channel.report()))
            .collect();
        let changed = now.iter().filter(|(id, report)| self.reported.get(id) != Some(report));
        let reports = changed.map(|(id, report)| (*id, *report)).collect();
        self.reported = now;
        reports
    }

    /// True while an alarm prevents reading the socket (ALM-03).
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}
