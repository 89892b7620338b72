//! A client that publishes numbered messages with confirms, and writes down every answer.

use super::{Answer, History, Number, transactional};
use crate::harness::amqp::{arguments, code, connect_in_time, int, persistent, while_connected};
use crate::harness::wait::in_time;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{Future, FutureExt};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{Channel, Confirmation, Connection, PublisherConfirm};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// A lost connection is tried again this often.
pub(super) const RECONNECT_INTERVAL: Duration = Duration::from_millis(50);

/// What a publisher does.
#[derive(Clone, Debug)]
pub struct PublisherOptions {
    /// Where it connects; the next one after each loss.
    pub uris: Vec<String>,
    /// Queues, reached by their names as routing keys, each in turn.
    pub queues: Vec<String>,
    /// The exchange; empty for the default exchange.
    pub exchange: String,
    /// Messages are delayed by up to this, in milliseconds, if the exchange is a delayed one (EXC-17); 0
    /// for none.
    pub delay_max_ms: u32,
    /// Messages get priorities from 0 up to this one, in turn; 0 for none.
    pub priorities: u8,
    /// Size of a message body, in bytes.
    pub body_bytes: usize,
    /// Each body is twice as large as the one before it, so many times; then it begins again.
    pub doublings: u32,
    /// Unconfirmed publishes at most.
    pub window: usize,
    /// Publishes a second at most; 0 for as fast as confirms come.
    pub per_second: u32,
    /// Messages of a transaction; 0 for confirms instead.
    pub transactions_of: u32,
    /// Whether it connects again when its connection is lost. Otherwise a loss fails the test.
    pub reconnects: bool,
}

impl PublisherOptions {
    /// 1 KiB bodies, a window of 200, 2,000 a second, on one connection that must not be lost.
    #[must_use]
    pub fn new(uri: String, queue: &str) -> Self {
        Self {
            uris: vec![uri],
            queues: vec![queue.to_owned()],
            exchange: String::new(),
            delay_max_ms: 0,
            priorities: 0,
            body_bytes: 1024,
            doublings: 0,
            window: 200,
            per_second: 2_000,
            transactions_of: 0,
            reconnects: false,
        }
    }
}

/// What lapin ends a channel with where a confirm names a publish that waits for none: it has had its confirm,
/// or was never made (CNF-02).
const PRECONDITION_FAILED: u16 = 406;

/// A running publisher.
#[derive(Debug)]
pub struct Publisher {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

type Confirm = Pin<Box<dyn Future<Output = (Number, lapin::Result<Confirmation>)> + Send>>;

impl Publisher {
    /// Starts a publisher task.
    #[must_use]
    pub fn start(history: Arc<History>, options: PublisherOptions) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(run(history, options, stopped));
        Self { stop, task }
    }

    /// Publishes no more, and waits until every publish has been answered.
    ///
    /// # Panics
    /// When that does not end, or the publisher failed.
    pub async fn finish(self) {
        // Nobody listens any more where the publisher has failed; that shows next.
        let _ = self.stop.send(true);
        in_time("every publish is answered", self.task).await.expect("the publisher");
    }
}

async fn run(history: Arc<History>, options: PublisherOptions, stopped: watch::Receiver<bool>) {
    let mut uris = options.uris.iter().cycle();
    while !*stopped.borrow() {
        let uri = uris.next().expect("a publisher has somewhere to connect to");
        let ended = if options.transactions_of > 0 {
            transactional::session(&history, &options, uri, &stopped).await
        } else {
            confirming(&history, &options, uri, &stopped).await
        };
        let Err(error) = ended else { return };
        if code(&error) == Some(PRECONDITION_FAILED) {
            history.damaged(format!("a confirm for no publish, or for one that had one: {error}"));
        }
        assert!(options.reconnects, "a publisher lost its connection to {uri}: {error}");
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// Until told to stop and all is confirmed, or the connection is lost.
async fn confirming(
    history: &History,
    options: &PublisherOptions,
    uri: &str,
    stopped: &watch::Receiver<bool>,
) -> lapin::Result<()> {
    let (connection, channel) = open(uri).await?;
    let mut session = Session::new(history, options, channel);
    let ended = while_connected(&connection, session.publish(stopped)).await;
    history.unanswered(session.producer);
    ended
}

/// Hands one message to the connection.
pub(super) async fn publish(
    history: &History,
    options: &PublisherOptions,
    channel: &Channel,
    number: Number,
) -> lapin::Result<PublisherConfirm> {
    // Queues take turns message by message, priorities round by round.
    let (turn, queues) = (number.seq as usize, &options.queues);
    let queue = &queues[turn % queues.len()];
    let priority = (turn / queues.len() % (usize::from(options.priorities) + 1)) as u8;
    let delay_ms = fastrand::u32(0..=options.delay_max_ms);
    history.publishing(number, queue, priority, Duration::from_millis(delay_ms.into()));
    let mut properties =
        if options.priorities > 0 { persistent().with_priority(priority) } else { persistent() };
    if delay_ms > 0 {
        properties = properties.with_headers(arguments(&[("x-delay", int(delay_ms.into()))]));
    }
    let bytes = options.body_bytes << (turn / queues.len() % (options.doublings as usize + 1));
    let (exchange, to) = (options.exchange.as_str().into(), queue.as_str().into());
    let (sent, body) = (BasicPublishOptions::default(), number.body(bytes));
    channel.basic_publish(exchange, to, sent, &body, properties).await
}

/// A connection and a channel of it that confirms.
pub(super) async fn open(uri: &str) -> lapin::Result<(Connection, Channel)> {
    let connection = connect_in_time(uri).await?;
    let channel = while_connected(&connection, async {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    });
    let channel = channel.await?;
    Ok((connection, channel))
}

/// One publishing channel's life.
struct Session<'a> {
    history: &'a History,
    options: &'a PublisherOptions,
    channel: Channel,
    producer: u32,
    seq: u64,
    unconfirmed: FuturesUnordered<Confirm>,
    pace: Option<Interval>,
}

impl<'a> Session<'a> {
    fn new(history: &'a History, options: &'a PublisherOptions, channel: Channel) -> Self {
        let pace = (options.per_second > 0).then(|| {
            let mut pace = interval(Duration::from_secs(1) / options.per_second);
            pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
            pace
        });
        let (producer, unconfirmed) = (history.producer(), FuturesUnordered::new());
        Self { history, options, channel, producer, seq: 0, unconfirmed, pace }
    }

    /// Until told to stop and all is answered, or the connection is lost.
    async fn publish(&mut self, stopped: &watch::Receiver<bool>) -> lapin::Result<()> {
        loop {
            while let Some(Some(confirm)) = self.unconfirmed.next().now_or_never() {
                self.answered(confirm)?;
            }
            let stopping = *stopped.borrow();
            if stopping && self.unconfirmed.is_empty() {
                return Ok(());
            }
            if stopping || self.unconfirmed.len() >= self.options.window {
                if let Some(confirm) = self.unconfirmed.next().await {
                    self.answered(confirm)?;
                }
            } else if self.paced().await? {
                self.publish_one().await?;
            }
        }
    }

    /// Whether it is time to publish; false where a confirm came first.
    async fn paced(&mut self) -> lapin::Result<bool> {
        let Some(pace) = &mut self.pace else { return Ok(true) };
        let confirm = tokio::select! {
            _ = pace.tick() => return Ok(true),
            Some(confirm) = self.unconfirmed.next() => confirm,
        };
        self.answered(confirm)?;
        Ok(false)
    }

    async fn publish_one(&mut self) -> lapin::Result<()> {
        self.seq += 1;
        let number = Number { producer: self.producer, seq: self.seq };
        let confirm = publish(self.history, self.options, &self.channel, number).await?;
        self.unconfirmed.push(Box::pin(async move { (number, confirm.await) }));
        Ok(())
    }

    fn answered(
        &self,
        (number, answer): (Number, lapin::Result<Confirmation>),
    ) -> lapin::Result<()> {
        let answer = if answer?.is_ack() { Answer::Confirmed } else { Answer::Refused };
        self.history.answered(number, answer);
        Ok(())
    }
}
