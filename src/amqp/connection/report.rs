//! What lists show of a connection's channels.

use crate::connection::machine::Machine;
use quorate_broker::ChannelReport;
use std::collections::BTreeMap;

impl Machine {
    /// What has changed since the last time, by channel number; `None` for one that has ended.
    pub(crate) fn reports(&mut self) -> Vec<(u16, Option<ChannelReport>)> {
        let now: BTreeMap<u16, ChannelReport> = self
            .channels
            .iter()
            .filter(|(_, channel)| !channel.is_closing())
            .map(|(number, channel)| (*number, channel.report()))
            .collect();
        let ended = self.reported.keys().filter(|number| !now.contains_key(number));
        let changed =
            now.iter().filter(|(number, report)| self.reported.get(number) != Some(report));
        let reports = ended
            .map(|number| (*number, None))
            .chain(changed.map(|(number, report)| (*number, Some(*report))))
            .collect();
        self.reported = now;
        reports
    }

    /// True while an alarm keeps the socket from being read (ALM-03).
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }
}
