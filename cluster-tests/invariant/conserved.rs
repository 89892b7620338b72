//! Messages are conserved: none lost once confirmed (DUR-01), none invented, every publish answered
//! (CNF-05).

use super::Violation;
use crate::history::{Answer, Log};

pub(super) fn check(log: &Log) -> Vec<Violation> {
    let mut found: Vec<Violation> = log.damaged.iter().cloned().map(Violation::Invented).collect();
    found.extend(log.forgotten.iter().cloned().map(Violation::Forgotten));
    for (number, published) in &log.published {
        let story = format!("{number:?}: {published:?}");
        match published.answer {
            Answer::Outstanding => found.push(Violation::Unanswered(story)),
            Answer::Confirmed if published.deliveries == 0 => found.push(Violation::Lost(story)),
            // A refused publish stays refused (SES 3, TX-09), and each goes to one queue only (CNF-04).
            Answer::Refused if published.deliveries > 0 => found.push(Violation::Invented(story)),
            Answer::Lost | Answer::Confirmed | Answer::Refused => {}
        }
    }
    for delivered in &log.delivered {
        let story = || Violation::Invented(format!("{delivered:?}"));
        let Some(published) = log.published.get(&delivered.number) else {
            found.push(story());
            continue;
        };
        let letters = || log.queues.get(&published.queue)?.dead_letters.as_ref();
        if delivered.queue != published.queue && letters() != Some(&delivered.queue) {
            found.push(story());
        }
    }
    found
}
