//! The memory that an open connection holds between two turns for unfinished requests.

use crate::connection::machine::Machine;

/// Bytes that a connection holds for unfinished requests of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Bytes of incomplete contents, and of frames that wait for an answer.
    pub(crate) content_bytes: usize,
    /// When the oldest content began, of those that are large or were incomplete after an earlier
    /// turn.
    pub(crate) since_ms: Option<u64>,
    /// Bytes of open transactions.
    pub(crate) transaction_bytes: usize,
}

impl Machine {
    /// The memory held for unfinished requests.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let effects = &self.effects;
        // A content that was only announced takes no room yet.
        let contents = effects.content_bytes.saturating_sub(effects.announced_bytes);
        let large = effects.large.iter().map(|(_, since_ms)| since_ms);
        Unfinished {
            content_bytes: contents + effects.queued_bytes,
            since_ms: large.chain(effects.lasting.values()).min().copied(),
            transaction_bytes: effects.transaction_bytes,
        }
    }

    /// Bytes of large contents that were announced, for which there must be room before further
    /// frames are read. `None` if none were announced.
    pub(crate) fn announced_bytes(&self) -> Option<usize> {
        Some(self.effects.announced_bytes).filter(|bytes| *bytes > 0)
    }

    /// Room for the announced contents was granted.
    pub(crate) fn grant(&mut self) {
        self.effects.announced_bytes = 0;
    }

    /// Number of incomplete large contents, including announced ones.
    pub(crate) fn large_contents(&self) -> usize {
        self.effects.large.len()
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&mut self, now_ms: u64) {
        self.effects.now_ms = now_ms;
    }

    /// Ends a turn: contents and frames that are kept must not keep the read buffer in memory.
    pub(crate) fn end_turn(&mut self) {
        let effects = &mut self.effects;
        for number in effects.begun.drain(..) {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.detach_content();
                effects.lasting.entry(number).or_insert(effects.now_ms);
            }
        }
        let is_content =
            |number: &u16| self.channels.get(number).is_some_and(|it| it.due.is_content());
        effects.lasting.retain(|number, _| is_content(number));
    }
}
