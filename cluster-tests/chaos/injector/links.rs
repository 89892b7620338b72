//! Faults of the links between nodes.

use super::{CHECK_INTERVAL, Effect, Injector, LONGER};
use crate::chaos::fault::{Cut, LinkFault, Victim};
use crate::harness::Node;
use crate::harness::links::{Hindrance, Unable};
use crate::harness::metrics::Metrics;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// After this time nodes do not have what another one lacks (`run::LOG_TAIL`).
const PURGED_AFTER: Duration = Duration::from_secs(6);
/// How long links stay slow for a snapshot at most, and between two looks whether one was installed.
const SNAPSHOT_MAX: Duration = Duration::from_secs(60);
const SNAPSHOT_LOOK: Duration = Duration::from_millis(250);
/// How long a node may take to tell its metrics.
const METRICS: Duration = Duration::from_secs(2);

impl Injector<'_> {
    /// Carries out a fault of links.
    pub(super) async fn inject_into_links(
        &self,
        fault: LinkFault,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let ms = Duration::from_millis;
        match fault {
            LinkFault::Partition { cut } => {
                let (nodes, pairs) = self.pairs(cut).await;
                (nodes, self.hinder(&pairs, Hindrance::Cut, lasts).await)
            }
            LinkFault::Flapping { cut, period_ms } => {
                let (nodes, pairs) = self.pairs(cut).await;
                (nodes, self.flap(&pairs, lasts, ms(period_ms)).await)
            }
            LinkFault::Reject { victim } => {
                let node = self.one(victim).await;
                let pairs: Vec<_> = self.cluster.others(node).iter().map(|o| (*o, node)).collect();
                (BTreeSet::from([node]), self.hinder(&pairs, Hindrance::Refuse, lasts).await)
            }
            LinkFault::Reset => self.reset(lasts).await,
            LinkFault::Delay { delay_ms, jitter_ms } => {
                let (least, jitter) = (ms(delay_ms), ms(jitter_ms));
                self.everywhere(Hindrance::Late { least, jitter, in_order: true }, lasts).await
            }
            LinkFault::Reorder { jitter_ms } => {
                let (least, jitter) = (Duration::ZERO, ms(jitter_ms));
                self.everywhere(Hindrance::Late { least, jitter, in_order: false }, lasts).await
            }
            LinkFault::Loss { percent } => {
                self.everywhere(Hindrance::Lose { percent }, lasts).await
            }
            LinkFault::Duplicate { percent } => {
                self.everywhere(Hindrance::Duplicate { percent }, lasts).await
            }
            LinkFault::Throttle { victim, bytes_per_s } => {
                let (nodes, pairs) = self.pairs(Cut::Isolated(victim)).await;
                (nodes, self.hinder(&pairs, Hindrance::Slow { bytes_per_s }, lasts).await)
            }
            LinkFault::ThrottledSnapshot { victim, bytes_per_s } => {
                self.throttle_snapshot(victim, bytes_per_s, lasts).await
            }
        }
    }

    /// Resets all connections between nodes. Repeats this until at least one connection was reset, because
    /// another fault may have ended the nodes.
    async fn reset(&self, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let (nodes, pairs) = self.pairs(Cut::All).await;
        let (before, begun) = (self.cluster.links().hindered(), Instant::now());
        let reset = || self.cluster.links().hindered() - before;
        while reset() == 0 && begun.elapsed() < lasts + LONGER {
            if self.begin(&pairs, Hindrance::Reset).is_err() {
                return (nodes, Effect::Skipped("the links are proxies".to_owned()));
            }
            sleep(CHECK_INTERVAL).await;
        }
        sleep(lasts.saturating_sub(begun.elapsed())).await;
        (nodes, hindrances(reset()))
    }

    /// A node is away for the time of the fault, and comes back over slow links.
    async fn throttle_snapshot(
        &self,
        victim: Victim,
        bytes_per_s: u64,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let node = self.cluster.node(id);
        let (nodes, pairs) = self.pairs(Cut::Isolated(Victim::Node(id))).await;
        self.may_end(&nodes);
        if node.runs() {
            node.kill9();
        }
        sleep(lasts.max(PURGED_AFTER)).await;
        if self.begin(&pairs, Hindrance::Slow { bytes_per_s }).is_err() {
            self.start(&nodes).await;
            return (nodes, Effect::Skipped("the links are proxies".to_owned()));
        }
        let slow_since = Instant::now();
        node.reap();
        node.spawn();
        let mut installed = 0.0;
        while installed == 0.0 && slow_since.elapsed() < SNAPSHOT_MAX {
            sleep(SNAPSHOT_LOOK).await;
            installed = snapshots_installed(node).await;
        }
        let slow = slow_since.elapsed();
        self.cluster.links().heal();
        node.ready().await;
        self.start(&nodes).await;
        let said = format!("{installed} snapshots installed over slow links in {slow:.1?}");
        (nodes, if installed > 0.0 { Effect::Seen(said) } else { Effect::Missed(said) })
    }

    /// Ordered pairs, (sender, receiver), of which nothing comes through; and the nodes concerned.
    async fn pairs(&self, cut: Cut) -> (BTreeSet<u64>, Vec<(u64, u64)>) {
        let ids: Vec<u64> = self.ids().into_iter().collect();
        let all = || {
            let to = |from: &u64| {
                let from = *from;
                ids.iter().filter(move |to| **to != from).map(move |to| (from, *to))
            };
            ids.iter().flat_map(to)
        };
        let place = |id: u64| ids.iter().position(|other| *other == id).unwrap_or_default();
        let after = |id: u64, further: u64| {
            ids[(place(id) + usize::try_from(further).unwrap_or(1)) % ids.len()]
        };
        match cut {
            Cut::Isolated(victim) => {
                let node = self.one(victim).await;
                let pairs = all().filter(|(from, to)| [from, to].contains(&&node)).collect();
                (BTreeSet::from([node]), pairs)
            }
            Cut::Link { from, further } => {
                let from = self.one(from).await;
                let to = after(from, further);
                (BTreeSet::from([from, to]), vec![(from, to), (to, from)])
            }
            Cut::OneWay { from, further } => {
                let from = self.one(from).await;
                let to = after(from, further);
                (BTreeSet::from([from, to]), vec![(from, to)])
            }
            Cut::Ring => (self.ids(), all().filter(|(from, to)| after(*from, 1) != *to).collect()),
            Cut::All => (self.ids(), all().collect()),
        }
    }

    async fn everywhere(&self, hindrance: Hindrance, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let (_, pairs) = self.pairs(Cut::All).await;
        (self.ids(), self.hinder(&pairs, hindrance, lasts).await)
    }

    /// Hinders what these senders send to these receivers, from the begin of a fault to its end.
    async fn hinder(&self, pairs: &[(u64, u64)], hindrance: Hindrance, lasts: Duration) -> Effect {
        let before = self.cluster.links().hindered();
        let begun = self.begin(pairs, hindrance);
        if begun.is_ok() {
            self.until_felt(lasts, || self.cluster.links().hindered() > before).await;
        }
        let hindered = self.cluster.links().hindered() - before;
        self.cluster.links().heal();
        match begun {
            Ok(()) => hindrances(hindered),
            Err(Unable) => Effect::Skipped("the links are proxies".to_owned()),
        }
    }

    async fn flap(&self, pairs: &[(u64, u64)], lasts: Duration, period: Duration) -> Effect {
        let (before, begun) = (self.cluster.links().hindered(), Instant::now());
        let is_felt = || self.cluster.links().hindered() > before;
        while begun.elapsed() < lasts || !is_felt() && begun.elapsed() < lasts + LONGER {
            pairs.iter().for_each(|(from, to)| self.cluster.links().cut_one_way(*from, *to));
            sleep(period).await;
            self.cluster.links().heal();
            sleep(period).await;
        }
        hindrances(self.cluster.links().hindered() - before)
    }

    fn begin(&self, pairs: &[(u64, u64)], hindrance: Hindrance) -> Result<(), Unable> {
        let mut begun = pairs.iter().map(|(from, to)| (*from, *to, hindrance));
        begun.try_for_each(|(from, to, hindrance)| self.cluster.links().hinder(from, to, hindrance))
    }
}

fn hindrances(count: u64) -> Effect {
    let said = format!("the links hindered {count} times");
    if count > 0 { Effect::Seen(said) } else { Effect::Missed(said) }
}

/// Snapshots that a node's process has installed, as far as it tells.
async fn snapshots_installed(node: &Node) -> f64 {
    let asked = timeout(METRICS, node.get("/metrics")).await;
    let metrics = asked.ok().and_then(Result::ok).map(|answer| Metrics::parse(&answer.body));
    let installed =
        metrics.and_then(Result::ok).and_then(|all| all.sum("quorate_snapshots_installed_total"));
    installed.unwrap_or_default()
}
