//! `audit`: asks for the digests of all replicas until they can be compared.

use super::Console;
use super::audit::{self, Audit};
use super::connect::call_failure;
use super::exit::{Exit, Failure};
use super::job::Job;
use super::names::Names;
use super::progress::Progress;
use quorate_management::wire;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Pause between rounds under load.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of rounds after which an index is accepted that is not the newest.
const ROUNDS: u32 = 5;
/// Time limit for finding indexes to compare.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests digests until every group can be compared, or until `TIMEOUT`. A few more rounds
/// are made if replicas are about to reach the same last index, so that all that they have applied
/// is compared.
pub(super) async fn run(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut connected = job.connect().await?;
    job.banner(console, "Comparing the replicas of every group ...");
    let mut progress = Progress::of(&job.invocation.options);
    let mut audit = Audit::default();
    let until = Instant::now() + TIMEOUT;
    for round in 1.. {
        let request =
            wire::AuditRequest { caller: wire::caller(), scope: wire::Scope::Cluster.into() };
        let answer = connected.client.get_audit(request).await;
        audit.add(&answer.map_err(|status| call_failure(&status))?.into_inner().digests);
        let is_enough = audit.is_settled() || (audit.is_complete() && round >= ROUNDS);
        if is_enough || Instant::now() > until {
            break;
        }
        progress.show(console, |_| {
            let findings = audit.findings();
            let compared = findings.values().filter(|it| it.is_compared()).count();
            format!("round {round}: {compared} of {} groups compared", findings.len())
        });
        sleep(PAUSE).await;
    }
    progress.end(console);
    let names = Names::of(&connected.cluster);
    let replicas = |group| audit::replicas(&connected.cluster, group);
    let (lines, agree) = audit::report(&audit.findings(), replicas, &names);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    console.say(&text);
    if agree {
        return Ok(());
    }
    Err(Failure::new(Exit::Software, "Error:\nnot all replicas are known to be identical\n"))
}
