//! A queue with a delivery limit delivers a message as often as the limit says, and once more, and then it is
//! a dead letter (DLM-04, DLM-05). What a lost consumer was given counts, though it may not have been shown it.

use super::Violation;
use super::excuse::Claim;
use crate::history::Log;
use std::collections::BTreeMap;

pub(super) fn check(log: &Log) -> (Vec<Violation>, Vec<Claim>) {
    let mut seen = BTreeMap::new();
    let (mut found, mut claims) = (Vec::new(), Vec::new());
    for delivered in &log.delivered {
        let Some(published) = log.published.get(&delivered.number) else { continue };
        let Some(traits) = log.queues.get(&published.queue) else { continue };
        let Some(limit) = traits.delivery_limit else { continue };
        let times = seen.entry(delivered.number).or_insert(0);
        if delivered.queue == published.queue {
            *times += 1;
            if *times > limit + 1 {
                found.push(Violation::OverLimit(format!("delivered {times} times: {delivered:?}")));
            }
        } else {
            claims.extend((*times..=limit).map(|_| Claim {
                queue: published.queue.clone(),
                holder: None,
                also: None,
                published: published.at,
                came: delivered.at,
                otherwise: Violation::OverLimit(format!("after {times} times: {delivered:?}")),
            }));
            // The letter may be delivered again.
            *times = limit + 1;
        }
    }
    (found, claims)
}
