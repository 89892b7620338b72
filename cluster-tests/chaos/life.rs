//! The whole life of a message, for the report of a violation.

use super::injector::Injected;
use crate::history::{Log, Number};
use std::time::Duration;

/// What happened to the message that a violation names, in the order of time, with the faults of that
/// moment; nothing, if it names none. Times are those of the history; the load began at `begun`.
#[must_use]
pub fn life(story: &str, log: &Log, injected: &[Injected], begun: Duration) -> Vec<String> {
    let Some(number) = named(story) else { return Vec::new() };
    let mut events: Vec<(Duration, String)> = Vec::new();
    if let Some(published) = log.published.get(&number) {
        events.push((published.at, format!("published to '{}'", published.queue)));
        if let Some(at) = published.answered_at {
            events.push((at, format!("answered: {:?}", published.answer)));
        }
    }
    for delivered in log.delivered.iter().filter(|delivered| delivered.number == number) {
        let marked = if delivered.redelivered { ", marked as redelivered" } else { "" };
        let (queue, consumer) = (&delivered.queue, delivered.consumer);
        let said = format!("delivered from '{queue}' to consumer {consumer}{marked}");
        events.push((delivered.at, said));
        if let Some(at) = delivered.settled_at {
            events.push((at, format!("consumer {consumer} has it {:?}", delivered.fate)));
        }
        let lost_at = log.consumers.get(consumer).and_then(|consumer| consumer.lost_at);
        events.extend(lost_at.map(|at| (at, format!("consumer {consumer} lost its connection"))));
    }
    events.sort();
    events.dedup();
    let line = |(at, said): (Duration, String)| {
        let at = at.saturating_sub(begun);
        let during = |one: &&Injected| (one.began..=one.ended).contains(&at);
        let faults: Vec<String> = injected
            .iter()
            .filter(during)
            .map(|one| format!("{} on {:?}", one.event.counts_as, one.nodes))
            .collect();
        format!("{:9.3} s  {said}  {}", at.as_secs_f64(), faults.join(", "))
    };
    events.into_iter().map(line).collect()
}

/// The first number in a story, as its `Debug` writes it.
fn named(story: &str) -> Option<Number> {
    let (_, rest) = story.split_once("Number { producer: ")?;
    let (producer, rest) = rest.split_once(", seq: ")?;
    let (seq, _) = rest.split_once(" }")?;
    Some(Number { producer: producer.parse().ok()?, seq: seq.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Answer, Fate, History};

    #[test]
    fn a_life_is_told_in_the_order_of_time() {
        let history = History::default();
        let number = Number { producer: 3, seq: 14 };
        history.publishing(number, "q", 0, Duration::ZERO);
        history.answered(number, Answer::Confirmed);
        let consumer = history.attached("q", 1);
        let place = history.delivered(consumer, &number.body(32), true);
        history.settled(place, Fate::Settled);
        let log = history.snapshot();
        let story = format!("{:?}", log.delivered);
        let told = life(&story, &log, &[], Duration::ZERO);
        let parts = ["published to 'q'", "Confirmed", "to consumer 0, marked", "has it Settled"];
        assert_eq!(told.len(), parts.len(), "{told:?}");
        assert!(told.iter().zip(parts).all(|(line, part)| line.contains(part)), "{told:?}");
        assert!(life("nothing is named", &log, &[], Duration::ZERO).is_empty());
    }
}
