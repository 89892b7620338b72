//! Chaos as CI runs it: faults of a fixed seed, and faults of a new seed, which is printed.

#![expect(clippy::panic, reason = "tests")]

use quorate_cluster_tests::chaos::{
    fault::Kind,
    gaps::Patience,
    report, run,
    schedule::{Schedule, TOGETHER_MAX, new_seed},
};
use quorate_cluster_tests::harness::figure;
use quorate_cluster_tests::harness::wait::HANGS;
use std::time::Duration;

/// Duration of the load of one run.
const DURATION: Duration = Duration::from_secs(40);

/// How soon confirms flow again depends on the machine: `make chaos` judges that.
const PATIENCE: Patience = Patience { stuck: HANGS, healed: HANGS };

/// The seed that every run has.
const FIXED: u64 = 1;

async fn chaos(seed: u64) {
    // Changes of the membership last longer than this run: `make chaos` has them. An upgrade needs the
    // binary of an earlier release: `make upgrade` has it.
    let is_short = |kind: &Kind| !kind.changes_members() && *kind != Kind::RollingUpgrade;
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(is_short).collect();
    let schedule = Schedule::make(seed, DURATION, &kinds, TOGETHER_MAX);
    let outcome = run::run(schedule, None, PATIENCE).await;
    println!(
        "chaos seed {seed}: {} confirmed, {} faults",
        outcome.log.confirms(),
        outcome.injected.len()
    );
    // A fault that nothing felt says something of the machine; `make chaos` fails for it.
    figure(&format!("chaos seed {seed}: never took effect"), &outcome.missed);
    if outcome.violations.is_empty() {
        return;
    }
    let folder = report::folder(seed);
    let written = std::fs::create_dir_all(&folder).and_then(|()| report::write(&outcome, &folder));
    panic!(
        "make chaos ARGS=\"--seed {seed} --duration {}s\": {:?}, never took effect {:?}; {} {written:?}",
        DURATION.as_secs(),
        outcome.violations.iter().take(5).collect::<Vec<_>>(),
        outcome.missed,
        folder.display()
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make test runs it beside the tests of clusters"]
async fn nothing_is_lost_with_the_faults_of_a_fixed_seed_and_of_a_new_one() {
    for seed in [FIXED, new_seed()] {
        println!("chaos seed {seed}");
        chaos(seed).await;
    }
}
