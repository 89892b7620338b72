//! Each planted bug is caught by some seed within two minutes.
//!
//! `QUORATE_PLANTED_BUGS` selects bugs by name, or `turn N`: the two whose turn it is.

use crate::spawn;
use quorate_types::PlantedBug;
use std::{
    env,
    path::Path,
    process::Child,
    time::{Duration, Instant},
};

/// Longest search for a seed.
const BOUND: Duration = Duration::from_secs(120);

/// Seeds that run at the same time.
const PARALLEL: u64 = 2;

#[test]
fn planted_bugs_are_caught() {
    let folder = tempfile::tempdir().unwrap();
    for bug in bugs() {
        let (begun, mut seed) = (Instant::now(), 0);
        let (caught, reason) = loop {
            assert!(begun.elapsed() < BOUND, "{bug:?} is not caught by {seed} seeds");
            let seeds = seed..seed + PARALLEL;
            seed = seeds.end;
            let children: Vec<_> = seeds
                .map(|number| focused(bug, number))
                .map(|seed| (seed, spawn_planted(bug, seed, folder.path())))
                .collect();
            let reasons = children.into_iter().map(|(seed, child)| (seed, reason(child)));
            let caught = reasons
                .collect::<Vec<_>>()
                .into_iter()
                .find_map(|(seed, reason)| reason.map(|reason| (seed, reason)));
            if let Some(caught) = caught {
                break caught;
            }
        };
        println!("{bug:?}: seed {caught} in {:.0?}: {reason}", begun.elapsed());
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
        PlantedBug::StaleLeaderDelivers
        | PlantedBug::LeaseNeverRunsOut
        | PlantedBug::BodyFromUncommitted => 3 * number + 2,
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

fn spawn_planted(bug: PlantedBug, seed: u64, folder: &Path) -> Child {
    spawn(seed, &folder.join(format!("{bug:?}-{seed}")), Some(bug))
}

/// Why the run has failed; `None` if it has passed.
fn reason(child: Child) -> Option<String> {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let panic = said.lines().skip_while(|line| !line.contains("panicked at"));
    let reason: Vec<_> = panic.skip(1).take(3).map(str::trim).collect();
    (!output.status.success()).then(|| reason.join(" "))
}
