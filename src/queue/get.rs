//! `Get`: takes one ready message at once, even if consumers without credit wait (GET-01, GET-03).

use crate::{
    apply::Apply,
    command::{Got, Reply},
    death_reason::DeathReason,
    digest::{self, Step},
    machine::{Caller, Machine},
    queue::Queue,
    record::QueuedMessage,
    store::StoreError,
};
use quorate_types::{Holder, QueueId};

impl Machine {
    /// `Get`: replies `Got`, `Empty` or `Gone`. The get holds the message until it is settled (DLV
    /// 3). A get does not count as a consumer, but as a use of the queue.
    pub(crate) fn get(
        &mut self,
        id: QueueId,
        timeout_default_ms: Option<u64>,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        // Without a session no client could settle the message.
        let Caller::Session { session, number } = caller else { return Ok(Reply::Gone) };
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(Reply::Gone) };
        queue.touch(apply);
        queue.used_at = apply.now;
        // A message whose wait has ended is before those behind it (RQU-08).
        queue.end_delays(apply);
        let Some(mut queued) = queue.take_first_living(apply)? else {
            queue.traffic.got_empty += 1;
            return Ok(Reply::Empty);
        };
        queue.traffic.got += 1;
        if queued.counts.acquired == 0 {
            apply.waits.add(queued.enqueued_at, apply.now);
        } else {
            queue.traffic.redelivered += 1;
        }
        queued.unacked_since = apply.now;
        queue.note_get_timeout(&queued, timeout_default_ms);
        let gets = queue.gets.entry(session).or_default();
        gets.timeout_default_ms = timeout_default_ms;
        gets.unacked.insert(number, queued);
        queue.unacked.add(&queued);
        queue.change_gets(session);
        apply.holders.gets.insert((session, number), id);
        let holder = digest::of_holder(Holder::Get(session, number));
        apply.digest.step(Step::Get, digest::of_message(queued.message), holder);
        Ok(Reply::Got(Got {
            queue: id,
            message: queued.message,
            counts: queued.counts,
            ready: queue.ready(),
        }))
    }
}

impl Queue {
    /// Takes the first message that has not expired (TTL-03). If more have expired than one apply
    /// may handle, the queue counts as empty until they are removed.
    fn take_first_living(
        &mut self,
        apply: &mut Apply<'_>,
    ) -> Result<Option<QueuedMessage>, StoreError> {
        let lifetime = self.lifetime();
        while let Some(queued) = self.take_first(apply)? {
            if !lifetime.is_over(&queued, apply.now, apply.index) {
                return Ok(Some(queued));
            }
            self.die(queued, DeathReason::Expired, apply);
            apply.spend(1);
            if apply.budget == 0 {
                break;
            }
        }
        Ok(None)
    }
}
