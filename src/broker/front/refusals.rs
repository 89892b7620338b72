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
pub(crate) struct Refusals(BTreeMap<ChannelId, Refusal>);

impl Refusals {
    /// The error with which the channel's publishes are refused.
    pub(crate) fn of(&self, channel: ChannelId) -> Option<&Exception> {
        self.0.get(&channel)?.get()
    }

    /// What becomes the error of the channel.
    pub(crate) fn later(&mut self, channel: ChannelId) -> Refusal {
        Arc::clone(self.0.entry(channel).or_default())
    }

    /// Notes the error of a channel's publish; the first one counts.
    pub(crate) fn note(&mut self, channel: ChannelId, exception: &Exception) {
        let _ = self.later(channel).set(exception.clone());
    }

    /// The channel has ended. Returns whether it had a refused publish.
    pub(crate) fn forget(&mut self, channel: ChannelId) -> bool {
        self.0.remove(&channel).is_some_and(|refusal| refusal.get().is_some())
    }
}
