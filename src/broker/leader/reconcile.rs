//! The reconciler of each group's leader: removes what a crash left incomplete, and never adds
//! anything (NAM 7).
//!
//! A queue counts as ended only if it is missing in a read of the group that begins after the names
//! were read. First a linearizable read of the catalog gives the ids, then the group is read
//! linearizably. Every queue that the catalog names had been created before the second read. The
//! names of connection-bound queues are compared by their own node alone (`exclusive`).

use crate::leader::{
    Leader,
    reconcile_plan::{self, Named},
};
use quorate_queue::Command;
use quorate_types::{GroupId, Home};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often the reconciler checks whether a group is to be compared.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Leader {
    /// Compares the groups that this node leads, one after the other; runs until the node stops.
    pub(crate) async fn reconcile(self: Arc<Self>) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let led = self.base.led.groups();
            let to_compare = self.reconciler.0.lock().due(Instant::now(), led);
            for group in to_compare {
                self.compare_names(group).await;
            }
        }
    }

    async fn compare_names(self: &Arc<Self>, group: GroupId) {
        let home = Home::Group(group);
        if self.base.led.leading(home).is_none() || !self.base.catalog_client.read().await {
            return;
        }
        let named = Named::of_group(&self.base.catalog.read(), group);
        // Every queue was created before this read begins, so a queue that is missing in the result
        // has ended, also if the leader has changed (NAM 2, 7).
        if !self.base.context.read_group(group).await {
            return;
        }
        let compared = {
            let catalog = self.base.catalog.read();
            self.base.led.with_machine(home, |machine| {
                (reconcile_plan::nameless(&catalog, machine), named.ended(machine))
            })
        };
        let Some((nameless, ended)) = compared else { return };
        for queue in nameless {
            tracing::info!(%queue, "deleting a queue that has no name in the catalog");
            let end = Command::EndQueue { queue, if_unused: false, if_empty: false };
            self.base.led.propose_to(home, vec![end]);
        }
        for queue in ended {
            self.queues.queue_ended(queue);
        }
        self.queues.configurer.begin(home);
    }
}
