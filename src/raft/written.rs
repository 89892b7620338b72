//! Waits for writes of the storage crate, which reports their ends by a call.

use quorate_storage::{Done, StorageError};
use tokio::sync::oneshot;

/// Begins a write, and waits until it is durable or has failed.
///
/// # Errors
/// The write has failed, or the log writer has stopped.
pub async fn written(begin: impl FnOnce(Done)) -> Result<(), StorageError> {
    let (sender, receiver) = oneshot::channel();
    // The caller may have stopped waiting.
    begin(Box::new(move |result| drop(sender.send(result))));
    receiver.await.unwrap_or(Err(StorageError::Closed))
}
