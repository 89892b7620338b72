//! A client that consumes with acks, and writes down every delivery and what it did with it.

use super::publisher::RECONNECT_INTERVAL;
use super::{Fate, History};
use crate::harness::amqp::{close_in_time, connect_in_time, headers, while_connected};
use crate::harness::wait::HANGS;
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions,
    BasicQosOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Interval between two polls of an empty queue.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time without a delivery after which a consumer that holds settles: longer than the broker takes to
/// send what a prefetch allows, so that one message more would be seen.
const HOLD_TIME: Duration = Duration::from_millis(50);

/// What a consumer does.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where it connects; the next one after each loss.
    pub uris: Vec<String>,
    /// The queue that it consumes from.
    pub queue: String,
    /// Prefetch; 0 for none.
    pub prefetch: u16,
    /// Every so many deliveries one is given back instead of acked; 0 for none.
    pub returns_every: u64,
    /// Every so many deliveries one is rejected instead of acked; 0 for none.
    pub rejects_every: u64,
    /// Whether it gives every delivery back, until the queue's delivery limit ends that.
    pub returns_all: bool,
    /// Whether it settles only when nothing more comes: when it holds its prefetch, or all there is.
    pub holds: bool,
    /// Whether it polls with `basic.get` instead of consuming.
    pub polls: bool,
    /// The queues in which each message has died and the reasons, the last first: what `x-death` must tell.
    pub deaths: &'static [(&'static str, &'static str)],
    /// Whether it connects again when its connection is lost. Otherwise a loss fails the test.
    pub reconnects: bool,
}

impl ConsumerOptions {
    /// A prefetch of 100, on one connection that must not be lost.
    #[must_use]
    pub fn new(uri: String, queue: &str) -> Self {
        Self {
            uris: vec![uri],
            queue: queue.to_owned(),
            prefetch: 100,
            returns_every: 0,
            rejects_every: 0,
            returns_all: false,
            holds: false,
            polls: false,
            deaths: &[],
            reconnects: false,
        }
    }
}

/// A running consumer.
#[derive(Debug)]
pub struct Consumer {
    stop: watch::Sender<bool>,
    stage: Arc<Mutex<&'static str>>,
    task: JoinHandle<()>,
}

impl Consumer {
    /// Starts a consumer task.
    #[must_use]
    pub fn start(history: Arc<History>, options: ConsumerOptions) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stage = Arc::new(Mutex::new("begins"));
        let task = tokio::spawn(run(history, options, stopped, Arc::clone(&stage)));
        Self { stop, stage, task }
    }

    /// Cancels, settles what it still holds, and leaves.
    ///
    /// # Panics
    /// When that does not end, or the consumer failed.
    pub async fn finish(self) {
        // Nobody listens any more where the consumer has failed; that shows next.
        let _ = self.stop.send(true);
        let Ok(ended) = tokio::time::timeout(HANGS, self.task).await else {
            panic!(
                "not within {HANGS:?}: a consumer leaves; it {}",
                self.stage.lock().expect("a stage")
            );
        };
        ended.expect("the consumer");
    }
}

async fn run(
    history: Arc<History>,
    options: ConsumerOptions,
    stopped: watch::Receiver<bool>,
    stage: Arc<Mutex<&'static str>>,
) {
    let mut uris = options.uris.iter().cycle();
    while !*stopped.borrow() {
        let uri = uris.next().expect("a consumer has somewhere to connect to");
        let error = match consume(&history, &options, uri, stopped.clone(), &stage).await {
            Ok(()) => return,
            Err(error) => error,
        };
        assert!(
            options.reconnects,
            "a consumer of {} lost its connection to {uri}: {error}",
            options.queue
        );
        tokio::time::sleep(RECONNECT_INTERVAL).await;
    }
}

/// Until told to stop, or the connection is lost.
async fn consume(
    history: &History,
    options: &ConsumerOptions,
    uri: &str,
    stopped: watch::Receiver<bool>,
    stage: &Mutex<&'static str>,
) -> lapin::Result<()> {
    let at = |now| *stage.lock().expect("a stage") = now;
    at("connects");
    let connection = connect_in_time(uri).await?;
    let number = OnceLock::new();
    let work = attached(history, options, &connection, stopped, stage, &number);
    let ended = while_connected(&connection, work).await;
    at("closes its connection");
    match ended {
        Ok(()) => close_in_time(&connection).await,
        Err(error) => {
            number.into_inner().into_iter().for_each(|number| history.lost(number));
            Err(error)
        }
    }
}

/// From the channel to its close; tells the number of the attached consumer.
async fn attached(
    history: &History,
    options: &ConsumerOptions,
    connection: &Connection,
    stopped: watch::Receiver<bool>,
    stage: &Mutex<&'static str>,
    attached: &OnceLock<usize>,
) -> lapin::Result<()> {
    let at = |now| *stage.lock().expect("a stage") = now;
    at("opens a channel");
    let channel = connection.create_channel().await?;
    channel.basic_qos(options.prefetch, BasicQosOptions::default()).await?;
    let queue = options.queue.as_str();
    at("attaches");
    // Attached before consume-ok: deliveries may be under way when the connection is lost there.
    let number = history.attached(queue, options.prefetch);
    // Set once.
    let _ = attached.set(number);
    let session = Session { history, options, channel: &channel, number, stage };
    if options.polls {
        return session.poll(stopped).await;
    }
    let (tag, with) = ("".into(), BasicConsumeOptions::default());
    let consumer = channel.basic_consume(queue.into(), tag, with, FieldTable::default()).await?;
    session.follow(consumer, stopped).await
}

/// A delivery that is not settled yet.
struct Taken {
    delivery: Delivery,
    /// Its place in the history.
    place: usize,
    fate: Fate,
}

/// One attached consumer's life.
struct Session<'a> {
    history: &'a History,
    options: &'a ConsumerOptions,
    channel: &'a Channel,
    number: usize,
    stage: &'a Mutex<&'static str>,
}

impl Session<'_> {
    /// Gets one message after the other.
    async fn poll(&self, stopped: watch::Receiver<bool>) -> lapin::Result<()> {
        let mut taken = 0;
        while !*stopped.borrow() {
            let queue = self.options.queue.as_str().into();
            match self.channel.basic_get(queue, BasicGetOptions::default()).await? {
                Some(message) => {
                    taken += 1;
                    self.settle(vec![self.take(message.delivery, taken)]).await?;
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
        self.channel.close(200, "done".into()).await
    }

    async fn follow(
        &self,
        mut consumer: lapin::Consumer,
        mut stopped: watch::Receiver<bool>,
    ) -> lapin::Result<()> {
        let mut taken = 0;
        let mut held = Vec::new();
        let at = |now| *self.stage.lock().expect("a stage") = now;
        at("takes deliveries");
        loop {
            let delivery = tokio::select! {
                // The sender lives as long as the task is waited for.
                _ = stopped.wait_for(|stop| *stop) => break,
                delivery = consumer.next() => Some(delivery),
                () = tokio::time::sleep(HOLD_TIME), if !held.is_empty() => None,
            };
            let Some(delivery) = delivery else {
                self.settle(std::mem::take(&mut held)).await?;
                continue;
            };
            let Some(delivery) = delivery else {
                return Err(std::io::Error::other("the broker cancelled the consumer").into());
            };
            taken += 1;
            held.push(self.take(delivery?, taken));
            if !self.options.holds {
                self.settle(std::mem::take(&mut held)).await?;
            }
        }
        let cancel = BasicCancelOptions::default();
        at("cancels");
        self.channel.basic_cancel(consumer.tag(), cancel).await?;
        at("takes the last deliveries");
        // What had been sent before cancel-ok was seen (CON-10).
        while let Some(delivery) = consumer.next().await {
            taken += 1;
            held.push(self.take(delivery?, taken));
        }
        self.settle(held).await?;
        at("closes its channel");
        self.channel.close(200, "done".into()).await
    }

    /// Writes a delivery down, and chooses what becomes of it.
    fn take(&self, delivery: Delivery, taken: u64) -> Taken {
        let place = self.history.delivered(self.number, &delivery.data, delivery.redelivered);
        self.check_deaths(&delivery);
        let one_of = |every: u64| every > 0 && taken.is_multiple_of(every);
        let fate = if one_of(self.options.rejects_every) {
            Fate::Rejected
        } else if self.options.returns_all
            || one_of(self.options.returns_every) && !delivery.redelivered
        {
            Fate::Returned
        } else {
            Fate::Settled
        };
        Taken { delivery, place, fate }
    }

    /// Settles these, the oldest first.
    async fn settle(&self, held: Vec<Taken>) -> lapin::Result<()> {
        for Taken { delivery, place, fate } in held {
            // Written down first: the redelivery may come before the call returns.
            self.history.settled(place, fate);
            match fate {
                Fate::Returned | Fate::Rejected => {
                    let requeue = fate == Fate::Returned;
                    delivery.nack(BasicNackOptions { requeue, multiple: false }).await?;
                }
                Fate::Held | Fate::Settled => {
                    delivery.ack(BasicAckOptions::default()).await?;
                }
            }
        }
        Ok(())
    }

    /// `x-death` tells the deaths that the queues' rules say, each once (DLX-29).
    fn check_deaths(&self, delivery: &Delivery) {
        let told = deaths(&delivery.properties);
        let expected: Vec<(String, String, i64)> = self
            .options
            .deaths
            .iter()
            .map(|(queue, reason)| ((*queue).to_owned(), (*reason).to_owned(), 1))
            .collect();
        if told != expected {
            let queue = &self.options.queue;
            self.history.damaged(format!("from '{queue}': x-death {told:?}, not {expected:?}"));
        }
    }
}

/// Queue, reason and count of each entry of `x-death`, in its order.
fn deaths(properties: &BasicProperties) -> Vec<(String, String, i64)> {
    let headers = headers(properties);
    let Some(AMQPValue::FieldArray(entries)) = headers.get("x-death") else { return Vec::new() };
    let entry = |entry: &AMQPValue| {
        let AMQPValue::FieldTable(fields) = entry else { return (String::new(), String::new(), 0) };
        let text = |name: &str| match fields.inner().get(name) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            other => format!("{other:?}"),
        };
        let count = match fields.inner().get("count") {
            Some(AMQPValue::LongLongInt(count)) => *count,
            _ => 0,
        };
        (text("queue"), text("reason"), count)
    };
    entries.as_slice().iter().map(entry).collect()
}
