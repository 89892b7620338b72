//! Turns of requests that take long, so that few of them are carried out at the same time.

use std::{sync::Arc, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pages of messages that are read at the same time on a node.
const LOOKS_MAX: usize = 4;
/// Dry runs at the same time: each copies a part of the catalog.
const DRY_RUNS_MAX: usize = 1;
/// Longest wait for a turn.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The turns of a node.
#[derive(Debug)]
pub(crate) struct Turns {
    looks: Arc<Semaphore>,
    dry_runs: Arc<Semaphore>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
            dry_runs: Arc::new(Semaphore::new(DRY_RUNS_MAX)),
        }
    }

    /// The turn of one who looks at messages; `None`: too many others do.
    pub(crate) async fn look(&self) -> Option<OwnedSemaphorePermit> {
        turn(&self.looks).await
    }

    /// The turn of a dry run; `None`: another one takes too long.
    pub(crate) async fn dry_run(&self) -> Option<OwnedSemaphorePermit> {
        turn(&self.dry_runs).await
    }
}

async fn turn(of: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let turn = Arc::clone(of).acquire_owned();
    tokio::time::timeout(WAIT_MAX, turn).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn dry_runs_take_turns_and_wait_for_a_bounded_time() {
        let turns = Turns::new();
        let first = turns.dry_run().await.unwrap();
        assert!(turns.look().await.is_some());
        let began = tokio::time::Instant::now();
        assert!(turns.dry_run().await.is_none());
        assert_eq!(began.elapsed(), WAIT_MAX);
        drop(first);
        assert!(turns.dry_run().await.is_some());
    }
}
