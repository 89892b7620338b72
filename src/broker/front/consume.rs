//! Consumers and gets (CON, GET; DLV 2, 3, SES 7).
//!
//! An auto-delete queue ends when its last consumer is detached, but its last messages have to be
//! shown first. So a cancel takes two rounds. First `Release` without numbers pauses the consumer,
//! after what its channel has published. What the queue had assigned until then is shown. Then the
//! consumer is detached with the last number shown (DLV 4).
//!
//! An acknowledging consumer of a quorum queue without a prefetch has a prefetch of 2,000 (QOS-04).
//! So the window of DLV 6 is only for consumers that have no such limit: those that do not
//! acknowledge, and those of classic queues.

use crate::{
    base::Base,
    client::{ChannelId, Consume, Event, GetOk, HolderRef},
    front::{
        FrontEnd,
        batch::Ticket,
        client_handle::{Client, ConsumerOperations},
        connection_state::HeldByChannel,
        consumer::{ConsumerProperties, FrontConsumer},
        get_answer::GetAnswer,
    },
    node::Node,
};
use bytes::Bytes;
use quorate_catalog::{Access, QueueEntry, Resource};
use quorate_queue::{Command, ConsumerTerms, Detach, Got, Reply};
use quorate_storage::{MessageRef, codec::message};
use quorate_types::{
    ConsumerId, DeliveryNumber, Exception, FieldTable, Holder, QueueType, ReplyCode, ResourceName,
    ShortString,
};
use std::sync::Arc;
use tokio::{sync::oneshot, time::Instant};

/// Unsettled deliveries of a quorum queue's consumer whose client sets no limit (QOS-04).
const UNACKED_MAX: u32 = 2_000;
/// Consumer arguments that only streams support (CON-05).
const STREAM_ARGUMENTS: [&str; 3] =
    ["x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"];

impl ConsumerOperations<'_> {
    /// `basic.consume`. Deliveries may be ready before this returns; the front end shows none of
    /// a consumer before its consume-ok (CON-02).
    ///
    /// # Errors
    /// The client's exception: 404, 405, 403 (exclusive use), 406 (arguments), 541.
    pub(crate) async fn consume(&self, consume: Consume) -> Result<ConsumerId, Exception> {
        self.client.check(Access::Read, Resource::Queue(&consume.queue))?;
        let entry = self.client.find_queue(&consume.queue).await?;
        self.check_consumers()?;
        let arguments = self.client.bounded(&consume.arguments, &"a consumer")?;
        let consume = Consume { arguments, ..consume };
        let priority = consumer_priority(&entry, &consume.arguments)?;
        let timeout_ms = consumer_timeout(&entry, &consume.arguments)?;
        let timed_out = || consume_timeout(&entry.name);
        let Some(session) = self.client.base().context.session() else {
            return Err(timed_out());
        };
        let id = ConsumerId { session, number: self.client.node.clients.consumers.number() };
        let consumer = Arc::new(self.new_consumer(id, &entry, &consume));
        let terms = ConsumerTerms {
            prefetch: prefetch_in_force(&entry, &consume),
            up_to: consumer.up_to(),
            exclusive: consume.exclusive,
            priority,
            tag: consume.tag.detached(),
            no_ack: consume.no_ack,
            timeout_ms,
            timeout_default_ms: Some(self.client.base().context.settings.consumer_timeout_ms),
        };
        if !self.hold_consumer(&consumer) {
            return Err(timed_out());
        }
        let attach = Command::Attach { queue: entry.id, consumer: id, terms };
        let refused = match self.client.base().proposers.ask(entry.id.home, attach).await {
            Ok(Reply::Taken) => {
                self.client.node.front.attached(&consumer);
                return Ok(id);
            }
            Ok(Reply::ExclusiveInUse) => {
                let text = format!("queue {} in exclusive use", entry.name);
                Exception::new(ReplyCode::AccessRefused, text)
            }
            Ok(Reply::Gone) => self.client.node.queues.gone(&entry).await,
            Ok(other) => crate::names::declare::unexpected(&entry.name, &other),
            Err(_) => timed_out(),
        };
        // The consumer may have been attached despite the error, so it is detached.
        self.forget_consumer(&consumer);
        let (shown, _) = consumer.end();
        let detach = Command::Detach { consumer: id, shown, how: Detach::ChannelEnd };
        self.client.base().proposers.submit(entry.id.home, detach);
        Err(refused)
    }

    fn new_consumer(&self, id: ConsumerId, entry: &QueueEntry, consume: &Consume) -> FrontConsumer {
        let config = self.client.base().catalog.read().config_of(entry);
        let new = ConsumerProperties {
            id,
            queue: entry.id,
            queue_type: entry.queue_type,
            has_delivery_limit: config.delivery_limit.is_some(),
            channel: consume.channel,
            tag: consume.tag.detached(),
            no_ack: consume.no_ack,
            prefetch: consume.prefetch,
            exclusive: consume.exclusive,
            windowed: prefetch_in_force(entry, consume).is_none(),
            arguments: consume.arguments.clone(),
            room: self.channel_room(consume),
        };
        FrontConsumer::new(new, Arc::clone(self.client.state))
    }

    /// Room that the channel's limit leaves to a new consumer.
    fn channel_room(&self, consume: &Consume) -> Option<u64> {
        if consume.no_ack {
            return None;
        }
        self.client.state.held.lock().channels.get(&consume.channel)?.room()
    }

    fn hold_consumer(&self, consumer: &Arc<FrontConsumer>) -> bool {
        let about = &consumer.about;
        self.hold(about.channel, |channel| {
            channel.consumers.insert(about.id, Arc::clone(consumer));
            self.client.node.clients.consumers.insert(about.id.number, Arc::clone(consumer));
        })
    }

    /// Adds to what a channel holds; false if it has ended. A channel is removed before what it holds is ended,
    /// so what an open channel holds ends with it.
    fn hold(&self, channel: ChannelId, add: impl FnOnce(&mut HeldByChannel)) -> bool {
        let mut held = self.client.state.held.lock();
        let open = !held.closed && self.client.state.is_open(channel);
        if open {
            add(held.channels.entry(channel).or_default());
        }
        open
    }

    fn forget_consumer(&self, consumer: &FrontConsumer) {
        self.client.node.clients.consumers.remove(consumer.about.id.number);
        if let Some(channel) =
            self.client.state.held.lock().channels.get_mut(&consumer.about.channel)
        {
            channel.consumers.remove(&consumer.about.id);
        }
    }

    /// `basic.cancel`. The queue stops assigning messages, those that it had assigned before are
    /// delivered, and nothing of the consumer is delivered later. So what the channel published
    /// before its cancel comes before cancel-ok. Deliveries stay to be settled (ACK-10). Returns
    /// when the queue has detached the consumer.
    ///
    /// # Errors
    /// 541 when the queue's group does not answer in time.
    pub(crate) async fn cancel(&self, consumer: ConsumerId) -> Result<(), Exception> {
        let Some(consumer) = self.client.node.clients.consumer(consumer) else {
            self.cancel_replies(consumer);
            return Ok(());
        };
        consumer.leave();
        let pause =
            Command::Release { holder: Holder::Consumer(consumer.about.id), numbers: Vec::new() };
        let paused = self.client.base().proposers.ask(consumer.home(), pause).await;
        if paused.is_ok() {
            // The rest cannot be delivered to a client that does not read.
            let bound = self.client.base().context.operation_timeout();
            let _ = tokio::time::timeout(bound, consumer.all_shown()).await;
        }
        self.client.node.clients.consumers.remove(consumer.about.id.number);
        let ended = self.end_consumer(&consumer);
        self.client.node.front.share_room(self.client.state, consumer.about.channel);
        let Some(detach) = ended else { return Ok(()) };
        let timed_out = |_| cancel_timeout(&consumer.about.tag);
        if let Err(error) = paused {
            self.client.base().proposers.submit(consumer.home(), detach);
            return Err(timed_out(error));
        }
        self.client.base().proposers.ask(consumer.home(), detach).await.map(drop).map_err(timed_out)
    }

    /// Ends a consumer as a cancel does. Returns the command for its queue, unless the consumer had
    /// ended before.
    fn end_consumer(&self, consumer: &FrontConsumer) -> Option<Command> {
        let (shown, first) = consumer.end();
        if consumer.settled(0) {
            self.forget_consumer(consumer);
        }
        first.then_some(Command::Detach { consumer: consumer.about.id, shown, how: Detach::Cancel })
    }

    /// Cancels a consumer that may no longer read its queue, and notifies its client (CONN-30).
    pub(crate) fn take_from(&self, consumer: &FrontConsumer) {
        self.client.node.clients.consumers.remove(consumer.about.id.number);
        if let Some(detach) = self.end_consumer(consumer) {
            self.client.base().proposers.submit(consumer.home(), detach);
            self.client.node.front.share_room(self.client.state, consumer.about.channel);
            let (channel, tag) = (consumer.about.channel, consumer.about.tag.clone());
            let event = Event::ConsumerCancelled { channel, consumer: consumer.about.id, tag };
            self.client.state.mailbox.put(event);
        }
    }

    /// `basic.get`.
    ///
    /// # Errors
    /// 404, 405, 541.
    pub(crate) async fn get(
        &self,
        channel: ChannelId,
        queue: ShortString,
        no_ack: bool,
    ) -> Result<Option<GetOk>, Exception> {
        self.client.check(Access::Read, Resource::Queue(&queue))?;
        let entry = self.client.find_queue(&queue).await?;
        self.check_get(&entry)?;
        let Client { node, state } = self.client;
        let Base { context, proposers, bodies, .. } = &node.base;
        let Some(session) = context.session() else {
            return Err(get_timeout(&entry.name));
        };
        let home = entry.id.home;
        let (sender, receiver) = oneshot::channel();
        let timeout_default_ms = Some(context.settings.consumer_timeout_ms);
        let asked = Instant::now();
        let command = Command::Get { queue: entry.id, timeout_default_ms };
        proposers.fill(home, |batches| batches.push(command, Ticket::Get(sender)));
        let answer = proposers.wait(receiver).await.ok().and_then(GetAnswer::take);
        let (sequence, got) = match answer {
            Some((sequence, Reply::Got(got))) => (sequence, got),
            Some((_, Reply::Empty)) => {
                context.counters.deliveries(entry.queue_type).got_empty.add(1);
                return Ok(None);
            }
            Some((_, Reply::Gone)) => {
                return Err(self.client.node.queues.gone(&entry).await);
            }
            Some((_, other)) => return Err(crate::names::declare::unexpected(&entry.name, &other)),
            None => return Err(get_timeout(&entry.name)),
        };
        let holder = HolderRef { home, holder: Holder::Get(session, sequence) };
        let guard = GetGuard { node, holder: Some(holder) };
        let wanted = MessageRef { queue: got.queue, message: got.message };
        // Bodies of answered gets are read only when the client has taken enough, however many
        // there are.
        let turn = state.delivering.unwritten.until_room().await;
        let bytes = bodies.message(wanted).await.ok_or_else(|| get_timeout(&entry.name))?;
        state.delivering.unwritten.read(bytes.len());
        drop(turn);
        // The guard releases what may have returned to the queue meanwhile (DLV 5).
        if !node.front.leader_contact.is_timely(home, asked) {
            return Err(get_timeout(&entry.name));
        }
        guard.shown();
        let ok = self.get_ok(&entry, got, holder, &bytes)?;
        if no_ack {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            proposers.submit(home, Command::Ack { holder: holder.holder, numbers });
        } else if !self.hold_get(channel, holder, entry.queue_type) {
            drop(GetGuard { node, holder: Some(holder) });
        }
        context.counters.deliveries(entry.queue_type).got(ok.redelivered, no_ack);
        node.publisher.trace_get(state, channel, &entry.name.name, &ok);
        Ok(Some(ok))
    }

    /// Refuses a get from a queue with a single active consumer (SAC-07).
    fn check_get(&self, entry: &QueueEntry) -> Result<(), Exception> {
        let single = || self.client.base().catalog.read().config_of(entry).single_active_consumer;
        if entry.queue_type == QueueType::Classic || !single() {
            return Ok(());
        }
        let text = format!(
            "cannot obtain access to locked queue {}. basic.get operations are not supported by \
             <<\"quorum\">> queues with single active consumer",
            entry.name
        );
        Err(Exception::new(ReplyCode::ResourceLocked, text))
    }

    fn hold_get(&self, channel: ChannelId, holder: HolderRef, queue_type: QueueType) -> bool {
        self.hold(channel, |held| {
            held.gets.insert(holder, queue_type);
        })
    }

    fn get_ok(
        &self,
        entry: &QueueEntry,
        got: Got,
        holder: HolderRef,
        bytes: &Bytes,
    ) -> Result<GetOk, Exception> {
        let message = message::decode(bytes).map_err(|error| {
            tracing::error!(queue = %entry.name, %error, "cannot decode a stored message");
            get_timeout(&entry.name)
        })?;
        let limited =
            || self.client.base().catalog.read().config_of(entry).delivery_limit.is_some();
        let shows = got.counts.acquired > 0 && (entry.queue_type == QueueType::Quorum || limited());
        Ok(GetOk {
            holder,
            redelivered: got.counts.acquired > 0,
            counts: shows.then_some(got.counts),
            message,
            ready: got.ready,
        })
    }
}

/// Releases the message of a get if its client disconnects before it is delivered (SES 7).
struct GetGuard<'a> {
    node: &'a Node,
    holder: Option<HolderRef>,
}

impl GetGuard<'_> {
    fn shown(mut self) {
        self.holder = None;
    }
}

impl Drop for GetGuard<'_> {
    fn drop(&mut self) {
        if let Some(HolderRef { home, holder }) = self.holder {
            let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
            self.node.base.proposers.submit(home, Command::Release { holder, numbers });
        }
    }
}

impl FrontEnd {
    /// The queue has attached the consumer: asks the leader for what the consumer holds (DLV 2).
    fn attached(self: &Arc<Self>, consumer: &FrontConsumer) {
        // Set before the leader is read: a later leader finds this consumer among those to be
        // re-attached.
        consumer.attached();
        let home = consumer.home();
        let leader = self.base.proposers.leader(home);
        if let Some((leader, term)) = leader {
            let attachment = consumer.reattach(term);
            self.ask_for_deliveries(home, leader, term, attachment.into_iter().collect());
        }
    }
}

/// The number of unsettled deliveries that the queue allows the consumer (QOS-03, QOS-04).
fn prefetch_in_force(entry: &QueueEntry, consume: &Consume) -> Option<u32> {
    match (consume.no_ack, consume.prefetch, entry.queue_type) {
        (true, ..) | (false, 0, QueueType::Classic) => None,
        (false, 0, QueueType::Quorum) => Some(UNACKED_MAX),
        (false, prefetch, _) => Some(u32::from(prefetch)),
    }
}

/// The consumer's priority from its arguments, which are checked (CON-05, CON-06).
fn consumer_priority(entry: &QueueEntry, arguments: &FieldTable) -> Result<i64, Exception> {
    let refuse = |text| Err(Exception::new(ReplyCode::PreconditionFailed, text));
    for name in STREAM_ARGUMENTS {
        if arguments.get(name).is_some() {
            let kind = entry.queue_type.name();
            let queue = &entry.name;
            return refuse(format!(
                "invalid arg '{name}' for queue {queue} of queue type rabbit_{kind}_queue"
            ));
        }
    }
    let Some(value) = arguments.get("x-priority") else { return Ok(0) };
    match value.as_integer() {
        Some(priority) => Ok(priority),
        None => {
            let (queue, kind) = (&entry.name, value.type_name());
            refuse(format!(
                "invalid arg 'x-priority' for queue {queue}: \"expected integer, got {kind}\""
            ))
        }
    }
}

/// The consumer's acknowledgement timeout from its arguments, ms (CTO-04, ARG-09).
pub(crate) fn consumer_timeout(
    entry: &QueueEntry,
    arguments: &FieldTable,
) -> Result<Option<u64>, Exception> {
    const NAME: &str = "x-consumer-timeout";
    let Some(value) = arguments.get(NAME) else { return Ok(None) };
    let reason = match value.as_integer() {
        Some(ms) if ms >= 0 => return Ok(Some(ms.unsigned_abs())),
        Some(ms) => format!("{{value_negative,{ms}}}"),
        None => format!("\"expected integer, got {}\"", value.type_name()),
    };
    let text = format!("invalid arg '{NAME}' for queue {}: {reason}", entry.name);
    Err(Exception::new(ReplyCode::PreconditionFailed, text))
}

/// The exception for a consume whose queue did not answer (CON-15).
pub(crate) fn consume_timeout(queue: &ResourceName) -> Exception {
    let text = format!("failed consuming from quorum queue {queue}: the operation timed out");
    Exception::new(ReplyCode::InternalError, text)
}

/// The exception for a cancel that the consumer's queue did not answer.
pub(crate) fn cancel_timeout(tag: &ShortString) -> Exception {
    let text = format!("failed to cancel consumer '{tag}' due to a timeout");
    Exception::new(ReplyCode::InternalError, text)
}

/// The exception for a get whose queue did not answer (GET-06).
pub(crate) fn get_timeout(queue: &ResourceName) -> Exception {
    let text = format!("Cannot get a message from queue {queue}: the operation timed out");
    Exception::new(ReplyCode::InternalError, text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{Connection, client::Connection as _, testing};

    /// Its requests end with a channel. One that waited for a lease meanwhile must leave no consumer.
    #[tokio::test]
    async fn chn_05_a_channel_that_has_ended_holds_no_consumer() {
        let (node, other) = (testing::node(), testing::node());
        let state = testing::connection(&node);
        let connection = Connection { node: Arc::clone(&node), state: Arc::clone(&state) };
        let consumer = testing::consumer_on(&testing::connection(&other), 1);
        let consumers = Client { node: &node, state: &state }.consumers();
        let (id, channel) = (consumer.about.id, consumer.about.channel);
        connection.open_channel(channel).unwrap();
        assert!(consumers.hold_consumer(&consumer));
        assert!(node.clients.consumer(id).is_some());
        connection.close_channel(channel);
        assert!(!consumers.hold_consumer(&consumer));
        assert!(node.clients.consumer(id).is_none());
        assert!(state.held.lock().channels.is_empty());
    }
}
