//! Waiting for a condition, never for a time: a wait ends when what it waits for is there, and fails when that
//! has not come for so long that it never will.

use std::future::Future;
use std::time::Duration;
use tokio::time::Instant;

/// What has not come within this time never comes. It is the only upper bound on time of `make test`: nothing
/// that a test waits for takes as long, on a machine ten times as slow as ours either.
pub const HANGS: Duration = Duration::from_secs(300);

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks until `attempt` succeeds and gives what it found.
///
/// # Panics
/// After [`HANGS`], with `what` and the last attempt's reason for not succeeding.
pub async fn eventually<T, F, R>(what: &str, attempt: F) -> T
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, String>>,
{
    try_eventually(what, HANGS, INTERVAL, attempt).await.unwrap_or_else(|late| panic!("{late}"))
}

/// Looks until `attempt` succeeds and gives what it found, with so much time between two looks.
///
/// # Errors
/// After `within`, with `what` and the last attempt's reason for not succeeding.
pub async fn try_eventually<T, F, R>(
    what: &str,
    within: Duration,
    interval: Duration,
    mut attempt: F,
) -> Result<T, String>
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, String>>,
{
    let end = Instant::now() + within;
    let mut seen = "nothing yet".to_owned();
    loop {
        match tokio::time::timeout_at(end, attempt()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(reason)) => seen = reason,
            Err(_) => seen = format!("the last look did not end; the one before saw: {seen}"),
        }
        hold(Instant::now() < end, || format!("not within {within:?}: {what}: {seen}"))?;
        tokio::time::sleep(interval).await;
    }
}

/// The result of `work`.
///
/// # Panics
/// With `what`, if it does not end within [`HANGS`].
pub async fn in_time<R: Future>(what: &str, work: R) -> R::Output {
    match tokio::time::timeout(HANGS, work).await {
        Ok(result) => result,
        Err(_) => panic!("not within {HANGS:?}: {what}"),
    }
}

/// `Ok` where the condition holds, else the reason: the shape that [`eventually`] asks for.
///
/// # Errors
/// The reason, when `holds` is false.
pub fn hold(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}
