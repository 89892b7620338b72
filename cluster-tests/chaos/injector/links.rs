//! Faults of the links between nodes.

use super::{Effect, Injector};
use crate::chaos::fault::{Cut, LinkFault};
use crate::harness::links::{Hindrance, Unable};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

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
            LinkFault::Reset => self.everywhere(Hindrance::Reset, lasts).await,
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
        }
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
        let before = self.cluster.links().hindered();
        let end = Instant::now() + lasts;
        while Instant::now() < end {
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
