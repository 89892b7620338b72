//! Planted faults: a history with one thing wrong, for each thing that can be, and the checker's word.

use super::{Violation, violations};
use crate::history::{Answer, Fate, History, Log, Number, Traits};
use std::time::Duration;

mod length;
mod letter_order;
mod timeline;

const BYTES: usize = 32;
/// Of every consumer; fewer than a history has messages.
const PREFETCH: u16 = 3;
/// Longer than anything is in doubt.
const LONG: Duration = Duration::from_secs(60);

fn number(seq: u64) -> Number {
    Number { producer: 1, seq }
}

fn publish(history: &History, seq: u64, answer: Answer) {
    history.publishing(number(seq), "q", 0, Duration::ZERO);
    match answer {
        Answer::Outstanding => {}
        Answer::Lost | Answer::Confirmed | Answer::Refused => {
            history.answered(number(seq), answer);
        }
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
    let consumer = history.attached("q", PREFETCH);
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
            Violation::Together(_) => "together",
            Violation::TooEarly(_) => "too early",
            Violation::OverLimit(_) => "over limit",
            Violation::OverPrefetch(_) => "over prefetch",
            Violation::OverLength(_) => "over length",
            Violation::HadRoom(_) => "had room",
            Violation::LettersReordered(_) => "letters reordered",
            Violation::Forgotten(_) => "forgotten",
            Violation::Served(_) => "served",
            Violation::Miscounted(_) => "miscounted",
            Violation::NotMoved(_) => "not moved",
            Violation::NotBack(_) => "not back",
            Violation::Stuck(_) => "stuck",
            Violation::Ended(_) => "ended",
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
        let other = history.attached("other", PREFETCH);
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
        let next = history.attached("q", PREFETCH);
        deliver(history, next, 4, true, Fate::Settled);
    });
    assert!(lost.is_empty());
    // Message 4 was on its way.
    let on_its_way = after(&[1, 2, 3], |history, consumer| {
        history.lost(consumer);
        let next = history.attached("q", PREFETCH);
        deliver(history, next, 4, true, Fate::Settled);
    });
    assert!(on_its_way.is_empty());
    // Another queue's loss is no cause.
    let other_queue = after(&[1, 2, 3], |history, consumer| {
        let other = history.attached("other", PREFETCH);
        history.lost(other);
        deliver(history, consumer, 4, true, Fate::Settled);
    });
    assert_eq!(other_queue, ["falsely redelivered"]);
}

#[test]
fn what_a_lost_consumer_sees_after_its_successor_is_excused() {
    let late = |is_lost| {
        after(&[1, 2, 3], |history, consumer| {
            deliver(history, consumer, 4, false, Fate::Returned);
            let next = history.attached("q", PREFETCH);
            deliver(history, next, 4, true, Fate::Settled);
            deliver(history, consumer, 4, true, Fate::Settled);
            if is_lost {
                history.lost(consumer);
            }
        })
    };
    assert!(late(true).is_empty());
    assert_eq!(late(false), ["falsely redelivered"]);
}

#[test]
fn what_a_lost_consumer_was_given_first_it_may_see_last() {
    let late = |is_lost: bool, marked: bool| {
        after(&[1, 2, 3], |history, consumer| {
            let next = history.attached("q", PREFETCH);
            deliver(history, next, 4, marked, Fate::Settled);
            deliver(history, consumer, 4, false, Fate::Settled);
            if is_lost {
                history.lost(consumer);
            }
        })
    };
    assert!(late(true, true).is_empty());
    assert_eq!(late(false, true), ["doubled", "falsely redelivered"]);
    // It was given to two for the first time.
    assert_eq!(late(true, false), ["doubled"]);
}

/// Two consumers of which the first is lost when it has seen these, and the history as it is then
/// handed to the second, its clock set forward in between.
fn succession(
    seqs: &[u64],
    pause: Duration,
    further: impl FnOnce(&History, usize),
) -> Vec<&'static str> {
    let (history, first) = sound();
    let second = history.attached("q", PREFETCH);
    seqs.iter().for_each(|seq| deliver(&history, first, *seq, false, Fate::Settled));
    history.lost(first);
    let until_then = history.snapshot();
    further(&history, second);
    let mut log = history.snapshot();
    for delivered in log.delivered.iter_mut().skip(until_then.delivered.len()) {
        delivered.at += pause;
        delivered.settled_at = delivered.settled_at.map(|at| at + pause);
    }
    for (number, published) in &mut log.published {
        if !until_then.published.contains_key(number) {
            published.at += pause;
        }
    }
    kinds(&log)
}

#[test]
fn a_consumer_was_given_no_more_than_its_prefetch() {
    // The fourth delivery says that the queue had heard of the first one's ack.
    let again = |seq| {
        succession(&[1, 2, 3, 4], Duration::ZERO, |history, next| {
            deliver(history, next, seq, true, Fate::Settled);
        })
    };
    assert_eq!(again(1), ["falsely redelivered"]);
    assert!(again(2).is_empty());
    // It cannot have been sent all of these and not shown any.
    let unseen = succession(&[], Duration::ZERO, |history, next| {
        (1..=4).for_each(|seq| deliver(history, next, seq, true, Fate::Settled));
    });
    assert_eq!(unseen, ["falsely redelivered"]);
    // Nor these, of which it was shown one.
    let both = succession(&[4], Duration::ZERO, |history, next| {
        [4, 1, 2, 3].iter().for_each(|seq| deliver(history, next, *seq, true, Fate::Settled));
    });
    assert_eq!(both, ["falsely redelivered"]);
}

#[test]
fn an_ack_long_before_the_loss_is_not_in_doubt() {
    let (history, first) = sound();
    (1..=4).for_each(|seq| deliver(&history, first, seq, false, Fate::Settled));
    history.lost(first);
    let second = history.attached("q", PREFETCH);
    deliver(&history, second, 4, true, Fate::Settled);
    let mut log = history.snapshot();
    assert!(kinds(&log).is_empty());
    log.consumers[first].lost_at = Some(history.now() + LONG);
    log.delivered[4].at += LONG;
    assert_eq!(kinds(&log), ["falsely redelivered"]);
}

#[test]
fn a_loss_is_no_cause_of_what_came_before_it() {
    let (history, first) = sound();
    let second = history.attached("q", PREFETCH);
    [1, 3].iter().for_each(|seq| deliver(&history, second, *seq, false, Fate::Settled));
    deliver(&history, second, 2, false, Fate::Settled);
    deliver(&history, second, 4, true, Fate::Settled);
    history.lost(first);
    let mut log = history.snapshot();
    assert!(kinds(&log).is_empty());
    log.consumers[first].lost_at = Some(history.now() + LONG);
    assert_eq!(kinds(&log), ["falsely redelivered", "reordered"]);
}

#[test]
fn a_loss_is_no_cause_of_what_befalls_later_messages() {
    let later = |pause| {
        succession(&[1, 2, 3], pause, |history, next| {
            (5..=7).for_each(|seq| publish(history, seq, Answer::Confirmed));
            [4, 6].iter().for_each(|seq| deliver(history, next, *seq, false, Fate::Settled));
            deliver(history, next, 5, false, Fate::Settled);
            deliver(history, next, 7, true, Fate::Settled);
        })
    };
    assert!(later(Duration::ZERO).is_empty());
    assert_eq!(later(LONG), ["falsely redelivered", "reordered"]);
}

#[test]
fn disorder_is_found_but_not_of_what_a_lost_consumer_held() {
    assert_eq!(after(&[1, 3, 2, 4], |_, _| {}), ["reordered"]);
    let late = |seqs: &[u64]| {
        let (history, first) = sound();
        publish(&history, 5, Answer::Confirmed);
        let second = history.attached("q", PREFETCH);
        deliver(&history, second, 5, false, Fate::Settled);
        history.lost(first);
        seqs.iter().for_each(|seq| deliver(&history, second, *seq, false, Fate::Settled));
        kinds(&history.snapshot())
    };
    // Three of the four were given to the first and not shown; the fourth was not.
    assert_eq!(late(&[1, 2, 3, 4]), ["reordered"]);
    assert_eq!(late(&[2, 3, 4]), ["lost"]);
}

#[test]
fn messages_of_one_priority_keep_their_order() {
    let levels = |priorities: [u8; 4]| {
        let history = History::default();
        for (seq, priority) in (1..).zip(priorities) {
            history.publishing(number(seq), "q", priority, Duration::ZERO);
            history.answered(number(seq), Answer::Confirmed);
        }
        let consumer = history.attached("q", PREFETCH);
        for seq in [3, 1, 2, 4] {
            deliver(&history, consumer, seq, false, Fate::Settled);
        }
        kinds(&history.snapshot())
    };
    assert!(levels([0, 0, 1, 0]).is_empty());
    assert_eq!(levels([1, 0, 1, 0]), ["reordered"]);
}

/// As [`after`], where the queue sends its dead letters to `dead`, which has a consumer too.
fn with_letters(
    dies: bool,
    seqs: &[u64],
    further: impl FnOnce(&History, usize, usize),
) -> Vec<&'static str> {
    let (history, consumer) = sound();
    let dead_letters = Some("dead".to_owned());
    history.describe("q", Traits { dead_letters, dies, ..Traits::default() });
    seqs.iter().for_each(|seq| deliver(&history, consumer, *seq, false, Fate::Settled));
    let other = history.attached("dead", PREFETCH);
    further(&history, consumer, other);
    kinds(&history.snapshot())
}

#[test]
fn a_rejected_message_must_come_as_a_letter_and_only_then() {
    let rejected = |letters: &[u64]| {
        with_letters(false, &[1, 2, 3], |history, consumer, other| {
            deliver(history, consumer, 4, false, Fate::Rejected);
            letters.iter().for_each(|seq| deliver(history, other, *seq, false, Fate::Settled));
        })
    };
    assert!(rejected(&[4]).is_empty());
    assert_eq!(rejected(&[]), ["lost"]);
    assert_eq!(rejected(&[4, 4]), ["doubled"]);
    // Acked, and a letter.
    assert_eq!(rejected(&[4, 3]), ["doubled"]);
    let unseen = |dies| {
        with_letters(dies, &[1, 2, 3], |history, _, other| {
            deliver(history, other, 4, false, Fate::Settled);
        })
    };
    assert_eq!(unseen(false), ["invented"]);
    assert!(unseen(true).is_empty());
    let back = with_letters(true, &[1, 2, 3], |history, consumer, other| {
        deliver(history, other, 4, false, Fate::Settled);
        deliver(history, consumer, 4, false, Fate::Settled);
    });
    assert_eq!(back, ["doubled"]);
}

#[test]
fn a_message_that_is_given_back_must_come_again() {
    let returned = after(&[1, 2, 3], |history, consumer| {
        deliver(history, consumer, 4, false, Fate::Returned);
    });
    assert_eq!(returned, ["lost"]);
}

#[test]
fn two_consumers_of_a_queue_for_one_are_found() {
    let single = |first_is_lost: bool| {
        let (history, first) = sound();
        history.describe("q", Traits { single_active: true, ..Traits::default() });
        let second = history.attached("q", PREFETCH);
        [1, 2].iter().for_each(|seq| deliver(&history, first, *seq, false, Fate::Settled));
        if first_is_lost {
            history.lost(first);
        }
        [3, 4].iter().for_each(|seq| deliver(&history, second, *seq, false, Fate::Settled));
        kinds(&history.snapshot())
    };
    assert!(single(true).is_empty());
    assert_eq!(single(false), ["together"]);
}

#[test]
fn a_message_that_comes_before_its_delay_or_its_time_to_live_is_over_is_found() {
    let delayed = |delay| {
        let history = History::default();
        history.publishing(number(1), "q", 0, delay);
        history.answered(number(1), Answer::Confirmed);
        let consumer = history.attached("q", PREFETCH);
        deliver(&history, consumer, 1, false, Fate::Settled);
        kinds(&history.snapshot())
    };
    assert!(delayed(Duration::ZERO).is_empty());
    assert_eq!(delayed(LONG), ["too early"]);
    let aged = |lives| {
        with_letters(true, &[1, 2, 3], |history, _, other| {
            let dead_letters = Some("dead".to_owned());
            history.describe("q", Traits { dead_letters, dies: true, lives, ..Traits::default() });
            deliver(history, other, 4, false, Fate::Settled);
        })
    };
    assert!(aged(Duration::ZERO).is_empty());
    assert_eq!(aged(LONG), ["too early"]);
}

#[test]
fn a_delivery_limit_is_kept_and_not_undercut() {
    let limited = |times: usize, lost: bool| {
        with_letters(false, &[1, 2, 3], |history, consumer, other| {
            let (dead_letters, delivery_limit) = (Some("dead".to_owned()), Some(1));
            history.describe("q", Traits { dead_letters, delivery_limit, ..Traits::default() });
            for time in 0..times {
                deliver(history, consumer, 4, time > 0, Fate::Returned);
            }
            if lost {
                history.lost(consumer);
            }
            deliver(history, other, 4, false, Fate::Settled);
        })
    };
    assert!(limited(2, false).is_empty());
    assert_eq!(limited(3, false), ["over limit"]);
    assert_eq!(limited(1, false), ["over limit"]);
    // A lost consumer was given it once more.
    assert!(limited(1, true).is_empty());
}

#[test]
fn a_queue_that_was_not_there_is_told() {
    let told = after(&[1, 2, 3, 4], |history, _| history.forgotten("'q'".to_owned()));
    assert_eq!(told, ["forgotten"]);
}

#[test]
fn a_prefetch_is_kept() {
    let held = |most: u64| {
        let (history, consumer) = sound();
        let give = |seq| history.delivered(consumer, &number(seq).body(BYTES), false);
        let mut held: Vec<usize> = (1..=most).map(give).collect();
        held.drain(..).for_each(|place| history.settled(place, Fate::Settled));
        held.extend((most + 1..=4).map(give));
        held.into_iter().for_each(|place| history.settled(place, Fate::Settled));
        kinds(&history.snapshot())
    };
    assert!(held(u64::from(PREFETCH)).is_empty());
    assert_eq!(held(u64::from(PREFETCH) + 1), ["over prefetch"]);
}

#[test]
fn a_wrong_count_is_found() {
    let counted = |count| after(&[1, 2, 3, 4], |history, _| history.counted("q", count));
    assert!(counted(4).is_empty());
    assert_eq!(counted(5), ["miscounted"]);
}
