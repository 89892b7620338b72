//! The broker as front ends call it: each request goes to the method that serves it.

use crate::{
    broker::Broker,
    client::{
        self, Answer, ChannelId, ChannelReport, ConnectionInfo, Delivered, Event, FrontSettings,
        Operation, Pressure, Publish, PublishOutcome, Settle, SocketReport,
    },
    connection::Connection,
    memory::{MemoryBudget, Share},
    routed::RoutedPublish,
};
use quorate_types::{Exception, ShortString};
use std::{future::Future, net::IpAddr, sync::Arc};

/// Prefix of consumer tags that the server makes (CON-01).
const CONSUMER_TAG_PREFIX: &str = "amq.ctag-";

impl client::Broker for Broker {
    type Connection = Connection;

    fn memory(&self) -> &Arc<MemoryBudget> {
        Self::memory(self)
    }

    fn front_settings(&self) -> FrontSettings {
        Self::front_settings(self)
    }

    fn log_in(
        &self,
        user: &ShortString,
        password: Option<&[u8]>,
        from: IpAddr,
    ) -> impl Future<Output = bool> + Send {
        Self::log_in(self, user, password, from)
    }

    fn connect(&self, info: ConnectionInfo) -> Result<Connection, Exception> {
        Self::connect(self, info)
    }

    fn alarm(&self) -> Option<String> {
        Self::alarm(self)
    }
}

impl client::Connection for Connection {
    fn info(&self) -> &ConnectionInfo {
        Self::info(self)
    }

    fn open_channel(&self, channel: ChannelId) -> Result<(), Exception> {
        Self::open_channel(self, channel)
    }

    fn close_channel(&self, channel: ChannelId) {
        Self::close_channel(self, channel);
    }

    fn limit_channel(&self, channel: ChannelId, limit: Option<u16>) {
        Self::limit_channel(self, channel, limit);
    }

    fn publish(&self, publishes: Vec<Publish>, outcomes: &mut Vec<PublishOutcome>) -> Pressure {
        Self::publish(self, publishes, outcomes)
    }

    fn check_publish(&self, exchange: &ShortString) -> Result<(), Exception> {
        Self::check_publish(self, exchange)
    }

    fn settle(&self, settles: Vec<Settle>) {
        Self::settle(self, settles);
    }

    fn ask(
        &self,
        channel: ChannelId,
        operation: Operation,
    ) -> impl Future<Output = Result<Answer, Exception>> + Send {
        // A close of the channel that comes next leaves a commit alone (TX-07).
        let publishes = match matches!(operation, Operation::Commit { .. }) {
            true => self.take_transaction(channel),
            false => Vec::new(),
        };
        self.perform(channel, operation, publishes)
    }

    fn roll_back(&self, channel: ChannelId) {
        drop(self.take_transaction(channel));
    }

    fn update_secret(&self) -> Result<(), Exception> {
        Self::update_secret(self)
    }

    fn events(&self, events: &mut Vec<Event>) -> impl Future<Output = ()> + Send {
        Self::events(self, events)
    }

    fn room(&self) -> impl Future<Output = ()> + Send {
        Self::room(self)
    }

    fn take_deliveries(&self, bytes_max: usize, deliveries: &mut Vec<Delivered>) {
        Self::take_deliveries(self, bytes_max, deliveries);
    }

    fn delivery_room_bytes(&self) -> usize {
        Self::delivery_room_bytes(self)
    }

    fn budget_room(&self) -> impl Future<Output = ()> + Send {
        Self::budget_room(self)
    }

    fn report_unwritten(&self, bytes: usize) {
        Self::report_unwritten(self, bytes);
    }

    fn report_given(&self, bytes: usize) {
        Self::report_given(self, bytes);
    }

    fn is_pressed(&self) -> bool {
        Self::is_pressed(self)
    }

    fn is_given_up(&self) -> bool {
        Self::is_given_up(self)
    }

    fn tell_unfinished(&self, contents: u64, age_ms: u64, transactions: u64) {
        Self::tell_unfinished(self, contents, age_ms, transactions);
    }

    fn relieve(&self, share: Share, bytes_max: u64) {
        Self::relieve(self, share, bytes_max);
    }

    fn report_channel(&self, channel: ChannelId, report: ChannelReport) {
        Self::report_channel(self, channel, report);
    }

    fn report_socket(&self, socket: SocketReport, blocked: bool) {
        Self::report_socket(self, socket, blocked);
    }

    fn close(self) -> impl Future<Output = ()> + Send {
        Self::close(self)
    }
}

impl Connection {
    /// Does what a channel asks for; `publishes` are those of a commit.
    async fn perform(
        &self,
        channel: ChannelId,
        operation: Operation,
        publishes: Vec<RoutedPublish>,
    ) -> Result<Answer, Exception> {
        let done = |()| Answer::Done;
        match operation {
            Operation::ExchangeDeclare(declare) => self.exchange_declare(declare).await.map(done),
            Operation::ExchangeExists(exchange) => self.exchange_exists(&exchange).map(done),
            Operation::Publishable(exchange) => self.check_publish(&exchange).map(done),
            Operation::ExchangeDelete { exchange, if_unused } => {
                self.exchange_delete(exchange, if_unused).await.map(done)
            }
            Operation::ExchangeBind(bind) => self.exchange_bind(bind).await.map(done),
            Operation::ExchangeUnbind(bind) => self.exchange_unbind(bind).await.map(done),
            Operation::QueueDeclare(declare) => {
                self.queue_declare(declare).await.map(Answer::Declared)
            }
            Operation::QueueExists(queue) => self.queue_passive(queue).await.map(Answer::Declared),
            Operation::QueueBind(bind) => self.queue_bind(bind).await.map(done),
            Operation::QueueUnbind(bind) => self.queue_unbind(bind).await.map(done),
            Operation::QueuePurge(queue) => self.queue_purge(queue).await.map(Answer::Removed),
            Operation::QueueDelete { queue, if_unused, if_empty } => {
                self.queue_delete(queue, if_unused, if_empty).await.map(Answer::Removed)
            }
            Operation::Consume(mut consume) => {
                consume.tag = self.tag_or_made(consume.tag);
                let tag = consume.tag.clone();
                let consumer = self.consume(*consume).await?;
                Ok(Answer::Consuming { consumer, tag })
            }
            Operation::ConsumeReplies { tag } => {
                let tag = self.tag_or_made(tag);
                let (consumer, name) = self.consume_replies(channel, tag.clone())?;
                Ok(Answer::ConsumingReplies { consumer, tag, name })
            }
            Operation::Route(publish) => self.route(*publish).await.map(Answer::Routed),
            Operation::Commit { settles } => {
                self.commit(channel, publishes, settles).await.map(done)
            }
            Operation::Cancel(consumer) => self.cancel(consumer).await.map(done),
            Operation::Get { queue, no_ack } => {
                let got = self.get(channel, queue, no_ack).await?;
                Ok(Answer::Got(got.map(Box::new)))
            }
        }
    }

    /// The tag, or one that is made where the client gives none (CON-01).
    fn tag_or_made(&self, tag: ShortString) -> ShortString {
        if tag.is_empty() {
            self.node.base.context.generated_name(CONSUMER_TAG_PREFIX)
        } else {
            tag
        }
    }
}
