//! Time is not too short: a delayed message is not delivered before its delay is over (EXC-17), and none dies
//! of its age before its time to live is over (TTL-02).

use super::Violation;
use crate::history::Log;

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut found = Vec::new();
    for delivered in &log.delivered {
        let Some(published) = log.published.get(&delivered.number) else { continue };
        let lives = match log.queues.get(&published.queue) {
            Some(traits) if traits.dead_letters.as_ref() == Some(&delivered.queue) => traits.lives,
            Some(_) | None => std::time::Duration::ZERO,
        };
        if delivered.at < published.at + published.delay + lives {
            found.push(Violation::TooEarly(format!("{delivered:?}: {published:?}")));
        }
    }
    found
}
