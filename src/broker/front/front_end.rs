//! The broker's interface for front ends: each request calls the method that serves it.

use crate::{
    broker::Broker,
    client::{
        self, Answer, ChannelId, ChannelReport, ConnectionInfo, Delivered, Event, FrontSettings,
        Operation, Pressure, Publish, PublishOutcome, Settle, SocketReport,
    },
    front::{
        connection::Connection, connection_state::Reporting, refusals::Refusal,
        routed::RoutedPublish,
    },
    memory::{MemoryBudget, Share},
    views::attempts::LoginProtocol,
};
use quorate_types::{Exception, ReplyCode, ShortString};
use std::{
    future::Future,
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};
use tokio::time::Instant;

/// Prefix of consumer tags that the server makes (CON-01).
const CONSUMER_TAG_PREFIX: &str = "amq.ctag-";

impl client::Broker for Broker {
    type Connection = Connection;

    fn memory(&self) -> &Arc<MemoryBudget> {
        &self.0.base.context.memory
    }

    fn front_settings(&self) -> FrontSettings {
        self.0.base.context.settings.front.clone()
    }

    fn log_in(
        &self,
        user: &ShortString,
        password: Option<&[u8]>,
        from: IpAddr,
    ) -> impl Future<Output = bool> + Send {
        Self::log_in(self, LoginProtocol::Amqp091, user, password, from)
    }

    fn connect(&self, info: ConnectionInfo) -> Result<Connection, Exception> {
        Self::connect(self, info)
    }

    fn alarm(&self) -> Option<String> {
        self.0.alarms.reason()
    }
}

impl client::Connection for Connection {
    fn info(&self) -> &ConnectionInfo {
        &self.state.info
    }

    fn open_channel(&self, id: ChannelId) -> Result<(), Exception> {
        self.check_channels()?;
        let report = ChannelReport::default();
        let before =
            self.state.reported.channels.lock().insert(id.number, Reporting { id, report });
        self.state.count(&self.node.clients.counts, 0, i64::from(before.is_none()));
        self.state.counters.channels_opened.add(1);
        self.recount();
        Ok(())
    }

    fn close_channel(&self, channel: ChannelId) {
        let is_of = |holder| self.state.is_of(channel, holder);
        let settles = self.state.publishing.held.lock().take_settles(is_of);
        let mut settled = Vec::new();
        self.node.front.count_settled(&self.state, settles, |home, it| settled.push((home, it)));
        self.forget_channel(channel);
        let ended = self.state.held.lock().channels.remove(&channel);
        let ends = ended.map(|ended| self.node.front.end_commands(ended)).unwrap_or_default();
        let mut held = self.state.publishing.held.lock();
        held.end_channel(channel);
        let now = held.hold_end(settled, ends);
        drop(held);
        self.node.front.submit(now);
    }

    fn limit_channel(&self, channel: ChannelId, limit: Option<u16>) {
        self.state.held.lock().channels.entry(channel).or_default().limit = limit;
        match limit {
            Some(_) => self.node.front.share_room(&self.state, channel),
            None => self.node.front.lift_limit(&self.state, channel),
        }
    }

    fn publish(&self, publishes: Vec<Publish>, outcomes: &mut Vec<PublishOutcome>) -> Pressure {
        self.node.publisher.publish(&self.state, publishes, outcomes)
    }

    fn check_publish(&self, exchange: &ShortString) -> Result<(), Exception> {
        // Without a lease the copy of the catalog may be old (NAM 5).
        match self.may_route() {
            true => self.client().check_publish(exchange),
            false => Ok(()),
        }
    }

    fn may_route(&self) -> bool {
        self.node.base.lease.is_held()
    }

    fn settle(&self, settles: Vec<Settle>) {
        self.client().settle(settles);
    }

    fn ask(
        &self,
        channel: ChannelId,
        operation: Operation,
    ) -> impl Future<Output = Result<Answer, Exception>> + Send {
        // If the channel is closed next, the commit is still completed (TX-07).
        let publishes = match matches!(operation, Operation::Commit { .. }) {
            true => self.client().transactions().take_transaction(channel),
            false => Vec::new(),
        };
        // Asked for now, since the channel may be closed before the request is carried out.
        let refusal = follows_publishes(&operation)
            .then(|| self.state.publishing.held.lock().refusals.later(channel));
        self.perform(channel, operation, publishes, refusal)
    }

    fn roll_back(&self, channel: ChannelId) {
        drop(self.client().transactions().take_transaction(channel));
    }

    fn update_secret(&self) -> Result<(), Exception> {
        self.client().consumers().update_secret()
    }

    async fn events(&self, events: &mut Vec<Event>) {
        self.state.mailbox.take(events).await;
        if events.iter().any(|event| matches!(event, Event::MaySettle)) {
            self.settle_held();
        }
    }

    async fn room(&self) {
        self.node.publisher.room(&self.state).await;
    }

    fn take_deliveries(&self, bytes_max: usize, deliveries: &mut Vec<Delivered>) {
        self.node.front.take_deliveries(&self.state, bytes_max, deliveries);
    }

    fn delivery_room_bytes(&self) -> usize {
        let room = self.state.delivering.unwritten.room_bytes();
        if room == 0 {
            self.state.delivering.unwritten.note_waited();
        }
        room
    }

    async fn budget_room(&self) {
        self.state.delivering.unwritten.budget_room().await;
    }

    fn report_unwritten(&self, bytes: usize) {
        self.state.delivering.unwritten.set(bytes);
    }

    fn report_given(&self, bytes: usize) {
        self.state.delivering.unwritten.given(bytes);
    }

    fn is_pressed(&self) -> bool {
        self.state.delivering.unwritten.is_pressed()
    }

    fn is_given_up(&self) -> bool {
        self.state.delivering.unwritten.is_given_up()
    }

    fn report_unfinished(&self, contents: u64, age_ms: u64, transactions: u64) {
        self.state.unfinished.report(contents, age_ms, transactions);
    }

    fn relieve(&self, share: Share, bytes_max: u64) {
        self.node.clients.close_greatest(share, bytes_max);
    }

    fn report_channel(&self, id: ChannelId, report: ChannelReport) {
        let mut channels = self.state.reported.channels.lock();
        if let Some(open) = channels.get_mut(&id.number).filter(|open| open.id == id) {
            open.report = report;
        }
    }

    fn report_socket(&self, socket: SocketReport, blocked: bool) {
        let reported = &self.state.reported;
        *reported.socket.lock() = socket;
        reported.blocked.store(blocked, Ordering::Relaxed);
    }

    async fn close(self) {
        let bound = self.node.base.context.operation_timeout();
        // What is still held then is dropped, as with a lost connection (CONN-27).
        if tokio::time::timeout(bound, self.state.publishing.routed()).await.is_ok() {
            self.settle_held();
        }
        client::Connection::end(self).await;
    }

    async fn end(self) {
        let queues = self.end_channels();
        self.node.exclusive.end_exclusive(queues).await;
    }
}

/// Whether a request is about what is in a queue, or about what leads there: it must not overtake publishes
/// of its connection that cannot be routed yet (CON-09, GET-01, TX-03).
fn follows_publishes(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Cancel(_)
            | Operation::Commit { .. }
            | Operation::Get { .. }
            | Operation::QueueDeclare(_)
            | Operation::QueuePurge(_)
            | Operation::QueueDelete { .. }
            | Operation::QueueBind(_)
            | Operation::QueueUnbind(_)
            | Operation::ExchangeDelete { .. }
            | Operation::ExchangeBind(_)
            | Operation::ExchangeUnbind(_)
    )
}

/// Whether the answer to a request rests on this node's copy of the catalog: that an object is there or not,
/// what its properties are, what the user may do. Without a routing lease the copy may lack what another
/// node has answered long ago (NAM 5).
fn reads_catalog(operation: &Operation) -> bool {
    match operation {
        // By the consumer's id.
        Operation::Cancel(_) | Operation::ConsumeReplies { .. } => false,
        // Routes under a lease, for which it waits as a publish does; a commit sends what was routed.
        Operation::Route(_) | Operation::Commit { .. } => false,
        // Answers without a lease that nothing is wrong.
        Operation::Publishable(_) => false,
        Operation::ExchangeDeclare(_)
        | Operation::ExchangeExists(_)
        | Operation::ExchangeDelete { .. }
        | Operation::ExchangeBind(_)
        | Operation::ExchangeUnbind(_)
        | Operation::QueueDeclare(_)
        | Operation::QueueExists(_)
        | Operation::QueueBind(_)
        | Operation::QueueUnbind(_)
        | Operation::QueuePurge(_)
        | Operation::QueueDelete { .. }
        | Operation::Consume(_)
        | Operation::Get { .. } => true,
    }
}

impl Connection {
    /// Performs a request of a channel, after the publishes that it must not overtake if it has a
    /// `refusal`; `publishes` are those of a commit.
    async fn perform(
        &self,
        channel: ChannelId,
        operation: Operation,
        publishes: Vec<RoutedPublish>,
        refusal: Option<Refusal>,
    ) -> Result<Answer, Exception> {
        let deadline = Instant::now() + self.node.base.context.operation_timeout();
        if let Some(refusal) = refusal {
            let is_held = self.state.publishing.held.lock().busy;
            let is_routed = self.until_routed(deadline).await;
            // One of these publishes was refused, so this channel is about to be closed with that error.
            // Requests that the client sent after the publish are not carried out (CHN-06).
            if let Some(exception) = refusal.get() {
                return Err(exception.clone());
            }
            // What the channel held has been given back: a commit that has not begun is rolled back (TX-07).
            let is_commit = matches!(operation, Operation::Commit { .. });
            if is_held && is_commit && !self.state.is_open(channel) {
                let text = "the channel was closed before its transaction was committed";
                return Err(Exception::new(ReplyCode::ChannelError, text));
            }
            // It must not overtake them, so it is not carried out at all.
            if !is_routed {
                return Err(self.client().timed_out(&operation));
            }
        }
        if !reads_catalog(&operation) {
            return self.perform_now(channel, operation, publishes).await;
        }
        let lease = &self.node.base.lease;
        let timed_out = self.client().timed_out(&operation);
        if lease.held_by(deadline).await.is_err() {
            return Err(timed_out);
        }
        let answer = self.perform_now(channel, operation, publishes).await;
        // A refusal rests on the copy, unless the operation has timed out: then the connection is closed.
        match answer {
            Err(refused) if refused.code != ReplyCode::InternalError => {
                lease.agreed().await.map_err(|_| timed_out)?;
                Err(refused)
            }
            answer => answer,
        }
    }

    /// Waits until no publish is held; false if some still are at the deadline. A message to many queues
    /// is held for as long as an alarm is on, and the time begins anew when it ends.
    async fn until_routed(&self, mut deadline: Instant) -> bool {
        while tokio::time::timeout_at(deadline, self.state.publishing.routed()).await.is_err() {
            if self.node.alarms.reason().is_none() {
                return false;
            }
            self.node.alarms.until_lifted().await;
            deadline = Instant::now() + self.node.base.context.operation_timeout();
        }
        true
    }

    async fn perform_now(
        &self,
        channel: ChannelId,
        operation: Operation,
        publishes: Vec<RoutedPublish>,
    ) -> Result<Answer, Exception> {
        let (client, done) = (self.client(), |()| Answer::Done);
        match operation {
            Operation::ExchangeDeclare(declare) => {
                client.exchanges().exchange_declare(declare).await.map(done)
            }
            Operation::ExchangeExists(exchange) => {
                client.exchanges().exchange_exists(&exchange).await.map(done)
            }
            Operation::Publishable(exchange) => {
                client::Connection::check_publish(self, &exchange).map(done)
            }
            Operation::ExchangeDelete { exchange, if_unused } => {
                client.exchanges().exchange_delete(exchange, if_unused).await.map(done)
            }
            Operation::ExchangeBind(bind) => client.exchanges().exchange_bind(bind).await.map(done),
            Operation::ExchangeUnbind(bind) => {
                client.exchanges().exchange_unbind(bind).await.map(done)
            }
            Operation::QueueDeclare(declare) => {
                client.queues().queue_declare(declare).await.map(Answer::Declared)
            }
            Operation::QueueExists(queue) => {
                client.queues().queue_passive(queue).await.map(Answer::Declared)
            }
            Operation::QueueBind(bind) => client.exchanges().queue_bind(bind).await.map(done),
            Operation::QueueUnbind(bind) => client.exchanges().queue_unbind(bind).await.map(done),
            Operation::QueuePurge(queue) => {
                client.queues().queue_purge(queue).await.map(Answer::Removed)
            }
            Operation::QueueDelete { queue, if_unused, if_empty } => {
                client.queues().queue_delete(queue, if_unused, if_empty).await.map(Answer::Removed)
            }
            Operation::Consume(mut consume) => {
                consume.tag = self.tag_or_made(consume.tag);
                let tag = consume.tag.clone();
                let consumer = client.consumers().consume(*consume).await?;
                Ok(Answer::Consuming { consumer, tag })
            }
            Operation::ConsumeReplies { tag } => {
                let tag = self.tag_or_made(tag);
                let (consumer, name) = client.consumers().consume_replies(channel, tag.clone())?;
                Ok(Answer::ConsumingReplies { consumer, tag, name })
            }
            Operation::Route(publish) => {
                client.transactions().route(*publish).await.map(Answer::Routed)
            }
            Operation::Commit { settles } => {
                client.transactions().commit(channel, publishes, settles).await.map(done)
            }
            Operation::Cancel(consumer) => client.consumers().cancel(consumer).await.map(done),
            Operation::Get { queue, no_ack } => {
                let got = client.consumers().get(channel, queue, no_ack).await?;
                Ok(Answer::Got(got.map(Box::new)))
            }
        }
    }

    /// The tag, or a generated one if the client gives none (CON-01).
    fn tag_or_made(&self, tag: ShortString) -> ShortString {
        if tag.is_empty() {
            self.node.base.context.generated_name(CONSUMER_TAG_PREFIX)
        } else {
            tag
        }
    }
}

#[cfg(test)]
mod tests;
