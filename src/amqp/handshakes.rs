//! Connections that have not logged in: in their handshake, or refused and not yet closed. Their number
//! is bounded. At the bound, the oldest connection of the source with the most connections is closed: a
//! real client logs in within a few round trips, and a source that opens many does not push out others.

use parking_lot::Mutex;
use quorate_types::Source;
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};
use tokio::sync::oneshot;

/// The connections of one listener whose clients have not logged in.
#[derive(Clone, Debug)]
pub(crate) struct Handshakes {
    open: Arc<Mutex<Open>>,
    max: usize,
}

/// A sender that is dropped ends its handshake.
type Ends = BTreeMap<u64, oneshot::Sender<()>>;

#[derive(Debug, Default)]
struct Open {
    /// Number of the next one.
    next: u64,
    all: usize,
    /// Handshakes by source, and then by number, which is the order of age.
    sources: BTreeMap<Source, Ends>,
}

/// The place of one handshake, released when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    open: Arc<Mutex<Open>>,
    source: Source,
    number: u64,
    dropped: oneshot::Receiver<()>,
}

impl Handshakes {
    /// At most `max` at once.
    pub(crate) fn new(max: u32) -> Self {
        Self { open: Arc::default(), max: usize::try_from(max).unwrap_or(usize::MAX) }
    }

    /// A place for one more.
    pub(crate) fn begin(&self, source: Source) -> Place {
        let (sender, dropped) = oneshot::channel();
        let mut open = self.open.lock();
        while open.all >= self.max.max(1) && open.end_oldest() {}
        let number = open.next;
        open.next += 1;
        open.all += 1;
        open.sources.entry(source).or_default().insert(number, sender);
        Place { open: Arc::clone(&self.open), source, number, dropped }
    }
}

impl Open {
    /// Ends the oldest handshake of the source with the most handshakes; of several such sources, the
    /// oldest of all. False if there is no handshake.
    fn end_oldest(&mut self) -> bool {
        let oldest = |ends: &Ends| ends.keys().next().copied();
        let most = |ends: &Ends| (ends.len(), Reverse(oldest(ends)));
        let most = self.sources.iter().max_by_key(|(_, ends)| most(ends));
        let oldest = most.and_then(|(source, ends)| Some((*source, oldest(ends)?)));
        oldest.is_some_and(|(source, number)| self.end(source, number))
    }

    /// False if that handshake has ended before.
    fn end(&mut self, source: Source, number: u64) -> bool {
        let Some(ends) = self.sources.get_mut(&source) else { return false };
        let ended = ends.remove(&number).is_some();
        if ends.is_empty() {
            self.sources.remove(&source);
        }
        self.all -= usize::from(ended);
        ended
    }
}

impl Place {
    /// Resolves when the place is taken by another handshake.
    pub(crate) async fn taken(&mut self) {
        // No value is ever sent.
        let _ = (&mut self.dropped).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.lock().end(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::net::{IpAddr, Ipv4Addr};

    fn source(number: u32) -> Source {
        Source::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn the_oldest_makes_way_for_the_newest() {
        let handshakes = Handshakes::new(2);
        let begin = || handshakes.begin(source(1));
        let (mut first, mut second) = (begin(), begin());
        assert_eq!(first.taken().now_or_never(), None);
        let mut third = begin();
        assert_eq!(first.taken().now_or_never(), Some(()));
        assert_eq!(second.taken().now_or_never(), None);
        drop(second);
        let fourth = begin();
        assert_eq!(third.taken().now_or_never(), None, "one had ended");
        drop((first, third, fourth));
        let open = handshakes.open.lock();
        assert!(open.sources.is_empty() && open.all == 0);
    }

    #[test]
    fn a_source_that_opens_many_does_not_push_out_others() {
        let handshakes = Handshakes::new(8);
        let mut honest = handshakes.begin(source(1));
        let mut others: Vec<_> = (0..100).map(|_| handshakes.begin(source(2))).collect();
        assert_eq!(honest.taken().now_or_never(), None);
        let ended = others.iter_mut().filter_map(|it| it.taken().now_or_never()).count();
        assert_eq!(ended, 93);
        let mut late = handshakes.begin(source(3));
        assert_eq!(late.taken().now_or_never(), None);
        assert_eq!(honest.taken().now_or_never(), None);
    }

    #[test]
    fn of_sources_with_as_many_the_oldest_makes_way() {
        let handshakes = Handshakes::new(2);
        let mut first = handshakes.begin(source(1));
        let mut second = handshakes.begin(source(2));
        let mut third = handshakes.begin(source(0));
        let taken = [&mut first, &mut second, &mut third].map(|it| it.taken().now_or_never());
        assert_eq!(taken, [Some(()), None, None]);
    }
}
