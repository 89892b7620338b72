//! A queue with a single active consumer serves one, until it goes (SAC-01, SAC-03).

use super::Violation;
use super::excuse::SLACK;
use crate::history::{Delivered, Log};
use std::collections::BTreeMap;

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut served: BTreeMap<&str, &Delivered> = BTreeMap::new();
    let mut found = Vec::new();
    let single = |queue: &str| log.queues.get(queue).is_some_and(|traits| traits.single_active);
    for delivered in log.delivered.iter().filter(|delivered| single(&delivered.queue)) {
        let Some(before) = served.insert(&delivered.queue, delivered) else { continue };
        // What a lost one had been sent may be seen after its successor's first.
        let gone = [before.consumer, delivered.consumer].iter().any(|consumer| {
            let lost_at = log.consumers.get(*consumer).and_then(|consumer| consumer.lost_at);
            lost_at.is_some_and(|at| at <= delivered.at + SLACK)
        });
        if before.consumer != delivered.consumer && !gone {
            found.push(Violation::Together(format!("{delivered:?} after {before:?}")));
        }
    }
    found
}
