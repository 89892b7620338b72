//! Consumers: `Attach`, `Detach`, `Credit` (basic.consume, basic.cancel, DLV 4, DLV 6).

use crate::{
    apply::Apply,
    command::{ConsumerTerms, Detach, Reply},
    digest::{self, Step},
    machine::{Caller, Machine},
    queue::Queue,
    record::ConsumerRecord,
    settle::{Fate, Marking},
    unacked::UnackedSet,
};
use quorate_types::{ConsumerId, DeliveryNumber, Holder, QueueId};
use std::collections::{BTreeMap, BTreeSet};

/// Range of all delivery numbers.
pub(crate) const ALL: (DeliveryNumber, DeliveryNumber) =
    (DeliveryNumber(0), DeliveryNumber(u64::MAX));

/// An attached consumer, and the messages assigned to it.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) terms: ConsumerTerms,
    pub(crate) next: DeliveryNumber,
    pub(crate) up_to: DeliveryNumber,
    pub(crate) cancelled: bool,
    pub(crate) timed_out: BTreeSet<DeliveryNumber>,
    pub(crate) arrival: u64,
    pub(crate) lost: bool,
    pub(crate) paused: bool,
    pub(crate) unacked: UnackedSet,
    /// The consumer's node is suspected to be unreachable (DLV 5). Derived from the node's record.
    pub(crate) suspected: bool,
    /// The consumer is in the service queue. Derived.
    pub(crate) in_service_queue: bool,
    /// The present entry has changed the consumer.
    pub(crate) changed: bool,
}

impl Consumer {
    pub(crate) fn from_record(record: ConsumerRecord, suspected: bool) -> Self {
        Self {
            terms: record.terms,
            next: record.next,
            up_to: record.up_to,
            cancelled: record.cancelled,
            timed_out: record.timed_out,
            arrival: record.arrival,
            lost: record.lost,
            paused: record.paused,
            unacked: UnackedSet::from_map(record.unacked),
            suspected,
            in_service_queue: false,
            changed: false,
        }
    }

    pub(crate) fn record(&self) -> ConsumerRecord {
        ConsumerRecord {
            terms: self.terms.clone(),
            next: self.next,
            up_to: self.up_to,
            cancelled: self.cancelled,
            timed_out: self.timed_out.clone(),
            arrival: self.arrival,
            lost: self.lost,
            paused: self.paused,
            unacked: self.unacked.to_map(),
        }
    }

    /// Number of messages that may be assigned to it now: the client's prefetch (QOS-03) and the
    /// front end's credit (DLV 6) must both allow them. 0 if it is cancelled, timed out, paused or
    /// suspected.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        if self.cancelled || !self.timed_out.is_empty() || self.paused || self.suspected {
            return 0;
        }
        let prefetch = self.terms.prefetch.map_or(u64::MAX, u64::from);
        let credit = self.up_to.0.saturating_add(1).saturating_sub(self.next.0);
        prefetch.saturating_sub(self.unacked.len() as u64).min(credit)
    }
}

impl Machine {
    /// `Attach`: `Taken`, `Gone`, or `ExclusiveInUse` (CON-04, on every queue type: Q-12).
    pub(crate) fn attach(
        &mut self,
        id: QueueId,
        consumer: ConsumerId,
        terms: &ConsumerTerms,
        caller: Caller,
        apply: &mut Apply<'_>,
    ) -> Reply {
        // A consumer of another session than the batch's would not end with that session.
        if caller.session() != Some(consumer.session) {
            return Reply::Gone;
        }
        let node = self.nodes.get(&consumer.session.node);
        let suspected = node.is_some_and(|node| node.suspected);
        let Some(queue) = self.queues.get_mut(&id) else { return Reply::Gone };
        if apply.holders.consumers.contains_key(&consumer) {
            return Reply::Taken;
        }
        let alone = queue.attached == 0 && !queue.config.single_active_consumer;
        if (terms.exclusive && !alone) || queue.has_exclusive_consumer() {
            return Reply::ExclusiveInUse;
        }
        queue.touch(apply);
        queue.attach(consumer, terms.clone(), suspected, apply);
        Reply::Taken
    }

    /// `Detach`. Deliveries above `shown` are requeued unmarked, since the client never saw them.
    /// Deliveries at or below `shown` stay with the client until it settles them, or are requeued,
    /// marked and counted (DLV 4).
    pub(crate) fn detach(
        &mut self,
        id: ConsumerId,
        shown: DeliveryNumber,
        how: Detach,
        apply: &mut Apply<'_>,
    ) {
        let holder = Holder::Consumer(id);
        let Some(queue) = self.queue_of(holder, apply) else { return };
        queue.touch(apply);
        queue.cancel(id, apply);
        let above = (DeliveryNumber(shown.0.saturating_add(1)), ALL.1);
        queue.end_deliveries(holder, &[above], Fate::Back(Marking::Unseen), apply);
        match how {
            Detach::Cancel => {}
            Detach::ChannelEnd => {
                let fate = Fate::Back(Marking::Failed);
                queue.end_deliveries(holder, &[(ALL.0, shown)], fate, apply);
            }
        }
        queue.forget_if_done(id, apply);
    }

    /// `Credit`: sets the highest number that may be assigned, and ends a pause (DLV 6).
    pub(crate) fn credit(&mut self, id: ConsumerId, up_to: DeliveryNumber, apply: &mut Apply<'_>) {
        let Some(queue) = self.queue_of(Holder::Consumer(id), apply) else { return };
        let Some(consumer) = queue.consumers.get_mut(&id) else { return };
        consumer.up_to = up_to;
        consumer.paused = false;
        let served = consumer.room() > 0;
        apply.digest.step(Step::Credit, digest::of_holder(Holder::Consumer(id)), up_to.0);
        queue.touch(apply);
        queue.change_consumer(id);
        if served {
            queue.regain_turn(id);
        } else {
            queue.lose_turn(id);
        }
    }
}

impl Queue {
    fn has_exclusive_consumer(&self) -> bool {
        self.consumers.values().any(|consumer| consumer.terms.exclusive && !consumer.cancelled)
    }

    fn attach(
        &mut self,
        id: ConsumerId,
        terms: ConsumerTerms,
        suspected: bool,
        apply: &mut Apply<'_>,
    ) {
        let up_to = terms.up_to;
        self.arrivals += 1;
        let record = ConsumerRecord {
            terms,
            next: DeliveryNumber(1),
            up_to,
            cancelled: false,
            timed_out: BTreeSet::new(),
            arrival: self.arrivals,
            lost: false,
            paused: false,
            unacked: BTreeMap::new(),
        };
        self.consumers.insert(id, Box::new(Consumer::from_record(record, suspected)));
        apply.holders.consumers.insert(id, self.id);
        apply.digest.step(
            Step::Attach,
            digest::of_queue(self.id),
            digest::of_holder(Holder::Consumer(id)),
        );
        self.attached += 1;
        self.had_consumer = true;
        self.used_at = apply.now;
        self.change_consumer(id);
        self.regain_turn(id);
    }

    /// Removes the consumer from service; it keeps its unsettled messages for now.
    pub(crate) fn cancel(&mut self, id: ConsumerId, apply: &mut Apply<'_>) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        if consumer.cancelled {
            return;
        }
        consumer.cancelled = true;
        consumer.timed_out.clear();
        if std::mem::take(&mut consumer.in_service_queue) {
            self.service_queue.remove(id);
        }
        self.attached -= 1;
        if self.attached == 0 {
            self.abandoned = true;
            self.deserted = true;
            self.used_at = apply.now;
        }
        apply.digest.step(Step::Cancel, digest::of_holder(Holder::Consumer(id)), 0);
        self.change_consumer(id);
    }

    /// Removes a cancelled consumer once it holds no message (ACK-10).
    pub(crate) fn forget_if_done(&mut self, id: ConsumerId, apply: &mut Apply<'_>) {
        let Some(consumer) = self.consumers.get(&id) else { return };
        if consumer.cancelled && consumer.unacked.is_empty() {
            self.change_consumer(id);
            self.consumers.remove(&id);
            apply.holders.consumers.remove(&id);
            apply.digest.step(Step::Forget, digest::of_holder(Holder::Consumer(id)), 0);
        }
    }

    /// Adds the consumer to the service queue if it may be served and is not in it yet.
    #[inline]
    pub(crate) fn regain_turn(&mut self, id: ConsumerId) {
        if self.waits_inactive(id) {
            return;
        }
        if let Some(consumer) = self.consumers.get_mut(&id)
            && !consumer.in_service_queue
            && consumer.room() > 0
        {
            consumer.in_service_queue = true;
            self.service_queue.push(consumer.terms.priority, id);
        }
    }

    /// Removes the consumer from the service queue.
    pub(crate) fn lose_turn(&mut self, id: ConsumerId) {
        if let Some(consumer) = self.consumers.get_mut(&id)
            && std::mem::take(&mut consumer.in_service_queue)
        {
            self.service_queue.remove(id);
        }
    }
}
