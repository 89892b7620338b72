//! Counts are exact: a queue that nobody has consumed from has as many messages as its consumers then get, and
//! each node counts the same (QUE-01).

use super::Violation;
use crate::history::{Log, Number};
use std::collections::BTreeSet;

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let wrong = log.counted.iter().filter_map(|(queue, counted)| {
        let of_queue = log.delivered.iter().filter(|delivered| delivered.queue == *queue);
        let came: BTreeSet<Number> = of_queue.map(|delivered| delivered.number).collect();
        let story = || format!("'{queue}' was said to have {counted}; {} came", came.len());
        (came.len() as u64 != *counted).then(|| Violation::Miscounted(story()))
    });
    wrong.collect()
}
