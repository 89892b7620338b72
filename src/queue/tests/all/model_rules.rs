//! The rules of one queue of the model, each as short as possible: its limits, timeouts and TTL,
//! the active consumer, and the order of service.

use crate::model_queue::{Consumer, Message, Queue};
use quorate_queue::{DeathReason, Delivery, Effect};
use quorate_types::{ConsumerId, DeliveryNumber, NodeId, Overflow, QueueId, QueueType};
use std::{cmp::Reverse, collections::BTreeSet};

impl Queue {
    fn exceeds(&self) -> bool {
        let bytes = self.ready.iter().map(|message| u64::from(message.bytes)).sum::<u64>();
        self.config.length_max.is_some_and(|max| self.ready.len() as u64 > max)
            || self.config.length_bytes_max.is_some_and(|max| bytes > max)
    }

    /// One message after the other: it is refused if it would exceed a limit and no consumer takes
    /// it at once.
    pub fn enqueue(
        &mut self,
        messages: Vec<Message>,
        now: u64,
        suspected: &BTreeSet<NodeId>,
    ) -> Vec<(u32, u32)> {
        if self.letters.len() as u64 >= self.config.letters_max {
            return vec![(0, messages.len() as u32 - 1)];
        }
        let drops = self.config.overflow == Overflow::DropHead;
        if !drops && (self.config.length_max, self.config.length_bytes_max) != (None, None) {
            self.expire(now, false);
        }
        let room = |id: &ConsumerId| self.room(*id, suspected);
        let mut credit = self.consumers.keys().map(room).fold(0, u64::saturating_add);
        let mut refused: Vec<(u32, u32)> = Vec::new();
        let mut served = Vec::new();
        for (place, message) in (0..).zip(messages) {
            if drops {
                self.ready.push(message);
                continue;
            }
            if credit > 0 {
                credit -= 1;
                served.push(message);
                continue;
            }
            self.ready.push(message);
            if self.exceeds() {
                self.ready.pop();
                let dies = self.config.overflow == Overflow::RejectPublishDlx;
                if dies && self.config.dead_letter.is_some() {
                    self.die(message, DeathReason::MaxLength);
                }
                match refused.last_mut() {
                    Some((_, last)) if *last + 1 == place => *last = place,
                    _ => refused.push((place, place)),
                }
            }
        }
        self.add(served);
        refused
    }

    pub fn drop_head(&mut self) {
        while self.config.overflow == Overflow::DropHead && self.exceeds() {
            let first = self.ready.remove(0);
            self.die(first, DeathReason::MaxLength);
        }
    }

    pub fn time_out(&mut self, now: u64, out: &mut Vec<Effect>) {
        let of_queue = self.config.consumer_timeout_ms;
        let mut back = Vec::new();
        for (id, consumer) in &mut self.consumers {
            let terms = &consumer.terms;
            let ms = terms.timeout_ms.or(of_queue).or(terms.timeout_default_ms);
            let ms = ms.unwrap_or(u64::MAX);
            let over = consumer.unacked.extract_if(.., |_, it| now - it.unacked_since > ms);
            let over: Vec<_> = over.collect();
            if let Some((last, _)) = over.last().filter(|_| !consumer.cancelled) {
                if consumer.timed_out.is_empty() {
                    let last = DeliveryNumber(*last);
                    out.push(Effect::ConsumerTimedOut { consumer: *id, last });
                }
                consumer.timed_out.extend(over.iter().map(|it| it.0));
            }
            back.extend(over.into_iter().map(|it| it.1));
        }
        let timeouts = &self.get_timeouts;
        let over = self.gets.extract_if(.., |(session, _), it| {
            of_queue.or(timeouts[session]).is_some_and(|ms| now - it.unacked_since > ms)
        });
        for ((session, sequence), it) in over {
            out.push(Effect::GetTimedOut { session, sequence });
            back.push(it);
        }
        self.requeue(back, 1, 0);
    }

    fn is_used(&self, suspected: &BTreeSet<NodeId>) -> bool {
        let quorum = self.config.queue_type == QueueType::Quorum;
        let up = self.consumers.iter().filter(|(id, _)| !suspected.contains(&id.session.node));
        self.config.expires_ms.is_some()
            && (up.map(|it| it.1).any(|it| quorum || !it.cancelled)
                || (quorum && !self.gets.is_empty()))
    }

    pub fn note_use(&mut self, now: u64, suspected: &BTreeSet<NodeId>) {
        let used = self.is_used(suspected);
        self.used_at = if used || self.was_used { now } else { self.used_at };
        self.was_used = used;
    }

    pub fn lease_is_over(&self, now: u64) -> bool {
        !self.was_used && self.config.expires_ms.is_some_and(|ms| now >= self.used_at + ms)
    }

    pub fn choose_active(&mut self, suspected: &BTreeSet<NodeId>) {
        let serves = |it: &Consumer| !it.cancelled && it.timed_out.is_empty();
        let quorum = self.config.queue_type == QueueType::Quorum;
        let priority = |it: &Consumer| if quorum { it.terms.priority } else { 0 };
        let present = self.active.filter(|id| self.consumers.get(id).is_some_and(serves));
        let up = self.consumers.iter().filter(|(id, it)| {
            serves(it) && !suspected.contains(&id.session.node) && self.active != Some(**id)
        });
        let best = up.min_by_key(|(_, it)| (Reverse(priority(it)), it.arrival)).map(|it| *it.0);
        self.active = match (present, best) {
            (Some(present), Some(best)) => {
                let (one, other) = (&self.consumers[&present], &self.consumers[&best]);
                let makes_way = priority(other) > priority(one) && one.unacked.is_empty();
                Some(if makes_way { best } else { present })
            }
            (None, best) => best,
            (present, None) => present,
        };
    }

    /// Of several consumers one is active, and gets no more deliveries while one of higher priority
    /// waits.
    fn is_active(&self, id: ConsumerId, suspected: &BTreeSet<NodeId>) -> bool {
        let better = |other: &ConsumerId, it: &Consumer| {
            self.config.queue_type == QueueType::Quorum
                && it.terms.priority > self.consumers[&id].terms.priority
                && !it.cancelled
                && it.timed_out.is_empty()
                && !suspected.contains(&other.session.node)
        };
        !self.config.single_active_consumer
            || (self.active == Some(id) && !self.consumers.iter().any(|(id, it)| better(id, it)))
    }
}

impl Queue {
    fn has_room(&self, id: ConsumerId, suspected: &BTreeSet<NodeId>) -> bool {
        self.room(id, suspected) > 0
    }

    /// Number of messages that the consumer may be assigned.
    fn room(&self, id: ConsumerId, suspected: &BTreeSet<NodeId>) -> u64 {
        let Some(it) = self.consumers.get(&id) else { return 0 };
        let idle = it.cancelled || !it.timed_out.is_empty() || it.paused;
        if idle || suspected.contains(&id.session.node) || !self.is_active(id, suspected) {
            return 0;
        }
        let prefetch = it.terms.prefetch.map_or(u64::MAX, u64::from);
        let credit = it.up_to.saturating_add(1).saturating_sub(it.next);
        prefetch.saturating_sub(it.unacked.len() as u64).min(credit)
    }

    /// Assigns one message after the other to the consumer whose turn it is.
    pub fn hand_out(
        &mut self,
        queue: QueueId,
        now: u64,
        suspected: &BTreeSet<NodeId>,
        out: &mut Vec<Effect>,
    ) {
        let mut service_queue = std::mem::take(&mut self.service_queue);
        service_queue.retain(|id| self.has_room(*id, suspected));
        for id in self.consumers.keys() {
            if !service_queue.contains(id) && self.has_room(*id, suspected) {
                service_queue.push(*id);
            }
        }
        loop {
            self.expire_first(now);
            if self.ready.is_empty() || service_queue.is_empty() {
                break;
            }
            let priority = |id: &ConsumerId| self.consumers[id].terms.priority;
            let best = service_queue.iter().map(priority).max().unwrap();
            let at = service_queue.iter().position(|id| priority(id) == best).unwrap();
            let consumer = service_queue.remove(at);
            let message = Message { unacked_since: now, ..self.ready.remove(0) };
            let state = self.consumers.get_mut(&consumer).unwrap();
            let number = DeliveryNumber(state.next);
            state.unacked.insert(state.next, message);
            state.next += 1;
            let Message { id: message, counts, .. } = message;
            out.push(Effect::Deliver(Delivery { consumer, number, queue, message, counts }));
            if self.has_room(consumer, suspected) {
                service_queue.push(consumer);
            }
        }
        self.service_queue = service_queue;
    }
}
