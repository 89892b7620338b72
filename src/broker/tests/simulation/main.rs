//! Three whole nodes in one process, on simulated disks and a simulated network, driven by a seed:
//! clients publish, nodes are killed, cut off and repaired, and all queues are emptied in the end; in
//! two of five seeds a fourth node joins and is forgotten, and nodes lose their disks, are drained, come
//! back at other addresses, and are upgraded one by one. No confirmed message may be lost or come twice,
//! and the same seed must give the same trace.
//!
//! `QUORATE_SIMULATION_SEEDS=from..to` runs other seeds than CI does.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod chance;
mod clients;
mod driver;
mod entering;
mod history;
mod invariants;
mod membership;
mod moves;
mod node;
#[cfg(feature = "planted-bugs")]
mod planted;
mod restarts;
mod run;
mod system_chance;
mod world;

use run::Run;
use std::{collections::BTreeMap, env, num::NonZero, ops::Range, path::Path, sync::Mutex, thread};

/// How often each text of [`REACHED`] was in a trace.
type Reached = BTreeMap<&'static str, usize>;

/// The test that a run's process is started with.
const TEST: &str = "three_nodes_lose_nothing_and_a_seed_repeats_itself";

/// Seeds that CI runs.
const SEEDS: Range<u64> = 0..40;

/// Every seed that is a multiple of this runs twice, and the two traces are compared.
const REPEAT_EVERY: u64 = 5;

/// Seeds that have found an error, which is repaired.
const HAVE_FOUND: [u64; 1] = [1034];

/// Texts of which each must be in the trace of some seed: proof that the faults happened.
const REACHED: [&str; 23] = [
    "installing a snapshot",
    "loses its power",
    "has lost its power while it started",
    "has voted",
    "is killed",
    "are cut apart",
    "hears nothing from",
    "has failed",
    "hangs until",
    "wait until",
    "this node leads",
    "has deleted",
    "joins the cluster as replica",
    "loses its disk",
    "the groups rest after Join",
    "the groups rest after Forget { running: true }",
    "the groups rest after Forget { running: false }",
    "the groups rest after Replace",
    "the groups rest after Drain",
    "the groups rest after Rolling",
    "the groups rest after NewAddress",
    "the groups rest after Upgrade",
    "version: MachineVersion(2)",
];

/// Number of seeds from which on every text of [`REACHED`] is required.
const ENOUGH: usize = 30;

#[test]
#[ignore = "takes a minute of all processors: make test runs it beside the tests of clusters"]
fn three_nodes_lose_nothing_and_a_seed_repeats_itself() {
    if run::run_as_child() {
        return;
    }
    // Kept if a seed fails.
    let folder = tempfile::tempdir().unwrap().keep();
    let seeds = seeds();
    let (passed, reached) = (seeds.len(), Mutex::default());
    let seeds = Mutex::new(seeds.into_iter());
    let processes = thread::available_parallelism().map_or(2, NonZero::get).max(2);
    thread::scope(|threads| {
        for _ in 0..processes {
            threads.spawn(|| {
                // The lock is held only while the next seed is taken.
                let next = || seeds.lock().unwrap().next();
                while let Some(seed) = next() {
                    carry_out(seed, &folder, &reached);
                }
            });
        }
    });
    std::fs::remove_dir_all(folder).unwrap();
    let reached = reached.into_inner().unwrap();
    println!("{passed} seeds: {reached:?}");
    let missing: Vec<_> = REACHED.into_iter().filter(|it| !reached.contains_key(it)).collect();
    assert!(passed < ENOUGH || missing.is_empty(), "no seed has come to {missing:?}");
}

/// Runs a seed, which must pass, twice if it is one of those that are compared.
fn carry_out(seed: u64, folder: &Path, reached: &Mutex<Reached>) {
    let run =
        |name| end(Run::start(TEST, seed, folder.join(format!("{seed}-{name}")), None), reached);
    let first = run("first");
    if seed.is_multiple_of(REPEAT_EVERY) {
        compare(seed, &first, &run("second"));
    }
}

/// The seeds that are asked for; otherwise those of CI, and those that have found an error.
fn seeds() -> Vec<u64> {
    let Ok(seeds) = env::var("QUORATE_SIMULATION_SEEDS") else {
        return SEEDS.chain(HAVE_FOUND).collect();
    };
    let (from, to) = seeds.split_once("..").unwrap();
    (from.parse().unwrap()..to.parse().unwrap()).collect()
}

/// Waits for the end of a run, which must pass; returns its trace. Counts the texts of [`REACHED`].
fn end(run: Run, reached: &Mutex<Reached>) -> String {
    let (seed, trace) = (run.seed, run.trace.clone());
    let trace = run.end().unwrap_or_else(|error| panic!("seed {seed}, trace {trace:?}: {error}"));
    println!("seed {seed} passed");
    for what in REACHED {
        let times = trace.matches(what).count();
        if times > 0 {
            *reached.lock().unwrap().entry(what).or_default() += times;
        }
    }
    trace
}

fn compare(seed: u64, first: &str, second: &str) {
    assert!(first.lines().count() > 100, "seed {seed}: nothing has happened");
    let differs = first.lines().zip(second.lines()).enumerate().find(|(_, (a, b))| a != b);
    if let Some((line, (one, other))) = differs {
        panic!("seed {seed} does not repeat itself, line {}:\n{one}\n{other}", line + 1);
    }
    assert_eq!(first.len(), second.len(), "seed {seed}: one run is longer");
}
