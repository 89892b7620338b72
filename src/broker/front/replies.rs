//! Replies that wait for a connection to read them (DRT-04).

use crate::{
    client::Delivered,
    memory::{Held, MemoryBudget, Share},
    peers::message::REPLY_KEY_BYTES,
};
use parking_lot::Mutex;
use quorate_types::{ConsumerId, ShortString};
use std::{collections::VecDeque, sync::Arc};

/// Bytes of replies that may wait for one connection. Further replies are dropped, so that a
/// requester that does not read delays no other client.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Memory of a waiting reply besides its body.
const REPLY_COST_BYTES: usize = 512;

/// A channel's consumer of replies.
#[derive(Debug)]
pub(crate) struct ReplyConsumer {
    pub(crate) id: ConsumerId,
    pub(crate) tag: ShortString,
    pub(crate) key: [u8; REPLY_KEY_BYTES],
}

/// Replies that wait until their connection is written to.
#[derive(Debug)]
pub(crate) struct Replies(Mutex<Waiting>);

#[derive(Debug)]
struct Waiting {
    replies: VecDeque<Delivered>,
    bytes: usize,
    held: Held,
}

fn cost_bytes(reply: &Delivered) -> usize {
    reply.message.body.len() + reply.message.properties.len() + REPLY_COST_BYTES
}

impl Replies {
    /// State without replies; waiting ones are counted in the node's memory.
    pub(crate) fn new(memory: &Arc<MemoryBudget>) -> Self {
        let held = memory.account(Share::Replies);
        Self(Mutex::new(Waiting { replies: VecDeque::new(), bytes: 0, held }))
    }

    /// Adds a reply; false if there is no room.
    pub(crate) fn push(&self, reply: Delivered) -> bool {
        let mut waiting = self.0.lock();
        let bytes = waiting.bytes + cost_bytes(&reply);
        if waiting.bytes >= WAITING_BYTES_MAX || !waiting.held.try_set_about(bytes as u64) {
            return false;
        }
        waiting.bytes = bytes;
        waiting.replies.push_back(reply);
        true
    }

    /// Takes replies up to about `bytes_max` bytes; returns the bytes taken.
    pub(crate) fn take(&self, bytes_max: usize, into: &mut Vec<Delivered>) -> usize {
        let mut waiting = self.0.lock();
        let mut taken = 0;
        while taken < bytes_max {
            let Some(reply) = waiting.replies.pop_front() else { break };
            waiting.bytes -= cost_bytes(&reply);
            taken += cost_bytes(&reply);
            into.push(reply);
        }
        let left = waiting.bytes as u64;
        waiting.held.set_about(left);
        taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().replies.is_empty()
    }
}

#[cfg(test)]
mod tests;
