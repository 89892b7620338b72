//! Confirms against a model: every publish is confirmed once with the answer of its targets, and
//! the bytes in flight return to zero.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::testing::lone_connection;
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

const CHANNEL: ChannelId = ChannelId { number: 1, opened: 0 };

fn ticket(connection: &Arc<ConnectionState>, confirm_to: ConfirmTo, bytes: usize) -> PublishTicket {
    connection.publishing.in_flight.launched(bytes);
    let connection = Arc::clone(connection);
    PublishTicket {
        connection,
        channel: CHANNEL,
        confirm_to,
        mandatory: false,
        count: 1,
        bytes,
        shared: None,
    }
}

/// The confirms that the connection got, by delivery tag.
fn confirms(connection: &ConnectionState) -> BTreeMap<u64, Vec<bool>> {
    let mut events = Vec::new();
    connection.mailbox.take_now(&mut events);
    let mut confirms = BTreeMap::<u64, Vec<bool>>::new();
    for event in events {
        if let Event::Confirmed { first, last, taken, .. } = event {
            (first..=last).for_each(|number| confirms.entry(number).or_default().push(taken));
        }
    }
    confirms
}

fn answer() -> impl Strategy<Value = TargetAnswer> {
    prop::sample::select(vec![TargetAnswer::Taken, TargetAnswer::Refused, TargetAnswer::Gone])
}

proptest! {
    /// CNF-04, NAM 6: a publish is refused if any target refused it, taken if one took it and none
    /// refused, and routed again only when all targets are gone. It is confirmed once, after the
    /// last answer.
    #[test]
    fn nam_06_several_targets_give_one_answer(answers in vec(answer(), 1..5)) {
        let connection = lone_connection();
        let shared = Arc::new(FanOut::new(u32::try_from(answers.len()).unwrap()));
        let mut verdicts = Vec::new();
        for answer in &answers {
            let mut ticket = ticket(&connection, ConfirmTo::Client(7), 100);
            ticket.shared = Some(Arc::clone(&shared));
            verdicts.push(ticket.finish_one(0, *answer, &Bytes::from_static(b"sent")));
        }
        let (last, before) = verdicts.split_last().unwrap();
        prop_assert!(before.iter().all(|verdict| matches!(verdict, Verdict::Open)));
        let expected = match answers.iter().max_by_key(|answer| match answer {
            TargetAnswer::Gone => 0,
            TargetAnswer::Taken => 1,
            TargetAnswer::Refused => 2,
        }) {
            Some(TargetAnswer::Refused) => BTreeMap::from([(7, vec![false])]),
            Some(TargetAnswer::Taken) => BTreeMap::from([(7, vec![true])]),
            Some(TargetAnswer::Gone) | None => BTreeMap::new(),
        };
        let again = matches!(last, Verdict::RouteAgain(bytes) if bytes == "sent");
        prop_assert_eq!(again, expected.is_empty());
        prop_assert_eq!(confirms(&connection), expected);
        prop_assert_eq!(connection.publishing.in_flight.bytes(), 0);
    }

    /// Publishes that follow each other share a ticket. Answered together or one by one, each is
    /// confirmed once, and none of their bytes stays in flight.
    #[test]
    fn cnf_02_each_publish_of_a_ticket_is_confirmed_once(
        sizes in vec(0_usize..5_000, 1..40),
        answers in vec(answer(), 40),
        first in 1_u64..1_000,
    ) {
        let connection = lone_connection();
        let count = u32::try_from(sizes.len()).unwrap();
        let mut joined = ticket(&connection, ConfirmTo::Client(first), sizes[0]);
        for (number, bytes) in (first + 1..).zip(&sizes[1..]) {
            let next = ticket(&connection, ConfirmTo::Client(number), *bytes);
            prop_assert!(joined.joins(&next));
            joined.count += 1;
            joined.bytes += next.bytes;
        }
        let mut expected = BTreeMap::new();
        for (place, answer) in (0..count).zip(&answers) {
            let verdict = joined.finish_one(place, *answer, &Bytes::new());
            if *answer == TargetAnswer::Gone {
                prop_assert!(matches!(verdict, Verdict::RouteAgain(_)));
            } else {
                expected.insert(first + u64::from(place), vec![*answer == TargetAnswer::Taken]);
            }
        }
        prop_assert_eq!(confirms(&connection), expected);
        prop_assert_eq!(connection.publishing.in_flight.bytes(), 0, "bytes stay in flight for ever");
        connection.publishing.in_flight.launched(joined.bytes);
        joined.finish_all(true);
        let all = (first..first + u64::from(count)).map(|number| (number, vec![true]));
        prop_assert_eq!(confirms(&connection), all.collect());
        prop_assert_eq!(connection.publishing.in_flight.bytes(), 0);
    }
}

#[test]
fn what_does_not_follow_is_a_ticket_of_its_own() {
    let connection = lone_connection();
    let ticket = |confirm_to| ticket(&connection, confirm_to, 1);
    let first = ticket(ConfirmTo::Client(4));
    assert!(first.joins(&ticket(ConfirmTo::Client(5))));
    assert!(!first.joins(&ticket(ConfirmTo::Client(6))), "a gap");
    assert!(!first.joins(&ticket(ConfirmTo::Client(4))), "the same");
    assert!(!first.joins(&ticket(ConfirmTo::Nobody)));
    assert!(ticket(ConfirmTo::Nobody).joins(&ticket(ConfirmTo::Nobody)));
    let mandatory = PublishTicket { mandatory: true, ..ticket(ConfirmTo::Client(5)) };
    assert!(!first.joins(&mandatory));
    let channel = ChannelId { opened: 1, ..CHANNEL };
    assert!(
        !first.joins(&PublishTicket { channel, ..ticket(ConfirmTo::Client(5)) }),
        "opened again"
    );
    let shared = Some(Arc::new(FanOut::new(2)));
    assert!(!first.joins(&PublishTicket { shared, ..ticket(ConfirmTo::Client(5)) }));
    let elsewhere = PublishTicket { connection: lone_connection(), ..ticket(ConfirmTo::Client(5)) };
    assert!(!first.joins(&elsewhere));
}
