//! Length limits (LEN, Q-33), exact: drop-head makes room at the head, reject-publish refuses what
//! would exceed. Counted are ready messages and the bytes of their bodies.

use crate::{
    apply::Apply, command::MessageHead, config::QueueConfig, death_reason::DeathReason,
    queue::Queue, store::StoreError,
};
use quorate_types::Overflow;

/// What a queue may hold ready, and what of that is taken.
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

    /// Whether one more message still fits; then it is counted.
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

    /// Publishes that would exceed a limit are refused (LEN-07, LEN-12).
    pub(crate) fn refuses_publishes(&self) -> bool {
        match self.overflow {
            Overflow::DropHead => false,
            Overflow::RejectPublish | Overflow::RejectPublishDlx => self.is_limited(),
        }
    }

    /// What is refused becomes a dead letter (LEN-12).
    pub(crate) fn dead_letters_refused(&self) -> bool {
        self.overflow == Overflow::RejectPublishDlx && self.dead_letter.is_some()
    }
}

impl Queue {
    /// Drops what would be delivered next until both limits hold (LEN-04). What the command itself
    /// made ready makes way at once; of what a lowered limit leaves over, only as much as one apply
    /// may handle. Tells whether anything was dropped.
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

    /// Of messages about to be enqueued, those that would exceed a limit, as inclusive ranges of
    /// places. What consumers with credit take at once does not count.
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

    /// How many messages consumers may be assigned now.
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
        /// refused is exactly what would exceed, one after the other.
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
