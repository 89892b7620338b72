//! Three whole nodes in one process, on simulated disks and a simulated network, driven by a seed:
//! clients publish, nodes are killed, cut off, repaired and drained. No confirmed message may be
//! lost or come twice, and the same seed must give the same trace.
//!
//! `QUORATE_SIMULATION_SEEDS=from..to` runs other seeds than CI does. Each seed has a process of
//! its own, since log lines contain numbers that are counted for each process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod chance;
mod clients;
mod driver;
mod history;
mod invariants;
mod node;
#[cfg(feature = "planted-bugs")]
mod planted;
mod system_chance;
mod world;

use quorate_types::PlantedBug;
use std::{
    env, fs,
    iter::Peekable,
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};
use world::Trace;

/// Seeds that CI runs.
const SEEDS: Range<u64> = 0..50;

/// Of so many seeds, one runs twice, to compare the traces.
const REPEAT_EVERY: u64 = 5;

/// Gives a child process its seed and the path of its trace.
const CHILD: &str = "QUORATE_SIMULATION_CHILD";

#[test]
fn three_nodes_lose_nothing_and_a_seed_repeats_itself() {
    if let Ok(child) = env::var(CHILD) {
        let (seed, file) = child.split_once(' ').unwrap();
        let (seed, trace) = (seed.parse().unwrap(), Trace::default());
        let written = trace.clone();
        system_chance::seed(seed);
        let ended = thread::spawn(move || driver::run(seed, trace)).join();
        fs::write(file, written.text()).unwrap();
        return ended.unwrap();
    }
    // Kept if a seed fails.
    let folder = tempfile::tempdir().unwrap().keep();
    let path = |seed: u64, run: &str| folder.join(format!("{seed}-{run}"));
    let mut seeds = seeds();
    while let Some(seed) = seeds.next() {
        let first = path(seed, "first");
        if seed.is_multiple_of(REPEAT_EVERY) {
            let files = [first, path(seed, "second")];
            let children = files.each_ref().map(|file| spawn(seed, file, None));
            children.into_iter().for_each(|child| finish(seed, child, &files));
            compare(seed, &files);
            files.iter().for_each(|file| fs::remove_file(file).unwrap());
            continue;
        }
        // Two at a time, as above.
        let next = seeds.next_if(|next| !next.is_multiple_of(REPEAT_EVERY));
        let pair = [Some(seed), next].into_iter().flatten();
        let children: Vec<_> = pair
            .map(|seed| (seed, path(seed, "first")))
            .map(|(seed, file)| (seed, spawn(seed, &file, None), file))
            .collect();
        for (seed, child, file) in children {
            finish(seed, child, std::slice::from_ref(&file));
            fs::remove_file(file).unwrap();
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

fn seeds() -> Peekable<Range<u64>> {
    let Ok(seeds) = env::var("QUORATE_SIMULATION_SEEDS") else { return SEEDS.peekable() };
    let (from, to) = seeds.split_once("..").unwrap();
    (from.parse().unwrap()..to.parse().unwrap()).peekable()
}

/// Runs a seed in a process of its own, which writes its trace to that file.
fn spawn(seed: u64, file: &Path, planted: Option<PlantedBug>) -> Child {
    let test = "three_nodes_lose_nothing_and_a_seed_repeats_itself";
    Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{seed} {}", file.display()))
        .env("QUORATE_PLANTED_BUG", planted.map_or_else(String::new, |bug| format!("{bug:?}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn finish(seed: u64, child: Child, files: &[PathBuf]) {
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        panic!("seed {seed}, traces {files:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    println!("seed {seed} passed");
}

fn compare(seed: u64, files: &[PathBuf; 2]) {
    let [first, second] = &files.each_ref().map(|file| fs::read_to_string(file).unwrap());
    assert!(first.lines().count() > 100, "seed {seed}: nothing has happened");
    let differs = first.lines().zip(second.lines()).enumerate().find(|(_, (a, b))| a != b);
    if let Some((line, (one, other))) = differs {
        let line = line + 1;
        panic!("seed {seed} does not repeat itself, line {line} of {files:?}:\n{one}\n{other}");
    }
    assert_eq!(first.len(), second.len(), "seed {seed}: one run is longer");
    println!("seed {seed}: {} lines", first.lines().count());
}
