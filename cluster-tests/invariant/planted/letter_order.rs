//! Planted faults of the order of dead letters.

use super::number;
use super::timeline::Timeline;
use crate::history::{Fate, Number, Traits};

/// Milliseconds: longer than anything is in doubt.
const LONG: u64 = 60_000;
const REORDERED: [&str; 1] = ["letters reordered"];

/// Four confirmed messages of a queue that sends its dead letters to `dead`, a consumer of `q` and one
/// of `dead`.
fn with(traits: Traits) -> (Timeline, [usize; 2]) {
    let dead_letters = Some("dead".to_owned());
    let mut timeline = Timeline::of(Traits { dead_letters, ..traits });
    timeline.confirm(1..=4, 10);
    let consumers = ["q", "dead"].map(|queue| timeline.attach(queue, 10, 0));
    (timeline, consumers)
}

fn dying() -> (Timeline, [usize; 2]) {
    with(Traits { dies: true, ..Traits::default() })
}

#[test]
fn deaths_of_age_or_length_in_another_order_are_found() {
    let came = |seqs: [u64; 4]| {
        let (mut timeline, [_, dead]) = dying();
        timeline.deliver_all(dead, seqs, 50).kinds()
    };
    assert!(came([1, 2, 3, 4]).is_empty());
    assert_eq!(came([1, 3, 2, 4]), REORDERED);
    assert_eq!(came([4, 1, 2, 3]), [REORDERED[0]; 3]);
}

#[test]
fn letters_that_have_no_order_are_not_compared() {
    let came = |change: fn(&mut Timeline), consumers: fn(usize, usize) -> [usize; 2]| {
        let (mut timeline, [_, dead]) = dying();
        let other = timeline.attach("dead", 10, 0);
        change(&mut timeline);
        let [first, second] = consumers(dead, other);
        timeline.deliver_all(first, [2], 50).deliver_all(second, [1, 3, 4], 60).kinds()
    };
    let one = |dead, _| [dead, dead];
    assert_eq!(came(|_| {}, one), REORDERED);
    assert!(came(|_| {}, |dead, other| [dead, other]).is_empty());
    let priority = |timeline: &mut Timeline| {
        timeline.log.published.get_mut(&number(1)).unwrap().priority = 7;
    };
    assert!(came(priority, one).is_empty());
    // Message 2 of another channel.
    let (mut timeline, [_, dead]) = dying();
    timeline.deliver_all(dead, [2, 1, 3, 4], 50);
    let other = Number { producer: 2, seq: 2 };
    let published = timeline.log.published.remove(&number(2)).unwrap();
    timeline.log.published.insert(other, published);
    timeline.log.delivered[0].number = other;
    assert!(timeline.kinds().is_empty());
    // A letter that was shown before.
    let (mut timeline, [_, dead]) = dying();
    timeline.deliver(dead, 1, 50, Fate::Returned);
    assert!(timeline.deliver_all(dead, [2, 1, 3, 4], 60).kinds().is_empty());
}

#[test]
fn a_message_that_was_shown_may_die_late() {
    let (mut timeline, [consumer, dead]) = dying();
    timeline.deliver(consumer, 1, 20, Fate::Returned);
    assert!(timeline.deliver_all(dead, [2, 1, 3, 4], 50).kinds().is_empty());
}

#[test]
fn what_lost_consumers_held_comes_late() {
    // The letters 1 and 2 come late.
    let late = |prefetches: [u16; 2], lost_at: u64| {
        let (mut timeline, [_, dead]) = dying();
        for (queue, prefetch) in ["q", "dead"].into_iter().zip(prefetches) {
            if prefetch > 0 {
                let lost = timeline.attach(queue, prefetch, 0);
                timeline.lose(lost, lost_at);
            }
        }
        timeline.deliver_all(dead, [3, 4, 1, 2], 50).kinds()
    };
    assert_eq!(late([0, 0], 30), [REORDERED[0]; 2]);
    // One of the two was given to the lost consumer.
    assert_eq!(late([1, 0], 30), REORDERED);
    assert_eq!(late([0, 1], 30), REORDERED);
    // Each queue had a lost consumer, or one of them a consumer that was given both.
    assert!(late([1, 1], 30).is_empty());
    assert!(late([2, 0], 30).is_empty());
    assert!(late([0, 2], 30).is_empty());
    // They came before the loss.
    assert_eq!(late([2, 2], LONG), [REORDERED[0]; 2]);
}

#[test]
fn a_loss_long_before_the_publish_is_no_cause() {
    for queue in ["q", "dead"] {
        let (mut timeline, [_, dead]) = dying();
        let lost = timeline.attach(queue, 10, 0);
        timeline.lose(lost, 20);
        timeline.deliver_all(dead, 1..=4, 30);
        timeline.confirm([5, 6], LONG);
        // The queues served between the loss and the publish.
        timeline.confirm([7], 40);
        timeline.deliver_all(dead, [7], 50);
        timeline.log.published.get_mut(&number(7)).unwrap().priority = 7;
        assert_eq!(timeline.deliver_all(dead, [6, 5], LONG + 50).kinds(), REORDERED, "{queue}");
    }
}

#[test]
fn rejected_messages_come_in_the_order_of_their_rejections() {
    let came = |rejected: [u64; 4], letters: [u64; 4]| {
        let (mut timeline, [consumer, dead]) = with(Traits::default());
        // Each comes again, in an order that its consumer chooses.
        (1..=4).for_each(|seq| timeline.deliver(consumer, seq, 20, Fate::Returned));
        for (at, seq) in (30..).zip(rejected) {
            timeline.deliver(consumer, seq, at, Fate::Rejected);
        }
        timeline.deliver_all(dead, letters, 50).kinds()
    };
    assert!(came([1, 2, 3, 4], [1, 2, 3, 4]).is_empty());
    assert!(came([2, 1, 4, 3], [2, 1, 4, 3]).is_empty());
    assert_eq!(came([1, 2, 3, 4], [1, 3, 2, 4]), REORDERED);
    assert_eq!(came([2, 1, 3, 4], [1, 2, 3, 4]), REORDERED);
}

#[test]
fn rejections_of_two_consumers_have_no_order() {
    let (mut timeline, [consumer, dead]) = with(Traits::default());
    let other = timeline.attach("q", 10, 0);
    for (seq, by) in [(1, consumer), (2, other), (3, consumer), (4, other)] {
        timeline.deliver(by, seq, 20 + seq, Fate::Rejected);
    }
    assert!(timeline.deliver_all(dead, [2, 4, 1, 3], 50).kinds().is_empty());
}

#[test]
fn a_rejection_in_doubt_has_no_order() {
    let came = |lost_at: u64| {
        let (mut timeline, [consumer, dead]) = with(Traits::default());
        (1..=4).for_each(|seq| timeline.deliver(consumer, seq, 20 + seq, Fate::Rejected));
        timeline.lose(consumer, lost_at);
        timeline.deliver_all(dead, [1, 3, 2, 4], 50).kinds()
    };
    assert!(came(30).is_empty());
    assert_eq!(came(LONG), REORDERED);
}

#[test]
fn a_lost_consumer_of_the_letters_excuses_their_order_and_no_other_does() {
    for (queue, expected) in [("dead", &[][..]), ("q", &REORDERED[..])] {
        let (mut timeline, [consumer, dead]) = with(Traits::default());
        let lost = timeline.attach(queue, 1, 0);
        timeline.lose(lost, 30);
        (1..=4).for_each(|seq| timeline.deliver(consumer, seq, 20 + seq, Fate::Rejected));
        assert_eq!(timeline.deliver_all(dead, [1, 3, 2, 4], 50).kinds(), expected, "{queue}");
    }
}

/// As [`with`] a delivery limit of one, where these consumers, by place, return the messages for the last
/// time, and the letters 2 and 1 come in that order.
fn given_up(by: [usize; 4], change: impl FnOnce(&mut Timeline, [usize; 2])) -> Vec<&'static str> {
    let (mut timeline, [consumer, dead]) =
        with(Traits { delivery_limit: Some(1), ..Traits::default() });
    let returners = [consumer, timeline.attach("q", 10, 0)];
    (1..=4).for_each(|seq| timeline.deliver(consumer, seq, 20, Fate::Returned));
    for (seq, by) in (1..).zip(by) {
        timeline.deliver(returners[by], seq, 20 + seq, Fate::Returned);
    }
    change(&mut timeline, returners);
    timeline.deliver_all(dead, [2, 1, 3, 4], 50).kinds()
}

#[test]
fn messages_over_their_delivery_limit_come_in_the_order_of_their_last_returns() {
    assert_eq!(given_up([0; 4], |_, _| {}), REORDERED);
    // Another consumer returned one of the two.
    assert!(given_up([1, 0, 0, 0], |_, _| {}).is_empty());
    // It is in doubt whether the queue heard of the returns.
    assert!(given_up([1; 4], |timeline, [_, other]| timeline.lose(other, 30)).is_empty());
    assert_eq!(given_up([1; 4], |timeline, [_, other]| timeline.lose(other, LONG)), REORDERED);
}

#[test]
fn a_message_that_died_of_a_return_that_nobody_saw_has_no_order() {
    // A lost consumer was given message 1, and not shown it.
    let unseen = given_up([0; 4], |timeline, _| {
        let lost = timeline.attach("q", 1, 0);
        timeline.lose(lost, 30);
        let is_last = |place: &usize| timeline.log.delivered[*place].number == number(1);
        let last = (0..timeline.log.delivered.len()).rev().find(is_last);
        timeline.log.delivered.remove(last.unwrap());
    });
    assert!(unseen.is_empty());
}
