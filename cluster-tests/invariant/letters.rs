//! A message is in one place: in its queue until it dies there, then, exactly once, where its queue
//! sends dead letters; and what a client has not acked is somewhere.

use super::Violation;
use super::excuse::Heard;
use crate::history::{Delivered, Fate, Log, Number};
use std::collections::BTreeMap;

pub(super) fn check(log: &Log, heard: &Heard<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: BTreeMap<Number, usize> = BTreeMap::new();
    for (place, delivered) in log.delivered.iter().enumerate() {
        let Some(published) = log.published.get(&delivered.number) else { continue };
        let traits = log.queues.get(&published.queue);
        let letters = traits.and_then(|traits| traits.dead_letters.as_ref());
        // What comes from anywhere else is invented.
        if delivered.queue != published.queue && letters != Some(&delivered.queue) {
            continue;
        }
        let place_before = last.insert(delivered.number, place);
        let before = place_before.map(|place| &log.delivered[place]);
        let story = || format!("{delivered:?} after {before:?}");
        let at_home = |delivered: &Delivered| delivered.queue == published.queue;
        match (before.map(at_home), at_home(delivered)) {
            // It came back from where it went as a letter.
            (Some(false), true) => found.push(Violation::Doubled(story())),
            (Some(true) | None, false) => {
                let dies = traits.is_some_and(|traits| traits.dies);
                // How often it was delivered before is another check's.
                let is_limited = traits.is_some_and(|traits| traits.delivery_limit.is_some());
                let acked = before.is_some_and(|before| before.fate == Fate::Settled);
                if acked && !(dies && place_before.is_some_and(|place| !heard.surely(place))) {
                    found.push(Violation::Doubled(story()));
                } else if !dies && !is_limited && before.is_none_or(|b| b.fate != Fate::Rejected) {
                    found.push(Violation::Invented(format!("{}, a letter", story())));
                }
            }
            (Some(true) | None, true) | (Some(false), false) => {}
        }
    }
    for delivered in last.into_values().map(|place| &log.delivered[place]) {
        let goes_on = || log.queues.get(&delivered.queue)?.dead_letters.as_ref();
        let ends = match delivered.fate {
            Fate::Settled => true,
            Fate::Rejected => goes_on().is_none(),
            Fate::Held | Fate::Returned => false,
        };
        if !ends {
            found.push(Violation::Lost(format!("nothing came after {delivered:?}")));
        }
    }
    found
}
