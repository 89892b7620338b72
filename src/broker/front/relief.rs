//! Closing the connections that hold most of a used-up share of memory: incomplete contents, open
//! transactions, or deliveries that the client does not take.
//!
//! An honest large message is complete within a second; an incomplete one can occupy memory for as
//! long as its client likes. So the connection that is closed first is the one with the largest
//! product of bytes and age. While this node's memory alarm is on, no publisher is read, so
//! incomplete contents cannot be completed. After 5 s of the alarm they are dropped, except for a
//! quarter of their share.

use crate::{
    client::Event,
    front::{clients::Clients, connection_state::ConnectionState},
    memory::Share,
};
use quorate_types::{Exception, ReplyCode};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// Pause between two searches: connections that were asked to close need a moment.
const PAUSE: Duration = Duration::from_millis(20);

/// A connection that holds less is not closed: every publisher may be sending a message or two.
const HOLDER_BYTES_MIN: u64 = 64 * 1024;
/// A message that takes longer than this makes its connection a candidate, ms: many small ones
/// together would hold as much.
const LASTING_MS: u64 = 10_000;

/// Least age that counts, ms: otherwise a small older content would weigh more than a large new
/// one.
const NEW_MS: u64 = 100;

/// A client is slow if deliveries have waited for it this long without a break.
const SLOW: Duration = Duration::from_secs(2);

/// Bytes of the share that closing the connection would free, and how long it has held some, ms.
fn holds(connection: &ConnectionState, share: Share) -> (u64, u64) {
    match share {
        Share::Deliveries => match connection.delivering.unwritten.waits() {
            (bytes, age) if age >= SLOW => (bytes, u64::try_from(age.as_millis()).unwrap_or(0)),
            _ => (0, 0),
        },
        Share::Contents
        | Share::Transactions
        | Share::InFlight
        | Share::Letters
        | Share::Replies => connection.unfinished.of(share),
    }
}

impl Clients {
    /// Closes the greatest holders of unfinished contents or transactions, or of deliveries that they
    /// are slow to take, until the others hold at most `bytes_max`.
    pub(crate) fn close_greatest(&self, share: Share, bytes_max: u64) {
        // One search at a time is enough: others repeat theirs in the next round.
        let Some(mut last) = self.relief.try_lock() else { return };
        let early = last.is_some_and(|last| last.elapsed() < PAUSE);
        if early || self.base.context.memory.share_held_bytes(share) <= bytes_max {
            return;
        }
        *last = Some(Instant::now());
        let mut held = self.base.context.memory.share_held_bytes(share);
        let mut holders = Vec::new();
        for connection in self.connections.all() {
            let (bytes, age_ms) = holds(&connection, share);
            if connection.unfinished.closing.load(Ordering::Relaxed) {
                held = held.saturating_sub(bytes);
            } else if bytes >= HOLDER_BYTES_MIN || (bytes > 0 && age_ms > LASTING_MS) {
                let weight = bytes.saturating_mul(age_ms + NEW_MS);
                holders.push((weight, bytes, connection));
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
            "memory limit reached: closing the connection that holds most"
        );
        connection.unfinished.closing.store(true, Ordering::Relaxed);
        if share == Share::Deliveries {
            // A close would wait behind the deliveries that the client does not take. Counted when
            // it is lost.
            connection.delivering.unwritten.give_up();
            return;
        }
        self.base.context.memory.note_refused(share);
        let text = format!("the node's memory for {} is used up", share.name());
        let exception = Exception::new(ReplyCode::ResourceError, text);
        connection.mailbox.put(Event::Close(exception));
    }

    /// Drops the slowest clients if so much waits for them that others get nothing.
    pub(crate) fn drop_slow_clients(&self) {
        if self.base.context.memory.is_overdrawn(Share::Deliveries, false) {
            self.close_greatest(
                Share::Deliveries,
                self.base.context.memory.share_bytes_max(Share::Deliveries),
            );
        }
    }

    /// Drops incomplete contents while memory is short: publishers are not read then, so the
    /// contents could not be completed and would keep memory short.
    pub(crate) fn drop_unfinished(&self) {
        for share in [Share::Contents, Share::Transactions] {
            self.close_greatest(share, self.base.context.memory.share_bytes_max(share) / 4);
        }
    }
}
