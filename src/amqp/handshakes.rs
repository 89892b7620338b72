//! Handshakes in progress: bounded in number, whoever begins them. At the bound the oldest is dropped,
//! not the newest refused: who means to log in does so within a few round trips.

use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::oneshot;

/// The handshakes of one listener.
#[derive(Clone, Debug)]
pub(crate) struct Handshakes {
    open: Arc<Mutex<Open>>,
    max: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Number of the next one.
    next: u64,
    /// By number, and so by age; a sender that is dropped ends its handshake.
    places: BTreeMap<u64, oneshot::Sender<()>>,
}

/// One handshake's place, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    open: Arc<Mutex<Open>>,
    number: u64,
    dropped: oneshot::Receiver<()>,
}

impl Handshakes {
    /// At most `max` at once.
    pub(crate) fn new(max: u32) -> Self {
        Self { open: Arc::default(), max: usize::try_from(max).unwrap_or(usize::MAX) }
    }

    /// A place for one more.
    pub(crate) fn begin(&self) -> Place {
        let (sender, dropped) = oneshot::channel();
        let mut open = self.open.lock();
        while open.places.len() >= self.max.max(1) {
            open.places.pop_first();
        }
        let number = open.next;
        open.next += 1;
        open.places.insert(number, sender);
        Place { open: Arc::clone(&self.open), number, dropped }
    }
}

impl Place {
    /// Resolves when the place is taken by another handshake.
    pub(crate) async fn taken(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.dropped).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().places.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn the_oldest_makes_way_for_the_newest() {
        let handshakes = Handshakes::new(2);
        let (mut first, mut second) = (handshakes.begin(), handshakes.begin());
        assert_eq!(first.taken().now_or_never(), None);
        let mut third = handshakes.begin();
        assert_eq!(first.taken().now_or_never(), Some(()));
        assert_eq!(second.taken().now_or_never(), None);
        drop(second);
        let fourth = handshakes.begin();
        assert_eq!(third.taken().now_or_never(), None, "one had ended");
        drop((first, third, fourth));
        assert!(handshakes.open.lock().places.is_empty());
    }
}
