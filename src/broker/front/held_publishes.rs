//! Publishes that have to wait until they can be routed.
//!
//! A message must not be settled before the messages made from it are in flight. So settles that a
//! client sends while its publishes are held wait too, but at most until its channel ends.

use crate::{
    client::{ChannelId, HolderRef, Publish, Settle},
    front::refusals::Refusals,
    memory::Held,
};

/// Publishes that cannot be routed yet: this node has no routing lease (NAM 5), or an earlier
/// publish is still being sent to its queues. They are bounded by one read of the socket, which is
/// not read meanwhile.
#[derive(Debug)]
pub(crate) struct HeldPublishes {
    publishes: Vec<Publish>,
    /// Settles that the client has sent after them.
    pub(crate) settles: Vec<Settle>,
    /// Channels with a refused publish.
    pub(crate) refusals: Refusals,
    /// A task is routing them, or is sending the publish before them.
    pub(crate) busy: bool,
    memory: Held,
}

impl HeldPublishes {
    /// State without publishes; their memory is counted in `account`.
    pub(crate) fn new(memory: Held) -> Self {
        Self {
            publishes: Vec::new(),
            settles: Vec::new(),
            refusals: Refusals::default(),
            busy: false,
            memory,
        }
    }

    /// Holds these publishes after those that are held.
    pub(crate) fn hold(&mut self, publishes: impl IntoIterator<Item = Publish>) {
        self.publishes.extend(publishes);
        self.count();
    }

    /// The channel has ended. If one of its publishes was refused, those after it are dropped (CHN-06).
    pub(crate) fn end_channel(&mut self, channel: ChannelId) {
        let holds_publishes = self.publishes.iter().any(|publish| publish.channel == channel);
        if self.refusals.end(channel, holds_publishes) {
            self.publishes.retain(|publish| publish.channel != channel);
            self.count();
        }
    }

    /// The held publishes were taken and routed, but for those that were held again because an earlier one
    /// `is_spread`.
    pub(crate) fn routed(&mut self, is_spread: bool) {
        self.busy = is_spread;
        if !is_spread {
            self.refusals.forget_ended();
        }
    }

    fn count(&mut self) {
        let bytes: usize = self.publishes.iter().map(|publish| publish.body.len()).sum();
        self.memory.set_about(bytes as u64);
    }

    /// Holds these settles after the held publishes. Returns all of them if no publish is held.
    pub(crate) fn hold_settles(&mut self, settles: Vec<Settle>) -> Vec<Settle> {
        self.settles.extend(settles);
        if self.busy { Vec::new() } else { std::mem::take(&mut self.settles) }
    }

    /// Takes the held settles that `is_wanted` selects.
    pub(crate) fn take_settles(&mut self, is_wanted: impl Fn(HolderRef) -> bool) -> Vec<Settle> {
        self.settles.extract_if(.., |settle| is_wanted(settle.holder)).collect()
    }

    pub(crate) fn take(&mut self) -> Vec<Publish> {
        self.memory.set(0);
        std::mem::take(&mut self.publishes)
    }
}

#[cfg(test)]
mod tests;
