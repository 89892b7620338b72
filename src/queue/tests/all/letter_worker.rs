//! The decisions of the dead-letter worker of a home, and when it repeats them; time is an
//! argument.

use crate::{
    letter_model::{via, with_dlx},
    world::name,
};
use proptest::{collection::vec, prelude::*};
use quorate_queue::{
    Answer, Command, DeadLetter, DeathReason, Destination, LetterView, LetterWorker, LiveLetters,
    RETRY_MAX, RoutedLetters, Routes, TargetState, TargetView, Unrouted,
};
use quorate_types::{
    CatalogIndex, GroupId, Home, LetterHome, LetterNumber, Level, LogIndex, MessageId, QueueId,
    Sequence,
};
use std::time::Duration;

const STREAM: LetterHome = LetterHome::Group(GroupId(2));
const QUEUE: QueueId = QueueId { home: Home::Group(GroupId(1)), index: 7, position: 0 };

const STREAM_MAX: u64 = LetterWorker::STREAM_MAX;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A stream, by the group's state.
#[derive(Debug)]
struct Owed {
    /// The lowest number whose answer has not been applied.
    mark: u64,
    /// The number that the next routing will assign.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Letters are routed: the state owes more transfers.
    Route(u64),
    /// The worker sends all that it may.
    Send,
    /// The first transfers are answered, this many.
    Answer(u64),
    /// The target has a gap: it requests all transfers from the mark on again.
    Gap,
    /// Time passes, in milliseconds.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0_u64..3_000).prop_map(Step::Route),
        4 => Just(Step::Send),
        3 => (0_u64..2_500).prop_map(Step::Answer),
        1 => Just(Step::Gap),
        1 => (0_u64..5_000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// LET 1: a stream is sent in the order of its numbers and without gaps, each number once
    /// unless it may be lost, answered ones never again, and within the bound of transfers in
    /// flight.
    #[test]
    fn let_1_a_stream_is_sent_in_order_and_without_gaps(steps in vec(step(), 1..60)) {
        let mut worker = LetterWorker::default();
        let mut now = Duration::ZERO;
        let mut owed = Owed { mark: 1, next: 1 };
        // All lower numbers have been sent, as far as the worker may assume.
        let mut sent = 1;
        // The mark that the worker saw last, and since when.
        let mut seen = None;
        for step in steps {
            match step {
                Step::Route(count) => owed.next += count,
                Step::Answer(count) => owed.mark = (owed.mark + count).min(sent),
                Step::Gap => {
                    worker.send_again(STREAM, Sequence(owed.mark));
                    sent = owed.mark;
                }
                Step::Wait(wait) => now += ms(wait),
                Step::Send => {
                    let since = match seen {
                        Some((mark, since)) if mark == owed.mark => since,
                        Some(_) | None => now,
                    };
                    let lost = (now - since) > LetterWorker::PROPOSAL_LOST * 3;
                    if lost {
                        sent = owed.mark;
                    }
                    seen = Some((owed.mark, if lost { now } else { since }));
                    let from = worker.send_from(STREAM, Sequence(owed.mark), true, now);
                    let room = sent < owed.mark + STREAM_MAX;
                    prop_assert_eq!(from, room.then_some(Sequence(sent)));
                    // The same as the worker's rule: all that is owed and fits.
                    let end = owed.next.min(owed.mark + STREAM_MAX);
                    if room && end > sent {
                        worker.sent(STREAM, Sequence(end - 1), 100);
                        sent = end;
                    }
                }
            }
        }
    }
}

#[test]
fn let_1_what_was_sent_and_not_answered_for_long_is_sent_again() {
    let mut worker = LetterWorker::default();
    let begun = Duration::ZERO;
    let from = |worker: &mut LetterWorker, mark, after| {
        worker.send_from(STREAM, Sequence(mark), true, begun + ms(after)).map(|from| from.0)
    };
    assert_eq!(from(&mut worker, 1, 0), Some(1));
    worker.sent(STREAM, Sequence(10), 100);
    assert_eq!(from(&mut worker, 1, 3_000), Some(11), "answers may be under way");
    assert_eq!(from(&mut worker, 1, 3_001), Some(1), "nothing for three seconds");
    worker.sent(STREAM, Sequence(10), 100);
    // An answer restarts the three seconds.
    assert_eq!(from(&mut worker, 4, 6_000), Some(11));
    assert_eq!(from(&mut worker, 4, 9_000), Some(11));
    assert_eq!(from(&mut worker, 4, 9_001), Some(4));
    worker.sent(STREAM, Sequence(4 + STREAM_MAX - 1), 100);
    assert_eq!(from(&mut worker, 4, 9_002), None, "as many as may be under way");
    worker.send_all_again(Home::Group(GroupId(3)));
    assert_eq!(from(&mut worker, 4, 9_003), None, "another home's");
    worker.send_all_again(Home::Group(GroupId(2)));
    assert_eq!(from(&mut worker, 4, 9_004), Some(4));
}

fn letter(number: u64, after: u64) -> LetterView {
    LetterView {
        number: LetterNumber(number),
        message: MessageId { level: Level(0), index: LogIndex(number), position: 0 },
        reason: DeathReason::Rejected,
        after: CatalogIndex(after),
    }
}

fn unrouted(queue: QueueId, letters: Vec<LetterView>) -> Unrouted {
    let settings = with_dlx().dead_letter;
    Unrouted { queue, name: name("q"), settings, letters, kept: false }
}

/// LET 6: one routing of a queue at a time; the same routing again only when it may be lost.
#[test]
fn let_6_a_routing_is_proposed_once_until_it_may_be_lost() {
    let mut worker = LetterWorker::default();
    let begun = Duration::ZERO;
    let of = |number, after| unrouted(QUEUE, vec![letter(number, after)]);
    let first = of(1, 0);
    assert!(worker.may_route(&first, begun));
    worker.routing_proposed(&first, begun);
    assert!(!worker.may_route(&first, begun + ms(1_000)));
    assert!(worker.may_route(&first, begun + ms(1_001)));
    assert!(worker.may_route(&of(2, 0), begun), "the first one has gone");
    assert!(worker.may_route(&of(1, 5), begun), "it wants a newer catalog (LET 4)");
    let other = Unrouted { queue: QueueId { index: 8, ..QUEUE }, ..first.clone() };
    assert!(worker.may_route(&other, begun), "another queue's");
    let kept = Unrouted { kept: true, ..of(9, 0) };
    worker.routing_proposed(&kept, begun);
    assert!(!worker.may_route(&first, begun), "kept letters keep no order");
}

fn destination() -> impl Strategy<Value = Destination> {
    prop_oneof![
        4 => (0_u64..2).prop_map(|index| Destination::Targets(vec![QueueId { index, ..QUEUE }])),
        1 => Just(Destination::Nothing),
        1 => Just(Destination::NotYet),
        1 => Just(Destination::Cycle),
    ]
}

/// Version of the catalog copy that letters are routed by.
const VERSION: CatalogIndex = CatalogIndex(9);

/// The letters of a routing; letters with equal routes are joined.
fn routed_letters(command: Command) -> Vec<(u64, Routes)> {
    let Command::Routed { queue, at, letters, .. } = command else { panic!("{command:?}") };
    assert_eq!((queue, at), (QUEUE, VERSION));
    for two in letters.windows(2) {
        let is_apart = two[0].last.0 + 1 < two[1].first.0;
        assert!(is_apart || two[0].routes != two[1].routes, "{letters:?}");
    }
    let numbers = |it: &RoutedLetters| it.first.0..=it.last.0;
    letters.iter().flat_map(|it| numbers(it).map(|number| (number, it.routes.clone()))).collect()
}

/// The expected result for a letter that is decided.
fn expected(destination: &Destination, fresh: bool, at_least_once: bool) -> Routes {
    match destination {
        Destination::Targets(targets) => Routes::To(targets.clone()),
        Destination::Cycle if fresh => Routes::Cycle,
        Destination::Nothing if fresh && at_least_once => Routes::Keep,
        Destination::Nothing if fresh => Routes::Drop,
        other => panic!("{other:?} is not decided"),
    }
}

proptest! {
    /// LET 4 to 6: letters are routed in their order by a copy that is new enough; only a fresh
    /// copy keeps or drops a letter.
    #[test]
    fn let_5_only_a_fresh_copy_keeps_or_drops_a_letter(
        found in vec((0_u64..10, destination()), 1..12),
        fresh in any::<bool>(),
        kept in any::<bool>(),
        at_least_once in any::<bool>(),
    ) {
        let settings = with_dlx().dead_letter.map(|it| DeadLetter { at_least_once, ..it });
        let letters = (1..).zip(&found).map(|(number, (after, _))| letter(number, *after));
        let unrouted = Unrouted { settings, kept, ..unrouted(QUEUE, letters.collect()) };
        let (command, left) = unrouted.route(VERSION, fresh, |letter, by| {
            assert_eq!(*by, via());
            found[letter.number.0 as usize - 1].1.clone()
        });
        let routed = command.map(routed_letters).unwrap_or_default();
        for (number, routes) in &routed {
            let (after, destination) = &found[*number as usize - 1];
            let is_final = *destination == Destination::Nothing;
            prop_assert!(CatalogIndex(*after) < VERSION || is_final);
            prop_assert_eq!(routes, &expected(destination, fresh, at_least_once));
        }
        let routed: Vec<u64> = routed.into_iter().map(|(number, _)| number).collect();
        let left: Vec<u64> = left.iter().flat_map(|it| &it.letters).map(|it| it.number.0).collect();
        if fresh || kept {
            prop_assert_eq!(&left, &Vec::<u64>::new());
        }
        if kept {
            prop_assert!(routed.is_sorted_by(|one, next| one < next));
        } else {
            // The order is preserved: decided letters, letters left to a fresh copy, and letters
            // that wait for a later copy follow each other.
            let next = routed.len() as u64 + 1;
            prop_assert_eq!(&routed, &(1..next).collect::<Vec<_>>());
            if !left.is_empty() {
                prop_assert_eq!(left, (next..=found.len() as u64).collect::<Vec<_>>());
            } else if let Some((after, destination)) = found.get(routed.len()) {
                let waits =
                    CatalogIndex(*after) >= VERSION && *destination != Destination::Nothing;
                prop_assert!(waits || fresh && *destination == Destination::NotYet);
            }
        }
    }
}

/// A queue with a server-given name ends with its connection, and the catalog does not change. A letter that
/// it was the only target of is decided by a fresh copy of the same version; the letters behind it go on.
#[test]
fn let_4_a_letter_without_other_targets_than_ended_ones_does_not_wait() {
    let letters = vec![letter(1, VERSION.0), letter(2, 0), letter(3, VERSION.0), letter(4, 0)];
    let unrouted = unrouted(QUEUE, letters);
    let targets = || Destination::Targets(vec![QUEUE]);
    let route = |fresh| {
        unrouted.route(VERSION, fresh, |letter, _| match letter.number.0 {
            1 => Destination::Nothing,
            _ => targets(),
        })
    };
    let (command, left) = route(false);
    assert!(command.is_none() && left.is_some_and(|left| left.letters.len() == 4));
    let (command, left) = route(true);
    let routed: Vec<u64> =
        command.map(routed_letters).into_iter().flatten().map(|(number, _)| number).collect();
    assert_eq!((routed, left.is_none()), (vec![1, 2], true), "3 waits for its target's end");
}

#[test]
fn q_46_without_a_dlx_in_force_a_fresh_copy_drops_every_letter() {
    let unrouted = Unrouted { settings: None, ..unrouted(QUEUE, vec![letter(1, 0), letter(2, 0)]) };
    let route = |fresh| unrouted.route(CatalogIndex(1), fresh, |_, _| panic!("there is no DLX"));
    let (command, left) = route(false);
    assert_eq!((command, left.unwrap().letters), (None, unrouted.letters.clone()));
    let (Some(Command::Routed { letters, .. }), None) = route(true) else { panic!("not routed") };
    let (first, last) = (LetterNumber(1), LetterNumber(2));
    assert_eq!(letters, [RoutedLetters { first, last, routes: Routes::Drop }]);
}

#[test]
fn kept_letters_are_checked_when_something_has_changed() {
    let mut worker = LetterWorker::default();
    let from =
        |worker: &LetterWorker, version| worker.check_from(QUEUE, CatalogIndex(version), &None);
    assert_eq!(from(&worker, 3), LetterNumber(0));
    worker.checked(QUEUE, CatalogIndex(3), None, LetterNumber(7));
    assert_eq!(from(&worker, 3), LetterNumber(7), "those that come, which an older copy has kept");
    assert_eq!(from(&worker, 4), LetterNumber(0));
}

/// Two kept letters whose messages are not in memory do not alternate in the one place for fetched
/// messages: the second is fetched when the first has been checked.
#[test]
fn kept_letters_are_checked_from_where_one_was_not_at_hand() {
    let mut worker = LetterWorker::default();
    let from =
        |worker: &LetterWorker, version| worker.check_from(QUEUE, CatalogIndex(version), &None);
    for next in [4, 9, 20].map(LetterNumber) {
        worker.checked(QUEUE, CatalogIndex(3), None, next);
        assert_eq!(from(&worker, 3), next);
        assert_eq!(from(&worker, 4), LetterNumber(0), "any may have got a route");
    }
}

/// letters that a full target refused are sent again when it reports room, as many as it has
/// room for; if it has ended or has not refused, at once.
#[test]
fn q_41_a_full_target_gets_what_it_has_room_for() {
    let mut worker = LetterWorker::default();
    let begun = Duration::ZERO;
    let view = |waits, under_way, refused| TargetView { target: QUEUE, waits, under_way, refused };
    let full = view(9, 0, true);
    let again = |count| Some(Command::Retry { target: QUEUE, count });
    assert_eq!(worker.retry(&full, TargetState::Lives, begun), None, "it has told of no room");
    worker.room_reported(QUEUE, 4);
    assert_eq!(
        worker.retry(&view(9, 1, true), TargetState::Lives, begun),
        None,
        "one is under way"
    );
    assert_eq!(worker.retry(&full, TargetState::Lives, begun), again(4));
    worker.room_reported(QUEUE, u32::MAX);
    assert_eq!(
        worker.retry(&full, TargetState::Lives, begun + ms(999)),
        None,
        "the last try may be under way"
    );
    assert_eq!(worker.retry(&full, TargetState::Lives, begun + ms(1_000)), again(RETRY_MAX));
    assert_eq!(
        worker.retry(&full, TargetState::Lives, begun + ms(3_000)),
        None,
        "room is used once"
    );
    assert_eq!(worker.retry(&full, TargetState::Ended, begun + ms(3_000)), again(RETRY_MAX));
    assert_eq!(
        worker.retry(&view(0, 0, true), TargetState::Ended, begun + ms(9_000)),
        None,
        "nothing waits"
    );
}

/// A queue with a server-given name ends with its connection, and nobody tells (NAM 8).
#[test]
fn let_3_a_full_target_that_may_have_ended_is_asked_now_and_then() {
    let mut worker = LetterWorker::default();
    let full = TargetView { target: QUEUE, waits: 9, under_way: 0, refused: true };
    let mut retry = |under_way, at| {
        let view = TargetView { under_way, ..full };
        worker.retry(&view, TargetState::Unknown, ms(at))
    };
    let again = |count| Some(Command::Retry { target: QUEUE, count });
    assert_eq!(retry(0, 1_000), again(1));
    assert_eq!(retry(1, 1_001), None, "the one letter is under way");
    assert_eq!(retry(0, 1_002), None, "it was refused");
    assert_eq!(retry(0, 5_999), None);
    assert_eq!(retry(0, 6_000), again(1));
    worker.room_reported(QUEUE, 4);
    assert_eq!(worker.retry(&full, TargetState::Unknown, ms(7_000)), again(4));
    let accepted = TargetView { refused: false, ..full };
    assert_eq!(worker.retry(&accepted, TargetState::Unknown, ms(8_000)), again(RETRY_MAX));
}

#[test]
fn what_is_remembered_of_queues_goes_with_their_letters() {
    let queue = |index| QueueId { index, ..QUEUE };
    let target =
        |index, refused| TargetView { target: queue(index), waits: 1, under_way: 0, refused };
    let other = LetterHome::Group(GroupId(3));
    let (mut worker, now) = (LetterWorker::default(), Duration::ZERO);
    let first = |index| unrouted(queue(index), vec![letter(1, 0)]);
    for (index, stream) in [(1, STREAM), (2, other)] {
        worker.routing_proposed(&first(index), now);
        worker.checked(queue(index), CatalogIndex(9), None, LetterNumber(2));
        assert!(worker.retry(&target(index, false), TargetState::Lives, now).is_some());
        worker.room_reported(queue(index), 5);
        assert!(worker.send_from(stream, Sequence(1), true, now).is_some());
        worker.sent(stream, Sequence(1), 100);
    }
    let live = LiveLetters {
        queues: [queue(1)].into(),
        targets: [queue(2)].into(),
        streams: [STREAM].into(),
    };
    worker.forget_done(&live);
    assert!(!worker.may_route(&first(1), now) && worker.may_route(&first(2), now));
    let from = |index| worker.check_from(queue(index), CatalogIndex(9), &None);
    assert_eq!((from(1), from(2)), (LetterNumber(2), LetterNumber(0)));
    assert_eq!(worker.bytes(), 100, "nothing is under way in the other stream");
    let (one, two) = (queue(1), queue(2));
    assert_eq!(
        worker.retry(&target(2, false), TargetState::Lives, now),
        None,
        "it has just been tried"
    );
    let later = now + LetterWorker::PROPOSAL_LOST;
    let again = |target, count| Some(Command::Retry { target, count });
    assert_eq!(worker.retry(&target(2, true), TargetState::Lives, later), again(two, 5));
    assert_eq!(
        worker.retry(&target(1, true), TargetState::Lives, later),
        None,
        "it has told of no room"
    );
    assert_eq!(worker.retry(&target(1, false), TargetState::Lives, now), again(one, RETRY_MAX));
}

#[test]
fn a_stream_has_a_bounded_number_of_bytes_under_way() {
    const LARGE: usize = LetterWorker::STREAM_BYTES_MAX / 2;
    let mut worker = LetterWorker::default();
    let now = Duration::ZERO;
    let from = |worker: &mut LetterWorker, mark, has_room| {
        worker.send_from(STREAM, Sequence(mark), has_room, now).map(|from| from.0)
    };
    assert_eq!(from(&mut worker, 1, true), Some(1));
    worker.sent(STREAM, Sequence(4), LARGE);
    assert_eq!(from(&mut worker, 1, true), Some(5));
    assert_eq!(from(&mut worker, 1, false), None, "one batch while the budget is full");
    worker.sent(STREAM, Sequence(5), LARGE);
    assert_eq!(from(&mut worker, 1, true), None);
    assert_eq!(worker.bytes(), 2 * LARGE);
    // Answers are enough: the bytes of answered transfers do not count any more.
    let (by, own) = (STREAM, LetterHome::Group(GroupId(1)));
    let (first, last, other) = (Sequence(1), Sequence(4), Vec::new());
    worker.answered(&Answer::Transferred { from: own, by, first, last, other });
    assert_eq!(from(&mut worker, 1, true), Some(6));
    assert_eq!(from(&mut worker, 5, false), None);
    assert_eq!(from(&mut worker, 6, false), Some(6), "the state has the answer to all");
    assert_eq!(worker.bytes(), 0);
    worker.sent(STREAM, Sequence(9), 3 * LARGE);
    assert_eq!(from(&mut worker, 6, true), None);
    worker.answered(&Answer::TransfersWanted { from: own, by, want: Sequence(7) });
    assert_eq!(from(&mut worker, 6, true), Some(7), "it did not arrive");
}
