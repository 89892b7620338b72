//! Faults of a broker that somebody else runs. A command of theirs carries them out: it is called as
//! `COMMAND VERB NODE`, with a node's number from 1 and the verb `kill`, `pause`, `resume`, `stop` or `start`.
//! It returns when that has taken effect, a start when the node serves; another exit status than 0 says that
//! it has not.

use super::fault::{Fault, Kind, ProcessFault, Victim, Victims};
use super::injector::{Effect, Injected};
use super::schedule::Event;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep, sleep_until};

/// The kinds of faults that such a command can carry out. They choose nodes by number, since the leaders of
/// another broker's queues are not known here.
pub const KINDS: [Kind; 6] = [
    Kind::KillNode,
    Kind::KillMajority,
    Kind::KillAll,
    Kind::PauseShort,
    Kind::PauseLong,
    Kind::RollingRestart,
];

/// Somebody else's nodes.
#[derive(Debug)]
pub struct Foreign {
    command: PathBuf,
    nodes: u64,
    start: Instant,
}

impl Foreign {
    /// A broker with this number of nodes. The load starts now.
    #[must_use]
    pub fn new(command: PathBuf, nodes: usize) -> Self {
        Self { command, nodes: nodes as u64, start: Instant::now() }
    }

    /// Waits for the time of an event, carries it out, waits for its end and undoes it.
    pub async fn carry_out(&self, event: Event) -> Injected {
        sleep_until(self.start + Duration::from_millis(event.at_ms)).await;
        let began = self.start.elapsed();
        let lasts = Duration::from_millis(event.for_ms);
        let (nodes, said) = match event.fault {
            Fault::Process(ProcessFault::Kill { victims }) => {
                let nodes = self.ids(victims);
                (nodes.clone(), self.for_a_while(&nodes, ["kill", "start"], lasts).await)
            }
            Fault::Process(ProcessFault::Pause { victims }) => {
                let nodes = self.ids(victims);
                (nodes.clone(), self.for_a_while(&nodes, ["pause", "resume"], lasts).await)
            }
            Fault::Process(ProcessFault::RollingRestart) => {
                let nodes = self.ids(Victims::All);
                (nodes.clone(), self.restart_in_turn(&nodes).await)
            }
            Fault::Process(
                ProcessFault::RollingUpgrade { .. }
                | ProcessFault::StarvedProcessor { .. }
                | ProcessFault::OutOfMemory { .. },
            )
            | Fault::Link(_)
            | Fault::Disk(_)
            | Fault::Clock(_)
            | Fault::Member(_)
            | Fault::ClientsReset => {
                let reason = "a command cannot carry it out".to_owned();
                return self.injected(event, BTreeSet::new(), began, Effect::Skipped(reason));
            }
        };
        let effect = match said {
            Ok(()) => Effect::Seen("the command said so".to_owned()),
            Err(error) => Effect::Missed(error),
        };
        self.injected(event, nodes, began, effect)
    }

    fn injected(
        &self,
        event: Event,
        nodes: BTreeSet<u64>,
        began: Duration,
        effect: Effect,
    ) -> Injected {
        Injected { event, nodes, leader: None, began, ended: self.start.elapsed(), effect }
    }

    /// One verb for these nodes, and after a while the other.
    async fn for_a_while(
        &self,
        nodes: &BTreeSet<u64>,
        [begin, end]: [&str; 2],
        lasts: Duration,
    ) -> Result<(), String> {
        let begun = self.all(begin, nodes).await;
        sleep(lasts).await;
        // Also after a failure: whatever has begun is undone.
        self.all(end, nodes).await.and(begun)
    }

    async fn restart_in_turn(&self, nodes: &BTreeSet<u64>) -> Result<(), String> {
        for node in nodes {
            self.call("stop", *node).await?;
            self.call("start", *node).await?;
        }
        Ok(())
    }

    /// The verb for all these nodes at the same time.
    async fn all(&self, verb: &str, nodes: &BTreeSet<u64>) -> Result<(), String> {
        let calls = nodes.iter().map(|node| self.call(verb, *node));
        futures::future::join_all(calls).await.into_iter().collect()
    }

    async fn call(&self, verb: &str, node: u64) -> Result<(), String> {
        let named = |what: String| format!("{} {verb} {node}: {what}", self.command.display());
        let done = Command::new(&self.command).arg(verb).arg(node.to_string()).output().await;
        let done = done.map_err(|error| named(error.to_string()))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        Err(named(format!("{}: {said}", done.status)))
    }

    fn ids(&self, victims: Victims) -> BTreeSet<u64> {
        let count = match victims {
            Victims::One(Victim::Node(id)) => return BTreeSet::from([id.clamp(1, self.nodes)]),
            Victims::One(Victim::Leader | Victim::Follower) => 1,
            Victims::Majority => self.nodes / 2 + 1,
            Victims::All => self.nodes,
        };
        (1..=count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn event(fault: Fault) -> Event {
        Event { at_ms: 0, for_ms: 1, counts_as: Kind::KillMajority, fault }
    }

    #[tokio::test]
    async fn a_command_is_called_for_each_node_and_its_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (command, calls) = (folder.path().join("breaker"), folder.path().join("calls"));
        let text = format!(
            "#!/bin/sh\necho \"$1 $2\" >>{}\n[ \"$1$2\" != pause1 ] || {{ echo no >&2; exit 1; }}\n",
            calls.display()
        );
        fs::write(&command, text).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        let foreign = Foreign::new(command, 3);
        let kill = ProcessFault::Kill { victims: Victims::Majority };
        let killed = foreign.carry_out(event(Fault::Process(kill))).await;
        assert!(matches!(killed.effect, Effect::Seen(_)), "{killed:?}");
        let mut called: Vec<String> =
            fs::read_to_string(&calls).unwrap().lines().map(str::to_owned).collect();
        called[..2].sort();
        called[2..].sort();
        assert_eq!(called, ["kill 1", "kill 2", "start 1", "start 2"]);
        let pause = ProcessFault::Pause { victims: Victims::One(Victim::Leader) };
        let paused = foreign.carry_out(event(Fault::Process(pause))).await;
        assert!(matches!(&paused.effect, Effect::Missed(why) if why.contains("no")), "{paused:?}");
        let called = fs::read_to_string(&calls).unwrap();
        assert!(called.ends_with("pause 1\nresume 1\n"), "it is undone all the same: {called}");
        let skipped = foreign.carry_out(event(Fault::ClientsReset)).await;
        assert!(matches!(skipped.effect, Effect::Skipped(_)), "{skipped:?}");
    }
}
