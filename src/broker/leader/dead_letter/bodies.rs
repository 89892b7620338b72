//! Bodies of letters: read when the letters are routed or sent, a bounded number of bytes at a
//! time. A body that cannot be read here is fetched from another replica, one at a time for each
//! home.
//!
//! Bodies differ in size, so memory is bounded in bytes and not in messages: a stream has 16 MiB in
//! flight, or one batch. A body is read and annotated twice, to route the letter and to send it.
//! The routing is committed in between, and no bound in bytes applies to the letters that wait for
//! that.

use super::DeadLetters;
use bytes::Bytes;
use quorate_storage::{MessageRef, StoredMessage};
use quorate_types::{Home, MessageId, QueueId};

impl DeadLetters {
    /// Messages of a queue's letters, in the order asked for: about `bytes_max` bytes of them. None
    /// if the first one is not available here: the worker is woken when it is.
    pub(super) fn letter_bodies(
        &self,
        home: Home,
        queue: QueueId,
        wanted: &[MessageId],
        bytes_max: usize,
    ) -> Vec<Bytes> {
        let wanted: Vec<_> = wanted.iter().map(|&message| MessageRef { queue, message }).collect();
        let Some(first) = wanted.first().copied() else { return Vec::new() };
        if let Some(body) = self.with(home, |worker| worker.body_fetched(first)).flatten() {
            return vec![body];
        }
        // The leader's own log has every entry that its machine names.
        let term = self.led.leading(home);
        let read = self.bodies.read_messages(queue, &wanted, term, bytes_max);
        let here = |found| match found {
            StoredMessage::Here(body) => Some(body),
            StoredMessage::Absent | StoredMessage::Unknown => None,
        };
        let bodies: Vec<_> = read.into_iter().map_while(here).collect();
        if bodies.is_empty() {
            self.fetch_letter(home, first);
        }
        bodies
    }

    fn fetch_letter(&self, home: Home, wanted: MessageRef) {
        let Some(term) = self.led.leading(home) else { return };
        if !self.with(home, |worker| worker.begin_fetch()).unwrap_or(false) {
            return;
        }
        let Some(this) = self.this.upgrade() else { return };
        self.context.spawn(async move {
            let leads = || this.led.leading(home) == Some(term);
            let found = this.bodies.find_message(wanted, Some(term), leads).await;
            let body = match found {
                StoredMessage::Here(body) => Some(body),
                StoredMessage::Absent | StoredMessage::Unknown => None,
            };
            if body.is_none() && leads() && this.bodies.may_report_unreadable(wanted.queue) {
                tracing::error!(queue = %wanted.queue, "the body of a dead letter is missing");
            }
            let has = body.is_some();
            this.with(home, |worker| worker.fetched(term, wanted, body));
            if has {
                this.wake();
            }
        });
    }
}
