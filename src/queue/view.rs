//! The state as lists, metrics, front ends and a new leader see it.

use crate::{
    command::ConsumerTerms,
    config::QueueConfig,
    machine::Machine,
    output::{Delivery, Effect},
    queue::Queue,
    traffic::{Traffic, Waits},
    walk::Walk,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, NodeId, QueueId, QueueType, ResourceName, SessionId,
    StartNumber, Timestamp, VhostName, WallTime,
};

/// A queue as lists and metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Name of the queue, with its virtual host.
    pub name: ResourceName,
    /// Effective settings, from arguments and policies.
    pub config: QueueConfig,
    /// The session that created it (NAM 7).
    pub creator: Option<SessionId>,
    /// Number of ready messages.
    pub ready: u64,
    /// Bytes of their bodies.
    pub ready_bytes: u64,
    /// Number of unacked messages of consumers and gets.
    pub unacknowledged: u64,
    /// Bytes of their bodies.
    pub unacknowledged_bytes: u64,
    /// Number of returned messages that wait before they are ready again (RQU-08).
    pub delayed: u64,
    /// Number of attached consumers.
    pub consumers: u32,
    /// Number of dead letters that not all targets have accepted.
    pub letters: u64,
    /// When its oldest ready message was enqueued, by the group's clock, as far as it is known.
    pub oldest: Option<Timestamp>,
}

/// Figures of a queue that are cheap to read, for samples and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueFigures {
    /// Id of the queue.
    pub id: QueueId,
    /// Name of the queue, with its virtual host.
    pub name: ResourceName,
    /// Its type by interface.
    pub queue_type: QueueType,
    /// Number of ready messages.
    pub ready: u64,
    /// Bytes of their bodies.
    pub ready_bytes: u64,
    /// Number of unacked messages of consumers and gets.
    pub unacknowledged: u64,
    /// Bytes of their bodies.
    pub unacknowledged_bytes: u64,
    /// Number of returned messages that wait before they are ready again (RQU-08).
    pub delayed: u64,
    /// Number of attached consumers.
    pub consumers: u32,
    /// Number of dead letters that not all targets have accepted.
    pub letters: u64,
    /// When its oldest ready message was enqueued, by the group's clock, as far as it is known.
    pub oldest: Option<Timestamp>,
    /// Catalog index that its settings were resolved at.
    pub configured_at: CatalogIndex,
    /// What has passed through it since this replica was loaded.
    pub traffic: Traffic,
}

/// A consumer as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerView {
    /// Id of the consumer.
    pub consumer: ConsumerId,
    /// Properties of the consumer.
    pub terms: ConsumerTerms,
    /// Number of its unacked messages.
    pub unacked: u64,
}

impl Machine {
    /// Every effect that the state owes, which a new leader performs first. Deliveries are not
    /// among them: front ends ask for them by re-attaching (DLV 2), and then also learn that a
    /// queue has ended. Ended queues are not stored: the reconciler compares with the catalog (NAM
    /// 7).
    pub fn obligations(&self, effects: &mut Vec<Effect>) {
        if !self.group.left_over.is_empty() {
            effects.push(Effect::ContinueSoon);
        }
        for queue in self.queues.values() {
            if let Some(time) = queue.wake_at {
                effects.push(Effect::WakeAt { queue: queue.id, time });
            }
            effects.extend(queue.consumers.iter().filter_map(|(consumer, state)| {
                let last = state.timed_out.last().copied()?;
                Some(Effect::ConsumerTimedOut { consumer: *consumer, last })
            }));
        }
        self.owed_letters(effects);
    }

    /// The consumer's deliveries above number `after`, for a re-attach (DLV 2). `None`: the
    /// consumer does not exist; its queue has ended, or it was detached because its node had timed
    /// out.
    #[must_use]
    pub fn unacked_after(
        &self,
        consumer: ConsumerId,
        after: DeliveryNumber,
    ) -> Option<Vec<Delivery>> {
        let queue = self.queues.get(self.holders.consumers.get(&consumer)?)?;
        let state = queue.consumers.get(&consumer).filter(|state| !state.lost)?;
        let delivery = |(number, queued): (DeliveryNumber, crate::QueuedMessage)| Delivery {
            consumer,
            number,
            queue: queue.id,
            message: queued.message,
            counts: queued.counts,
        };
        Some(state.unacked.above(after).map(delivery).collect())
    }

    /// True if the consumer is attached, or still holds messages.
    #[must_use]
    pub fn has_consumer(&self, consumer: ConsumerId) -> bool {
        self.holders.consumers.contains_key(&consumer)
    }

    /// True if the queue exists.
    #[must_use]
    pub fn has_queue(&self, id: QueueId) -> bool {
        self.queues.contains_key(&id)
    }

    /// Rolling digest of all applied changes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.group.digest
    }

    /// The replicated clock: the highest stamp applied.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        self.group.time
    }

    /// Time of the leader's wall clock when it made the last applied entry.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.group.wall
    }

    /// The life of the cluster that the group has seen last. A leader that knows a later one
    /// proposes `NewLife` before anything else.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.group.life
    }

    /// Suspected nodes: a new leader monitors them from the start (DLV 5).
    pub fn suspected(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|(_, record)| record.suspected).map(|(node, _)| *node)
    }

    /// Starts of this node up to the returned one are fenced (SES 6).
    #[must_use]
    pub fn fenced(&self, node: NodeId) -> StartNumber {
        self.nodes.get(&node).map_or(StartNumber(0), |record| record.fenced)
    }

    /// Sessions that have sent batches and are not fenced, ascending: a new leader proposes
    /// `NodeDown` for those whose process is known to be dead.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sessions.keys().copied()
    }

    /// A queue's counts, for lists and metrics.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<QueueView> {
        let queue = self.queues.get(&id)?;
        Some(QueueView {
            name: queue.name.clone(),
            config: queue.config.clone(),
            creator: queue.creator,
            ready: queue.ready(),
            ready_bytes: queue.ready_bytes(),
            unacknowledged: queue.unacked.messages,
            unacknowledged_bytes: queue.unacked.body_bytes,
            delayed: queue.retries(),
            consumers: queue.attached,
            letters: queue.letters.len(),
            oldest: queue.oldest(),
        })
    }

    /// A queue's figures.
    #[must_use]
    pub fn queue_figures(&self, id: QueueId) -> Option<QueueFigures> {
        self.queues.get(&id).map(|queue| queue.figures())
    }

    /// Figures of the queues of the walk's next part.
    #[must_use]
    pub fn figures(&self, walk: &mut Walk) -> Vec<QueueFigures> {
        self.next_queues(walk).map(Queue::figures).collect()
    }

    /// How long messages waited for their first delivery, since this replica was loaded.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// The queue's `x-max-priority`.
    #[must_use]
    pub fn priority_max(&self, queue: QueueId) -> Option<u8> {
        self.queues.get(&queue)?.config.priority_max
    }

    /// The last of the consumer's deliveries that have timed out and are not settled.
    #[must_use]
    pub fn timed_out(&self, consumer: ConsumerId) -> Option<DeliveryNumber> {
        let queue = self.queues.get(self.holders.consumers.get(&consumer)?)?;
        queue.consumers.get(&consumer)?.timed_out.last().copied()
    }

    /// Ids of all queues, ascending.
    pub fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        self.queues.keys().copied()
    }

    /// The consumers of a virtual host's queues with a single active consumer, without cancelled
    /// ones; true for the active one (SAC-02). Of the queues of the walk's next part.
    #[must_use]
    pub fn single_active(&self, vhost: &VhostName, walk: &mut Walk) -> Vec<(ConsumerId, bool)> {
        let single =
            |queue: &&Queue| queue.config.single_active_consumer && queue.name.vhost == *vhost;
        let queues = self.next_queues(walk).filter(single);
        let consumers = queues.flat_map(|queue| {
            let attached = queue.consumers.iter().filter(|(_, state)| !state.cancelled);
            attached.map(|(consumer, _)| (*consumer, queue.active == Some(*consumer)))
        });
        consumers.collect()
    }

    /// A queue's consumers, without cancelled ones.
    #[must_use]
    pub fn consumers(&self, queue: QueueId) -> Vec<ConsumerView> {
        let Some(queue) = self.queues.get(&queue) else { return Vec::new() };
        let attached = queue.consumers.iter().filter(|(_, state)| !state.cancelled);
        let views = attached.map(|(consumer, state)| ConsumerView {
            consumer: *consumer,
            terms: state.terms.clone(),
            unacked: state.unacked.len() as u64,
        });
        views.collect()
    }
}

impl Queue {
    fn oldest(&self) -> Option<Timestamp> {
        self.levels.values().filter_map(|level| level.oldest()).min()
    }

    fn figures(&self) -> QueueFigures {
        QueueFigures {
            id: self.id,
            name: self.name.clone(),
            queue_type: self.config.queue_type,
            ready: self.ready(),
            ready_bytes: self.ready_bytes(),
            unacknowledged: self.unacked.messages,
            unacknowledged_bytes: self.unacked.body_bytes,
            delayed: self.retries(),
            consumers: self.attached,
            letters: self.letters.len(),
            oldest: self.oldest(),
            configured_at: self.config.resolved_at,
            traffic: self.traffic,
        }
    }
}
