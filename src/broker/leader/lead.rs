//! How a leadership of a queue group begins, and what is announced of it.

use crate::leader::Leader;
use quorate_queue::{Command, Output};
use quorate_types::{GroupId, Home, QueueId, Term};
use std::{sync::Arc, time::Duration};

/// After this long a leader that lost a proposal asks for what was in it.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(100);

impl Leader {
    /// This node leads the group, and has applied its term's first entry (STO 7).
    pub(crate) fn lead(self: &Arc<Self>, group: GroupId, term: Term) {
        let home = Home::Group(group);
        let mut owed = Output::default();
        let begun = self.base.led.with_machine(home, |machine| {
            machine.obligations(&mut owed.effects);
            (machine.time(), machine.wall())
        });
        let Some(stamps) = begun else { return };
        self.base.led.lead(group, term, stamps);
        self.perform(home, &owed);
        self.announce(home, term, None);
        // A majority has just committed its term's first entry.
        self.send_majority_contact([(group, term)]);
        self.reconciler.compare(group);
        let leader = Arc::clone(self);
        self.base.context.spawn(async move { leader.reconcile_nodes(group) });
    }

    /// A proposal was lost: what was in it is sent again once this leader announces itself again
    /// (SES 5). Without a majority a leader refuses proposals, and leads on when the majority is back.
    pub(crate) fn announce_again(self: &Arc<Self>, group: GroupId) {
        if !self.reannouncing.lock().insert(group) {
            return;
        }
        let leader = Arc::clone(self);
        self.base.context.spawn(async move {
            tokio::time::sleep(ANNOUNCE_AGAIN).await;
            leader.reannouncing.lock().remove(&group);
            let home = Home::Group(group);
            if let Some(term) = leader.base.led.leading(home) {
                leader.announce(home, term, None);
            }
        });
    }

    /// A virtual host or a delayed exchange was deleted: each leader ends those of its queues that
    /// were in its groups (NAM 4). What a change of leaders loses the reconciler finds.
    pub(crate) fn end_queues(&self, queues: &[QueueId]) {
        let led = &self.base.led;
        for &queue in queues {
            if matches!(queue.home, Home::Group(_)) && led.leading(queue.home).is_some() {
                let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
                led.propose_to(queue.home, vec![end]);
            }
        }
    }
}
