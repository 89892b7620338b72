//! `Purge`: drops every ready message; unacked messages stay (DEL-07). No message is dead-lettered
//! (DEL-05, DEL-09). Returned messages that wait (RQU-08), letters kept as unroutable and the
//! messages of a delayed exchange are dropped too. The fresh range is dropped by a jump of the head, whatever its length.

use crate::{
    apply::Apply,
    command::Reply,
    digest::{self, Step},
    machine::Machine,
};
use quorate_types::QueueId;

impl Machine {
    /// `Purge`: replies `Purged` or `Gone`.
    pub(crate) fn purge(&mut self, id: QueueId, apply: &mut Apply<'_>) -> Reply {
        let Some(queue) = self.queues.get_mut(&id) else { return Reply::Gone };
        queue.touch(apply);
        let ready: u64 = queue.levels.values_mut().map(|level| level.purge(apply.index)).sum();
        let retries: u64 = queue.levels.values_mut().map(|level| level.forget_retries()).sum();
        let messages = ready + retries + queue.forget_kept(apply) + queue.forget_delayed(apply);
        apply.digest.step(Step::Purge, digest::of_queue(id), messages);
        Reply::Purged { messages }
    }
}
