//! The state machine of a channel: the next frame, pending answers, and the end (CHN-01 to CHN-15).

use crate::{
    channel::{
        Action, Out, Then,
        confirm::Confirms,
        consume::Consumers,
        declare::{count, only_servers},
        publish::{Carrier, Due, unimplemented_method},
        settle::Unacked,
        transaction::Transaction,
    },
    codec::{
        cold::{Cold, access, basic, channel, confirm, queue},
        frame::{Frame, Kind},
        hot,
        method::{Method, MethodId},
    },
    connection::close::{Fault, decode, reply_text},
};
use bytes::Bytes;
use quorate_client::{Answer, ChannelId, ChannelReport, ChannelTraffic};
use quorate_types::{Exception, ReplyCode, ShortString};
use std::collections::VecDeque;

/// What the next frames of a channel wait for.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// The earlier publishes must be passed to the broker.
    Publishes,
    /// The broker's answer to an operation.
    Answer { id: MethodId, nowait: bool, then: Then },
}

/// A channel, open or closing.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    /// A soft error has closed the channel: everything is ignored until close-ok (CHN-06).
    closing: bool,
    /// The client has closed the channel at the same time.
    crossed: bool,
    pub(crate) waiting: Option<Waiting>,
    queued: VecDeque<Frame>,
    pub(crate) due: Due,
    /// Number of publishes passed to the broker whose outcome is not known yet.
    pub(crate) publishing: usize,
    /// Messages that have passed, for lists.
    pub(crate) traffic: ChannelTraffic,
    /// In confirm mode.
    pub(crate) confirms: Option<Confirms>,
    /// In transaction mode.
    pub(crate) transaction: Option<Transaction>,
    pub(crate) consumers: Consumers,
    pub(crate) unacked: Unacked,
    /// Tag of the next delivery (ACK-01).
    pub(crate) next_tag: u64,
    /// Prefetch of later consumers (QOS-02).
    pub(crate) prefetch: u16,
    /// Limit of all consumers together (QOS-06).
    pub(crate) limit: Option<u16>,
    /// The last queue declared (CHN-13).
    pub(crate) last_queue: Option<ShortString>,
}

/// Memory of a waiting frame in addition to its payload.
const FRAME_COST_BYTES: usize = 64;

/// A waiting frame up to this size is copied. Larger ones are at least a quarter of the read
/// buffer.
const DETACHED_BYTES_MAX: usize = 64 * 1024;

fn cost_bytes(frame: &Frame) -> usize {
    frame.payload.len() + FRAME_COST_BYTES
}

impl Channel {
    pub(crate) fn new(id: ChannelId) -> Self {
        Self {
            id,
            closing: false,
            crossed: false,
            waiting: None,
            queued: VecDeque::new(),
            due: Due::Method,
            publishing: 0,
            traffic: ChannelTraffic::default(),
            confirms: None,
            transaction: None,
            consumers: Consumers::default(),
            unacked: Unacked::default(),
            next_tag: 1,
            prefetch: 0,
            limit: None,
            last_queue: None,
        }
    }

    /// A channel whose open-ok waits for the broker (CHN-03).
    pub(crate) fn opening(id: ChannelId, prefetch: u16) -> Self {
        let then = Then::Reply(Box::new(channel::OpenOk::default().into()));
        let waiting = Waiting::Answer { id: channel::Open::ID, nowait: false, then };
        Self { waiting: Some(waiting), prefetch, ..Self::new(id) }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// The client's close has crossed the server's: the client may open the number again at once.
    pub(crate) fn crossed(&mut self) {
        self.crossed = true;
    }

    pub(crate) fn is_crossed(&self) -> bool {
        self.crossed
    }

    /// The channel's state for lists.
    pub(crate) fn report(&self) -> ChannelReport {
        let transaction = self.transaction.as_ref();
        ChannelReport {
            confirm: self.confirms.is_some(),
            unconfirmed: self.confirms.as_ref().map_or(0, Confirms::outstanding),
            unacknowledged: self.unacked.outstanding(),
            transactional: transaction.is_some(),
            messages_uncommitted: transaction.map_or(0, Transaction::published),
            acks_uncommitted: transaction.map_or(0, Transaction::settled),
            prefetch: self.prefetch,
            traffic: self.traffic,
        }
    }

    /// Handles a frame, or queues it while the channel waits.
    pub(crate) fn frame(&mut self, frame: Frame, out: &mut Out<'_>) -> Result<(), Fault> {
        if self.commits() {
            self.check_during_commit(&frame)?;
        } else if self.waiting.is_some() {
            self.queue(frame, out);
            return Ok(());
        }
        self.take(frame, out)
    }

    /// The channel waits for an operation whose reply must be sent before the reply to the client's
    /// close of the connection. A commit may wait as long as a queue has no majority.
    pub(crate) fn finishes_first(&self) -> bool {
        self.waiting.is_some() && !self.commits()
    }

    /// The reply to a `queue.delete` is about to be sent.
    pub(crate) fn awaits_delete(&self) -> bool {
        matches!(self.waiting, Some(Waiting::Answer { then: Then::Deleted, .. }))
    }

    fn queue(&mut self, mut frame: Frame, out: &mut Out<'_>) {
        if frame.payload.len() < DETACHED_BYTES_MAX {
            // The frame may wait for long, and would keep the whole read buffer in memory.
            frame.payload = Bytes::copy_from_slice(&frame.payload);
        }
        out.effects.queued_bytes += cost_bytes(&frame);
        self.queued.push_back(frame);
    }

    /// Handles a queued frame, if the channel does not wait any more.
    pub(crate) fn next_queued(&mut self, out: &mut Out<'_>) -> Option<Frame> {
        if self.waiting.is_some() && !self.commits() {
            return None;
        }
        let frame = self.queued.pop_front()?;
        out.effects.queued_bytes -= cost_bytes(&frame);
        Some(frame)
    }

    /// All publishes passed to the broker so far have their outcomes.
    pub(crate) fn publishes_done(&mut self) {
        if self.publishing == 0 && matches!(self.waiting, Some(Waiting::Publishes)) {
            self.waiting = None;
        }
    }

    fn take(&mut self, frame: Frame, out: &mut Out<'_>) -> Result<(), Fault> {
        match std::mem::take(&mut self.due) {
            Due::Method => self.method_frame(frame, out),
            Due::Header(carrier) => self.header(carrier, &frame, out),
            due @ Due::Body { .. } => self.body(due, frame, out),
        }
    }

    fn method_frame(&mut self, frame: Frame, out: &mut Out<'_>) -> Result<(), Fault> {
        if frame.kind != Kind::Method {
            let text = "expected method frame, got non method frame instead";
            return Err(Fault::new(ReplyCode::UnexpectedFrame, text, MethodId::NONE));
        }
        if self.publishing > 0 && !goes_with_publishes(&frame) {
            self.waiting = Some(Waiting::Publishes);
            // Back to the front, since it was the next one.
            out.effects.queued_bytes += cost_bytes(&frame);
            self.queued.push_front(frame);
            return Ok(());
        }
        match decode(frame)? {
            Method::Publish(publish) => {
                self.due = Due::Header(Carrier::Publish(publish));
                Ok(())
            }
            Method::Ack(ack) => self.ack(ack, out.effects),
            Method::Nack(nack) => self.nack(nack, out.effects),
            Method::Reject(reject) => self.reject(reject, out.effects),
            // A method with a content is refused after its content (FRM-12).
            method @ (Method::Deliver(_) | Method::GetOk(_) | Method::Return(_)) => {
                self.due = Due::Header(Carrier::Refused(method.id()));
                Ok(())
            }
            Method::Cold(cold) => self.cold(*cold, out),
        }
    }

    fn cold(&mut self, method: Cold, out: &mut Out<'_>) -> Result<(), Fault> {
        match method {
            Cold::Basic(method) => self.basic(method, out),
            Cold::Queue(method) => self.queue_method(method, out),
            Cold::Exchange(method) => self.exchange_method(method, out),
            Cold::Channel(method) => self.channel(method, out),
            Cold::Confirm(confirm::Method::Select(select)) => self.confirm_select(&select, out),
            Cold::Tx(method) => self.tx(method, out),
            // The ticket has no meaning (CHN-09).
            Cold::Access(access::Method::Request(_)) => {
                out.reply(self.id, access::RequestOk { ticket: 1 });
                Ok(())
            }
            method @ (Cold::Connection(_)
            | Cold::Confirm(confirm::Method::SelectOk(_))
            | Cold::Access(access::Method::RequestOk(_))) => Err(only_servers(method)),
        }
    }

    fn basic(&mut self, method: basic::Method, out: &mut Out<'_>) -> Result<(), Fault> {
        match method {
            basic::Method::Qos(qos) => self.qos(qos, out),
            basic::Method::Consume(consume) => self.consume(consume, out),
            basic::Method::Get(get) => self.get(get, out),
            basic::Method::Cancel(cancel) => {
                self.cancel(cancel, out);
                Ok(())
            }
            basic::Method::Recover(recover) => self.recover(recover.requeue, false, out),
            basic::Method::RecoverAsync(recover) => self.recover(recover.requeue, true, out),
            // The answer to a notification that does not require one (CON-13).
            basic::Method::CancelOk(ok) => {
                self.cancel_taken(ok, out);
                Ok(())
            }
            other @ (basic::Method::QosOk(_)
            | basic::Method::ConsumeOk(_)
            | basic::Method::GetEmpty(_)
            | basic::Method::RecoverOk(_)) => Err(only_servers(Cold::Basic(other))),
        }
    }

    fn channel(&mut self, method: channel::Method, out: &mut Out<'_>) -> Result<(), Fault> {
        match method {
            channel::Method::Flow(flow) => self.flow(flow, out),
            channel::Method::Open(_) => {
                let text = "second 'channel.open' seen";
                Err(Fault::new(ReplyCode::ChannelError, text, channel::Open::ID))
            }
            channel::Method::Close(_) => {
                self.end(out);
                out.reply(self.id, channel::CloseOk {});
                Ok(())
            }
            other @ (channel::Method::OpenOk(_)
            | channel::Method::FlowOk(_)
            | channel::Method::CloseOk(_)) => Err(unimplemented_method(Cold::Channel(other).id())),
        }
    }

    /// A soft error: channel.close is sent, and everything but its answer is ignored (CHN-06).
    pub(crate) fn close(&mut self, fault: &Fault, out: &mut Out<'_>) {
        self.end(out);
        let close = channel::Close {
            reply_code: fault.exception.code.number(),
            reply_text: reply_text(&fault.exception),
            class_id: fault.id.class,
            method_id: fault.id.method,
        };
        out.reply(self.id, close);
    }

    /// Ends the operations and contents of the channel (CHN-05).
    fn end(&mut self, out: &mut Out<'_>) {
        self.closing = true;
        self.waiting = None;
        out.effects.queued_bytes -= self.queued.iter().map(cost_bytes).sum::<usize>();
        let due = std::mem::take(&mut self.due);
        self.release_content(&due, out);
        out.effects.early_bytes -= self.consumers.early_bytes();
        self.queued = VecDeque::new();
        self.confirms = None;
        let transaction = self.transaction.take();
        out.effects.transaction_bytes -= transaction.as_ref().map_or(0, Transaction::bytes);
        self.consumers = Consumers::default();
        self.unacked = Unacked::default();
        out.act(Action::CloseChannel(self.id));
    }

    /// Handles the broker's answer to the pending operation.
    pub(crate) fn answer(
        &mut self,
        answer: Result<Answer, Exception>,
        out: &mut Out<'_>,
    ) -> Result<(), Fault> {
        let waiting = self.waiting.take();
        let Some(Waiting::Answer { id, nowait, then }) = waiting else {
            self.waiting = waiting;
            return Ok(());
        };
        self.committed(out);
        let answer = match answer {
            Ok(answer) => answer,
            Err(exception) => {
                self.release_early(out);
                return Err(Fault::of(exception, id));
            }
        };
        match (then, answer) {
            (Then::Refuse(exception), Answer::Done) => return Err(Fault::of(exception, id)),
            (Then::Reply(reply), Answer::Done) if !nowait => out.reply(self.id, *reply),
            (Then::Reply(_), Answer::Done) => {}
            (Then::Declared, Answer::Declared(declared)) => self.declared(declared, nowait, out),
            (Then::Purged, Answer::Removed(messages)) if !nowait => {
                out.reply(self.id, queue::PurgeOk { message_count: count(messages) });
            }
            (Then::Deleted, Answer::Removed(messages)) if !nowait => {
                out.reply(self.id, queue::DeleteOk { message_count: count(messages) });
            }
            (Then::Purged | Then::Deleted, Answer::Removed(_)) => {}
            (Then::Consuming, Answer::Consuming { consumer, tag }) => {
                self.consuming(consumer, tag, nowait, out);
            }
            (Then::Consuming, Answer::ConsumingReplies { consumer, tag, name }) => {
                self.consuming_replies(consumer, name);
                self.consuming(consumer, tag, nowait, out);
            }
            (Then::Routed { returned }, Answer::Routed(routed)) => {
                return self.published_later(routed, returned, out);
            }
            (Then::Cancelled { consumer, tag }, Answer::Done) => {
                self.cancelled(consumer, tag, nowait, out);
            }
            (Then::Got { no_ack }, Answer::Got(got)) => {
                self.got(got.map(|got| *got), no_ack, out);
            }
            (then, answer) => {
                tracing::error!(
                    ?then,
                    ?answer,
                    "the answer of the broker does not match the operation"
                );
                return Err(Fault::new(ReplyCode::InternalError, "wrong answer", id));
            }
        }
        Ok(())
    }
}

/// True for methods that may overtake the outcome of the channel's publishes. The publishes are
/// passed to the broker before any effect of these methods.
fn goes_with_publishes(frame: &Frame) -> bool {
    match MethodId::peek(&frame.payload) {
        Some(hot::Publish::ID | hot::Ack::ID | hot::Nack::ID | hot::Reject::ID) => true,
        Some(MethodId { .. }) | None => false,
    }
}
