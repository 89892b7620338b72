//! The reconciler of each group's leader: takes away what a crash left half done, and never adds
//! (NAM 7).
//!
//! A queue counts as ended only if it is missing in a read of the group that begins after the names
//! were read. First a linearizable read of the catalog gives the ids, then the group is read
//! linearizably. Every queue that the catalog names had been created before the second read. The
//! names of connection-bound queues are compared by their own node alone (`exclusive`).

use crate::leader::Leader;
use quorate_queue::{Command, QueueView};
use quorate_types::{GroupId, Home, QueueId};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How often it is looked whether there is something to compare.
const LOOK: Duration = Duration::from_millis(500);
/// Names and queues are compared this often, and when a leadership begins.
const COMPARE: Duration = Duration::from_secs(10);

impl Leader {
    /// Compares the groups that this node leads, one after the other; runs as long as the node.
    pub(crate) async fn reconcile(self: Arc<Self>) {
        let mut interval = tokio::time::interval(LOOK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut compared = Instant::now();
        loop {
            interval.tick().await;
            let mut to_compare = std::mem::take(&mut *self.reconciler.0.lock());
            if compared.elapsed() > COMPARE {
                compared = Instant::now();
                to_compare.extend(self.base.led.groups());
            }
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
        let named: Vec<QueueId> =
            self.base.catalog.read().queues_of_home(home, None).map(|entry| entry.id).collect();
        // Every one of them was created before this read begins, so one that the group does not hold
        // after it has ended, whoever leads by then (NAM 2, 7).
        if !self.base.context.read_group(group).await {
            return;
        }
        let mut nameless: Vec<QueueId> = Vec::new();
        let mut ended = Vec::new();
        {
            let catalog = self.base.catalog.read();
            let compared = self.base.led.with_machine(home, |machine| {
                nameless.extend(machine.queues().filter(|&id| {
                    let queue = machine.queue(id);
                    let creator = queue.as_ref().and_then(|queue| queue.creator);
                    let homeless = |queue: QueueView| {
                        catalog.is_of_former_vhost(&queue.name.vhost, queue.config.resolved_at)
                    };
                    catalog.queue_by_id(id).is_none()
                        && (creator.is_none_or(|creator| catalog.is_fenced(creator))
                            || queue.is_some_and(homeless))
                }));
                ended.extend(named.into_iter().filter(|id| !machine.has_queue(*id)));
            });
            if compared.is_none() {
                return;
            }
        }
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
