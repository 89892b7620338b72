//! Logs whether a node serves clients: one line when it begins to, one when it waits or has lost
//! what it needs (in most cases a majority), and one when it serves them again.

use crate::{Source, convert::not_ready};
use quorate_catalog::MemberState;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How often the node's readiness is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Until this time an election may be in progress, which is not logged.
const PATIENCE: Duration = Duration::from_secs(3);

/// A change that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// The node serves clients, for the first time.
    Ready,
    /// The node does not serve clients yet.
    Waits,
    /// The node does not serve clients any more.
    Lost,
    /// The node serves clients again.
    Back,
}

/// The state that was logged last.
#[derive(Debug, Default)]
struct Reported {
    was_ready: bool,
    not_ready_since: Option<Instant>,
    /// True if it was logged that the node is not ready.
    said: bool,
}

impl Reported {
    fn update(&mut self, now: Instant, is_ready: bool) -> Option<News> {
        if is_ready {
            self.not_ready_since = None;
            let had_said = std::mem::take(&mut self.said);
            let was_ready = std::mem::replace(&mut self.was_ready, true);
            let back = had_said.then_some(News::Back);
            return if was_ready { back } else { Some(News::Ready) };
        }
        let since = *self.not_ready_since.get_or_insert(now);
        if self.said || now.saturating_duration_since(since) < PATIENCE {
            return None;
        }
        self.said = true;
        Some(if self.was_ready { News::Lost } else { News::Waits })
    }
}

/// Nodes that this one cannot reach, as text, without those that leave: they do not come back.
fn unreached(source: &impl Source) -> String {
    let members = source.cluster().members.into_iter();
    let away = members.filter(|it| !it.running && it.state != MemberState::Leaving);
    let away: Vec<String> = away.map(|member| member.id.to_string()).collect();
    if away.is_empty() { "none".to_owned() } else { away.join(", ") }
}

/// Logs whether the node serves clients, until it is aborted.
pub async fn log_readiness(source: impl Source) {
    let mut due = interval(CHECK_INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut reported = Reported::default();
    loop {
        due.tick().await;
        let readiness = source.readiness();
        let Some(news) = reported.update(Instant::now(), readiness.is_ready()) else { continue };
        let (reason, away) = (not_ready(&readiness), unreached(&source));
        match news {
            News::Ready => tracing::info!("node is ready: clients are served"),
            News::Waits => {
                tracing::info!(reason, unreachable_nodes = away, "node is not ready yet, waiting");
            }
            News::Lost => {
                tracing::warn!(
                    reason,
                    unreachable_nodes = away,
                    "clients cannot be served in full, waiting"
                );
            }
            News::Back => tracing::info!("clients are served in full again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_said_once_and_an_election_is_none() {
        let began = Instant::now();
        let mut reported = Reported::default();
        let mut update =
            |ms: u64, is_ready| reported.update(began + Duration::from_millis(ms), is_ready);
        assert_eq!(update(0, false), None);
        assert_eq!(update(2_999, false), None);
        assert_eq!(update(3_000, false), Some(News::Waits));
        assert_eq!(update(9_000, false), None);
        assert_eq!(update(9_250, true), Some(News::Ready), "the first time, waited for or not");
        assert_eq!(update(9_500, true), None);
        assert_eq!(update(10_000, false), None);
        assert_eq!(update(12_000, true), None, "an election");
        assert_eq!(update(13_000, false), None, "counted anew");
        assert_eq!(update(15_750, false), None);
        assert_eq!(update(16_000, false), Some(News::Lost));
        assert_eq!(update(60_000, false), None);
        assert_eq!(update(60_250, true), Some(News::Back));
        assert_eq!(update(60_500, true), None);
    }

    #[test]
    fn a_healthy_start_is_one_line() {
        let began = Instant::now();
        let mut reported = Reported::default();
        assert_eq!(reported.update(began, false), None);
        assert_eq!(reported.update(began + CHECK_INTERVAL, true), Some(News::Ready));
    }
}
