//! `basic.get` (GET-01 to GET-04, GET-06).

use crate::{
    channel::{Out, Then, declare::count, machine::Channel},
    codec::{cold::basic, hot},
    connection::close::Fault,
};
use quorate_client::{GetOk, Operation, delivery_properties};
use quorate_types::{DeliveryNumber, ShortString};

/// A get counts as a consumer with one delivery, number 1 (DLV 3).
const ONLY: DeliveryNumber = DeliveryNumber(1);

impl Channel {
    pub(crate) fn get(&mut self, get: basic::Get, out: &mut Out<'_>) -> Result<(), Fault> {
        let id = basic::Get::ID;
        let basic::Get { ticket: _, queue, no_ack } = get;
        let queue = self.named(queue, id)?;
        self.ask(id, false, Then::Got { no_ack }, Operation::Get { queue, no_ack }, out);
        Ok(())
    }

    /// `basic.get-ok` or `get-empty`.
    pub(crate) fn got(&mut self, got: Option<GetOk>, no_ack: bool, out: &mut Out<'_>) {
        let Some(got) = got else {
            self.traffic.got_empty += 1;
            out.reply(self.id, basic::GetEmpty { cluster_id: ShortString::EMPTY });
            return;
        };
        let delivery_tag = self.next_tag;
        self.next_tag += 1;
        self.traffic.redelivered += u64::from(got.redelivered);
        if no_ack {
            self.traffic.got_no_ack += 1;
        } else {
            self.traffic.got += 1;
            let slot = self.unacked.hold(got.holder);
            self.unacked.push(delivery_tag, slot, ONLY);
            self.unacked.release(slot);
        }
        let message = got.message;
        let properties = delivery_properties(&message, got.counts);
        let method = hot::GetOk {
            delivery_tag,
            redelivered: got.redelivered,
            exchange: message.exchange,
            routing_key: message.routing_key,
            message_count: count(got.ready),
        };
        method.put(out.outbox.buffer(), self.id.number);
        out.outbox.content(self.id.number, &properties, &message.body, out.env.frame_max);
    }
}
