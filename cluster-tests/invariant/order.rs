//! What one channel published to one queue, one consumer sees in that order (DUR-04, CON-17).

use super::Violation;
use crate::history::{Delivered, Log};
use std::collections::BTreeMap;

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut last: BTreeMap<(usize, u32), &Delivered> = BTreeMap::new();
    let mut found = Vec::new();
    // A returned message goes back to its place and so comes late, but marked.
    for delivered in log.delivered.iter().filter(|delivered| !delivered.redelivered) {
        if given_back_unseen(log, delivered) {
            continue;
        }
        let key = (delivered.consumer, delivered.number.producer);
        if let Some(before) = last.insert(key, delivered)
            && before.number.seq > delivered.number.seq
        {
            found.push(Violation::Reordered(format!("{delivered:?} after {before:?}")));
        }
    }
    found
}

/// Whether another consumer of the queue has been lost since this one was attached: what it held
/// and had not been shown comes to the others late and unmarked (DLV 4), which is no disorder.
fn given_back_unseen(log: &Log, delivered: &Delivered) -> bool {
    let Some(own) = log.consumers.get(delivered.consumer) else { return false };
    log.consumers.iter().enumerate().any(|(other, consumer)| {
        other != delivered.consumer
            && consumer.queue == own.queue
            && consumer.lost_at.is_some_and(|at| at >= own.from)
    })
}
