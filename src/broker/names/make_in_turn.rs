//! Queues are made one at a time of each name, to their end (NAM 2).

use crate::{
    context::CallError,
    names::{
        declare::{Made, NewQueue},
        queues::Queues,
    },
};
use std::sync::Arc;
use tokio::time::{Instant, timeout};

impl Queues {
    /// Makes a queue, unless one of its name is being made here: then its end is waited for, and
    /// the name has to be looked at again.
    pub(crate) async fn make_in_turn(self: &Arc<Self>, new: NewQueue) -> Result<Made, CallError> {
        let end = Instant::now() + self.base.context.operation_timeout();
        let left = || end.saturating_duration_since(Instant::now());
        let begun = timeout(left(), self.making.begin(&new.name)).await;
        let Some(turn) = begun.map_err(|_| CallError::TimedOut)? else {
            return Ok(Made::NameTaken);
        };
        let room = timeout(left(), Arc::clone(&self.making.room).acquire_owned()).await;
        let Ok(Ok(room)) = room else { return Err(CallError::TimedOut) };
        // Once proposed it is finished, whatever becomes of the client (NAM 2).
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let node = Arc::clone(self);
        self.base.context.spawn(async move {
            let made = node.make_queue(new).await;
            drop((turn, room));
            drop(sender.send(made));
        });
        // The client gets its error in time; the queue is still created once there is a majority.
        match timeout(left(), receiver).await {
            Ok(made) => made.unwrap_or(Err(CallError::SessionEnded)),
            Err(_) => Err(CallError::TimedOut),
        }
    }
}
