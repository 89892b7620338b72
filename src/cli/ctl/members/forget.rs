//! `forget_cluster_node` (MEM 11): at once, or with `--wait` tried until the node is no member any more;
//! a node that runs is refused, or with `--drain` drained first.

use super::super::Console;
use super::super::connect::{self, Connected, Target, call_failure};
use super::super::exit::{Exit, Failure};
use super::super::node::{self, operator};
use super::super::options::Invocation;
use super::super::progress::Progress;
use super::super::word;
use super::{Door, banner, critical, id_of};
use quorate_management::wire;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest drain of a node that runs.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// Longest revival of one that stays a member.
const REVIVE_MAX: Duration = Duration::from_secs(10);

/// The node that is to be forgotten.
struct Leaver<'a> {
    /// As it was given.
    given: &'a str,
    /// Kept, since its name is not known any more when it is no member.
    id: Option<u32>,
    drains: bool,
    /// It was drained for this, and is not forgotten yet.
    is_drained: bool,
    /// It was seen to leave: a member of its id after that is another node (MEM 11).
    has_left: bool,
    door: Door<'a>,
}

/// Forgets a node; `wait` is how long that is tried, once without it.
pub(super) async fn run(
    wait: Option<Duration>,
    invocation: &Invocation,
    door: Door<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let (given, drains) = (word(invocation), invocation.options.has("drain"));
    banner(invocation, console, &format!("Removing node {given} from the cluster\n"));
    let mut leaver = Leaver { given, id: None, drains, is_drained: false, has_left: false, door };
    let mut progress = Progress::of(&invocation.options);
    let left = leave(&mut leaver, wait, &mut progress, console).await;
    if left.is_err() && leaver.is_drained {
        leaver.revive(console).await;
    }
    left
}

async fn leave(
    leaver: &mut Leaver<'_>,
    wait: Option<Duration>,
    progress: &mut Progress,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let (given, drains) = (leaver.given, leaver.drains);
    let Some(wait) = wait else {
        let (mut connected, id) = leaver.connect().await?;
        let forgotten = leaver.forget(&mut connected, id, DRAIN_MAX);
        let what = if drains { "draining" } else { "forgetting" };
        let text = |elapsed: Duration| format!("{what} node {given}: {} s", elapsed.as_secs());
        return progress.during(console, forgotten, text).await;
    };
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let text = |_: Duration| format!("taking node {given} out of the cluster");
        let awaited = match progress.during(console, leaver.step(left), text).await {
            Ok(None) => return Ok(()),
            Ok(Some(awaited)) => awaited,
            // That will not become the name of a member.
            Err(failure) if failure.exit == Exit::Data => return Err(failure),
            Err(failure) => failure.text,
        };
        if Instant::now() >= until {
            let awaited = awaited.strip_prefix("Error:\n").unwrap_or(&awaited).trim_end();
            let text = format!("Error:\nnot done in time: {awaited}\n");
            return Err(Failure::new(Exit::TimedOut, text));
        }
        let (text, limit) = (awaited.replace("Error:\n", ""), wait.as_secs());
        let text = text.trim_end();
        progress.show(console, |elapsed| format!("{} s of {limit} s: {text}", elapsed.as_secs()));
        sleep(PAUSE).await;
    }
}

impl Leaver<'_> {
    async fn connect(&mut self) -> Result<(Connected, u32), Failure> {
        let connected = connect::connect(self.door.0, self.door.1).await?;
        let id = match self.id {
            Some(id) => id,
            None => id_of(&connected, self.given)?,
        };
        self.id = Some(id);
        Ok((connected, id))
    }

    /// The next step towards a cluster without the node. `None`: it is no member; else what is awaited.
    async fn step(&mut self, left: Duration) -> Result<Option<String>, Failure> {
        let (mut connected, id) = self.connect().await?;
        match member(&connected, id).map(|member| member.state.as_str()) {
            None => return Ok(None),
            Some("leaving") => (self.is_drained, self.has_left) = (false, true),
            Some(_) if self.has_left => return Ok(None),
            Some(_) => self.forget(&mut connected, id, left.min(DRAIN_MAX)).await?,
        }
        let given = self.given;
        Ok(Some(format!("node {given} leaves, and its replicas are being placed on other nodes")))
    }

    async fn forget(
        &mut self,
        connected: &mut Connected,
        node: u32,
        drain_max: Duration,
    ) -> Result<(), Failure> {
        if self.drains {
            self.drain(connected, node, drain_max).await?;
        }
        let (caller, operator) = (wire::caller(), operator());
        let request = wire::MemberRequest { caller, node, operator, running: self.drains };
        connected.client.forget(request).await.map_err(|status| call_failure(&status))?;
        self.is_drained = false;
        Ok(())
    }

    /// Ends the draining of a node that stays a member.
    async fn revive(&self, console: &mut Console<'_>) {
        let revived = async {
            let (connected, id) = (connect::connect(self.door.0, self.door.1).await?, self.id);
            let found = id.and_then(|id| member(&connected, id));
            // The node was forgotten, though the answer was lost.
            let Some(member) = found.filter(|it| it.state != "leaving") else { return Ok(false) };
            let target = Target::read(Some(&member.rpc_address));
            node::revive(REVIVE_MAX, &target, self.door.1).await.map(|()| true)
        };
        let given = self.given;
        match revived.await {
            Ok(true) => console.complain(&format!("Node {given} is revived: it stays a member\n")),
            Ok(false) => console.complain(&format!("Node {given} is forgotten\n")),
            Err(_) => {
                console.complain(&format!("Warning: node {given} stays drained: revive it\n"));
            }
        }
    }

    /// Drains the node. Not one that does not run, nor the one that is asked, which is refused anyway.
    async fn drain(
        &mut self,
        connected: &Connected,
        node: u32,
        limit: Duration,
    ) -> Result<(), Failure> {
        let asked = connected.cluster.asked;
        let runs = member(connected, node).filter(|member| member.running && member.id != asked);
        let Some(member) = runs else { return Ok(()) };
        // Its clients keep their connections if it cannot be forgotten.
        if let Some(need) = critical::need(&connected.cluster, node) {
            return Err(Failure::new(Exit::Unavailable, format!("Error:\n{need}\n")));
        }
        let was_drained = member.status.as_ref().is_some_and(|status| status.drained);
        self.is_drained |= !was_drained;
        let target = Target::read(Some(&member.rpc_address));
        let mut its = connect::connect(&target, self.door.1).await?;
        let (caller, operator) = (wire::caller(), operator());
        let timeout_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let request = wire::DrainRequest { caller, timeout_ms, operator };
        // What is left after that time ends with the process.
        its.client.drain(request).await.map_err(|status| call_failure(&status))?;
        Ok(())
    }
}

fn member(connected: &Connected, node: u32) -> Option<&wire::Member> {
    connected.cluster.members.iter().find(|member| member.id == node)
}
