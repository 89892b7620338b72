//! `Continue`: continues work that an earlier apply left over, oldest first, as much as one apply
//! may handle (DESIGN §4, *Bounded*).

use crate::{
    apply::Apply,
    machine::Machine,
    record::LeftOver,
    settle::{Fate, Marking},
    store::StoreError,
};
use quorate_types::{QueueId, Sequence, SessionId};

impl Machine {
    /// Continues left-over work until none is left, or the budget of this apply is spent.
    pub(crate) fn take_up(&mut self, apply: &mut Apply<'_>) -> Result<(), StoreError> {
        apply.more = true;
        while apply.budget > 0 {
            let Some(work) = apply.group.left_over.pop_front() else { break };
            // Each item costs one message, so that many items without messages are bounded too.
            apply.spend(1);
            match work {
                LeftOver::CheckOut { queue } => self.take_up_stabilizing(queue, apply)?,
                LeftOver::RequeueSession { queue, session, gets_through, counted } => {
                    let marking = if counted {
                        Marking::Failed
                    } else {
                        Marking::Returned { counted: false }
                    };
                    if !self.return_session(queue, session, gets_through, marking, apply) {
                        apply.group.left_over.push_front(work);
                    }
                }
            }
        }
        Ok(())
    }

    fn take_up_stabilizing(
        &mut self,
        id: QueueId,
        apply: &mut Apply<'_>,
    ) -> Result<(), StoreError> {
        let Some(queue) = self.queues.get_mut(&id) else { return Ok(()) };
        queue.stabilizing_left = false;
        queue.touch(apply);
        queue.stabilize(apply)
    }

    /// Requeues the messages of the queue that the session's lost consumers and its gets hold.
    /// False if some are left; the queue is checked out when it is stabilized.
    fn return_session(
        &mut self,
        id: QueueId,
        session: SessionId,
        gets_through: Sequence,
        marking: Marking,
        apply: &mut Apply<'_>,
    ) -> bool {
        let Some(queue) = self.queues.get_mut(&id) else { return true };
        queue.touch(apply);
        for consumer in queue.lost_consumers(session, apply.budget as usize + 1) {
            queue.return_all(consumer, apply.budget as usize, marking, apply);
            queue.forget_if_done(consumer, apply);
            if queue.consumers.contains_key(&consumer) {
                return false;
            }
        }
        let gets = queue.gets.get(&session).into_iter().flat_map(|gets| &gets.unacked);
        let sequences: Vec<Sequence> = gets
            .map(|(sequence, _)| *sequence)
            .take_while(|sequence| *sequence <= gets_through)
            .take(apply.budget as usize + 1)
            .collect();
        for sequence in sequences {
            if apply.budget == 0 {
                return false;
            }
            queue.end_get(session, sequence, Fate::Back(marking), apply);
        }
        true
    }
}
