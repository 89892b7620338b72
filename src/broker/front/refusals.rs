//! Channels with a refused publish. A channel is closed with its first error, and nothing that its client
//! has sent after that publish is carried out (CHN-06), although the connection learns of the error later.

use crate::client::ChannelId;
use quorate_types::Exception;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

/// The error of a channel's refused publish, once there is one. Requests keep it, since their channel may
/// be closed before they are carried out.
pub(crate) type Refusal = Arc<OnceLock<Exception>>;

/// The channels of one connection that have had a refused publish or a request that asks for it.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    of_channels: BTreeMap<ChannelId, Refusal>,
    /// Channels that have ended before all their publishes were routed.
    ended: Vec<ChannelId>,
}

impl Refusals {
    /// The error with which the channel's publishes are refused.
    pub(crate) fn of(&self, channel: ChannelId) -> Option<&Exception> {
        self.of_channels.get(&channel)?.get()
    }

    /// What becomes the error of the channel.
    pub(crate) fn later(&mut self, channel: ChannelId) -> Refusal {
        Arc::clone(self.of_channels.entry(channel).or_default())
    }

    /// Notes the error of a channel's publish; the first one counts.
    pub(crate) fn note(&mut self, channel: ChannelId, exception: &Exception) {
        let _ = self.later(channel).set(exception.clone());
    }

    /// The channel has ended. Returns whether it had a refused publish. If not, its publishes that are
    /// still held may be refused: then it is remembered until [`Self::forget_ended`].
    pub(crate) fn end(&mut self, channel: ChannelId, holds_publishes: bool) -> bool {
        let is_refused = self.of(channel).is_some();
        if holds_publishes && !is_refused {
            self.ended.push(channel);
        } else {
            self.of_channels.remove(&channel);
        }
        is_refused
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.of_channels.is_empty() && self.ended.is_empty()
    }

    /// No publish is held any more.
    pub(crate) fn forget_ended(&mut self) {
        for channel in self.ended.drain(..) {
            self.of_channels.remove(&channel);
        }
    }
}
