//! What one channel published to one queue with one priority, one consumer sees in that order
//! (DUR-04, CON-17, PRI).

use super::Violation;
use super::excuse::Claim;
use crate::history::{Delivered, Log};
use std::collections::BTreeMap;

/// A message that comes late is no disorder where a lost consumer was given it and had not been shown
/// it: it goes on unmarked (DLV 4).
pub(super) fn check(log: &Log) -> Vec<Claim> {
    let mut last: BTreeMap<(usize, u32, u8), &Delivered> = BTreeMap::new();
    let mut claims = Vec::new();
    // A returned message goes back to its place and so comes late, but marked.
    for delivered in log.delivered.iter().filter(|delivered| !delivered.redelivered) {
        // Letters come in the order of death, which is another.
        let Some(published) = log.published.get(&delivered.number) else { continue };
        // Delayed messages come in the order of the ends of their delays.
        if published.queue != delivered.queue || !published.delay.is_zero() {
            continue;
        }
        let key = (delivered.consumer, delivered.number.producer, published.priority);
        let before = last.entry(key).or_insert(delivered);
        if before.number.seq <= delivered.number.seq {
            *before = delivered;
            continue;
        }
        claims.push(Claim {
            queue: delivered.queue.clone(),
            holder: None,
            also: None,
            published: published.at,
            came: delivered.at,
            otherwise: Violation::Reordered(format!("{delivered:?} after {before:?}")),
        });
    }
    claims
}
