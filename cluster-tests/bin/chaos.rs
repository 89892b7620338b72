//! `chaos`: faults from a seed on a cluster under load, and a verdict about what its clients saw.

use clap::Parser;
use quorate_cluster_tests::chaos::{
    fault::Kind,
    foreign,
    gaps::{self, PATIENCE},
    report, run,
    schedule::{Schedule, TOGETHER_MAX, new_seed},
    stalls,
};
use quorate_cluster_tests::harness::{cgroup, disk, links};
use quorate_cluster_tests::invariant::Violation;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Bounds of pauses need a machine that stands still for less than one part in this many of the run.
const STALLED_PART: u32 = 20;

/// Runs a cluster of three nodes under a mixed load, injects faults, and checks that nothing that clients
/// were promised is lost, doubled, or out of order. Exit status: 0 if nothing was found, 1 otherwise.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Seed of the schedule. By default the current time gives one.
    #[arg(long)]
    seed: Option<u64>,
    /// How long the load lasts: a number and s, m or h.
    #[arg(long, default_value = "2m", value_parser = duration)]
    duration: Duration,
    /// Kinds of faults, separated by commas. `all`: every kind.
    #[arg(long, default_value = "all", value_parser = kinds)]
    faults: Kinds,
    /// One fault at a time, so that each gap without confirms has one cause.
    #[arg(long)]
    alone: bool,
    /// Fails if confirms stop longer than faults of their kind may make them stop, at one fault at a time:
    /// 99 of 100 crashes of a leader 0.3 s, its hangs and losses of a majority 1 s, faults of followers 0.2 s,
    /// changes of the membership 1 s.
    /// 0.3 s and 0.2 s are without the times in which the machine's own disk stood still.
    #[arg(long, requires = "alone")]
    bounds: bool,
    /// Starts the nodes with this binary of an earlier release, which `rolling-upgrade` replaces by the one
    /// under test. Excludes changes of the membership, which an early release does not know.
    #[arg(long, value_name = "BINARY", conflicts_with = "against")]
    before: Option<PathBuf>,
    /// Carries out a saved schedule instead of making one.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "duration", "faults", "alone"])]
    replay: Option<PathBuf>,
    /// Loads a broker that somebody else runs and breaks: the addresses of its nodes, or AMQP URIs,
    /// separated by commas. Queues called `chaos-measured` and `mix-…` are declared there, or purged.
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', conflicts_with_all = ["faults", "replay"])]
    against: Vec<String>,
    /// Breaks that broker, with the faults of processes: called as COMMAND VERB NODE, with the number of a
    /// node from 1 and `kill`, `pause`, `resume`, `stop` or `start`. It returns when that has taken effect.
    #[arg(long, value_name = "COMMAND", requires = "against")]
    breaker: Option<PathBuf>,
    /// Folder for the schedule, the report and the history. By default a new one in the system's folder
    /// for temporary files.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Takes away what runs have left that were killed: network namespaces and interfaces, mounted
    /// disks and control groups.
    Clean,
}

#[derive(Clone, Debug)]
struct Kinds {
    named: Vec<Kind>,
    /// All of them, as far as they are possible.
    all: bool,
}

fn kinds(text: &str) -> Result<Kinds, String> {
    if text == "all" {
        return Ok(Kinds { named: Kind::ALL.into(), all: true });
    }
    let named = |name| <Kind as clap::ValueEnum>::from_str(name, false);
    text.split(',')
        .map(|name| named(name).map_err(|error| format!("{name}: {error}")))
        .collect::<Result<_, _>>()
        .map(|named| Kinds { named, all: false })
}

/// The kinds that are possible in a run that begins with an earlier release, or does not.
fn possible(kinds: &Kinds, is_upgraded: bool) -> Result<Vec<Kind>, String> {
    let mut possible = Vec::new();
    for kind in &kinds.named {
        let hindered = if *kind == Kind::RollingUpgrade && !is_upgraded {
            Some("it needs --before")
        } else if kind.changes_members() && is_upgraded {
            Some("an earlier release (--before) does not know it")
        } else {
            None
        };
        match hindered {
            None => possible.push(*kind),
            Some(_) if kinds.all => {}
            Some(why) => return Err(format!("--faults {kind}: {why}")),
        }
    }
    Ok(possible)
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a number followed by s, m or h");
    let digits = text.trim_end_matches(['s', 'm', 'h']);
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let unit = match text.strip_prefix(digits) {
        Some("s") => 1,
        Some("m") => 60,
        Some("h") => 3_600,
        _ => return Err(wrong()),
    };
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

/// How often each kind of violation was found.
fn kinds_of(violations: &[Violation]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for violation in violations {
        let story = format!("{violation:?}");
        let kind = story.split('(').next().unwrap_or_default().to_owned();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

/// The URI of a broker, given by it or by its address.
fn uri(at: &str) -> String {
    if at.contains("://") { at.to_owned() } else { format!("amqp://guest:guest@{at}/%2f") }
}

fn prepare(arguments: &Arguments) -> Result<(Schedule, PathBuf), String> {
    let schedule = match &arguments.replay {
        Some(path) => Schedule::read(path)?,
        None => {
            let seed = arguments.seed.unwrap_or_else(new_seed);
            let together_max = if arguments.alone { 1 } else { TOGETHER_MAX };
            let kinds = match (arguments.against.is_empty(), &arguments.breaker) {
                (true, _) => possible(&arguments.faults, arguments.before.is_some())?,
                (false, Some(_)) => foreign::KINDS.into(),
                (false, None) => Vec::new(),
            };
            Schedule::make(seed, arguments.duration, &kinds, together_max)
        }
    };
    let folder = arguments.output.clone().unwrap_or_else(|| report::folder(schedule.seed));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    schedule.save(&folder.join("schedule.json"))?;
    Ok((schedule, folder))
}

fn clean() -> ExitCode {
    let (networks, error) = match links::clean() {
        Ok(networks) => (networks, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let cleaned = networks.into_iter().chain(disk::clean()).chain(cgroup::clean());
    cleaned.for_each(|what| println!("{what} is gone"));
    match error {
        None => ExitCode::SUCCESS,
        Some(error) => {
            eprintln!("chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Clean) = arguments.command {
        return clean();
    }
    let against: Vec<String> = arguments.against.iter().map(|at| uri(at)).collect();
    let (schedule, folder) = match prepare(&arguments) {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("chaos: {error}");
            return ExitCode::from(2);
        }
    };
    let seed = schedule.seed;
    println!("seed {seed}, {} faults, {}", schedule.events.len(), folder.display());
    // A panic of the harness is a node or a client that did not do what it must: it fails the run too.
    let running = match against.is_empty() {
        true => tokio::spawn(run::run(schedule, arguments.before.clone(), PATIENCE)),
        false => tokio::spawn(run::against(against, schedule, arguments.breaker)),
    };
    let outcome = match running.await {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("seed {seed}: the run did not come to its end: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = report::write(&outcome, &folder) {
        println!("seed {seed}: {}: {error}", folder.display());
        return ExitCode::FAILURE;
    }
    println!(
        "seed {seed}: {} confirmed, {} deliveries, {} queues declared and deleted, {} requests answered, {} rude acts, {} faults, {} violations; {}",
        outcome.log.confirms(),
        outcome.log.delivered.len(),
        outcome.log.churned,
        outcome.log.replied,
        outcome.log.rude,
        outcome.injected.len(),
        outcome.violations.len(),
        folder.join("report.html").display()
    );
    print!("{}", gaps::table(&outcome.gaps));
    for kind in &outcome.missed {
        println!("seed {seed}: {kind} never took effect");
    }
    for (kind, count) in kinds_of(&outcome.violations) {
        println!("seed {seed}: {count} times {kind}");
    }
    for violation in outcome.violations.iter().take(10) {
        println!("seed {seed}: {violation:?}");
    }
    let (stood_still, of) = (stalls::total(&outcome.stalls), outcome.schedule.duration());
    println!("seed {seed}: the machine stood still for {stood_still:.1?} of {of:.1?}");
    let mut beyond = if arguments.bounds { gaps::beyond_bounds(&outcome.gaps) } else { Vec::new() };
    if arguments.bounds && stood_still * STALLED_PART > of {
        beyond.push("a machine that stands still so often shows nothing about pauses".to_owned());
    }
    beyond.iter().for_each(|story| println!("seed {seed}: {story}"));
    let is_good = outcome.is_good() && beyond.is_empty();
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
