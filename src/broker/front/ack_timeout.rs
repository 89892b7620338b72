//! Deliveries whose acknowledgement timed out (CTO).

use crate::client::ChannelId;
use quorate_types::{Exception, ReplyCode};

/// The channel exception for a delivery that was held too long, with RabbitMQ's text (CTO-02,
/// CTO-05).
pub(crate) fn acknowledgement_timeout(channel: ChannelId) -> Exception {
    let text = format!(
        "delivery acknowledgement on channel {} timed out. Timeout value used: -1 ms. This timeout \
         value can be configured, see consumers doc guide to learn more",
        channel.number
    );
    Exception::new(ReplyCode::PreconditionFailed, text)
}
