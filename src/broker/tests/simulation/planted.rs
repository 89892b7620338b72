//! Each planted bug is caught by some seed within two minutes.
//!
//! `QUORATE_PLANTED_BUGS` selects bugs by name, or `turn N`: the two whose turn it is.

use crate::{TEST, run::Run};
use quorate_types::PlantedBug;
use std::{
    env,
    time::{Duration, Instant},
};

/// Seeds that are tried at most.
const SEEDS_MAX: u64 = 240;

/// Seeds that run at the same time.
const PARALLEL: u64 = 2;

#[test]
fn planted_bugs_are_caught() {
    let folder = tempfile::tempdir().unwrap();
    for bug in bugs() {
        let (begun, mut seed) = (Instant::now(), 0);
        let (caught, errors) = loop {
            assert!(seed < SEEDS_MAX, "{bug:?} is not caught by {seed} seeds");
            let seeds = seed..seed + PARALLEL;
            seed = seeds.end;
            let runs: Vec<_> = seeds
                .map(|number| focused(bug, number))
                .map(|seed| (seed, folder.path().join(format!("{bug:?}-{seed}"))))
                .map(|(seed, trace)| Run::start(TEST, seed, trace, Some(bug)))
                .collect();
            let ends: Vec<_> = runs.into_iter().map(|run| (run.seed, run.end())).collect();
            let caught = ends.into_iter().find_map(|(seed, end)| Some((seed, end.err()?)));
            if let Some(caught) = caught {
                break caught;
            }
        };
        let message = message(&errors);
        println!("{bug:?}: seed {caught} in {:.0?}: {message}", begun.elapsed());
    }
}

/// A seed with the failures that the bug needs (`world::Focus`).
fn focused(bug: PlantedBug, number: u64) -> u64 {
    match bug {
        PlantedBug::ConfirmBeforeCommit
        | PlantedBug::NoProducerSession
        | PlantedBug::NoGapRefusal
        | PlantedBug::LetterRemovedBeforeTarget
        | PlantedBug::DeliveryCountOutsideState
        | PlantedBug::WallClockInApply
        | PlantedBug::HashMapOrderInApply
        | PlantedBug::ExpiryIgnoredAfterFailover => number,
        PlantedBug::WalSyncOff | PlantedBug::VoteNotSynced => 3 * number + 1,
        PlantedBug::StaleLeaderDelivers | PlantedBug::LeaseNeverRunsOut => 3 * number + 2,
        // With disks that hang too.
        PlantedBug::BodyFromUncommitted => 6 * number + 5,
    }
}

fn bugs() -> Vec<PlantedBug> {
    let all = PlantedBug::ALL.into_iter();
    let Ok(names) = env::var("QUORATE_PLANTED_BUGS") else { return all.collect() };
    if let Some(turn) = names.strip_prefix("turn ") {
        let turn: usize = turn.trim().parse().unwrap();
        return all.cycle().skip(2 * turn % PlantedBug::ALL.len()).take(2).collect();
    }
    let named = |bug: &PlantedBug| names.split_whitespace().any(|name| name == format!("{bug:?}"));
    let bugs: Vec<_> = all.filter(named).collect();
    assert!(!bugs.is_empty(), "QUORATE_PLANTED_BUGS: no bug is called {names:?}");
    bugs
}

/// The first lines of a panic's message.
fn message(errors: &str) -> String {
    assert!(errors.contains("panicked at"), "not a violation: {errors}");
    let panic = errors.lines().skip_while(|line| !line.contains("panicked at"));
    let lines: Vec<_> = panic.skip(1).take(3).map(str::trim).collect();
    lines.join(" ")
}
