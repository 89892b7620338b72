//! The start of a leadership of a queue group, and its announcement.

use crate::leader::Leader;
use quorate_queue::{Command, Output};
use quorate_types::{GroupId, Home, QueueId, Term};
use std::{sync::Arc, time::Duration};

/// A leader that lost a proposal asks for its content again after this long.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(100);

impl Leader {
    /// Begins this node's leadership of the group, after its term's first entry has been applied
    /// (STO 7).
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
        // After the announcement: the others take this leader's time, whatever their clocks show.
        self.base.led.send_clocks(std::iter::once(group), None);
        // A majority has just committed the term's first entry.
        self.send_majority_contact([(group, term)]);
        self.reconciler.compare(group);
        let leader = Arc::clone(self);
        self.base.context.spawn(async move { leader.reconcile_nodes(group) });
    }

    /// Handles a lost proposal: this leader announces itself again, and proposers send its content
    /// again (SES 5). A leader without a majority refuses proposals, and stays leader when the
    /// majority is back.
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

    /// Handles the deletion of a virtual host or a delayed exchange: each leader ends those of its
    /// queues that its groups hold (NAM 4). The reconciler ends queues that a change of leaders
    /// leaves behind.
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
