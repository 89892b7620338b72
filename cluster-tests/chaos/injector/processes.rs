//! Faults of the nodes' processes, restarts of all of them, and faults of the clients' connections.

use super::ended::last_lines;
use super::{CHECK_INTERVAL, Effect, Injector, LONGER};
use crate::chaos::fault::{ProcessFault, Victim};
use crate::harness::Node;
use crate::harness::cgroup::{Group, Limit};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What a process may still allocate before the kernel kills it.
const MEMORY_BYTES: u64 = 4 << 20;

impl Injector<'_> {
    /// Carries out a fault of processes.
    pub(super) async fn inject_into_processes(
        &self,
        fault: ProcessFault,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        match fault {
            ProcessFault::Kill { victims } => self.kill(self.all(victims).await, lasts).await,
            ProcessFault::Pause { victims } => self.pause(self.all(victims).await, lasts).await,
            ProcessFault::RollingRestart => self.restart_all().await,
            ProcessFault::RollingUpgrade { back } => self.upgrade(back).await,
            ProcessFault::StarvedProcessor { victim, percent } => {
                self.starve(victim, percent, lasts).await
            }
            ProcessFault::OutOfMemory { victim } => self.out_of_memory(victim, lasts).await,
        }
    }

    async fn kill(&self, ids: BTreeSet<u64>, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let nodes: Vec<&Node> = ids.iter().map(|id| self.cluster.node(*id)).collect();
        self.may_end(&ids);
        let hit: Vec<u64> = nodes.iter().filter(|node| node.runs()).map(|node| node.id()).collect();
        nodes.iter().filter(|node| hit.contains(&node.id())).for_each(|node| node.kill9());
        let runs: Vec<u64> =
            nodes.iter().filter(|node| node.runs()).map(|node| node.id()).collect();
        sleep(lasts).await;
        self.start(&ids).await;
        let effect = if hit.len() == ids.len() && runs.is_empty() {
            Effect::Seen(format!("the kernel reported the end of {hit:?}"))
        } else {
            Effect::Missed(format!("{hit:?} ran before it, {runs:?} after it"))
        };
        (ids, effect)
    }

    async fn pause(&self, ids: BTreeSet<u64>, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let nodes: Vec<&Node> = ids.iter().map(|id| self.cluster.node(*id)).collect();
        nodes.iter().for_each(|node| node.pause());
        let stopped = |node: &&Node| {
            std::fs::read_to_string(format!("/proc/{}/stat", node.pid()))
                .is_ok_and(|stat| stat.contains(") T "))
        };
        let begun = Instant::now();
        while !nodes.iter().all(stopped) && begun.elapsed() < lasts {
            sleep(CHECK_INTERVAL).await;
        }
        let all_stopped = nodes.iter().all(stopped);
        sleep(lasts.saturating_sub(begun.elapsed())).await;
        nodes.iter().for_each(|node| node.resume());
        let effect = if all_stopped {
            Effect::Seen("/proc said that the processes were stopped".to_owned())
        } else {
            Effect::Missed("a process was not stopped in time".to_owned())
        };
        (ids, effect)
    }

    async fn restart_all(&self) -> (BTreeSet<u64>, Effect) {
        let mut all_said = Vec::new();
        for node in self.cluster.nodes() {
            all_said.push(self.restart(node).await);
        }
        (self.ids(), Effect::Seen(all_said.join("; ")))
    }

    /// Restarts nodes of an earlier release with the present one. `back`: two of them, and these then with
    /// the earlier one.
    async fn upgrade(&self, back: bool) -> (BTreeSet<u64>, Effect) {
        let Some(before) = &self.equipment.before else {
            let reason = "no binary of an earlier release is given (--before)".to_owned();
            return (self.ids(), Effect::Skipped(reason));
        };
        let nodes = self.cluster.nodes();
        if nodes.iter().any(|node| node.launch().binary != *before) {
            let reason = "the nodes run the present release already".to_owned();
            return (self.ids(), Effect::Skipped(reason));
        }
        let upgraded = if back { nodes.get(..2).unwrap_or_default() } else { nodes };
        let present = upgraded.iter().map(|node| (node, None));
        let set_back =
            upgraded.iter().rev().filter(|_| back).map(|node| (node, Some(before.clone())));
        let mut all_said = Vec::new();
        for (node, binary) in present.chain(set_back) {
            node.set_binary(binary);
            let release = node.launch().binary;
            all_said.push(format!("{} with {}", self.restart(node).await, release.display()));
        }
        (self.ids(), Effect::Seen(all_said.join("; ")))
    }

    /// Stops a node and starts it; returns how it stopped.
    async fn restart(&self, node: &Node) -> String {
        let id = BTreeSet::from([node.id()]);
        self.may_end(&id);
        let logged = node.log().len();
        let (status, took) = node.sigterm().await;
        let said = format!("node {}: {status} after {} ms", node.id(), took.as_millis());
        if !status.success() {
            self.found(format!("SIGTERM: {said}\n{}", last_lines(node, logged)));
        }
        self.start(&id).await;
        said
    }

    /// Gives a node little processor time.
    async fn starve(
        &self,
        victim: Victim,
        percent: u32,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let effect = match Group::join(self.cluster.node(id).pid(), Limit::Processor { percent }) {
            Err(reason) => Effect::Skipped(reason),
            Ok(group) => {
                self.until_felt(lasts, || group.hits() > 0).await;
                let said = format!("the kernel made it wait {} times", group.hits());
                if group.hits() > 0 { Effect::Seen(said) } else { Effect::Missed(said) }
            }
        };
        (BTreeSet::from([id]), effect)
    }

    /// Lets the kernel kill a node that wants more memory.
    async fn out_of_memory(&self, victim: Victim, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let node = self.cluster.node(id);
        let ids = BTreeSet::from([id]);
        self.may_end(&ids);
        let effect = match Group::join(node.pid(), Limit::Memory { bytes: MEMORY_BYTES }) {
            Err(reason) => Effect::Skipped(reason),
            Ok(group) => {
                self.until_felt(lasts, || group.hits() > 0 && !node.runs()).await;
                let said = format!("the kernel killed {}; it runs: {}", group.hits(), node.runs());
                let is_seen = group.hits() > 0 && !node.runs();
                if is_seen { Effect::Seen(said) } else { Effect::Missed(said) }
            }
        };
        self.start(&ids).await;
        (ids, effect)
    }

    /// Resets all connections of clients. Repeats this until at least one was reset, because another
    /// fault may have ended the nodes.
    pub(super) async fn reset_clients(&self, lasts: Duration) -> Effect {
        let begun = Instant::now();
        loop {
            match reset_clients(self.cluster.nodes()) {
                Ok(0) if begun.elapsed() < lasts + LONGER => sleep(CHECK_INTERVAL).await,
                Ok(0) => return Effect::Missed("there was no connection".to_owned()),
                Ok(count) => return Effect::Seen(format!("the kernel closed {count} sockets")),
                Err(reason) => return Effect::Skipped(reason),
            }
        }
    }
}

/// Resets all connections at the nodes' AMQP ports, by the kernel; returns their number.
fn reset_clients(nodes: &[Node]) -> Result<usize, String> {
    let mut count = 0;
    for node in nodes {
        let [port, ..] = node.ports();
        let mut kill = node.command("ss");
        kill.args(["-K", "-H", "-t", "-n", "sport", "=", &format!(":{port}")]);
        match kill.output() {
            Ok(output) if output.status.success() => {
                count += String::from_utf8_lossy(&output.stdout).lines().count();
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(format!("ss -K: {}", said.trim()));
            }
            Err(error) => return Err(format!("ss: {error}")),
        }
    }
    Ok(count)
}
