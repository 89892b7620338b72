//! How a message is enqueued in one of its targets: its level there, and the head that the queue
//! keeps of it.

use crate::leader::led_homes::LedHomes;
use bytes::Bytes;
use quorate_catalog::{Catalog, DELAY, DELAY_MAX_MS, delay_of, delays_for};
use quorate_queue::MessageHead;
use quorate_types::{Exception, Level, Levels, Properties, QueueId, QueueType, ReplyCode};

/// How a message is enqueued in one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnqueueOptions {
    /// Level (priority) in the queue.
    pub(crate) level: Level,
    /// Body size and expiration.
    pub(crate) head: MessageHead,
}

impl LedHomes {
    /// How a message is enqueued in each of its targets, in their order.
    pub(crate) fn enqueue_options(
        &self,
        catalog: &Catalog,
        targets: &[QueueId],
        properties: &Properties,
        body: &Bytes,
    ) -> Vec<EnqueueOptions> {
        targets
            .iter()
            .map(|queue| self.enqueue_options_of(catalog, *queue, properties, body))
            .collect()
    }

    /// How a message is enqueued in one queue.
    pub(crate) fn enqueue_options_of(
        &self,
        catalog: &Catalog,
        queue: QueueId,
        properties: &Properties,
        body: &Bytes,
    ) -> EnqueueOptions {
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
        EnqueueOptions { level, head: MessageHead { body_bytes, expiration_ms } }
    }

    /// The level in a connection-bound queue that is not in the catalog. Only the queue's own node
    /// knows whether it has several levels.
    fn level_of_local(&self, queue: QueueId, priority: Option<u8>) -> Level {
        if priority.is_none() || queue.home != self.own_home() {
            return Level(0);
        }
        let max = self.local.read(|machine| machine.priority_max(queue)).flatten();
        Levels::new(QueueType::Classic, max).of(priority)
    }
}

/// Checks the bound of a delay (EXC-17). The front end has checked that it is an integer.
///
/// # Errors
/// 406 with the name of the header, if the delay is above the bound.
pub(crate) fn check_delay(properties: &Properties) -> Result<(), Exception> {
    match delay_of(properties) {
        Some(delay) if delay > DELAY_MAX_MS => {
            let text = format!("header '{DELAY}' is {delay}, and must not exceed {DELAY_MAX_MS}");
            Err(Exception::new(ReplyCode::PreconditionFailed, text))
        }
        Some(_) | None => Ok(()),
    }
}
