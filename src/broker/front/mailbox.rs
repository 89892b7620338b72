//! The events that wait for one connection.

use crate::client::Event;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Events for one connection's task: many senders, one receiver. Bounded by what the connection
/// itself has in flight: its publishes and its attached consumers.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    events: Mutex<Vec<Event>>,
    wake: Notify,
}

impl Mailbox {
    /// Adds an event; a confirm that continues the last one is joined with it.
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

    /// Waits for at least one event and takes all. Cancel-safe: nothing is taken before the last
    /// await.
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
mod tests;
