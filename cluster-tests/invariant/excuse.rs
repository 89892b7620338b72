//! What the loss of a consumer excuses, and no more: deliveries that it held when it was lost. Those
//! are at most as many as its prefetch, and the queue had them before the broker knew of the loss.

use super::Violation;
use crate::history::{Answer, Attached, Log};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// A broker may learn of a lost connection before the client's own task has written it down, or after.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// What a client settled longer than this before it was lost, the queue has settled: longer than any
/// fail-over takes.
const IN_DOUBT: Duration = Duration::from_secs(10);

/// Which settlements have surely reached the queue.
pub(super) struct Heard<'a> {
    log: &'a Log,
    /// For each delivery, how many its consumer saw after it.
    later: Vec<usize>,
}

impl<'a> Heard<'a> {
    pub fn new(log: &'a Log) -> Self {
        let mut seen = vec![0_usize; log.consumers.len()];
        let mut later = vec![0; log.delivered.len()];
        for (place, delivered) in log.delivered.iter().enumerate().rev() {
            if let Some(seen) = seen.get_mut(delivered.consumer) {
                later[place] = *seen;
                *seen += 1;
            }
        }
        Self { log, later }
    }

    /// Whether the queue has surely heard what became of the delivery at this place: its consumer was
    /// not lost, or long after it had said so, or had been given since then what it could only be given
    /// once the queue had heard. A consumer settles in the order of its deliveries, and is given no
    /// more than its prefetch unsettled.
    pub fn surely(&self, place: usize) -> bool {
        let delivered = &self.log.delivered[place];
        let consumer = self.log.consumers.get(delivered.consumer);
        let Some((consumer, lost_at)) = consumer.and_then(|c| Some((c, c.lost_at?))) else {
            return true;
        };
        let made_room = self.later[place] >= room(consumer);
        made_room || delivered.settled_at.is_some_and(|at| at + IN_DOUBT < lost_at)
    }
}

/// Something that only a lost consumer's deliveries can be the cause of.
#[derive(Debug)]
pub(super) struct Claim {
    pub queue: String,
    /// The consumer that must have held the message, where that is known.
    pub holder: Option<usize>,
    /// When the message was published: who was lost long before did not hold it.
    pub published: Duration,
    /// When it came: who was lost long after had not given it back.
    pub came: Duration,
    /// What it is if nobody held it.
    pub otherwise: Violation,
}

/// One lost consumer.
struct Loss {
    consumer: usize,
    at: Duration,
    /// When its queue can have learned of it at the latest, but for [`SLACK`]: a queue that confirms
    /// nothing has no leader that learns anything.
    learned: Duration,
    /// Deliveries that it can have held and that no claim has used yet.
    room: usize,
}

/// When publishes were confirmed, by queue; sorted.
struct Confirms<'a> {
    of_queue: BTreeMap<&'a str, Vec<Duration>>,
    all: Vec<Duration>,
}

impl<'a> Confirms<'a> {
    fn new(log: &'a Log) -> Self {
        let mut of_queue: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        let confirmed = log.published.values().filter(|p| p.answer == Answer::Confirmed);
        for (queue, at) in confirmed.filter_map(|p| Some((p.queue.as_str(), p.answered_at?))) {
            of_queue.entry(queue).or_default().push(at);
        }
        let mut all: Vec<Duration> = of_queue.values().flatten().copied().collect();
        of_queue.values_mut().for_each(|times| times.sort_unstable());
        all.sort_unstable();
        Self { of_queue, all }
    }

    /// The first confirm from a queue at this time or later; from any queue, if nobody publishes to this
    /// one; this time, if there is none.
    fn first_since(&self, queue: &str, from: Duration) -> Duration {
        let times = self.of_queue.get(queue).unwrap_or(&self.all);
        times.get(times.partition_point(|at| *at < from)).copied().unwrap_or(from)
    }
}

fn room(attached: &Attached) -> usize {
    if attached.prefetch == 0 { usize::MAX } else { attached.prefetch.into() }
}

/// What is left of the claims when every lost consumer has excused as much as it can have held.
pub(super) fn unexcused(log: &Log, claims: Vec<Claim>) -> Vec<Violation> {
    let confirms = Confirms::new(log);
    let mut losses: BTreeMap<&str, Vec<Loss>> = BTreeMap::new();
    for (consumer, attached) in log.consumers.iter().enumerate() {
        if let Some(at) = attached.lost_at {
            let learned = confirms.first_since(&attached.queue, at);
            let loss = Loss { consumer, at, learned, room: room(attached) };
            losses.entry(&attached.queue).or_default().push(loss);
        }
    }
    losses.values_mut().for_each(|losses| losses.sort_by_key(|loss| loss.at));
    let mut found = Vec::new();
    let mut open: BTreeMap<String, Vec<Claim>> = BTreeMap::new();
    for claim in claims {
        let Some(holder) = claim.holder else {
            open.entry(claim.queue.clone()).or_default().push(claim);
            continue;
        };
        let losses = losses.get_mut(claim.queue.as_str());
        let loss = losses.and_then(|all| all.iter_mut().find(|loss| loss.consumer == holder));
        match loss {
            Some(loss) if loss.room > 0 && loss.at <= claim.came + SLACK => loss.room -= 1,
            Some(_) | None => found.push(claim.otherwise),
        }
    }
    for (queue, claims) in open {
        let losses = losses.remove(queue.as_str()).unwrap_or_default();
        found.extend(without_holder(losses, claims));
    }
    found
}

/// Gives each loss, the earliest first, the claims that it fits and that the fewest later ones fit.
fn without_holder(losses: Vec<Loss>, mut claims: Vec<Claim>) -> Vec<Violation> {
    claims.sort_by_key(|claim| Reverse(claim.published));
    let mut found = Vec::new();
    // Claims by the end of their time, then by number.
    let mut waiting: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let mut seen = Vec::new();
    for mut loss in losses {
        while let Some(claim) = claims.pop_if(|claim| claim.published <= loss.learned + SLACK) {
            waiting.push(Reverse((claim.came + SLACK, seen.len())));
            seen.push(Some(claim));
        }
        while let Some(Reverse((until, number))) = waiting.pop() {
            if until >= loss.at && loss.room == 0 {
                waiting.push(Reverse((until, number)));
                break;
            }
            let claim = seen[number].take();
            if until < loss.at {
                found.extend(claim.map(|claim| claim.otherwise));
            } else {
                loss.room -= 1;
            }
        }
    }
    // What no loss took: still waiting, or published after the last of them.
    found.extend(seen.into_iter().flatten().chain(claims).map(|claim| claim.otherwise));
    found
}
