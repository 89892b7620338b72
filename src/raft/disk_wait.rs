//! What waits for the disk.

use tokio::task::{JoinError, spawn_blocking};

/// Runs it on a thread that may wait; over a database without threads, which is simulated, here.
pub(crate) async fn disk_wait<T: Send + 'static>(
    is_stepped: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if is_stepped { Ok(work()) } else { spawn_blocking(work).await }
}
