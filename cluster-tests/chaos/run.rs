//! One run: from an empty cluster to the verdict.

use super::administrator::Administrator;
use super::fault::{Fault, Kind};
use super::foreign::Foreign;
use super::gaps::{self, Gap, PATIENCE, Patience};
use super::injector::{Effect, Equipment, Injected, Injector};
use super::rest;
use super::schedule::{Event, RECOVERY, Schedule};
use super::stalls::{Probe, Span};
use super::workload::{self, MEASURED};
use crate::harness::links::Wiring;
use crate::harness::{Cluster, Node, Options};
use crate::history::{History, Log};
use crate::invariant::{self, Violation};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};

/// Between two samples of what goes on.
const SAMPLE: Duration = Duration::from_secs(1);
/// Nodes of the cluster.
const NODES: u64 = 3;
/// Nodes that may join it.
const GUESTS: u64 = 2;
/// Log that nodes keep for others: those that were away for some seconds come back by snapshots.
const LOG_TAIL: &str = "512KiB";
/// How long a node may take to tell its metrics.
const METRICS: Duration = Duration::from_millis(500);

/// What a second of the run was like.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the start of the load.
    pub at: Duration,
    /// Confirms in the second before, of all queues.
    pub confirms: u64,
    /// Deliveries in the second before, of all queues.
    pub deliveries: u64,
    /// Terms that Raft groups have begun in the second before, as far as nodes told.
    pub new_terms: u64,
}

/// What a run found.
#[derive(Debug)]
pub struct Outcome {
    /// What was to be done.
    pub schedule: Schedule,
    /// How the nodes reached each other.
    pub links: Wiring,
    /// Why over proxies, if it was over proxies.
    pub why_proxies: Option<String>,
    /// What was done.
    pub injected: Vec<Injected>,
    /// One for each fault that took effect.
    pub gaps: Vec<Gap>,
    /// When the machine itself stood still; never known of somebody else's brokers.
    pub stalls: Vec<Span>,
    /// When the load began, in the history's time.
    pub begun: Duration,
    /// One for each second.
    pub samples: Vec<Sample>,
    /// What clients saw.
    pub log: Log,
    /// Broken rules; none in a good run.
    pub violations: Vec<Violation>,
    /// Kinds that should have taken effect and never did.
    pub missed: Vec<Kind>,
    /// Kinds that this machine cannot do, each with the reason.
    pub skipped: BTreeMap<Kind, String>,
}

impl Outcome {
    /// Nothing was found, and all that the schedule has took effect or was skipped for a reason.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.missed.is_empty()
    }
}

/// Carries out a schedule on a cluster of three nodes and judges. `before` is the binary of an earlier
/// release, which the nodes run until a fault upgrades them.
///
/// # Panics
/// When the cluster does not start, or a node or a client does not end in time.
pub async fn run(schedule: Schedule, before: Option<PathBuf>, patience: Patience) -> Outcome {
    let equipment = Equipment::prepare(1..=NODES, before);
    let (links, why_proxies) = Wiring::best();
    let cluster = start(&equipment, links).await;
    let before = rest::usage(&cluster);
    let load = workload::start(&cluster).await;
    let injector = Injector::new(&cluster, &equipment, MEASURED);
    let history = Arc::clone(load.history());
    let begun = history.now();
    let (mut injected, mut samples) = (Vec::new(), Vec::new());
    let mut administrator = Administrator::new(&cluster, &history);
    let probe = Probe::start(Arc::clone(&history)).expect("a file for the probe of the disk");
    tokio::join!(
        carry_out_all(|event| injector.carry_out(event), &schedule, &mut injected),
        administrator.work(schedule.duration()),
        sample(&history, begun, &schedule, Some(&cluster), &mut samples),
    );
    let stalls = probe.finish();
    injector.heal().await;
    administrator.check().await;
    let log = load.drain(&cluster).await;
    let gaps = gaps::gaps(&history, begun, &injected, &stalls);
    let mut violations = invariant::violations(&log);
    violations.extend(rest::left(&cluster, &before).await);
    violations.extend(gaps::stuck(&gaps, patience, &log, begun, &injected));
    violations.extend(injector.findings().into_iter().map(Violation::Ended));
    violations.extend(injected.iter().filter_map(|one| match &one.effect {
        Effect::Wrong(how) => Some(wrong(one.event.fault, how)),
        Effect::Seen(_) | Effect::Missed(_) | Effect::Skipped(_) => None,
    }));
    let missed = missed(&schedule, &injected);
    let skipped = skipped(&injected);
    Outcome {
        schedule,
        links,
        why_proxies,
        injected,
        gaps,
        stalls,
        begun,
        samples,
        log,
        violations,
        missed,
        skipped,
    }
}

/// A cluster whose disks and clocks can fail, with links of this kind.
async fn start(equipment: &Equipment, links: Wiring) -> Cluster {
    let options = Options { alone: true, links, guests: GUESTS, ..Options::default() };
    // Clients are not on the nodes' machines where each node has a network of its own.
    let options = options.with("--loopback-users", "none");
    let options = options.with("--log-tail-bytes", LOG_TAIL);
    let cluster = Cluster::prepare(NODES, equipment.calls.on(options)).await;
    if let Ok(disks) = &equipment.disks {
        disks.iter().for_each(|(id, disk)| disk.take(cluster.node(*id)));
    }
    cluster.nodes().iter().for_each(|node| node.set_binary(equipment.before.clone()));
    cluster.nodes().iter().for_each(Node::spawn);
    cluster.ready().await;
    cluster
}

/// Loads a broker that somebody else runs, carries a schedule out by their command, and judges what clients
/// saw. Without a command somebody breaks it meanwhile, or nobody does.
///
/// # Panics
/// When the load cannot start.
pub async fn against(uris: Vec<String>, schedule: Schedule, breaker: Option<PathBuf>) -> Outcome {
    let first = uris.first().cloned().unwrap_or_default();
    let nodes = uris.len();
    let load = workload::start_at(uris).await;
    let history = Arc::clone(load.history());
    let (begun, mut samples, mut injected) = (history.now(), Vec::new(), Vec::new());
    let foreign = breaker.map(|command| Foreign::new(command, nodes));
    let faults = async {
        if let Some(foreign) = &foreign {
            carry_out_all(|event| foreign.carry_out(event), &schedule, &mut injected).await;
        }
    };
    tokio::join!(faults, sample(&history, begun, &schedule, None, &mut samples));
    let log = load.drain_at(&first).await;
    // The brokers may run on other machines than this.
    let gaps = gaps::gaps(&history, begun, &injected, &[]);
    let mut violations = invariant::violations(&log);
    violations.extend(gaps::stuck(&gaps, PATIENCE, &log, begun, &injected));
    let missed = missed(&schedule, &injected);
    let skipped = skipped(&injected);
    Outcome {
        schedule,
        links: Wiring::Direct,
        why_proxies: None,
        injected,
        gaps,
        stalls: Vec::new(),
        begun,
        samples,
        log,
        violations,
        missed,
        skipped,
    }
}

/// The rule that was broken by what was wrong at a fault.
fn wrong(fault: Fault, how: &str) -> Violation {
    let story = format!("{fault:?}: {how}");
    match fault {
        Fault::Member(_) => Violation::NotMoved(story),
        Fault::Process(_)
        | Fault::Link(_)
        | Fault::Disk(_)
        | Fault::Clock(_)
        | Fault::ClientsReset => Violation::Served(story),
    }
}

/// The kinds that this machine cannot do, each with the reason.
fn skipped(injected: &[Injected]) -> BTreeMap<Kind, String> {
    let skipped = injected.iter().filter_map(|one| match &one.effect {
        Effect::Skipped(reason) => Some((one.event.counts_as, reason.clone())),
        Effect::Seen(_) | Effect::Missed(_) | Effect::Wrong(_) => None,
    });
    skipped.collect()
}

/// The kinds of a schedule that never took effect, and were not skipped.
fn missed(schedule: &Schedule, injected: &[Injected]) -> Vec<Kind> {
    let came = injected
        .iter()
        .filter(|one| matches!(one.effect, Effect::Seen(_) | Effect::Skipped(_)))
        .map(|one| one.event.counts_as);
    let came: BTreeSet<Kind> = came.collect();
    let wanted: BTreeSet<Kind> = schedule.events.iter().map(|event| event.counts_as).collect();
    wanted.difference(&came).copied().collect()
}

/// Carries out one period's events at the same time, and a period after the other.
async fn carry_out_all<F: Future<Output = Injected>>(
    carry_out: impl Fn(Event) -> F,
    schedule: &Schedule,
    into: &mut Vec<Injected>,
) {
    let together = |one: &Event, other: &Event| one.at_ms == other.at_ms;
    let mut recovered = Instant::now();
    for period in schedule.events.chunk_by(together) {
        // Faults may take longer than planned. Without a pause, the outage of the next ones would be
        // counted as recovery time of these.
        sleep_until(recovered).await;
        let events = period.iter().map(|event| carry_out(*event));
        for injected in futures::future::join_all(events).await {
            eprintln!(
                "{:7.1} s  {} on {:?}: {:?}",
                injected.began.as_secs_f64(),
                injected.event.counts_as,
                injected.nodes,
                injected.effect
            );
            into.push(injected);
        }
        recovered = Instant::now() + RECOVERY;
    }
}

/// Notes and prints what goes on, each second, to the end of the run.
async fn sample(
    history: &History,
    begun: Duration,
    schedule: &Schedule,
    cluster: Option<&Cluster>,
    into: &mut Vec<Sample>,
) {
    let mut ticks = tokio::time::interval(SAMPLE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before = history.totals();
    let mut terms = Terms::default();
    loop {
        ticks.tick().await;
        let new_terms = match cluster {
            Some(cluster) => terms.new_terms(cluster).await,
            None => 0,
        };
        let at = history.now().saturating_sub(begun);
        let now = history.totals();
        let [confirms, deliveries] = [now.0 - before.0, now.1 - before.1];
        before = now;
        into.push(Sample { at, confirms, deliveries, new_terms });
        eprintln!(
            "{:7.1} s  {confirms} confirms/s  {deliveries} deliveries/s  {} awaited",
            at.as_secs_f64(),
            history.awaited()
        );
        if at >= schedule.duration() {
            return;
        }
    }
}

/// For each group, the highest term that any node has reported.
#[derive(Debug, Default)]
struct Terms(BTreeMap<String, u64>);

impl Terms {
    /// Asks all nodes, and returns the number of terms that have begun since the last call. The first term
    /// that is seen of a group does not count.
    async fn new_terms(&mut self, cluster: &Cluster) -> u64 {
        let running = cluster.nodes().iter().filter(|node| node.runs());
        let asked = running.map(|node| timeout(METRICS, node.get("/metrics")));
        let mut new = 0;
        for answer in futures::future::join_all(asked).await {
            let Ok(Ok(page)) = answer else { continue };
            for (group, term) in page.body.lines().filter_map(term) {
                let known = self.0.entry(group.to_owned()).or_insert(term);
                new += term.saturating_sub(*known);
                *known = term.max(*known);
            }
        }
        new
    }
}

/// The labels and the value of a line of metrics, if it tells a group's term.
fn term(line: &str) -> Option<(&str, u64)> {
    let (labels, value) = line.strip_prefix("quorate_group_term")?.rsplit_once(' ')?;
    Some((labels, value.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_a_groups_term() {
        let line = "quorate_group_term{group=\"3\"} 17";
        assert_eq!(term(line), Some(("{group=\"3\"}", 17)));
        assert_eq!(term("# TYPE quorate_group_term gauge"), None);
        assert_eq!(term("quorate_group_leader{group=\"3\"} 1"), None);
    }
}
