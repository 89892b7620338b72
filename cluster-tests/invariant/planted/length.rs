//! Planted faults of length limits.

use super::timeline::Timeline;
use crate::history::{Answer, Fate, Length, Overflow, Traits};

/// Milliseconds: longer than a lost consumer holds anything.
const LONG: u64 = 60_000;
const LIMIT: u64 = 2;

fn refusing() -> Timeline {
    let length = Some(Length { limit: LIMIT, overflow: Overflow::RejectPublish });
    Timeline::of(Traits { length, ..Traits::default() })
}

/// With a consumer of its dead letters.
fn dropping() -> (Timeline, usize) {
    let length = Some(Length { limit: LIMIT, overflow: Overflow::DropHead });
    let dead_letters = Some("dead".to_owned());
    let mut timeline =
        Timeline::of(Traits { length, dead_letters, dies: true, ..Traits::default() });
    let dead = timeline.attach("dead", 10, 0);
    (timeline, dead)
}

#[test]
fn a_queue_that_takes_too_many_is_found() {
    let taken = |count| {
        let mut timeline = refusing();
        timeline.confirm(1..=count, 10);
        let consumer = timeline.attach("q", 3, 20);
        timeline.deliver_all(consumer, 1..=count, 30).kinds()
    };
    assert!(taken(LIMIT).is_empty());
    assert_eq!(taken(LIMIT + 1), ["over length"]);
}

#[test]
fn what_consumers_can_hold_is_not_too_many() {
    let taken = |count, lost_at: Option<u64>| {
        let mut timeline = refusing();
        if let Some(at) = lost_at {
            let lost = timeline.attach("q", 3, 0);
            timeline.lose(lost, at);
        }
        let consumer = timeline.attach("q", 3, 0);
        timeline.confirm(1..=count, LONG);
        timeline.deliver_all(consumer, 1..=count, LONG + 10).kinds()
    };
    assert!(taken(LIMIT + 3, None).is_empty());
    assert_eq!(taken(LIMIT + 4, None), ["over length"]);
    // The queue may not have learned of the loss.
    assert!(taken(LIMIT + 6, Some(LONG - 10)).is_empty());
    assert_eq!(taken(LIMIT + 7, Some(LONG - 10)), ["over length"]);
}

#[test]
fn a_consumer_that_was_lost_long_ago_holds_nothing() {
    let mut timeline = refusing();
    let lost = timeline.attach("q", 3, 0);
    timeline.lose(lost, 10);
    timeline.confirm([1], 20);
    timeline.confirm(2..=LIMIT + 1, LONG);
    let consumer = timeline.attach("q", 3, LONG + 10);
    assert_eq!(timeline.deliver_all(consumer, 1..=LIMIT + 1, LONG + 20).kinds(), ["over length"]);
}

#[test]
fn what_lost_consumers_give_back_is_not_too_many() {
    let mut timeline = refusing();
    for _ in 0..2 {
        let lost = timeline.attach("q", 3, 0);
        timeline.lose(lost, 20);
    }
    timeline.confirm(1..=LIMIT + 6, 10);
    // All are ready now, and the queue refuses what comes.
    timeline.publish(LIMIT + 7, LONG, Answer::Refused, LONG);
    let consumer = timeline.attach("q", 3, LONG + 10);
    assert!(timeline.deliver_all(consumer, 1..=LIMIT + 6, LONG + 20).kinds().is_empty());
}

#[test]
fn what_may_not_have_been_in_the_queue_is_not_too_many() {
    let mut timeline = refusing();
    let consumer = timeline.attach("q", 1, 0);
    timeline.confirm(1..=LIMIT + 1, 10);
    // No answer came, and the message may have been taken only after others had left.
    timeline.publish(LIMIT + 2, 10, Answer::Lost, 20);
    // The message was seen before its confirm.
    timeline.publish(LIMIT + 3, 10, Answer::Confirmed, 100);
    assert!(timeline.deliver_all(consumer, 1..=LIMIT + 3, 50).kinds().is_empty());
}

#[test]
fn a_refusal_without_need_is_found() {
    let refused = |at, until, further: fn(&mut Timeline, usize)| {
        let mut timeline = refusing();
        let consumer = timeline.attach("q", 3, 0);
        timeline.confirm([1], 10);
        further(&mut timeline, consumer);
        timeline.publish(9, at, Answer::Refused, until);
        timeline.kinds()
    };
    // Message 2 is in the queue from 20 to 40; message 1 is there to 60.
    let full = |timeline: &mut Timeline, consumer| {
        timeline.confirm([2], 20);
        timeline.deliver(consumer, 1, 30, Fate::Returned);
        timeline.deliver(consumer, 2, 40, Fate::Settled);
        timeline.deliver(consumer, 1, 60, Fate::Settled);
    };
    assert!(refused(30, 35, full).is_empty());
    // The refusal was under way when there was no room, at one end of its time.
    assert!(refused(15, 20, full).is_empty());
    assert!(refused(40, 90, full).is_empty());
    assert_eq!(refused(15, 19, full), ["had room"]);
    assert_eq!(refused(41, 90, full), ["had room"]);
    // Message 2 was there, if anybody ever saw it; another refused one was not.
    let unanswered = |timeline: &mut Timeline, consumer| {
        timeline.publish(2, 20, Answer::Lost, 25);
        timeline.deliver_all(consumer, [1, 2], 60);
    };
    assert!(refused(30, 35, unanswered).is_empty());
    let never_seen = |timeline: &mut Timeline, consumer| {
        timeline.publish(2, 20, Answer::Lost, 25);
        timeline.deliver(consumer, 1, 60, Fate::Settled);
    };
    assert_eq!(refused(30, 35, never_seen), ["had room"]);
    let refused_too = |timeline: &mut Timeline, consumer| {
        timeline.publish(2, 20, Answer::Refused, 25);
        timeline.deliver(consumer, 1, 60, Fate::Settled);
    };
    assert_eq!(refused(30, 35, refused_too), ["had room", "had room"]);
}

#[test]
fn a_drop_without_need_is_found() {
    // So many are in the queue when the first is dropped.
    let dropped = |count: u64| {
        let (mut timeline, dead) = dropping();
        timeline.confirm(1..=count, 10);
        timeline.deliver(dead, 1, 20, Fate::Settled);
        let consumer = timeline.attach("q", 3, 30);
        timeline.deliver_all(consumer, 2..=count, 40).kinds()
    };
    assert_eq!(dropped(LIMIT), ["had room"]);
    assert!(dropped(LIMIT + 1).is_empty());
}

#[test]
fn messages_that_were_not_there_together_are_no_need_to_drop() {
    let (mut timeline, dead) = dropping();
    let consumer = timeline.attach("q", 3, 0);
    timeline.confirm([1, 2], 10);
    timeline.deliver(consumer, 2, 20, Fate::Settled);
    timeline.confirm([3], 30);
    timeline.deliver(dead, 1, 40, Fate::Settled);
    timeline.deliver(consumer, 3, 50, Fate::Settled);
    assert_eq!(timeline.kinds(), ["had room"]);
}

#[test]
fn a_rejected_message_needs_no_full_queue() {
    let (mut timeline, dead) = dropping();
    let consumer = timeline.attach("q", 3, 0);
    timeline.confirm([1], 10);
    timeline.deliver(consumer, 1, 20, Fate::Rejected);
    timeline.deliver(dead, 1, 30, Fate::Settled);
    assert!(timeline.kinds().is_empty());
}
