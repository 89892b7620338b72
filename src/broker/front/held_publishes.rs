//! Publishes that have to wait until they can be routed.
//!
//! A message must not be settled before the messages made from it are in flight. So settles that a
//! client sends while its publishes are held wait too. If their channel ends meanwhile, the end waits with
//! them, so that what was settled is not requeued. All of it ends with the connection: the publishes and
//! what was settled behind them are dropped together.

use crate::{
    client::{ChannelId, HolderRef, Publish, Settle},
    front::refusals::Refusals,
    memory::Held,
};
use quorate_queue::Command;
use quorate_types::Home;

/// Publishes that cannot be routed yet: this node has no routing lease (NAM 5), or an earlier
/// publish is still being sent to its queues. They are bounded by one read of the socket, which is
/// not read meanwhile.
#[derive(Debug)]
pub(crate) struct HeldPublishes {
    publishes: Vec<Publish>,
    /// Settles that the client has sent after them.
    pub(crate) settles: Vec<Settle>,
    /// What channels that have ended meanwhile had settled after them.
    ended_settles: Vec<(Home, Command)>,
    /// The ends of these channels, which follow.
    ends: Vec<(Home, Command)>,
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
            ended_settles: Vec::new(),
            ends: Vec::new(),
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

    /// Holds the end of a channel behind what it `settles`, if that has to wait. Returns what need not.
    pub(crate) fn hold_end(
        &mut self,
        settles: Vec<(Home, Command)>,
        ends: Vec<(Home, Command)>,
    ) -> Vec<(Home, Command)> {
        if settles.is_empty() {
            return ends;
        }
        self.ended_settles.extend(settles);
        self.ends.extend(ends);
        self.take_ended()
    }

    /// Takes what channels that have ended had settled, and their ends; nothing while publishes are held.
    pub(crate) fn take_ended(&mut self) -> Vec<(Home, Command)> {
        if self.busy {
            return Vec::new();
        }
        let mut commands = std::mem::take(&mut self.ended_settles);
        commands.append(&mut self.ends);
        commands
    }

    /// Whether something waits to be settled.
    pub(crate) fn has_settles(&self) -> bool {
        !self.settles.is_empty() || !self.ended_settles.is_empty()
    }

    /// Drops the held publishes and what was settled behind them. Returns the ends of channels, which
    /// requeue what they had settled.
    pub(crate) fn abandon(&mut self) -> Vec<(Home, Command)> {
        drop(self.take());
        self.settles.clear();
        self.ended_settles.clear();
        std::mem::take(&mut self.ends)
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
