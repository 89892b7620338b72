//! Fetches of bodies of which this node has no copy.

use super::{FutureExt, StoredMessage, World, stored};
use crate::leader::bodies::Found;
use bytes::Bytes;

impl World {
    /// A fetch of the first body ends.
    pub(super) fn fetched(&mut self, is_found: bool) {
        if !self.consumer.state.lock().fetching {
            return;
        }
        let first = self.fetching;
        let turn = self.consumer.connection.delivering.unwritten.turn_to_fetch(&self.fetches);
        let turn = turn.now_or_never().unwrap();
        let found = match is_found {
            false => StoredMessage::Unknown,
            true if self.queue.held.contains_key(&first.0) => StoredMessage::Here(stored(first.0)),
            true => StoredMessage::Absent,
        };
        let next = self.sent_with_it();
        self.consumer.fetched(first, Found { first: found, next }, turn);
    }

    /// What another node sends with a body: those that follow, as far as it has them.
    fn sent_with_it(&self) -> Vec<Bytes> {
        let state = self.consumer.state.lock();
        let after = state.ready.iter().skip(1).map(|it| it.number.0).take(2);
        after.take_while(|number| self.queue.held.contains_key(number)).map(stored).collect()
    }
}
