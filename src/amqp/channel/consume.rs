//! Consumers and what they are sent (CON-01 to CON-23).

use crate::{
    channel::{
        Operation, Out, Then,
        machine::{Channel, Waiting},
        settle::Slot,
        shape::DIRECT_REPLY_TO,
    },
    codec::{cold::basic, hot},
    connection::close::Fault,
};
use bytes::Bytes;
use quorate_broker::{Consume, Delivered, Settlement};
use quorate_types::{
    ConsumerId, Counts, FieldTable, FieldValue, Message, Properties, PropertiesError, ReplyCode,
    ShortString,
};
use std::collections::BTreeMap;

/// A consumer of the channel.
#[derive(Debug)]
struct Consumer {
    tag: ShortString,
    /// Its holder among the unacked, from its first delivery on.
    slot: Option<Slot>,
}

/// The consumers of one channel.
#[derive(Debug, Default)]
pub(crate) struct Consumers {
    by_id: BTreeMap<ConsumerId, Consumer>,
    by_tag: BTreeMap<ShortString, ConsumerId>,
    /// The one that takes replies, and the name that they are sent to (DRT-02).
    replies: Option<(ConsumerId, ShortString)>,
    /// Deliveries that came before their consumer's consume-ok (CON-02). Bounded: while there are
    /// any, fewer are taken from the broker.
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

    /// Where replies to the channel go.
    pub(crate) fn reply_name(&self) -> Option<&ShortString> {
        self.replies.as_ref().map(|(_, name)| name)
    }

    /// Octets of bodies that wait for a consume-ok.
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

    /// Replies to the channel come for that consumer.
    pub(crate) fn consuming_replies(&mut self, consumer: ConsumerId, name: ShortString) {
        self.consumers.replies = Some((consumer, name));
    }

    /// `basic.consume-ok`, then what came for the consumer before it.
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

    /// Shows what came too early, or gives it back if its consumer has not come into being.
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

    /// `basic.cancel-ok`; what the consumer was sent stays to be settled (ACK-10).
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

    /// The queue has ended (CON-13).
    pub(crate) fn cancelled_by_broker(&mut self, consumer: ConsumerId, out: &mut Out<'_>) {
        match self.forget(consumer) {
            Some(consumer_tag) if out.env.consumer_cancel_notify => {
                out.reply(self.id, basic::Cancel { consumer_tag, nowait: true });
            }
            Some(_) => {}
            None if self.awaits_consume() => self.consumers.early_cancel = Some(consumer),
            // Its cancel has been answered, or is about to be.
            None => {}
        }
    }

    /// A delivery was not settled in time: the client is told. The consumer stays, since it is served
    /// again when the client has settled what was not (CTO-05, CTO-06).
    pub(crate) fn consumer_timed_out(&mut self, consumer: ConsumerId, out: &mut Out<'_>) {
        if let Some(timed_out) = self.consumers.by_id.get(&consumer) {
            let consumer_tag = timed_out.tag.clone();
            out.reply(self.id, basic::Cancel { consumer_tag, nowait: true });
        }
    }

    /// The client takes its consumer for cancelled: if that only had timed out, it is cancelled now.
    pub(crate) fn cancel_taken(&mut self, ok: basic::CancelOk, out: &mut Out<'_>) {
        self.cancel(basic::Cancel { consumer_tag: ok.consumer_tag, nowait: true }, out);
    }

    fn awaits_consume(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Answer { then: Then::Consuming, .. }))
    }

    /// Shows a delivery to the client.
    pub(crate) fn deliver(&mut self, delivered: Delivered, out: &mut Out<'_>) {
        let Some(consumer) = self.consumers.by_id.get_mut(&delivered.consumer) else {
            if self.awaits_consume() {
                out.effects.early_bytes += delivered.message.body.len();
                self.consumers.early.push(delivered);
            } else if !delivered.no_ack {
                // Not shown to anyone: back it goes.
                out.effects.settles.add(delivered.holder, delivered.number, Settlement::Release);
            }
            return;
        };
        let delivery_tag = self.next_tag;
        self.next_tag += 1;
        if !delivered.no_ack {
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

/// The properties that a client is shown: as published, octet by octet, unless the broker has
/// something to add to the headers: deaths, or counts on a redelivery (CON-20, CON-22, Q-32).
pub(crate) fn delivery_properties(message: &Message, counts: Option<Counts>) -> Bytes {
    let counts = counts.filter(|counts| counts.acquired > 0);
    if message.annotations.is_empty() && counts.is_none() {
        return message.properties.clone();
    }
    with_additions(message, counts.unwrap_or_default()).unwrap_or_else(|error| {
        tracing::warn!(%error, "stored properties cannot be read; delivered as they are");
        message.properties.clone()
    })
}

fn with_additions(message: &Message, counts: Counts) -> Result<Bytes, PropertiesError> {
    let properties = if message.properties.is_empty() {
        Properties { raw: Bytes::from_static(&[0, 0]), ..Properties::default() }
    } else {
        Properties::parse(message.properties.clone())?
    };
    let mut added = message.annotations.0.clone();
    let mut count = |name, count: u32| {
        if count > 0 {
            added.push((ShortString::from_static(name), FieldValue::I64(i64::from(count))));
        }
    };
    count("x-acquired-count", counts.acquired);
    count("x-delivery-count", counts.returned);
    // Broker entries win over the client's; of the client's duplicates the first is kept; sorted
    // by name (PRP-02).
    added.extend(properties.decode_headers()?.unwrap_or_default().0);
    added.sort_by(|(a, _), (b, _)| a.cmp(b));
    added.dedup_by(|(later, _), (kept, _)| later == kept);
    properties.with_headers(Some(&FieldTable(added)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use bytes::{BufMut, BytesMut};

    fn field(name: &str, value: i64) -> (ShortString, FieldValue) {
        (ShortString::try_from(name).unwrap(), FieldValue::I64(value))
    }

    fn message(headers: Option<Vec<(ShortString, FieldValue)>>) -> Message {
        let mut raw = BytesMut::new();
        raw.put_u16(if headers.is_some() { 1 << 13 | 1 << 11 } else { 1 << 11 });
        if let Some(headers) = headers {
            FieldTable(headers).encode(&mut raw);
        }
        raw.put_u8(7);
        Message { properties: raw.freeze(), ..Message::default() }
    }

    fn headers(raw: Bytes) -> Option<FieldTable> {
        let properties = Properties::parse(raw).unwrap();
        assert_eq!(properties.priority, Some(7), "the other properties stay");
        properties.decode_headers().unwrap()
    }

    const ONCE: Option<Counts> = Some(Counts { acquired: 1, returned: 0 });
    const TWICE: Option<Counts> = Some(Counts { acquired: 2, returned: 1 });

    /// CON-22: on a first delivery nothing changes.
    #[test]
    fn con_22_a_first_delivery_carries_the_octets_as_published() {
        let sent = message(Some(vec![field("a", 1), field("x-delivery-count", 77)]));
        for counts in [None, Some(Counts::default())] {
            assert_eq!(delivery_properties(&sent, counts), sent.properties);
        }
        let sent = message(None);
        assert_eq!(delivery_properties(&sent, None), sent.properties);
    }

    /// CON-20, CON-22, Q-32.
    #[test]
    fn con_20_a_redelivery_carries_its_counts_over_the_clients() {
        let sent = message(Some(vec![field("x-delivery-count", 77), field("b", 1), field("a", 2)]));
        assert_eq!(
            headers(delivery_properties(&sent, TWICE)),
            Some(FieldTable(vec![
                field("a", 2),
                field("b", 1),
                field("x-acquired-count", 2),
                field("x-delivery-count", 1),
            ]))
        );
        assert_eq!(
            headers(delivery_properties(&message(None), ONCE)),
            Some(FieldTable(vec![field("x-acquired-count", 1)]))
        );
    }

    /// PRP-02: broker entries win, of a client's duplicates the first is kept.
    #[test]
    fn prp_02_what_the_broker_knows_is_merged_into_the_headers() {
        let mut sent = message(Some(vec![field("x-death", 5), field("b", 1), field("b", 2)]));
        sent.annotations = FieldTable(vec![field("x-death", 9)]);
        assert_eq!(
            headers(delivery_properties(&sent, None)),
            Some(FieldTable(vec![field("b", 1), field("x-death", 9)]))
        );
    }
}
