//! A consumer is given no more unsettled messages than its prefetch (QOS-03). Exact: a client writes a delivery
//! down after the broker has counted it, and a settlement before the broker can hear of it.

use super::Violation;
use crate::history::Log;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn check(log: &Log) -> Vec<Violation> {
    // When each delivery that a consumer holds is settled; `None` for never.
    let mut held: BTreeMap<usize, Vec<Option<Duration>>> = BTreeMap::new();
    let mut found = Vec::new();
    for delivered in &log.delivered {
        let Some(consumer) = log.consumers.get(delivered.consumer) else { continue };
        if consumer.prefetch == 0 {
            continue;
        }
        let held = held.entry(delivered.consumer).or_default();
        held.retain(|settled| settled.is_none_or(|at| at > delivered.at));
        held.push(delivered.settled_at);
        if held.len() > consumer.prefetch.into() {
            let (have, most) = (held.len(), consumer.prefetch);
            found.push(Violation::OverPrefetch(format!("{have} of {most} held: {delivered:?}")));
        }
    }
    found
}
