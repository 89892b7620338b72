//! What an open connection holds between two turns of what is not finished.

use crate::connection::machine::Machine;

/// What a connection holds for its client of what is not finished, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unfinished {
    /// Of contents that have not come whole, and of frames that wait for an answer.
    pub(crate) content_bytes: usize,
    /// When its oldest content began, of those that are large or have outlasted a turn.
    pub(crate) since_ms: Option<u64>,
    /// Of open transactions.
    pub(crate) transaction_bytes: usize,
}

impl Machine {
    /// What it holds for its client of what is not finished.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let effects = &self.effects;
        // What has only been announced takes no room yet.
        let contents = effects.content_bytes.saturating_sub(effects.announced_bytes);
        let large = effects.large.iter().map(|(_, since_ms)| since_ms);
        Unfinished {
            content_bytes: contents + effects.queued_bytes,
            since_ms: large.chain(effects.lasting.values()).min().copied(),
            transaction_bytes: effects.transaction_bytes,
        }
    }

    /// Bytes of large contents that have been announced, for which there has to be room before
    /// further frames are taken. `None` where there is nothing to ask for.
    pub(crate) fn announced_bytes(&self) -> Option<usize> {
        Some(self.effects.announced_bytes).filter(|bytes| *bytes > 0)
    }

    /// There is room for what was announced.
    pub(crate) fn grant(&mut self) {
        self.effects.announced_bytes = 0;
    }

    /// Large contents under way, announced ones among them.
    pub(crate) fn large_contents(&self) -> usize {
        self.effects.large.len()
    }

    /// A turn begins.
    pub(crate) fn begin_turn(&mut self, now_ms: u64) {
        self.effects.now_ms = now_ms;
    }

    /// A turn ends: what is kept over it does not keep alive what it was read with.
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
