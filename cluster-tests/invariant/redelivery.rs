//! A message comes again only with a cause, and is marked exactly then (CON-19, DUR-05, DUR-07).

use super::Violation;
use super::excuse::{Claim, Heard};
use crate::history::{Fate, Log, Number};
use std::collections::BTreeMap;

pub(super) fn check(log: &Log, heard: &Heard<'_>) -> (Vec<Violation>, Vec<Claim>) {
    let mut earlier: BTreeMap<(&str, Number), Vec<usize>> = BTreeMap::new();
    let (mut found, mut claims) = (Vec::new(), Vec::new());
    for (place, delivered) in log.delivered.iter().enumerate() {
        let before = earlier.entry((&delivered.queue, delivered.number)).or_default();
        let last = before.last().map(|place| (*place, &log.delivered[*place]));
        let story = || format!("{delivered:?} after {:?}", last.map(|(_, last)| last));
        let was_returned = last.is_some_and(|(_, last)| last.fate == Fate::Returned);
        if !delivered.redelivered
            && let Some((_, last)) = last
        {
            let otherwise = Violation::Doubled(story());
            if before.iter().all(|place| log.delivered[*place].redelivered) {
                // All earlier deliveries were marked as redelivered, so the queue delivered the message to
                // another consumer first. That may be this one: if its link was cut, it reads late from its
                // socket what was sent before.
                claims.push(Claim {
                    queue: delivered.queue.clone(),
                    holder: Some(delivered.consumer),
                    also: None,
                    published: last.at,
                    came: delivered.at,
                    otherwise,
                });
            } else {
                found.push(otherwise);
            }
        } else if delivered.redelivered && !was_returned {
            // Given to a consumer that was lost: the one that was seen to have it, and whose settling
            // the queue may not have heard of, or else one that was never shown it.
            let otherwise = Violation::FalselyRedelivered(story());
            let is_heard = last.is_some_and(|(place, _)| heard.surely(place));
            let is_other = last.is_some_and(|(_, last)| last.consumer != delivered.consumer);
            if is_heard && !is_other {
                found.push(otherwise);
            } else {
                let published = log.published.get(&delivered.number);
                // What a lost consumer had been sent may be seen after its successor has settled it.
                let late = is_heard.then_some(delivered.consumer);
                claims.push(Claim {
                    queue: delivered.queue.clone(),
                    holder: late.or_else(|| last.map(|(_, last)| last.consumer)),
                    also: None,
                    published: published.map(|published| published.at).unwrap_or_default(),
                    came: delivered.at,
                    otherwise,
                });
            }
        }
        before.push(place);
    }
    (found, claims)
}
