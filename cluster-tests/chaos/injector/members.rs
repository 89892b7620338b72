//! Faults of the membership: nodes join, are forgotten, lose their disks, are drained, and are called at
//! another address. At the end of each the nodes that founded the cluster are its members, all groups are
//! where they shall be, and every node has exactly the replicas that it shall have.

use super::data::{data_folder, end};
use super::ended::last_lines;
use super::{Effect, Injector, LONGER};
use crate::chaos::fault::{Leaving, MemberFault, Victim};
use crate::harness::members::Members;
use crate::harness::metrics::Metrics;
use crate::harness::wait::{hold, try_eventually};
use crate::harness::{Node, Port};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long a step may take: a start, a drain, a move of all groups, two at a time. Also a machine that is
/// busy, and whose links another fault cuts meanwhile, does it in that time.
const STEP: Duration = Duration::from_secs(240);
/// Between two looks at the members. Each is a process.
const LOOK: Duration = Duration::from_millis(500);
/// How long a command may take.
const ANSWER: Duration = Duration::from_secs(20);
/// What a node logs when it has entered the cluster.
const JOINS: &str = "this node joins a cluster";
/// What it logs while it waits until it is replaced by name.
const WAITS: &str = "replace_cluster_node";
/// What it logs when it ends because it was forgotten.
const FORGOTTEN: &str = "forgotten";

/// What was seen of a fault, or what a cluster did not do.
type Seen = Result<String, String>;

impl Injector<'_> {
    /// Carries out a fault of the membership.
    pub(super) async fn inject_into_members(
        &self,
        fault: MemberFault,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Effect) {
        let (ids, seen) = match fault {
            MemberFault::ScaleUp { nodes, leaving } => self.scale_up(nodes, leaving, lasts).await,
            MemberFault::ScaleDown { victim } => self.scale_down(victim, lasts).await,
            MemberFault::LostDisk { victim, by_itself } => {
                self.lose_disk(victim, by_itself, lasts).await
            }
            MemberFault::Drain { victim } => return self.drain(victim, lasts).await,
            MemberFault::NewAddress => self.call_elsewhere(lasts).await,
        };
        (ids, seen.map_or_else(Effect::Wrong, Effect::Seen))
    }

    /// Guests join, stay for a while, and are forgotten.
    async fn scale_up(
        &self,
        nodes: usize,
        leaving: Leaving,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Seen) {
        let guests: Vec<&Node> = self.cluster.guests().iter().take(nodes).collect();
        let begun = Instant::now();
        guests.iter().for_each(|guest| guest.spawn());
        let joined = async {
            self.rest_with(&guests).await?;
            let joined = begun.elapsed();
            sleep(lasts).await;
            Ok(joined)
        };
        let (joined, came) = (joined.await, Instant::now());
        let left = self.part_with(&guests, leaving).await;
        let said = |joined| {
            let left = came.elapsed();
            format!(
                "the groups moved to {nodes} more nodes in {joined:.1?}, and back in {left:.1?}"
            )
        };
        let ids = guests.iter().map(|guest| guest.id()).collect();
        (ids, joined.and_then(|joined| left.map(|()| said(joined))))
    }

    /// A guest joins, and comes back at another address.
    async fn call_elsewhere(&self, lasts: Duration) -> (BTreeSet<u64>, Seen) {
        let Some(guest) = self.cluster.guests().first() else {
            return (BTreeSet::new(), Err("the cluster has no guest".to_owned()));
        };
        guest.spawn();
        let port = Port::reserve();
        let moved = async {
            self.rest_with(&[guest]).await?;
            guest.kill9();
            let (was, address) = (guest.rpc_address(), guest.address(&port));
            let listed = format!("{},{}={address}", self.cluster.listed(), guest.id());
            guest.spawn_with(&[("--rpc-listen", &address), ("--cluster", &listed)]);
            for asked in self.ids() {
                let what = format!("node {asked} reaches node {} at {address}", guest.id());
                try_eventually(&what, STEP, LOOK, || async {
                    let members = Members::by(self.cluster, asked).await?;
                    hold(members.reaches(guest.id(), &address), || format!("{members:?}"))
                })
                .await?;
            }
            self.rest_with(&[guest]).await?;
            sleep(lasts).await;
            Ok(format!("all nodes reached it at {address}, and no longer at {was}"))
        };
        let moved = moved.await;
        let left = self.part_with(&[guest], Leaving::Stopped).await;
        (BTreeSet::from([guest.id()]), moved.and_then(|moved| left.map(|()| moved)))
    }

    /// A node is forgotten as it runs, and joins anew with an empty directory. Two nodes are left meanwhile.
    async fn scale_down(&self, victim: Victim, lasts: Duration) -> (BTreeSet<u64>, Seen) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        self.may_end(&ids);
        let (others, begun) = (self.cluster.others(id), Instant::now());
        let forgotten = async {
            self.forget(node, Leaving::Running).await?;
            self.rest_on(&others).await?;
            let took = begun.elapsed();
            sleep(lasts).await;
            Ok(took)
        };
        let (forgotten, gone) = (forgotten.await, Instant::now());
        // If it was not forgotten, it gets another directory all the same, and waits in vain.
        end(node);
        let back = self.comes_back_empty(node, &[], None).await;
        self.start(&ids).await;
        let said = |forgotten| {
            let back = gone.elapsed();
            format!("the groups left it in {forgotten:.1?}, and were back on it in {back:.1?}")
        };
        (ids, forgotten.and_then(|forgotten| back.map(|()| said(forgotten))))
    }

    /// A node is killed, and comes back with an empty directory.
    async fn lose_disk(
        &self,
        victim: Victim,
        by_itself: bool,
        lasts: Duration,
    ) -> (BTreeSet<u64>, Seen) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        self.may_end(&ids);
        if node.runs() {
            node.kill9();
        }
        sleep(lasts).await;
        let begun = Instant::now();
        let back = match by_itself {
            true => self.comes_back_empty(node, &[("--replace-lost-disk", "true")], None).await,
            false => self.comes_back_empty(node, &[], self.cluster.others(id).first()).await,
        };
        self.start(&ids).await;
        let how = if by_itself { "by itself" } else { "by name" };
        let said =
            || format!("it was replaced {how}, and had all replicas {:.1?} later", begun.elapsed());
        (ids, back.map(|()| said()))
    }

    /// Starts a node that has ended on an empty directory, and waits until it serves and has its replicas.
    /// `replaced_by`: it must wait, until that node is told to replace it.
    async fn comes_back_empty(
        &self,
        node: &Node,
        flags: &[(&str, &str)],
        replaced_by: Option<&u64>,
    ) -> Result<(), String> {
        node.reap();
        let aside = set_aside(node);
        let logged = node.log().len();
        node.spawn_with(flags);
        let since = || node.log().get(logged..).unwrap_or_default().to_owned();
        if let Some(by) = replaced_by {
            self.until(node, "it waits", || hold(since().contains(WAITS), since)).await?;
            let id = node.id().to_string();
            try_eventually(&format!("node {id} is replaced"), STEP, LOOK, || async {
                self.command(*by, &["replace_cluster_node", &id]).await
            })
            .await?;
        }
        self.until(node, "it joins", || hold(since().contains(JOINS), since)).await?;
        self.rest_with(&[]).await?;
        fs::remove_dir_all(&aside).unwrap_or_else(|error| panic!("{}: {error}", aside.display()));
        Ok(())
    }

    /// Nobody is connected to a drained node, and it leads nothing that another one can lead.
    async fn drain(&self, victim: Victim, lasts: Duration) -> (BTreeSet<u64>, Effect) {
        let id = self.one(victim).await;
        let (ids, node) = (BTreeSet::from([id]), self.cluster.node(id));
        // It is refused while nobody else takes leaderships, as when another fault has cut all links.
        let drained = try_eventually("it is drained", lasts + LONGER, LOOK, || async {
            self.command(id, &["drain"]).await?;
            is_drained(node).await
        });
        let drained = drained.await;
        if drained.is_ok() {
            sleep(lasts).await;
        }
        let revived = try_eventually("it is revived", STEP, LOOK, || async {
            self.command(id, &["revive"]).await?;
            serves(node).await
        });
        let effect = match (drained, revived.await) {
            (Ok(leads), Ok(())) => {
                Effect::Seen(format!("it refused clients and led {leads} groups, and served again"))
            }
            (Err(why), Ok(())) => Effect::Missed(why),
            (_, Err(why)) => Effect::Wrong(why),
        };
        (ids, effect)
    }

    /// Has guests forgotten one after the other; afterwards they can join anew.
    async fn part_with(&self, guests: &[&Node], leaving: Leaving) -> Result<(), String> {
        let mut parted = Ok(());
        for (place, guest) in guests.iter().enumerate().rev() {
            let rest = || async {
                self.forget(guest, leaving).await?;
                self.rest_with(guests.get(..place).unwrap_or_default()).await
            };
            parted = parted.and(rest().await);
            end(guest);
            let folder = guest.data_dir();
            fs::remove_dir_all(folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        }
        parted
    }

    /// Has a node forgotten by another one, and waits until it is no member and has ended.
    async fn forget(&self, node: &Node, leaving: Leaving) -> Result<(), String> {
        let id = node.id().to_string();
        let logged = node.log().len();
        if leaving == Leaving::Stopped && node.runs() {
            let (status, _) = node.sigterm().await;
            hold(status.success(), || format!("SIGTERM: node {id}: {status}"))?;
        }
        let drain = ["forget_cluster_node", &id, "--drain"];
        let line = if leaving == Leaving::Running { &drain[..] } else { &drain[..2] };
        let asked = || self.ids().into_iter().find(|other| *other != node.id());
        let asked = asked().ok_or("there is no other node")?;
        try_eventually(&format!("node {id} is forgotten"), STEP, LOOK, || async {
            let members = Members::by(self.cluster, asked).await?;
            if !members.names(node.id()) {
                return Ok(());
            }
            self.command(asked, line).await?;
            Err("it leaves".to_owned())
        })
        .await?;
        if leaving == Leaving::Stopped {
            return Ok(());
        }
        let ended = || hold(!node.runs(), || "it still runs".to_owned());
        try_eventually(&format!("node {id} ends"), STEP, LOOK, || async { ended() }).await?;
        let log = node.log();
        let said = log.get(logged..).unwrap_or_default();
        hold(said.contains(FORGOTTEN), || format!("node {id} does not say why it ended:\n{said}"))
    }

    /// Waits until the nodes that founded the cluster, and these, are the members and are ready.
    async fn rest_with(&self, guests: &[&Node]) -> Result<(), String> {
        let guests = guests.iter().map(|guest| guest.id());
        let nodes: Vec<u64> = self.ids().into_iter().chain(guests).collect();
        self.rest_on(&nodes).await
    }

    /// Waits until these nodes are the members, are ready, and have the replicas that they shall have.
    async fn rest_on(&self, nodes: &[u64]) -> Result<(), String> {
        // A founder, which is called at the same address for ever.
        let asked = nodes.first().copied().unwrap_or(1);
        let what = format!("all groups rest on {nodes:?}");
        let at_rest = try_eventually(&what, STEP, LOOK, || async {
            for node in nodes.iter().map(|id| self.cluster.node(*id)) {
                match serves(node).await {
                    Ok(()) => {}
                    Err(_) if !node.runs() => return Ok(Err(has_ended(node))),
                    Err(why) => return Err(why),
                }
            }
            let at_rest = self.cluster.is_at_rest_on(asked, nodes);
            let answer = timeout(ANSWER, at_rest).await;
            answer.map_err(|_| format!("node {asked} does not answer"))?.map(Ok)
        });
        at_rest.await?
    }

    /// Waits for something of a node that must run meanwhile.
    async fn until(
        &self,
        node: &Node,
        what: &str,
        is_so: impl Fn() -> Result<(), String>,
    ) -> Result<(), String> {
        let what = format!("node {}: {what}", node.id());
        let seen = try_eventually(&what, STEP, LOOK, || async {
            match is_so() {
                // A node that has ended never does it.
                Err(_) if !node.runs() => Ok(Err(has_ended(node))),
                is_so => is_so.map(Ok),
            }
        });
        seen.await?
    }

    /// Has a node carry out a command of `quorate ctl`.
    async fn command(&self, asked: u64, line: &[&str]) -> Result<(), String> {
        let answer = timeout(ANSWER, self.cluster.ctl(asked, line)).await;
        let answer = answer.map_err(|_| format!("node {asked} does not answer {line:?}"))?;
        answer.succeeded().map(drop)
    }
}

/// Puts an empty directory in the place of a node's data directory, which stays on its disk.
fn set_aside(node: &Node) -> PathBuf {
    let folder = data_folder(node);
    let aside = folder.with_extension("aside");
    let done = fs::rename(&folder, &aside).and_then(|()| fs::create_dir(&folder));
    done.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    aside
}

/// `Ok` if the node is ready.
async fn serves(node: &Node) -> Result<(), String> {
    let ready = node.get("/health/ready").await?;
    hold(ready.status == 200, || format!("node {}: {ready:?}", node.id()))
}

/// `Ok` with the number of groups that a node leads, if it refuses clients and says that it is drained.
async fn is_drained(node: &Node) -> Result<f64, String> {
    let ready = node.get("/health/ready").await?;
    hold(ready.status == 503 && ready.body.contains("drained"), || format!("{ready:?}"))?;
    let connected = TcpStream::connect(node.amqp_address()).await;
    hold(connected.is_err(), || "it accepts clients".to_owned())?;
    let metrics = Metrics::parse(&node.get("/metrics").await?.body)?;
    Ok(metrics.sum("quorate_group_leader").unwrap_or_default())
}

fn has_ended(node: &Node) -> String {
    format!("node {} has ended:\n{}", node.id(), last_lines(node, 0))
}
