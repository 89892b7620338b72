//! A mailbox returns what was put in.

use super::*;
use crate::client::ChannelId;
use proptest::{collection::vec, prelude::*};

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

/// The publishes that events confirm, one by one, and the channel numbers of other events.
fn expanded(events: &[Event]) -> Vec<(u16, Option<(u64, bool)>)> {
    let mut all = Vec::new();
    for event in events {
        if let Event::Confirmed { channel, first, last, taken } = event {
            all.extend((*first..=*last).map(|number| (channel.number, Some((number, *taken)))));
        } else {
            all.push((0, None));
        }
    }
    all
}

proptest! {
    /// CNF-02, CNF-05: however confirms are joined, each publish is confirmed as often, in the same
    /// order, and for the same channel as was put in; other events keep their place among them.
    #[test]
    fn cnf_02_and_05_joined_confirms_say_what_was_put_in(
        puts in vec((1..3_u16, 1..4_u64, prop::bool::weighted(0.8), prop::bool::weighted(0.1)), 1..60),
        takes in vec(1..20_usize, 1..6),
    ) {
        let (mailbox, mut next) = (Mailbox::default(), [1, 1, 1]);
        let (mut put, mut taken_out) = (Vec::new(), Vec::new());
        let mut takes = takes.into_iter().cycle();
        let mut left = takes.next();
        for (number, count, taken, other) in puts {
            let event = || {
                let first = next.get(usize::from(number)).copied().unwrap_or(1);
                let channel = ChannelId { number, opened: 1 };
                Event::Confirmed { channel, first, last: first + count - 1, taken }
            };
            let event = if other { Event::DeliveriesReady } else { event() };
            if let (Event::Confirmed { last, .. }, Some(next)) =
                (&event, next.get_mut(usize::from(number)))
            {
                *next = last + 1;
            }
            put.push(event.clone());
            mailbox.put(event);
            left = left.map(|left| left - 1);
            if left == Some(0) {
                prop_assert!(mailbox.take_now(&mut taken_out));
                left = takes.next();
            }
        }
        mailbox.take_now(&mut taken_out);
        prop_assert_eq!(expanded(&taken_out), expanded(&put));
        prop_assert!(taken_out.len() <= put.len());
        prop_assert!(!mailbox.take_now(&mut taken_out), "taken once");
    }
}
