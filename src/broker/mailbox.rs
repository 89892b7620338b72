//! What waits for one connection: events, and consumers that have deliveries ready.

use crate::client::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Events for one connection's task. Many put in, one takes out. Bounded by what the connection
/// itself has under way: publishes in flight and consumers attached.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    events: Mutex<Vec<Event>>,
    wake: Notify,
}

impl Mailbox {
    /// Puts an event in; confirms that continue the last one are joined with it.
    pub(crate) fn put(&self, event: Event) {
        let mut events = self.events.lock();
        let was_empty = events.is_empty();
        if !events.last_mut().is_some_and(|last| joined(last, &event)) {
            events.push(event);
        }
        drop(events);
        if was_empty {
            self.wake.notify_one();
        }
    }

    /// Waits for at least one event and takes all there are. Cancel-safe: nothing is taken before
    /// the last await.
    pub(crate) async fn take(&self, into: &mut Vec<Event>) {
        loop {
            if self.take_now(into) {
                return;
            }
            self.wake.notified().await;
        }
    }

    /// Takes all events; false if there are none.
    pub(crate) fn take_now(&self, into: &mut Vec<Event>) -> bool {
        let mut events = self.events.lock();
        if events.is_empty() {
            return false;
        }
        into.append(&mut events);
        true
    }
}

/// Joins a confirm with the one before it, if it continues it.
fn joined(last: &mut Event, next: &Event) -> bool {
    let Event::Confirmed { channel, last: end, taken, .. } = last else { return false };
    let Event::Confirmed { channel: next_channel, first, last: next_end, taken: next_taken } = next
    else {
        return false;
    };
    let continues = channel == next_channel && taken == next_taken && *end + 1 == *first;
    if continues {
        *end = *next_end;
    }
    continues
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ChannelId;

    fn confirmed(first: u64, last: u64, taken: bool) -> Event {
        Event::Confirmed { channel: ChannelId { number: 1, opened: 1 }, first, last, taken }
    }

    #[test]
    fn cnf_02_confirms_that_follow_each_other_are_joined() {
        let mailbox = Mailbox::default();
        mailbox.put(confirmed(1, 3, true));
        mailbox.put(confirmed(4, 4, true));
        mailbox.put(confirmed(5, 5, false));
        mailbox.put(confirmed(7, 7, false));
        let mut events = Vec::new();
        assert!(mailbox.take_now(&mut events));
        let ranges: Vec<_> = events
            .iter()
            .filter_map(|event| {
                let Event::Confirmed { first, last, taken, .. } = event else { return None };
                Some((*first, *last, *taken))
            })
            .collect();
        assert_eq!(ranges, [(1, 4, true), (5, 5, false), (7, 7, false)]);
        assert!(!mailbox.take_now(&mut events));
    }
}
