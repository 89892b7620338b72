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
    /// Another queue whose lost consumers can be the cause as well; only without a holder.
    pub also: Option<String>,
    /// When the message was published: who was lost long before did not hold it.
    pub published: Duration,
    /// When it came: who was lost long after had not given it back.
    pub came: Duration,
    /// What it is if nobody held it.
    pub otherwise: Violation,
}

/// One lost consumer.
#[derive(Clone)]
pub(super) struct Loss {
    pub consumer: usize,
    at: Duration,
    /// When its queue can have learned of it at the latest, but for [`SLACK`]: a queue that confirms
    /// nothing has no leader that learns anything.
    pub learned: Duration,
    /// Deliveries that it can have held and that no claim has used yet.
    room: usize,
}

/// When queues are known to have had a leader; sorted.
struct Served<'a> {
    /// When publishes to a queue were confirmed.
    confirms: BTreeMap<&'a str, Vec<Duration>>,
    all_confirms: Vec<Duration>,
    /// When a queue's deliveries came.
    deliveries: BTreeMap<&'a str, Vec<Duration>>,
}

impl<'a> Served<'a> {
    fn new(log: &'a Log) -> Self {
        let mut confirms: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        let confirmed = log.published.values().filter(|p| p.answer == Answer::Confirmed);
        for (queue, at) in confirmed.filter_map(|p| Some((p.queue.as_str(), p.answered_at?))) {
            confirms.entry(queue).or_default().push(at);
        }
        let mut deliveries: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
        for delivered in &log.delivered {
            deliveries.entry(&delivered.queue).or_default().push(delivered.at);
        }
        let mut all_confirms: Vec<Duration> = confirms.values().flatten().copied().collect();
        let by_queue = confirms.values_mut().chain(deliveries.values_mut());
        by_queue.for_each(|times| times.sort_unstable());
        all_confirms.sort_unstable();
        Self { confirms, all_confirms, deliveries }
    }

    /// The first confirm from a queue at this time or later. If nobody publishes to the queue: the first
    /// one from any queue, or its own first delivery, whichever is later. This time, if there is none.
    fn first_since(&self, queue: &str, from: Duration) -> Duration {
        let first = |times: &[Duration]| {
            times.get(times.partition_point(|at| *at < from)).copied().unwrap_or(from)
        };
        if let Some(confirms) = self.confirms.get(queue) {
            return first(confirms);
        }
        let deliveries = self.deliveries.get(queue).map_or(from, |times| first(times));
        deliveries.max(first(&self.all_confirms))
    }
}

fn room(attached: &Attached) -> usize {
    if attached.prefetch == 0 { usize::MAX } else { attached.prefetch.into() }
}

/// The lost consumers by queue, the earliest loss first.
pub(super) fn losses(log: &Log) -> BTreeMap<&str, Vec<Loss>> {
    let served = Served::new(log);
    let mut losses: BTreeMap<&str, Vec<Loss>> = BTreeMap::new();
    for (consumer, attached) in log.consumers.iter().enumerate() {
        if let Some(at) = attached.lost_at {
            let learned = served.first_since(&attached.queue, at);
            let loss = Loss { consumer, at, learned, room: room(attached) };
            losses.entry(&attached.queue).or_default().push(loss);
        }
    }
    losses.values_mut().for_each(|losses| losses.sort_by_key(|loss| loss.at));
    losses
}

/// What is left of the claims when every lost consumer has excused as much as it can have held.
pub(super) fn unexcused(log: &Log, claims: Vec<Claim>) -> Vec<Violation> {
    let mut losses = losses(log);
    let mut found = Vec::new();
    let mut open: BTreeMap<(String, Option<String>), Vec<Claim>> = BTreeMap::new();
    for claim in claims {
        let Some(holder) = claim.holder else {
            let causes = (claim.queue.clone(), claim.also.clone());
            open.entry(causes).or_default().push(claim);
            continue;
        };
        let losses = losses.get_mut(claim.queue.as_str());
        let loss = losses.and_then(|all| all.iter_mut().find(|loss| loss.consumer == holder));
        match loss {
            Some(loss) if loss.room > 0 && loss.at <= claim.came + SLACK => loss.room -= 1,
            Some(_) | None => found.push(claim.otherwise),
        }
    }
    for ((queue, also), claims) in open {
        let queues = [Some(queue), also].into_iter().flatten();
        let mut causes: Vec<Loss> =
            queues.filter_map(|queue| losses.get(queue.as_str())).flatten().cloned().collect();
        causes.sort_by_key(|loss| loss.at);
        found.extend(without_holder(causes, claims));
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
