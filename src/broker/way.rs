//! A message's way into one of its targets: its level there, and what the queue is told of it.

use crate::node::Node;
use bytes::Bytes;
use quorate_catalog::{Catalog, DELAY, DELAY_MAX_MS, delay_of, delays_for};
use quorate_queue::MessageHead;
use quorate_types::{
    Exception, FieldValue, Home, Level, Levels, Properties, QueueId, QueueType, ReplyCode,
};

/// When an AMQP 1.0 client wants a message to be delivered.
const DELIVERY_TIME: &str = "x-opt-delivery-time";

/// How a message goes into one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) level: Level,
    pub(crate) head: MessageHead,
}

impl Node {
    pub(crate) fn way(
        &self,
        catalog: &Catalog,
        queue: QueueId,
        properties: &Properties,
        body: &Bytes,
    ) -> Way {
        let entry = catalog.queue_by_id(queue);
        let level = match entry {
            Some(entry) => entry.levels().of(properties.priority),
            None => self.level_of_local(queue, properties.priority),
        };
        let delays = entry.is_some_and(|entry| delays_for(&entry.name.name).is_some());
        let expiration_ms = match delays {
            true => delay_of(properties),
            false => properties.expiration.as_ref().and_then(|text| text.as_str().parse().ok()),
        };
        // A body has at most 128 MiB.
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        Way { level, head: MessageHead { body_bytes, expiration_ms } }
    }

    /// Of a connection-bound queue that is not in the catalog only its own node knows that it has
    /// several levels.
    fn level_of_local(&self, queue: QueueId, priority: Option<u8>) -> Level {
        if priority.is_none() || queue.home != Home::Node(self.me) {
            return Level(0);
        }
        let max = self.local.read(|machine| machine.priority_max(queue)).flatten();
        Levels::new(QueueType::Classic, max).of(priority)
    }
}

/// headers that ask for a later delivery are integers.
///
/// # Errors
/// 406 that names the header.
pub(crate) fn check_delays(properties: &Properties) -> Result<(), Exception> {
    let Some(octets) = &properties.headers else { return Ok(()) };
    // A look at the octets spares decoding all other messages' headers.
    let may_have = |name: &str| octets.windows(name.len()).any(|some| some == name.as_bytes());
    if !may_have(DELAY) && !may_have(DELIVERY_TIME) {
        return Ok(());
    }
    let Ok(Some(headers)) = properties.decode_headers() else { return Ok(()) };
    for name in [DELAY, DELIVERY_TIME] {
        let Some(value) = headers.get(name) else { continue };
        let Some(number) = value.as_integer() else { return Err(bad_header(name, value)) };
        if name == DELAY && u64::try_from(number).is_ok_and(|delay| delay > DELAY_MAX_MS) {
            let text = format!("header '{name}' is {number}, and must not exceed {DELAY_MAX_MS}");
            return Err(Exception::new(ReplyCode::PreconditionFailed, text));
        }
    }
    Ok(())
}

/// A header that the broker reads has another type than it must.
pub(crate) fn bad_header(name: &str, value: &FieldValue) -> Exception {
    let kind = value.type_name();
    let reason = format!("invalid message: {{unacceptable_type_in_header,\"{name}\",{kind}}}");
    Exception::new(ReplyCode::PreconditionFailed, reason)
}
