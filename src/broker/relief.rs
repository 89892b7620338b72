//! Closing who holds most of what is not finished, where the memory for it is used up.

use crate::{
    client::Event,
    connection::{Connection, ConnectionState},
    memory::Share,
    node::Node,
};
use quorate_types::{Exception, ReplyCode};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Who holds most is looked for no more often: those that were told to close need a moment.
const PAUSE: Duration = Duration::from_millis(20);

/// Who holds less is not closed: every publisher may be in the midst of a message or two.
const HOLDER_BYTES_MIN: u64 = 64 * 1024;

/// What a connection holds of what is not finished, as its front end told last.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// Octets of contents that have not come whole.
    contents: AtomicU64,
    /// For how long they have been under way, ms.
    age_ms: AtomicU64,
    /// Octets of transactions.
    transactions: AtomicU64,
    /// The connection has been told to close.
    closing: AtomicBool,
}

impl Unfinished {
    fn bytes(&self, share: Share) -> u64 {
        match share {
            Share::Contents => self.contents.load(Ordering::Relaxed),
            Share::Transactions => self.transactions.load(Ordering::Relaxed),
            Share::InFlight | Share::Deliveries | Share::Letters | Share::Replies => 0,
        }
    }

    /// What makes one the greatest holder: octets, and of contents also how long they have been
    /// coming, since an honest one is soon over.
    fn weight(&self, share: Share) -> u64 {
        let age_ms = match share {
            Share::Contents => self.age_ms.load(Ordering::Relaxed),
            Share::Transactions
            | Share::InFlight
            | Share::Deliveries
            | Share::Letters
            | Share::Replies => 0,
        };
        self.bytes(share).saturating_mul(age_ms + 1)
    }
}

impl Connection {
    /// Tells what the front end holds between two turns: octets of contents that have not come whole,
    /// for how long they have been under way, and octets of transactions.
    pub fn tell_unfinished(&self, contents: u64, age_ms: u64, transactions: u64) {
        let unfinished = &self.state.unfinished;
        unfinished.contents.store(contents, Ordering::Relaxed);
        unfinished.age_ms.store(age_ms, Ordering::Relaxed);
        unfinished.transactions.store(transactions, Ordering::Relaxed);
    }

    /// Makes room of `bytes` in that share, by closing the connections of this node that hold most
    /// of it.
    pub fn relieve(&self, share: Share, bytes: u64) {
        let max = self.node.memory.share_bytes_max(share);
        self.node.close_greatest(share, max.saturating_sub(bytes));
    }
}

impl Node {
    /// Closes the greatest holders of unfinished contents or transactions until the others hold at
    /// most `bytes_max`.
    pub(crate) fn close_greatest(&self, share: Share, bytes_max: u64) {
        // One at a time is enough: whoever else finds the share used up looks again next turn.
        let Some(mut last) = self.relief.try_lock() else { return };
        let early = last.is_some_and(|last| last.elapsed() < PAUSE);
        if early || self.memory.share_held_bytes(share) <= bytes_max {
            return;
        }
        *last = Some(Instant::now());
        let mut held = self.memory.share_held_bytes(share);
        let mut holders = Vec::new();
        for connection in self.connections.all() {
            let unfinished = &connection.unfinished;
            let bytes = unfinished.bytes(share);
            if unfinished.closing.load(Ordering::Relaxed) {
                held = held.saturating_sub(bytes);
            } else if bytes >= HOLDER_BYTES_MIN {
                holders.push((unfinished.weight(share), bytes, connection));
            }
        }
        holders.sort_unstable_by_key(|(weight, _, _)| std::cmp::Reverse(*weight));
        for (_, bytes, connection) in holders {
            if held <= bytes_max {
                return;
            }
            held = held.saturating_sub(bytes);
            self.close_holder(share, bytes, &connection);
        }
    }

    fn close_holder(&self, share: Share, bytes: u64, connection: &Arc<ConnectionState>) {
        tracing::warn!(
            peer = %connection.info.peer, share = share.name(), bytes,
            "memory is used up: the greatest holder is closed"
        );
        self.memory.note_refused(share);
        connection.unfinished.closing.store(true, Ordering::Relaxed);
        let text = format!("the node's memory for {} is used up", share.name());
        let exception = Exception::new(ReplyCode::ResourceError, text);
        connection.mailbox.put(Event::Close(exception));
    }

    /// While memory is short, what is not finished does not keep it so: who publishes is not read
    /// then, so that nothing of it would be finished.
    pub(crate) fn drop_unfinished(&self) {
        for share in [Share::Contents, Share::Transactions] {
            self.close_greatest(share, self.memory.share_bytes_max(share) / 4);
        }
    }
}
