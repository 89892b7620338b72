//! An open connection: its channels, its alarms, its end (CONN-23 to CONN-29, FRM-04 to FRM-13,
//! ALM-02 to ALM-04, CHN-01 to CHN-06).
//!
//! A `queue.delete` may be what ends a client's consumers, and its delete-ok comes before their
//! cancel notifications (DEL-04). So the connection's cancel notifications wait while one of its
//! channels waits for the answer to a `queue.delete`.

use crate::{
    channel::{Action, Bounds, Effects, Env, Out, Pending, machine::Channel},
    codec::{
        cold::{Cold, channel, connection},
        frame::{Frame, Kind},
        hot,
        method::{Method, MethodId},
    },
    connection::{
        close::{Ending, Fault, check_heartbeat, decode, decode_control, out_of_turn},
        handshake::{Capabilities, Limits},
    },
    outbox::Outbox,
};
use quorate_client::{
    Answer, ChannelId, ChannelReport, Delivered, Event, Publish, PublishOutcome, Settle,
};
use quorate_types::{ConsumerId, Exception, ReplyCode, Scope, ShortString};
use std::collections::BTreeMap;

/// Bytes of frames that may wait for answers. Above this the socket is not read.
const QUEUED_BYTES_MAX: usize = 1024 * 1024;

/// The state machine of an open connection. Bounds: channels (`channel_max`), waiting frames
/// ([`QUEUED_BYTES_MAX`]), incomplete contents (506, and large ones wait for [`Machine::grant`]),
/// early deliveries (the driver takes fewer from the broker).
#[derive(Debug)]
pub(crate) struct Machine {
    env: Env,
    channel_max: u16,
    connection_blocked: bool,
    pub(super) channels: BTreeMap<u16, Box<Channel>>,
    /// Channels opened so far.
    opened: u64,
    pub(super) effects: Effects,
    /// Alarms in force, and whether the connection is blocked by them (ALM-02).
    alarm: Option<String>,
    pub(super) blocked: bool,
    /// Channels with confirms to be sent.
    confirmed: Vec<u16>,
    /// Consumers whose queues have ended while a `queue.delete` waits for its answer. That answer
    /// is sent first, since the delete may have ended them (DEL-04).
    cancelled: Vec<(ChannelId, ConsumerId)>,
    ending: Option<Ending>,
    /// The last report of each channel for lists.
    pub(super) reported: BTreeMap<ChannelId, ChannelReport>,
}

impl Machine {
    pub(crate) fn new(
        vhost: ShortString,
        limits: Limits,
        capabilities: Capabilities,
        bounds: Bounds,
        alarm: Option<String>,
    ) -> Self {
        let env = Env {
            vhost,
            frame_max: limits.frame_max,
            bounds,
            consumer_cancel_notify: capabilities.consumer_cancel_notify,
        };
        Self {
            env,
            channel_max: limits.channel_max,
            connection_blocked: capabilities.connection_blocked,
            channels: BTreeMap::new(),
            opened: 0,
            effects: Effects::default(),
            alarm,
            blocked: false,
            confirmed: Vec::new(),
            cancelled: Vec::new(),
            ending: None,
            reported: BTreeMap::new(),
        }
    }

    /// True if further frames may be taken, and the socket read.
    pub(crate) fn takes_frames(&self) -> bool {
        !self.blocked
            && self.ending.is_none()
            && !self.is_full()
            && self.effects.announced_bytes == 0
    }

    /// True if more bytes of frames wait for answers than [`QUEUED_BYTES_MAX`].
    pub(crate) fn is_full(&self) -> bool {
        self.effects.queued_bytes > QUEUED_BYTES_MAX
    }

    /// How the connection ends, once all publishes, settlements and actions have been handled.
    /// Operations that a client requested before its close are completed first.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        let waiting = || self.channels.values().any(|channel| channel.finishes_first());
        self.ending.as_ref().filter(|ending| **ending != Ending::Client || !waiting())
    }

    /// Bytes of deliveries taken from the broker that cannot be written yet (CON-02).
    pub(crate) fn early_bytes(&self) -> usize {
        self.effects.early_bytes
    }

    /// Bytes held of incomplete contents.
    #[cfg(test)]
    pub(crate) fn content_bytes(&self) -> usize {
        self.effects.content_bytes
    }

    /// Publishes to be passed to the broker, in order; their outcomes go to [`Machine::published`].
    pub(crate) fn take_publishes(&mut self) -> Vec<Publish> {
        std::mem::take(&mut self.effects.publishes)
    }

    /// Settlements, to be passed to the broker after the publishes.
    pub(crate) fn take_settles(&mut self) -> Vec<Settle> {
        if self.effects.settles.is_empty() { Vec::new() } else { self.effects.settles.take() }
    }

    /// Actions, to be carried out after publishes and settlements.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.effects.actions)
    }

    /// Handles a frame.
    pub(crate) fn frame(&mut self, frame: Frame, outbox: &mut Outbox) {
        if self.ending.is_none() {
            self.process(frame, outbox);
        }
    }

    fn process(&mut self, frame: Frame, outbox: &mut Outbox) {
        let number = frame.channel;
        let result = match (frame.kind, number) {
            (Kind::Heartbeat, _) => check_heartbeat(&frame),
            (Kind::Method | Kind::Header | Kind::Body, 0) => self.control(&frame),
            (Kind::Method | Kind::Header | Kind::Body, _) => self.channel_frame(frame, outbox),
        };
        if let Err(fault) = result {
            self.fail(number, &fault, outbox);
        }
    }

    fn channel_frame(&mut self, frame: Frame, outbox: &mut Outbox) -> Result<(), Fault> {
        let number = frame.channel;
        if frame.kind != Kind::Method {
            self.content_comes(outbox);
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.not_open(&frame);
        };
        let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
        if !channel.is_closing() {
            channel.frame(frame, out)?;
            if !channel.due.is_content() {
                self.effects.lasting.remove(&number);
            } else if self.effects.begun.last() != Some(&number) {
                self.effects.begun.push(number);
            }
            self.forget_channel(number);
            return Ok(());
        }
        // Everything except close and close-ok is ignored (CHN-06).
        if frame.kind == Kind::Method {
            match MethodId::peek(&frame.payload) {
                Some(channel::Close::ID) => {
                    out.reply(channel.id, channel::CloseOk {});
                    channel.crossed();
                    return Ok(());
                }
                Some(channel::Open::ID) if channel.is_crossed() => {
                    self.channels.remove(&number);
                    return self.not_open(&frame);
                }
                Some(channel::CloseOk::ID) => {}
                Some(MethodId { .. }) | None => return Ok(()),
            }
            self.channels.remove(&number);
        }
        Ok(())
    }

    /// Removes a channel that its client has closed: its number may be opened again at once.
    fn forget_channel(&mut self, number: u16) {
        if self.channels.get(&number).is_some_and(|channel| channel.is_closing()) {
            self.channels.remove(&number);
        }
    }

    /// A frame on a channel that is not open (CHN-01, FRM-06, FRM-13).
    fn not_open(&mut self, frame: &Frame) -> Result<(), Fault> {
        if frame.kind != Kind::Method {
            let text = "expected method frame, got non method frame instead";
            return Err(Fault::new(ReplyCode::UnexpectedFrame, text, MethodId::NONE));
        }
        let method = decode(frame.clone())?;
        if !matches!(&method, Method::Cold(cold) if cold.id() == channel::Open::ID) {
            let text = "expected 'channel.open'";
            return Err(Fault::new(ReplyCode::ChannelError, text, method.id()));
        }
        // The number of open channels is checked, not the channel's number (CHN-01, CHN-02).
        let (open, max) = (self.channels.len(), self.channel_max);
        if open >= usize::from(max) {
            let text = format!(
                "number of channels opened ({open}) has reached the negotiated channel_max ({max})"
            );
            return Err(Fault::new(ReplyCode::NotAllowed, text, channel::Open::ID));
        }
        let id = ChannelId { number: frame.channel, opened: self.opened };
        self.opened += 1;
        self.channels.insert(
            frame.channel,
            Box::new(Channel::opening(id, self.env.bounds.default_consumer_prefetch)),
        );
        self.effects.actions.push(Action::OpenChannel(id));
        Ok(())
    }

    /// A frame on channel 0 (FRM-04, FRM-13, CONN-23).
    fn control(&mut self, frame: &Frame) -> Result<(), Fault> {
        let method = decode_control(frame)?;
        let id = method.id();
        let Method::Cold(cold) = method else { return Err(out_of_turn("running", id)) };
        match *cold {
            Cold::Connection(connection::Method::Close(close)) => {
                tracing::debug!(
                    code = close.reply_code, text = %close.reply_text,
                    "the client closes the connection"
                );
                self.ending = Some(Ending::Client);
                Ok(())
            }
            Cold::Connection(connection::Method::UpdateSecret(_)) => {
                self.effects.actions.push(Action::UpdateSecret);
                Ok(())
            }
            Cold::Connection(_)
            | Cold::Channel(_)
            | Cold::Access(_)
            | Cold::Exchange(_)
            | Cold::Queue(_)
            | Cold::Basic(_)
            | Cold::Confirm(_)
            | Cold::Tx(_) => Err(out_of_turn("running", id)),
        }
    }

    /// Answers `connection.update-secret` after the broker has checked the new secret (CONN-30).
    pub(crate) fn secret_updated(&mut self, updated: Result<(), Exception>, outbox: &mut Outbox) {
        match updated {
            Ok(()) => Cold::from(connection::UpdateSecretOk::default()).put(outbox.buffer(), 0),
            Err(exception) => {
                let fault = Fault::of(exception, connection::UpdateSecret::ID);
                self.end(Ending::fault(&fault));
            }
        }
    }

    /// Closes the channel or the connection, by the fault's code (CONN-25).
    fn fail(&mut self, number: u16, fault: &Fault, outbox: &mut Outbox) {
        let channel = self.channels.get_mut(&number).filter(|channel| !channel.is_closing());
        match (fault.exception.code.scope(), channel) {
            (Scope::Channel, Some(channel)) => {
                tracing::debug!(channel = number, error = %fault.exception, "channel closed");
                let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                channel.close(fault, out);
            }
            (Scope::Channel | Scope::Connection, _) => self.end(Ending::fault(fault)),
        }
    }

    /// Ends the connection, unless its end has begun.
    pub(crate) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// Continues a channel after an answer or outcome.
    fn resume(&mut self, number: u16, outbox: &mut Outbox) {
        while matches!(self.ending, None | Some(Ending::Client)) {
            let Some(channel) = self.channels.get_mut(&number) else { return };
            let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
            let Some(frame) = channel.next_queued(out) else { return };
            self.process(frame, outbox);
        }
    }

    /// Handles the broker's outcomes of the publishes that were taken last, in their order. Returns the settlements
    /// that had to wait for them, to be passed to the broker before the actions that were taken with the publishes.
    #[must_use]
    pub(crate) fn published(
        &mut self,
        outcomes: Vec<PublishOutcome>,
        outbox: &mut Outbox,
    ) -> Vec<Settle> {
        let pending = std::mem::take(&mut self.effects.pending);
        let mut numbers: Vec<u16> = Vec::new();
        let mut refused: Vec<(ChannelId, usize)> = Vec::new();
        for (place, (pending, outcome)) in pending.into_iter().zip(outcomes).enumerate() {
            let number = pending.channel.number;
            if matches!(outcome, PublishOutcome::Refused(_)) {
                refused.push((pending.channel, place));
            }
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
            if let Err(fault) = self.outcome(pending, outcome, outbox) {
                self.fail(number, &fault, outbox);
            }
        }
        let settles = self.effects.take_behind(&refused);
        self.send_confirms(outbox);
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            if let Some(channel) = self.channels.get_mut(&number) {
                channel.publishes_done();
            }
            self.resume(number, outbox);
        }
        settles
    }

    fn outcome(
        &mut self,
        pending: Pending,
        outcome: PublishOutcome,
        outbox: &mut Outbox,
    ) -> Result<(), Fault> {
        let Some(channel) = open(&mut self.channels, pending.channel) else { return Ok(()) };
        channel.publishing -= 1;
        match outcome {
            PublishOutcome::Routed => {}
            PublishOutcome::Unroutable => {
                // The return comes before the confirm (PUB-05, CNF-03).
                let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                match &pending.returned {
                    Some(returned) => channel.send_return(returned, out),
                    None => channel.traffic.dropped += 1,
                }
                if let Some(number) = pending.confirm
                    && channel.confirm(number, number, true)
                {
                    self.confirmed.push(channel.id.number);
                }
            }
            PublishOutcome::Refused(exception) => {
                return Err(Fault::of(exception, crate::codec::hot::Publish::ID));
            }
        }
        Ok(())
    }

    /// Handles the broker's answer to an operation.
    pub(crate) fn answer(
        &mut self,
        id: ChannelId,
        answer: Result<Answer, Exception>,
        outbox: &mut Outbox,
    ) {
        let Some(channel) = open(&mut self.channels, id) else { return };
        let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
        if let Err(fault) = channel.answer(answer, out) {
            self.fail(id.number, &fault, outbox);
        }
        self.send_cancelled(outbox);
        self.resume(id.number, outbox);
    }

    /// Handles an event from the broker. True if deliveries are ready.
    pub(crate) fn events(&mut self, events: &mut Vec<Event>, outbox: &mut Outbox) -> bool {
        let mut deliveries_ready = false;
        for event in events.drain(..) {
            deliveries_ready |= self.event(event, outbox);
        }
        self.send_confirms(outbox);
        self.send_cancelled(outbox);
        deliveries_ready
    }

    fn event(&mut self, event: Event, outbox: &mut Outbox) -> bool {
        match event {
            Event::DeliveriesReady => return true,
            // The event had its effect when it was taken.
            Event::MaySettle => {}
            Event::Confirmed { channel, first, last, taken } => {
                if let Some(channel) = open(&mut self.channels, channel)
                    && channel.confirm(first, last, taken)
                {
                    self.confirmed.push(channel.id.number);
                }
            }
            Event::Returned { channel, message } => {
                if let Some(channel) = open(&mut self.channels, channel) {
                    let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                    channel.send_late_return(&message, out);
                }
            }
            Event::ChannelException { channel, exception } => {
                self.fail_open(channel, &Fault::of(exception, hot::Publish::ID), outbox);
            }
            Event::GetTimedOut { channel, exception } => {
                self.fail_open(channel, &Fault::of(exception, MethodId::NONE), outbox);
            }
            Event::ConsumerCancelled { channel, consumer, tag: _ } => {
                self.cancelled.push((channel, consumer));
                self.send_cancelled(outbox);
            }
            Event::ConsumerTimedOut { channel, consumer, exception } => {
                if !self.env.consumer_cancel_notify {
                    return self.event(Event::GetTimedOut { channel, exception }, outbox);
                }
                if let Some(channel) = open(&mut self.channels, channel) {
                    let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                    channel.consumer_timed_out(consumer, out);
                }
            }
            Event::Blocked { reason } => self.alarm = Some(reason),
            Event::Unblocked => self.unblock(outbox),
            Event::Close(exception) => {
                self.end(Ending::fault(&Fault::of(exception, MethodId::NONE)));
            }
        }
        false
    }

    /// Closes a channel, if its number has not been opened again.
    fn fail_open(&mut self, channel: ChannelId, fault: &Fault, outbox: &mut Outbox) {
        if open(&mut self.channels, channel).is_some() {
            self.fail(channel.number, fault, outbox);
        }
    }

    /// Sends `basic.cancel` for cancelled consumers, unless the answer to a `queue.delete` has to come first.
    fn send_cancelled(&mut self, outbox: &mut Outbox) {
        if self.cancelled.is_empty() || self.channels.values().any(|it| it.awaits_delete()) {
            return;
        }
        for (channel, consumer) in std::mem::take(&mut self.cancelled) {
            if let Some(channel) = open(&mut self.channels, channel) {
                let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                channel.cancelled_by_broker(consumer, out);
            }
        }
    }

    fn send_confirms(&mut self, outbox: &mut Outbox) {
        while let Some(number) = self.confirmed.pop() {
            if let Some(channel) = self.channels.get_mut(&number) {
                let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                channel.send_confirms(out);
            }
        }
    }

    /// Content on a connection during an alarm: from now on the socket is not read (ALM-02, 03).
    fn content_comes(&mut self, outbox: &mut Outbox) {
        let Some(reason) = &self.alarm else { return };
        if !self.blocked && self.connection_blocked {
            let reason = ShortString::try_from(reason.as_str()).unwrap_or_default();
            Cold::from(connection::Blocked { reason }).put(outbox.buffer(), 0);
        }
        self.blocked = true;
    }

    fn unblock(&mut self, outbox: &mut Outbox) {
        self.alarm = None;
        if std::mem::take(&mut self.blocked) && self.connection_blocked {
            Cold::from(connection::Unblocked {}).put(outbox.buffer(), 0);
        }
    }

    /// Sends deliveries to the client.
    pub(crate) fn deliver(&mut self, deliveries: &mut Vec<Delivered>, outbox: &mut Outbox) {
        for delivered in deliveries.drain(..) {
            // Deliveries for a channel that has ended are requeued with it.
            if let Some(channel) = open(&mut self.channels, delivered.channel) {
                let out = &mut Out { env: &self.env, outbox, effects: &mut self.effects };
                channel.deliver(delivered, out);
            }
        }
    }
}

/// The channel with this id, if it is open and its number has not been reused.
fn open(channels: &mut BTreeMap<u16, Box<Channel>>, id: ChannelId) -> Option<&mut Channel> {
    channels
        .get_mut(&id.number)
        .map(Box::as_mut)
        .filter(|channel| channel.id == id && !channel.is_closing())
}
