//! Waiting for a condition, never for a time: every wait has a deadline and says what it waited for.

use std::future::Future;
use std::time::{Duration, Instant};

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Looks until `attempt` succeeds and gives what it found.
///
/// # Panics
/// After `within`, with `what` and the last attempt's reason for not succeeding.
pub async fn eventually<T, F, R>(what: &str, within: Duration, attempt: F) -> T
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, String>>,
{
    try_eventually(what, within, INTERVAL, attempt).await.unwrap_or_else(|late| panic!("{late}"))
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
    let begun = Instant::now();
    loop {
        let reason = match tokio::time::timeout(within, attempt()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(reason)) => reason,
            Err(_) => "the last look did not end".to_owned(),
        };
        hold(begun.elapsed() < within, || format!("not within {within:?}: {what}: {reason}"))?;
        tokio::time::sleep(interval).await;
    }
}

/// The result of `work`, if it ends in time.
///
/// # Panics
/// After `within`, with `what`.
pub async fn in_time<R: Future>(what: &str, within: Duration, work: R) -> R::Output {
    match tokio::time::timeout(within, work).await {
        Ok(result) => result,
        Err(_) => panic!("not within {within:?}: {what}"),
    }
}

/// `Ok` where the condition holds, else the reason: the shape that [`eventually`] asks for.
///
/// # Errors
/// The reason, when `holds` is false.
pub fn hold(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}
