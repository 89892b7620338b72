//! Consumers and their deliveries (CON).

use crate::{
    channel::{
        Out, Then,
        machine::{Channel, Waiting},
        settle::Slot,
        shape::DIRECT_REPLY_TO,
    },
    codec::{cold::basic, hot},
    connection::close::Fault,
};
use quorate_client::{Consume, Delivered, Operation, Settlement, delivery_properties};
use quorate_types::{ConsumerId, ReplyCode, ShortString};
use std::collections::BTreeMap;

/// A consumer of the channel.
#[derive(Debug)]
struct Consumer {
    tag: ShortString,
    /// Its holder in the table of unacked deliveries, from its first delivery on.
    slot: Option<Slot>,
}

/// The consumers of one channel.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    by_id: BTreeMap<ConsumerId, Consumer>,
    by_tag: BTreeMap<ShortString, ConsumerId>,
    /// The consumer of replies, and the name to which replies are sent (DRT-02).
    replies: Option<(ConsumerId, ShortString)>,
    /// Deliveries that arrived before their consumer's consume-ok (CON-02). Bounded: while there
    /// are any, fewer are taken from the broker.
    early: Vec<Delivered>,
    /// A consumer that was cancelled by the broker before its consume-ok.
    early_cancel: Option<ConsumerId>,
}

impl Consumers {
    fn remove(&mut self, consumer: ConsumerId) -> Option<Consumer> {
        let removed = self.by_id.remove(&consumer)?;
        self.by_tag.remove(&removed.tag);
        self.replies.take_if(|(replies, _)| *replies == consumer);
        Some(removed)
    }

    /// Number of consumers of queues.
    fn count(&self) -> usize {
        self.by_id.len() - usize::from(self.replies.is_some())
    }

    /// The name to which replies to the channel are sent.
    pub(crate) fn reply_name(&self) -> Option<&ShortString> {
        self.replies.as_ref().map(|(_, name)| name)
    }

    /// Bytes of bodies that wait for a consume-ok.
    pub(crate) fn early_bytes(&self) -> usize {
        self.early.iter().map(|delivered| delivered.message.body.len()).sum()
    }
}

impl Channel {
    pub(crate) fn consume(
        &mut self,
        consume: basic::Consume,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        let id = basic::Consume::ID;
        let tag = consume.consumer_tag;
        if self.consumers.by_tag.contains_key(&tag) {
            let text = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Fault::new(ReplyCode::NotAllowed, text, id));
        }
        let queue = self.named(consume.queue, id)?;
        if queue.as_str() == DIRECT_REPLY_TO {
            let refuse = |text| Err(Fault::new(ReplyCode::PreconditionFailed, text, id));
            if !consume.no_ack {
                return refuse("reply consumer cannot acknowledge");
            }
            if self.consumers.replies.is_some() {
                return refuse("reply consumer already set");
            }
            let operation = Operation::ConsumeReplies { tag };
            self.ask(id, consume.nowait, Then::Consuming, operation, out);
            return Ok(());
        }
        if let Some(max) = out.env.bounds.consumer_max_per_channel
            && self.consumers.count() >= max as usize
        {
            let text = format!("reached maximum ({max}) of consumers per channel");
            return Err(Fault::new(ReplyCode::NotAllowed, text, id));
        }
        let request = Consume {
            channel: self.id,
            queue,
            tag,
            no_ack: consume.no_ack,
            exclusive: consume.exclusive,
            prefetch: self.prefetch,
            arguments: consume.arguments,
        };
        let operation = Operation::Consume(Box::new(request));
        self.ask(id, consume.nowait, Then::Consuming, operation, out);
        Ok(())
    }

    /// Sets the consumer that gets the replies to the channel.
    pub(crate) fn consuming_replies(&mut self, consumer: ConsumerId, name: ShortString) {
        self.consumers.replies = Some((consumer, name));
    }

    /// Sends `basic.consume-ok`, then the consumer's early deliveries.
    pub(crate) fn consuming(
        &mut self,
        consumer: ConsumerId,
        tag: ShortString,
        nowait: bool,
        out: &mut Out<'_>,
    ) {
        self.consumers.by_tag.insert(tag.clone(), consumer);
        self.consumers.by_id.insert(consumer, Consumer { tag: tag.clone(), slot: None });
        if !nowait {
            out.reply(self.id, basic::ConsumeOk { consumer_tag: tag });
        }
        self.release_early(out);
        if self.consumers.early_cancel.take() == Some(consumer) {
            self.cancelled_by_broker(consumer, out);
        }
    }

    /// Sends deliveries that arrived early, or requeues them if their consumer was not created.
    pub(crate) fn release_early(&mut self, out: &mut Out<'_>) {
        out.effects.early_bytes -= self.consumers.early_bytes();
        for delivered in std::mem::take(&mut self.consumers.early) {
            self.deliver(delivered, out);
        }
    }

    pub(crate) fn cancel(&mut self, cancel: basic::Cancel, out: &mut Out<'_>) {
        let basic::Cancel { consumer_tag: tag, nowait } = cancel;
        match self.consumers.by_tag.get(&tag).copied() {
            Some(consumer) => {
                let then = Then::Cancelled { consumer, tag };
                self.ask(basic::Cancel::ID, nowait, then, Operation::Cancel(consumer), out);
            }
            // An unknown tag is no error (CON-09).
            None if !nowait => out.reply(self.id, basic::CancelOk { consumer_tag: tag }),
            None => {}
        }
    }

    /// Sends `basic.cancel-ok`; the client still settles the deliveries that it has (ACK-10).
    pub(crate) fn cancelled(
        &mut self,
        consumer: ConsumerId,
        tag: ShortString,
        nowait: bool,
        out: &mut Out<'_>,
    ) {
        self.forget(consumer);
        if !nowait {
            out.reply(self.id, basic::CancelOk { consumer_tag: tag });
        }
    }

    fn forget(&mut self, consumer: ConsumerId) -> Option<ShortString> {
        let removed = self.consumers.remove(consumer)?;
        if let Some(slot) = removed.slot {
            self.unacked.release(slot);
        }
        Some(removed.tag)
    }

    /// Cancels a consumer whose queue has ended (CON-13).
    pub(crate) fn cancelled_by_broker(&mut self, consumer: ConsumerId, out: &mut Out<'_>) {
        match self.forget(consumer) {
            Some(consumer_tag) if out.env.consumer_cancel_notify => {
                out.reply(self.id, basic::Cancel { consumer_tag, nowait: true });
            }
            Some(_) => {}
            None if self.awaits_consume() => self.consumers.early_cancel = Some(consumer),
            // The answer to its cancel has been sent, or is about to be sent.
            None => {}
        }
    }

    /// Notifies the client that a delivery was not settled in time. The consumer stays, since it is
    /// served again when the client has settled all timed-out deliveries (CTO-05, CTO-06).
    pub(crate) fn consumer_timed_out(&mut self, consumer: ConsumerId, out: &mut Out<'_>) {
        if let Some(timed_out) = self.consumers.by_id.get(&consumer) {
            let consumer_tag = timed_out.tag.clone();
            out.reply(self.id, basic::Cancel { consumer_tag, nowait: true });
        }
    }

    /// The client's answer to the notification: if the consumer only had timed out, it is cancelled
    /// now.
    pub(crate) fn cancel_taken(&mut self, ok: basic::CancelOk, out: &mut Out<'_>) {
        self.cancel(basic::Cancel { consumer_tag: ok.consumer_tag, nowait: true }, out);
    }

    fn awaits_consume(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Answer { then: Then::Consuming, .. }))
    }

    /// Sends a delivery to the client.
    pub(crate) fn deliver(&mut self, delivered: Delivered, out: &mut Out<'_>) {
        let Some(consumer) = self.consumers.by_id.get_mut(&delivered.consumer) else {
            if self.awaits_consume() {
                out.effects.early_bytes += delivered.message.body.len();
                self.consumers.early.push(delivered);
            } else if !delivered.no_ack {
                // The delivery was not sent to the client, so it is requeued.
                out.effects.settles.add(delivered.holder, delivered.number, Settlement::Release);
            }
            return;
        };
        let delivery_tag = self.next_tag;
        self.next_tag += 1;
        self.traffic.redelivered += u64::from(delivered.redelivered);
        if delivered.no_ack {
            self.traffic.delivered_no_ack += 1;
        } else {
            self.traffic.delivered += 1;
            let slot = match consumer.slot {
                Some(slot) => slot,
                None => {
                    let slot = self.unacked.hold(delivered.holder);
                    consumer.slot = Some(slot);
                    slot
                }
            };
            self.unacked.push(delivery_tag, slot, delivered.number);
        }
        let message = delivered.message;
        let properties = delivery_properties(&message, delivered.counts);
        let method = hot::Deliver {
            consumer_tag: delivered.tag,
            delivery_tag,
            redelivered: delivered.redelivered,
            exchange: message.exchange,
            routing_key: message.routing_key,
        };
        method.put(out.outbox.buffer(), self.id.number);
        out.outbox.content(self.id.number, &properties, &message.body, out.env.frame_max);
    }
}
