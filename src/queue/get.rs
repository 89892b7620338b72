//! `Get`: one ready message at once, even if consumers wait without credit (GET-01, GET-03).

use crate::{
    apply::Apply,
    command::{Got, Reply},
    death::DeathReason,
    digest::{self, Step},
    machine::{Caller, Machine},
    queue::Queue,
    record::Held,
    store::StoreError,
};
use quorate_types::{Holder, QueueId};

impl Machine {
    /// `Get`: `Got`, `Empty` or `Gone`. The get holds the message until it is settled (DLV 3), and
    /// does not count as a consumer, though it uses the queue.
    pub(crate) fn get(
        &mut self,
        id: QueueId,
        timeout_default_ms: Option<u64>,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Result<Reply, StoreError> {
        // Without a session nobody could settle it.
        let Caller::Session { session, number } = caller else { return Ok(Reply::Gone) };
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(Reply::Gone) };
        queue.touch(apply);
        queue.used_at = apply.now;
        let Some(mut held) = queue.take_first_living(apply)? else { return Ok(Reply::Empty) };
        held.held_since = apply.now;
        queue.note_get_timeout(&held, timeout_default_ms);
        let gets = queue.gets.entry(session).or_default();
        gets.timeout_default_ms = timeout_default_ms;
        gets.held.insert(number, held);
        queue.held += 1;
        queue.change_gets(session);
        apply.holders.gets.insert((session, number), id);
        let holder = digest::of_holder(Holder::Get(session, number));
        apply.digest.step(Step::Get, digest::of_message(held.message), holder);
        Ok(Reply::Got(Got {
            queue: id,
            message: held.message,
            counts: held.counts,
            ready: queue.ready(),
        }))
    }
}

impl Queue {
    /// Takes the first message that has not expired (TTL-03). If more have than one apply may
    /// handle, the queue counts as empty meanwhile.
    fn take_first_living(&mut self, apply: &mut Apply<'_>) -> Result<Option<Held>, StoreError> {
        let lifetime = self.lifetime();
        while let Some(held) = self.take_first(apply)? {
            if !lifetime.is_over(&held, apply.now, apply.index) {
                return Ok(Some(held));
            }
            self.die(held, DeathReason::Expired, apply);
            apply.spend(1);
            if apply.budget == 0 {
                break;
            }
        }
        Ok(None)
    }
}
