//! The verbs that wait: for a node's start, for its process, for other nodes, for majorities.

use super::connect::{self, Connected, Target, call_failure};
use super::exit::{Exit, Failure};
use super::job::{Job, refused};
use super::members::critical;
use super::progress::{Progress, beside};
use super::{Console, command};
use command::{Manual, Verb, plain};
use quorate_management::wire;
use quorate_rpc::Connector;
use std::cell::RefCell;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// A verb that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitVerb {
    Startup,
    OnlineNodes,
    QuorumPlusOne,
    Process,
}

/// Pause between attempts to reach a node that is starting.
const PAUSE: Duration = Duration::from_millis(200);
/// How much longer than the time limit an answer of the node may take, which says what is missing.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause between questions about the cluster.
const POLL: Duration = Duration::from_millis(500);
/// Time limit without `--timeout`.
const LIMIT: Duration = Duration::from_secs(300);
/// Time limit of `await_online_quorum_plus_one` without `--timeout`.
const QUORUM_LIMIT: Duration = Duration::from_secs(120);

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Await(AwaitVerb::Startup),
        "await_startup",
        "Nodes",
        "[--timeout <timeout>]",
        "Waits until the target node serves clients",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Await(AwaitVerb::OnlineNodes),
        "await_online_nodes",
        "Cluster",
        "<count> [--timeout <timeout>]",
        "Waits until <count> nodes of the cluster run",
        (1, 1),
        &[],
    ),
    plain(
        Verb::Await(AwaitVerb::QuorumPlusOne),
        "await_online_quorum_plus_one",
        "Upgrade",
        "[--timeout <timeout>]",
        "Waits until no group would lose its majority should the target node be shut down",
        (0, 0),
        &[],
    ),
    plain(
        Verb::Await(AwaitVerb::Process),
        "wait",
        "Nodes",
        "[<pidfile>] [--pid|-P <pid>] [--timeout <timeout>]",
        "Waits until the target node, whose process is named, serves clients",
        (0, 1),
        &["pid"],
    ),
];

/// How long a verb may take without `--timeout`.
pub(super) fn limit(verb: AwaitVerb) -> Duration {
    match verb {
        AwaitVerb::Startup | AwaitVerb::OnlineNodes | AwaitVerb::Process => LIMIT,
        AwaitVerb::QuorumPlusOne => QUORUM_LIMIT,
    }
}

/// Waits.
pub(super) async fn run(
    verb: AwaitVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match verb {
        AwaitVerb::Startup => startup(job, console).await,
        AwaitVerb::OnlineNodes => online_nodes(job, console).await,
        AwaitVerb::QuorumPlusOne => quorum_plus_one(job, console).await,
        AwaitVerb::Process => process(job, console).await,
    }
}

/// What is awaited, by the last answer.
type Awaited = RefCell<String>;

/// Asks the node again and again what it waits for.
async fn watch(door: (&Target, &Connector), awaited: &Awaited) -> Infallible {
    loop {
        let asked = connect::connect_to_node(door.0, door.1).await;
        let text = match asked {
            Ok((_, node)) if node.not_ready.is_empty() => {
                "the node is about to be ready".to_owned()
            }
            Ok((_, node)) => node.not_ready,
            Err(_) => "the node does not answer".to_owned(),
        };
        awaited.replace(text);
        sleep(POLL).await;
    }
}

/// Waits until a node serves; the node may not be running yet.
async fn startup(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let (awaited, door) = (Awaited::default(), (job.target, job.connector()?));
    let limit = job.limit;
    let text = |elapsed: Duration| {
        format!("{} s of {} s: {}", elapsed.as_secs(), limit.as_secs(), awaited.borrow())
    };
    let mut progress = Progress::of(&job.invocation.options);
    let work = beside(until_started(job.limit, door), watch(door, &awaited));
    progress.during(console, work, text).await
}

async fn until_started(limit: Duration, door: (&Target, &Connector)) -> Result<(), Failure> {
    let until = Instant::now() + limit;
    let mut last = None;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        let attempt = async {
            let (mut client, _) = connect::connect_to_node(door.0, door.1).await?;
            let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = wire::AwaitRequest { caller: wire::caller(), timeout_ms };
            let answer = client.await_startup(request).await;
            answer.map(|_| ()).map_err(|status| call_failure(&status))
        };
        match timeout(left + ANSWER, attempt).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => last = Some(failure),
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
    Err(last.unwrap_or_else(|| {
        let text = format!("Error:\n{} did not answer in time\n", door.0.text);
        Failure::new(Exit::TimedOut, text)
    }))
}

/// Asks about the cluster until it is as wanted: `check` says what is awaited; `None`: nothing. A node
/// that does not answer is asked again; the last reason is the failure.
async fn until(
    job: &Job<'_>,
    console: &mut Console<'_>,
    check: impl Fn(&Connected) -> Option<String>,
) -> Result<Connected, String> {
    let until = Instant::now() + job.limit;
    let mut progress = Progress::of(&job.invocation.options);
    let mut why = format!("node {} does not answer", job.target.text);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match timeout(left, job.connect()).await {
            Ok(Ok(connected)) => match check(&connected) {
                None => {
                    progress.end(console);
                    return Ok(connected);
                }
                Some(awaited) => why = awaited,
            },
            Ok(Err(failure)) if failure.exit != Exit::Unavailable => return Err(failure.text),
            Ok(Err(_)) => why = format!("node {} does not answer", job.target.text),
            // The time is up; the last reason stays.
            Err(_) => {}
        }
        if Instant::now() >= until {
            progress.end(console);
            return Err(why);
        }
        let limit = job.limit.as_secs();
        progress.show(console, |elapsed| format!("{} s of {limit} s: {why}", elapsed.as_secs()));
        sleep(POLL.min(left)).await;
    }
}

async fn online_nodes(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let Some(count) = job.word(0).parse::<usize>().ok().filter(|count| *count > 0) else {
        let text = format!("Error:\n'{}' is no number of nodes above 0\n", job.word(0));
        return Err(Failure::new(Exit::Data, text));
    };
    let (node, limit) = (&job.target.text, job.limit.as_secs());
    job.banner(
        console,
        format!(
            "Will wait for at least {count} nodes to join the cluster of {node}. Timeout: {limit} seconds."
        ),
    );
    let check = |connected: &Connected| {
        let members = connected.cluster.members.iter();
        let running = members.filter(|member| member.running && member.state != "joining").count();
        (running < count).then(|| format!("{running} of {count} nodes run"))
    };
    until(job, console, check).await.map(drop).map_err(|why| {
        let text = format!(
            "Error:\nError: timed out while waiting. Not enough nodes joined {node}'s cluster: {why}\n"
        );
        Failure::new(Exit::Software, text)
    })
}

async fn quorum_plus_one(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let limit = job.limit.as_secs();
    job.banner(
        console,
        format!(
            "Will wait for a quorum + 1 of nodes to be online for all quorum queues for {limit} seconds..."
        ),
    );
    let check = |connected: &Connected| {
        let cluster = &connected.cluster;
        let critical = critical::groups(cluster, cluster.asked);
        // A cluster that is not formed has no placement, and no node to lose.
        let waits = cluster.members.len() > 1 && !critical.is_empty() || cluster.members.is_empty();
        waits.then(|| format!("{} groups would lose their majority", critical.len()))
    };
    let connected = until(job, console, check).await.map_err(|why| {
        refused(format!(
            "time is up, no quorum + 1 online replicas came online for at least some quorum queues: {why}"
        ))
    })?;
    if connected.cluster.members.len() == 1 {
        let text = "Target node seems to be the only one in a single node cluster, the command does \
                    not apply";
        job.answer(console, text, &serde_json::json!({ "result": "ok", "message": text }));
    }
    Ok(())
}

/// The process of `--pid`, or of the file that is named, once it is there.
async fn pid(job: &Job<'_>, console: &mut Console<'_>) -> Result<u32, Failure> {
    let (file, given) = (job.word(0), job.invocation.options.value("pid"));
    let refuse = |text: &str| Err(Failure::new(Exit::Usage, format!("Error:\n{text}\n")));
    if let Some(given) = given {
        if !file.is_empty() {
            return refuse("Cannot specify both pid and pidfile");
        }
        let garbage = || Failure::new(Exit::Data, format!("Error:\n--pid is no number: {given}\n"));
        return given.parse().map_err(|_| garbage());
    }
    if file.is_empty() {
        return refuse("No pid or pidfile specified");
    }
    job.banner(console, format!("Waiting for pid file '{file}' to appear"));
    let until = Instant::now() + job.limit;
    let mut progress = Progress::of(&job.invocation.options);
    loop {
        let why = match tokio::fs::read_to_string(file).await {
            Ok(text) if text.trim().is_empty() => "it is empty".to_owned(),
            Ok(text) => {
                progress.end(console);
                let pid: Result<u32, _> = text.trim().parse();
                let garbage = "Error:\nError: garbage in pid file.\n";
                let pid = pid.map_err(|_| Failure::new(Exit::Software, garbage))?;
                job.banner(console, format!("pid is {pid}"));
                return Ok(pid);
            }
            Err(error) => error.to_string(),
        };
        if Instant::now() >= until {
            let text = format!("Error:\n{file}: {why}\n");
            return Err(Failure::new(Exit::TimedOut, text));
        }
        progress.show(console, |_| format!("{file}: {why}"));
        sleep(PAUSE).await;
    }
}

/// Waits until a process serves clients; fails if it ends.
async fn process(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let pid = pid(job, console).await?;
    let ended = async {
        while Path::new(&format!("/proc/{pid}")).exists() {
            sleep(POLL).await;
        }
    };
    let node = &job.target.text;
    job.banner(console, format!("Waiting for node {node} while OS process '{pid}' is running"));
    tokio::select! {
        started = startup(job, console) => started,
        () = ended => {
            Err(Failure::new(Exit::Software, "Error:\nError: process is not running.\n"))
        }
    }
}
