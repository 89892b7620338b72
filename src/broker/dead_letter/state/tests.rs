//! The worker's memory: what it sends and proposes, and when again, with time as an argument.

use super::*;
use crate::memory::{MemoryBudget, Share};
use proptest::{collection::vec, prelude::*};
use quorate_queue::{DeathReason, RETRY_MAX};
use quorate_types::{GroupId, Home, Level, LogIndex, MessageId};

const LINE: LetterHome = LetterHome::Group(GroupId(2));
const QUEUE: QueueId = QueueId { home: Home::Group(GroupId(1)), index: 7, position: 0 };

fn worker() -> Worker {
    Worker::new(Term(1), MemoryBudget::new(1 << 40).account(Share::Letters))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What the group's state says of a line.
#[derive(Debug)]
struct Owed {
    /// The lowest number whose answer has not been applied.
    mark: u64,
    /// The next number that a routing will be given.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Letters are routed: the state owes more.
    Route(u64),
    /// The worker sends what it may.
    Send,
    /// The first so many are answered.
    Answer(u64),
    /// The target has a gap: it asks for all from the mark on.
    Gap,
    /// Time passes.
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
    /// LET 1: a line is sent in the order of its numbers and without gaps, each number once unless it
    /// may be lost, what was answered never again, and no more than may be under way.
    #[test]
    fn let_1_a_line_is_sent_in_order_and_without_gaps(steps in vec(step(), 1..60)) {
        let mut worker = worker();
        let mut now = Instant::now();
        let mut owed = Owed { mark: 1, next: 1 };
        // All below has been sent, as far as the worker may take that for granted.
        let mut sent = 1;
        // The mark that the worker saw last, and since when.
        let mut seen = None;
        for step in steps {
            match step {
                Step::Route(count) => owed.next += count,
                Step::Answer(count) => owed.mark = (owed.mark + count).min(sent),
                Step::Gap => {
                    worker.send_again(LINE, Sequence(owed.mark));
                    sent = owed.mark;
                }
                Step::Wait(wait) => now += ms(wait),
                Step::Send => {
                    let since = match seen {
                        Some((mark, since)) if mark == owed.mark => since,
                        Some(_) | None => now,
                    };
                    let lost = now.duration_since(since) > PROPOSAL_LOST * 3;
                    if lost {
                        sent = owed.mark;
                    }
                    seen = Some((owed.mark, if lost { now } else { since }));
                    let from = worker.send_from(LINE, Sequence(owed.mark), true, now);
                    let room = sent < owed.mark + LINE_MAX;
                    prop_assert_eq!(from, room.then_some(Sequence(sent)));
                    // As the worker does: all that is owed, and fits.
                    let end = owed.next.min(owed.mark + LINE_MAX);
                    if room && end > sent {
                        worker.sent(LINE, Sequence(end - 1), 100);
                        sent = end;
                    }
                }
            }
        }
    }
}

#[test]
fn let_1_what_was_sent_and_not_answered_for_long_is_sent_again() {
    let mut worker = worker();
    let begun = Instant::now();
    let from = |worker: &mut Worker, mark, after| {
        worker.send_from(LINE, Sequence(mark), true, begun + ms(after)).map(|from| from.0)
    };
    assert_eq!(from(&mut worker, 1, 0), Some(1));
    worker.sent(LINE, Sequence(10), 100);
    assert_eq!(from(&mut worker, 1, 3_000), Some(11), "answers may be under way");
    assert_eq!(from(&mut worker, 1, 3_001), Some(1), "nothing for three seconds");
    worker.sent(LINE, Sequence(10), 100);
    // An answer is a sign of life: the three seconds begin anew.
    assert_eq!(from(&mut worker, 4, 6_000), Some(11));
    assert_eq!(from(&mut worker, 4, 9_000), Some(11));
    assert_eq!(from(&mut worker, 4, 9_001), Some(4));
    worker.sent(LINE, Sequence(4 + LINE_MAX - 1), 100);
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

/// LET 6: one routing of a queue at a time; the same one again only when it may be lost.
#[test]
fn let_6_a_routing_is_proposed_once_until_it_may_be_lost() {
    let mut worker = worker();
    let begun = Instant::now();
    let first = letter(1, 0);
    assert!(worker.may_route(QUEUE, &first, begun));
    worker.routing_proposed(QUEUE, &first, begun);
    assert!(!worker.may_route(QUEUE, &first, begun + ms(1_000)));
    assert!(worker.may_route(QUEUE, &first, begun + ms(1_001)));
    assert!(worker.may_route(QUEUE, &letter(2, 0), begun), "the first one has gone");
    assert!(worker.may_route(QUEUE, &letter(1, 5), begun), "it wants a newer catalog (LET 4)");
    let other = QueueId { index: 8, ..QUEUE };
    assert!(worker.may_route(other, &first, begun), "another queue's");
}

#[test]
fn kept_letters_are_looked_at_when_something_has_changed() {
    let mut worker = worker();
    let from = |worker: &Worker, version| worker.look_from(QUEUE, CatalogIndex(version), &None);
    assert_eq!(from(&worker, 3), LetterNumber(0));
    worker.looked(QUEUE, CatalogIndex(3), None, LetterNumber(7));
    assert_eq!(from(&worker, 3), LetterNumber(7), "those that come, which an older copy has kept");
    assert_eq!(from(&worker, 4), LetterNumber(0));
}

/// Two kept letters whose messages are not at hand do not take turns in the one place for what is
/// fetched: the second is fetched when the first has been looked at.
#[test]
fn kept_letters_are_looked_at_from_where_one_was_not_at_hand() {
    let mut worker = worker();
    let from = |worker: &Worker, version| worker.look_from(QUEUE, CatalogIndex(version), &None);
    for next in [4, 9, 20].map(LetterNumber) {
        worker.looked(QUEUE, CatalogIndex(3), None, next);
        assert_eq!(from(&worker, 3), next);
        assert_eq!(from(&worker, 4), LetterNumber(0), "any may have got a route");
    }
}

/// what a full target refused is sent again when it has told of room, as much as it has; to one
/// that has ended or has not refused, at once.
#[test]
fn q_41_a_full_target_gets_what_it_has_room_for() {
    let mut worker = worker();
    let begun = Instant::now();
    let view = |waits, under_way, refused| TargetView { target: QUEUE, waits, under_way, refused };
    let full = view(9, 0, true);
    assert_eq!(worker.retry(&full, false, begun), None, "it has told of no room");
    worker.told(QUEUE, 4);
    assert_eq!(worker.retry(&view(9, 1, true), false, begun), None, "one is under way");
    assert_eq!(worker.retry(&full, false, begun), Some(4));
    worker.told(QUEUE, u32::MAX);
    assert_eq!(worker.retry(&full, false, begun + ms(999)), None, "the last try may be under way");
    assert_eq!(worker.retry(&full, false, begun + ms(1_000)), Some(RETRY_MAX));
    assert_eq!(worker.retry(&full, false, begun + ms(3_000)), None, "room is used once");
    assert_eq!(worker.retry(&full, true, begun + ms(3_000)), Some(RETRY_MAX));
    assert_eq!(worker.retry(&view(0, 0, true), true, begun + ms(9_000)), None, "nothing waits");
}

#[test]
fn what_is_remembered_of_queues_goes_with_their_letters() {
    let queue = |index| QueueId { home: Home::Group(GroupId(1)), index, position: 0 };
    let message = MessageId { level: Level(0), index: LogIndex(3), position: 0 };
    let letter = LetterView {
        number: LetterNumber(1),
        message,
        reason: DeathReason::Rejected,
        after: CatalogIndex(0),
    };
    let target =
        |index| TargetView { target: queue(index), waits: 1, under_way: 0, refused: false };
    let (mut worker, now) = (worker(), Instant::now());
    for index in [1, 2] {
        worker.routing_proposed(queue(index), &letter, now);
        worker.looked(queue(index), CatalogIndex(9), None, LetterNumber(2));
        worker.told(queue(index), 5);
        assert!(worker.retry(&target(index), false, now).is_some());
        worker.told(queue(index), 5);
    }
    worker.forget_others(|it| *it == queue(1), |it| *it == queue(2));
    assert!(!worker.may_route(queue(1), &letter, now) && worker.may_route(queue(2), &letter, now));
    let is_remembered = |index| worker.kept.contains_key(&queue(index));
    assert!(is_remembered(1) && !is_remembered(2));
    assert_eq!(worker.told.keys().copied().collect::<Vec<_>>(), [queue(2)]);
    assert_eq!(worker.retried.keys().copied().collect::<Vec<_>>(), [queue(2)]);
}

#[test]
fn a_line_has_a_bounded_number_of_octets_under_way() {
    const LARGE: usize = LINE_BYTES_MAX / 2;
    let budget = MemoryBudget::new(1 << 40);
    let mut worker = Worker::new(Term(1), budget.account(Share::Letters));
    let now = Instant::now();
    let from = |worker: &mut Worker, mark, has_room| {
        worker.send_from(LINE, Sequence(mark), has_room, now).map(|from| from.0)
    };
    assert_eq!(from(&mut worker, 1, true), Some(1));
    worker.sent(LINE, Sequence(4), LARGE);
    assert_eq!(from(&mut worker, 1, true), Some(5));
    assert_eq!(from(&mut worker, 1, false), None, "one batch while the budget is full");
    worker.sent(LINE, Sequence(5), LARGE);
    assert_eq!(from(&mut worker, 1, true), None);
    assert_eq!(budget.held_bytes(), 2 * LARGE as u64);
    // Heard is enough: what has been answered is in memory no more.
    worker.answered(LINE, Sequence(4));
    assert_eq!(from(&mut worker, 1, true), Some(6));
    assert_eq!(from(&mut worker, 5, false), None);
    assert_eq!(from(&mut worker, 6, false), Some(6), "the state has the answer to all");
    assert_eq!(budget.held_bytes(), 0);
    worker.sent(LINE, Sequence(9), 3 * LARGE);
    assert_eq!(from(&mut worker, 6, true), None);
    worker.send_again(LINE, Sequence(7));
    assert_eq!(from(&mut worker, 6, true), Some(7), "it did not arrive");
}
