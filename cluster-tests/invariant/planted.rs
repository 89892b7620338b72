//! Planted faults: a history with one thing wrong, for each thing that can be, and the checker's word.

use super::{Violation, violations};
use crate::history::{Answer, Fate, History, Log, Number};

const BYTES: usize = 32;

fn number(seq: u64) -> Number {
    Number { producer: 1, seq }
}

fn publish(history: &History, seq: u64, answer: Answer) {
    history.publishing(number(seq), "q");
    match answer {
        Answer::Outstanding => {}
        Answer::Lost => history.unanswered(number(seq)),
        Answer::Confirmed | Answer::Refused => history.answered(number(seq), answer),
    }
}

fn deliver(history: &History, consumer: usize, seq: u64, redelivered: bool, fate: Fate) {
    let place = history.delivered(consumer, &number(seq).body(BYTES), redelivered);
    history.settled(place, fate);
}

/// Four confirmed messages, and a consumer.
fn sound() -> (History, usize) {
    let history = History::default();
    (1..=4).for_each(|seq| publish(&history, seq, Answer::Confirmed));
    let consumer = history.attached("q");
    (history, consumer)
}

fn kinds(log: &Log) -> Vec<&'static str> {
    violations(log)
        .iter()
        .map(|violation| match violation {
            Violation::Lost(_) => "lost",
            Violation::Invented(_) => "invented",
            Violation::Unanswered(_) => "unanswered",
            Violation::Doubled(_) => "doubled",
            Violation::FalselyRedelivered(_) => "falsely redelivered",
            Violation::Reordered(_) => "reordered",
        })
        .collect()
}

fn after(seqs: &[u64], further: impl FnOnce(&History, usize)) -> Vec<&'static str> {
    let (history, consumer) = sound();
    for seq in seqs {
        deliver(&history, consumer, *seq, false, Fate::Settled);
    }
    further(&history, consumer);
    kinds(&history.snapshot())
}

#[test]
fn a_sound_history_has_no_violation() {
    assert!(after(&[1, 2, 3, 4], |_, _| {}).is_empty());
}

#[test]
fn a_lost_message_is_found() {
    assert_eq!(after(&[1, 2, 4], |_, _| {}), ["lost"]);
}

#[test]
fn an_unanswered_publish_is_found_unless_its_connection_was_lost() {
    let publish = |answer| after(&[1, 2, 3, 4], |history, _| publish(history, 5, answer));
    assert_eq!(publish(Answer::Outstanding), ["unanswered"]);
    assert!(publish(Answer::Lost).is_empty());
}

#[test]
fn an_invented_message_is_found() {
    let invented = after(&[1, 2, 3, 4], |history, consumer| {
        deliver(history, consumer, 99, false, Fate::Settled);
    });
    assert_eq!(invented, ["invented"]);
    let damaged = after(&[1, 2, 3, 4], |history, consumer| {
        history.delivered(consumer, b"damaged", false);
    });
    assert_eq!(damaged, ["invented"]);
    let elsewhere = after(&[1, 2, 3, 4], |history, _| {
        publish(history, 5, Answer::Confirmed);
        let other = history.attached("other");
        deliver(history, other, 5, false, Fate::Settled);
    });
    assert_eq!(elsewhere, ["invented"]);
}

#[test]
fn a_refused_message_must_not_come() {
    let refused = after(&[1, 2, 3, 4], |history, consumer| {
        publish(history, 5, Answer::Refused);
        deliver(history, consumer, 5, false, Fate::Settled);
    });
    assert_eq!(refused, ["invented"]);
}

#[test]
fn a_doubled_message_is_found() {
    let doubled = after(&[1, 2, 3, 4], |history, consumer| {
        deliver(history, consumer, 4, false, Fate::Settled);
    });
    assert_eq!(doubled, ["doubled"]);
}

#[test]
fn a_false_redelivered_is_found() {
    let first_time = after(&[1, 2, 3], |history, consumer| {
        deliver(history, consumer, 4, true, Fate::Settled);
    });
    assert_eq!(first_time, ["falsely redelivered"]);
    let after_an_ack = after(&[1, 2, 3, 4], |history, consumer| {
        deliver(history, consumer, 4, true, Fate::Settled);
    });
    assert_eq!(after_an_ack, ["falsely redelivered"]);
}

#[test]
fn a_returned_message_comes_again_marked() {
    let again = |redelivered| {
        after(&[1, 2, 3], |history, consumer| {
            deliver(history, consumer, 4, false, Fate::Returned);
            deliver(history, consumer, 4, redelivered, Fate::Settled);
        })
    };
    assert!(again(true).is_empty());
    assert_eq!(again(false), ["doubled"]);
}

#[test]
fn what_a_lost_consumer_was_sent_comes_again_marked() {
    // Message 4 was acked, but nobody knows whether the broker heard it.
    let lost = after(&[1, 2, 3, 4], |history, consumer| {
        history.lost(consumer);
        let next = history.attached("q");
        deliver(history, next, 4, true, Fate::Settled);
    });
    assert!(lost.is_empty());
    // Message 4 was on its way.
    let on_its_way = after(&[1, 2, 3], |history, consumer| {
        history.lost(consumer);
        let next = history.attached("q");
        deliver(history, next, 4, true, Fate::Settled);
    });
    assert!(on_its_way.is_empty());
    // Another queue's loss is no cause.
    let other_queue = after(&[1, 2, 3], |history, consumer| {
        let other = history.attached("other");
        history.lost(other);
        deliver(history, consumer, 4, true, Fate::Settled);
    });
    assert_eq!(other_queue, ["falsely redelivered"]);
}

#[test]
fn disorder_is_found_but_not_where_another_consumer_was_lost() {
    assert_eq!(after(&[1, 3, 2, 4], |_, _| {}), ["reordered"]);
    let (history, first) = sound();
    let second = history.attached("q");
    deliver(&history, second, 3, false, Fate::Settled);
    history.lost(first);
    [1, 2, 4].iter().for_each(|seq| deliver(&history, second, *seq, false, Fate::Settled));
    assert!(kinds(&history.snapshot()).is_empty());
}
