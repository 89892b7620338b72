//! Runs operations that wait for the disk.

use tokio::task::{JoinError, spawn_blocking};

/// Runs the operation on a thread that may block; directly if the database is simulated and has no
/// threads.
pub(crate) async fn disk_wait<T: Send + 'static>(
    is_stepped: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if is_stepped { Ok(work()) } else { spawn_blocking(work).await }
}
