//! Length limits (LEN, Q-33), exact: drop-head removes messages at the head, reject-publish refuses
//! messages that would exceed a limit. Limits count ready messages and the bytes of their bodies.

use crate::{
    apply::Apply, command::MessageHead, config::QueueConfig, death_reason::DeathReason,
    queue::Queue, store::StoreError,
};
use quorate_types::Overflow;

/// The limits of ready messages, and their present use.
#[derive(Clone, Copy, Debug)]
struct Room {
    messages_max: u64,
    bytes_max: u64,
    messages: u64,
    bytes: u64,
}

impl Room {
    fn of(queue: &Queue) -> Self {
        Self {
            messages_max: queue.config.length_max.unwrap_or(u64::MAX),
            bytes_max: queue.config.length_bytes_max.unwrap_or(u64::MAX),
            messages: queue.ready(),
            bytes: queue.ready_bytes(),
        }
    }

    fn is_exceeded(self) -> bool {
        self.messages > self.messages_max || self.bytes > self.bytes_max
    }

    /// Counts one more message if it fits; false if it does not.
    fn take(&mut self, body_bytes: u32) -> bool {
        let more = Self {
            messages: self.messages.saturating_add(1),
            bytes: self.bytes.saturating_add(u64::from(body_bytes)),
            ..*self
        };
        let fits = !more.is_exceeded();
        if fits {
            *self = more;
        }
        fits
    }
}

impl QueueConfig {
    fn is_limited(&self) -> bool {
        self.length_max.is_some() || self.length_bytes_max.is_some()
    }

    /// True if publishes that would exceed a limit are refused (LEN-07, LEN-12).
    pub(crate) fn refuses_publishes(&self) -> bool {
        match self.overflow {
            Overflow::DropHead => false,
            Overflow::RejectPublish | Overflow::RejectPublishDlx => self.is_limited(),
        }
    }

    /// True if refused messages become dead letters (LEN-12).
    pub(crate) fn dead_letters_refused(&self) -> bool {
        self.overflow == Overflow::RejectPublishDlx && self.dead_letter.is_some()
    }
}

impl Queue {
    /// Drops the messages that would be delivered next until both limits are kept (LEN-04). As many
    /// messages as the command made ready are dropped at once; of those above a lowered limit, only
    /// as many as the budget of this apply allows. True if any message was dropped.
    pub(crate) fn drop_head(&mut self, apply: &mut Apply<'_>) -> Result<bool, StoreError> {
        if !self.config.is_limited() || self.config.overflow != Overflow::DropHead {
            return Ok(false);
        }
        // Consumers are served first (DLX-41).
        if self.stabilizing_left && !self.service_queue.is_empty() {
            return Ok(false);
        }
        let mut room = Room::of(self);
        let before = room.messages;
        let mut allowed = self.arrived.max(u64::from(apply.budget));
        while room.is_exceeded() {
            if allowed == 0 {
                self.leave_stabilizing(apply);
                break;
            }
            let Some(queued) = self.take_first(apply)? else { break };
            room.messages -= 1;
            room.bytes -= u64::from(queued.head.body_bytes);
            self.die(queued, DeathReason::MaxLength, apply);
            apply.spend(1);
            allowed -= 1;
        }
        Ok(room.messages < before)
    }

    /// Of messages to be enqueued, those that would exceed a limit, as inclusive ranges of indexes.
    /// Messages that consumers with credit take at once do not count.
    pub(crate) fn refused(&self, messages: &[MessageHead]) -> Vec<(u32, u32)> {
        let mut room = Room::of(self);
        let mut taken_at_once = self.credit().saturating_sub(room.messages);
        let mut refused: Vec<(u32, u32)> = Vec::new();
        for (place, head) in (0u32..).zip(messages) {
            if taken_at_once > 0 {
                taken_at_once -= 1;
            } else if !room.take(head.body_bytes) {
                match refused.last_mut() {
                    Some((_, last)) if *last + 1 == place => *last = place,
                    Some(_) | None => refused.push((place, place)),
                }
            }
        }
        refused
    }

    /// Number of messages that may be assigned to consumers now.
    fn credit(&self) -> u64 {
        let served = self.consumers.values().filter(|consumer| consumer.in_service_queue);
        served.map(|consumer| consumer.room()).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::Room;
    use proptest::prelude::*;

    proptest! {
        /// messages are refused exactly if they would exceed a limit, in order.
        #[test]
        fn q_33_exactly_what_would_exceed_is_refused(
            messages_max in prop::option::of(0u64..6),
            bytes_max in prop::option::of(0u64..40),
            sizes in prop::collection::vec(0u32..20, 0..20),
        ) {
            let mut room = Room {
                messages_max: messages_max.unwrap_or(u64::MAX),
                bytes_max: bytes_max.unwrap_or(u64::MAX),
                messages: 0,
                bytes: 0,
            };
            let mut ready: Vec<u32> = Vec::new();
            for size in sizes {
                let count = ready.len() as u64 + 1;
                let bytes = ready.iter().chain([&size]).map(|size| u64::from(*size)).sum::<u64>();
                let fits = messages_max.is_none_or(|max| count <= max)
                    && bytes_max.is_none_or(|max| bytes <= max);
                prop_assert_eq!(room.take(size), fits);
                if fits {
                    ready.push(size);
                }
                prop_assert!(!room.is_exceeded());
            }
        }
    }
}
