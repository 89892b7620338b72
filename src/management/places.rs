//! The places of the HTTP port's connections, and which connection gives up its place to another.
//!
//! Anybody can open connections, and the probes of Kubernetes come through the same port. So a new
//! client at the bound does not wait until a connection ends by itself: one that waits for a request
//! is closed, as RFC 9112 (section 9.3) lets a server do at any time. It is taken from the network
//! address with the most waiting connections, so that a client with many does not push out others.
//!
//! Anybody can begin a request too, and leave it unfinished. So only requests of users who may make them
//! are in progress, from then on until their answers are sent; all others count as waiting.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The bits of an IPv6 address that tell networks apart: a host can have every address of its network.
const NETWORK_BITS: u128 = !(u64::MAX as u128);

/// The places in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<InUse>>);

#[derive(Debug, Default)]
struct InUse {
    next: u64,
    connections: BTreeMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    origin: IpAddr,
    /// Since when it has waited for a request, or for the check whether the user may make the request.
    /// `None`: a permitted request is in progress.
    waiting: Option<Instant>,
    /// Tells it that it is to end.
    end: Arc<Notify>,
}

/// The place of one connection; it is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    number: u64,
    end: Arc<Notify>,
}

impl Places {
    /// A place for a new connection, which waits for its first request. There is no bound here.
    pub(crate) fn take(&self, peer: IpAddr) -> Arc<Place> {
        let end = Arc::new(Notify::new());
        let mut in_use = self.0.lock();
        let number = in_use.next;
        in_use.next += 1;
        let waiting = Some(Instant::now());
        let connection = Connection { origin: origin(peer), waiting, end: Arc::clone(&end) };
        in_use.connections.insert(number, connection);
        Arc::new(Place { places: self.clone(), number, end })
    }

    /// Ends the connection that has waited for longest, of the address with the most waiting
    /// connections. Does nothing if none waits.
    pub(crate) fn make_room(&self) {
        let mut in_use = self.0.lock();
        let mut origins = BTreeMap::<IpAddr, (usize, Option<(Instant, u64)>)>::new();
        for (number, connection) in &in_use.connections {
            let Some(since) = connection.waiting else { continue };
            let (count, longest) = origins.entry(connection.origin).or_default();
            *count += 1;
            *longest = Some(longest.map_or((since, *number), |it| it.min((since, *number))));
        }
        let most = origins.into_values().max_by_key(|(count, _)| *count);
        let Some((_, number)) = most.and_then(|(_, longest)| longest) else { return };
        if let Some(connection) = in_use.connections.remove(&number) {
            connection.end.notify_one();
        }
    }
}

/// The network address of a client.
fn origin(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_BITS).into(),
    }
}

impl Place {
    /// Ends the connection, whatever it does.
    pub(crate) fn end(&self) {
        self.places.0.lock().connections.remove(&self.number);
        self.end.notify_one();
    }

    /// Resolves when the connection is to end.
    pub(crate) async fn lost(&self) {
        self.end.notified().await;
    }

    /// The head of a request has arrived. Whether its user may make it is checked next.
    pub(crate) fn begin(&self) {
        self.set_in_progress(false);
    }

    /// True: the user may make the request. False: the answer has been sent.
    pub(crate) fn set_in_progress(&self, in_progress: bool) {
        if let Some(connection) = self.places.0.lock().connections.get_mut(&self.number) {
            connection.waiting = (!in_progress).then(Instant::now);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.lock().connections.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use futures::FutureExt;

    fn is_lost(place: &Place) -> bool {
        place.lost().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_address_with_most_gives_up_what_has_waited_for_longest() {
        let places = Places::default();
        let take = |peer: &str| places.take(peer.parse().unwrap());
        let alone = take("10.0.0.1");
        let busy = take("2001:db8::1");
        busy.set_in_progress(true);
        let first = take("2001:db8::2");
        let second = take("2001:db8::ffff:3");
        let other = take("2001:db8:0:1::1");
        first.set_in_progress(true);
        first.set_in_progress(false);
        places.make_room();
        assert!(is_lost(&second) && !is_lost(&first), "the second one waits since before");
        drop((first, other));
        places.make_room();
        assert!(is_lost(&alone));
        places.make_room();
        assert!(!is_lost(&busy), "a request in progress is carried out");
        drop((alone, busy, second));
        assert!(places.0.lock().connections.is_empty());
    }
}
