//! Publishes that have to wait until they can be routed.
//!
//! A message must not be settled before what was made of it is in flight. So what a client settles
//! while its publishes are held waits with them, but not for longer than its channel lives.

use crate::{
    client::{HolderRef, Publish, Settle},
    memory::Held,
};

/// Publishes that cannot be routed yet: this node has no routing lease (NAM 5), or one before them is
/// still being sent to its queues. Bounded by one read of the socket, which is not read on.
#[derive(Debug)]
pub(crate) struct HeldPublishes {
    publishes: Vec<Publish>,
    /// What the client has settled behind them.
    pub(crate) settles: Vec<Settle>,
    /// A task is at work on them, or on the one before.
    pub(crate) busy: bool,
    memory: Held,
}

impl HeldPublishes {
    /// None, to be counted in that account.
    pub(crate) fn new(memory: Held) -> Self {
        Self { publishes: Vec::new(), settles: Vec::new(), busy: false, memory }
    }

    /// Holds these too, behind those that are held.
    pub(crate) fn hold(&mut self, publishes: impl IntoIterator<Item = Publish>) {
        self.publishes.extend(publishes);
        let bytes: usize = self.publishes.iter().map(|publish| publish.body.len()).sum();
        self.memory.set_about(bytes as u64);
    }

    /// Holds these behind those that are held. Gives all back if no publish is held any more.
    pub(crate) fn hold_settles(&mut self, settles: Vec<Settle>) -> Vec<Settle> {
        self.settles.extend(settles);
        if self.busy { Vec::new() } else { std::mem::take(&mut self.settles) }
    }

    /// Those of the held settles that `is_wanted` says, whatever is held.
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
