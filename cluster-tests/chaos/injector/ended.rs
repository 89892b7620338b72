//! Nodes that end: as a fault requires, or by themselves, which is a finding.

use super::Injector;
use crate::harness::Node;
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// Lines of a node's log that a finding shows.
const LINES: usize = 10;

impl Injector<'_> {
    /// The ends of nodes that no fault excuses, each with the node's last lines.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these nodes may end, until [`Injector::start`] is called for them. A fault must call
    /// this before it can end them.
    pub(super) fn may_end(&self, ids: &BTreeSet<u64>) {
        self.may_end.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    fn may_it_end(&self, node: &Node) -> bool {
        self.may_end.lock().unwrap_or_else(PoisonError::into_inner).contains(&node.id())
    }

    /// Notes an end of a node that no fault excuses.
    pub(super) fn found(&self, what: String) {
        let what = format!("{:.1} s: {what}", self.start.elapsed().as_secs_f64());
        eprintln!("{what}");
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Starts those of these nodes that do not run, and waits until they are ready. They may not end
    /// any more.
    pub(super) async fn start(&self, ids: &BTreeSet<u64>) {
        let ended: Vec<&Node> = ids.iter().map(|id| self.cluster.node(*id)).collect();
        let ended: Vec<&Node> = ended.into_iter().filter(|node| !node.runs()).collect();
        for node in &ended {
            node.reap();
            node.spawn();
        }
        // All of them run, or have just been started: a node that ends from now on ends by itself.
        self.may_end.lock().unwrap_or_else(PoisonError::into_inner).retain(|id| !ids.contains(id));
        for node in ended {
            node.ready().await;
        }
    }

    /// Starts the nodes that have ended although no present fault may end them, and waits until they
    /// are ready. Each is a finding. Those that a fault may end are started by that fault, at its end.
    pub(super) async fn start_ended(&self) {
        let looking = self.looking.lock().await;
        let mut started = Vec::new();
        for node in self.cluster.nodes() {
            if node.runs() || self.may_it_end(node) {
                continue;
            }
            let status = node.ends().await;
            let lines = last_lines(node, 0);
            self.found(format!("node {} ended by itself, {status}\n{lines}", node.id()));
            node.spawn();
            started.push(node);
        }
        drop(looking);
        for node in started {
            node.ready().await;
        }
    }

    /// How a node ended by itself that a present fault may end, in words. It must end with a failure
    /// and a last line; a panic or a signal is a finding. What it logged before `logged` does not
    /// count.
    pub(super) async fn how_it_ended(&self, node: &Node, logged: usize) -> String {
        if node.runs() {
            return "the node went on".to_owned();
        }
        if !self.may_it_end(node) {
            return "the node ended".to_owned();
        }
        let status = node.ends().await;
        let log = node.log();
        let log = log.get(logged..).unwrap_or_default();
        let is_clear = status.code().is_some_and(|code| code != 0) && !log.contains("panicked at");
        if !is_clear {
            let lines = last_lines(node, logged);
            self.found(format!("node {} ended not as it must, {status}\n{lines}", node.id()));
        }
        format!("the node ended: {status}: {}", log.lines().last().unwrap_or_default())
    }
}

/// The last lines of a node's log, of those after the first `logged` bytes.
pub(super) fn last_lines(node: &Node, logged: usize) -> String {
    let log = node.log();
    let lines: Vec<&str> = log.get(logged..).unwrap_or_default().lines().collect();
    lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default().join("\n")
}
