//! Publishes of a commit whose answers have not all arrived.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The publishes of one commit, until every queue has answered.
#[derive(Debug)]
pub(crate) struct Commit(Mutex<Open>);

#[derive(Debug)]
struct Open {
    /// Publishes not yet answered.
    publishes: usize,
    refused: bool,
    /// Receives whether all publishes were taken.
    done: Option<oneshot::Sender<bool>>,
}

impl Commit {
    pub(crate) fn new(publishes: usize) -> (Arc<Self>, oneshot::Receiver<bool>) {
        let (done, all_taken) = oneshot::channel();
        let open = Open { publishes, refused: false, done: Some(done) };
        (Arc::new(Self(Mutex::new(open))), all_taken)
    }

    /// Records that `count` publishes were taken or refused.
    pub(crate) fn answered(&self, count: u32, taken: bool) {
        let mut open = self.0.lock();
        open.publishes = open.publishes.saturating_sub(count as usize);
        open.refused |= !taken;
        if open.publishes == 0
            && let Some(done) = open.done.take()
        {
            // The channel may have closed.
            let _ = done.send(!open.refused);
        }
    }
}

#[cfg(test)]
mod tests;
