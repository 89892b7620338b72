//! A client that declares queues, binds them, publishes to them through another node, and deletes them, under
//! the same names again and again: a queue that is declared is there for everybody, and what is
//! deleted does not come back.

use super::History;
use super::publisher::{RECONNECT_INTERVAL, open};
use crate::harness::amqp::{of_type, while_connected};
use crate::harness::wait::in_time;
use lapin::Channel;
use lapin::message::Delivery;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::FieldTable;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How many names there are.
const NAMES: u32 = 200;
/// The exchange that the queues are bound to.
const EXCHANGE: &str = "amq.direct";
/// Messages of each queue.
const MESSAGES: u32 = 2;
/// How long a node cannot be reached until what its clients hold returns.
const UNREACHABLE: Duration = Duration::from_secs(20);

/// The next message of a queue, got with no-ack.
async fn get(channel: &Channel, queue: &str) -> lapin::Result<Option<Delivery>> {
    let got = channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await?;
    Ok(got.map(|message| message.delivery))
}

/// A running client.
#[derive(Debug)]
pub struct Churn {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Churn {
    /// Starts it. It connects to two nodes at a time, and to the next two after each loss.
    #[must_use]
    pub fn start(history: Arc<History>, uris: Vec<String>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut state = State::new(&history);
            for first in (0..uris.len()).cycle() {
                let [one, other] = [&uris[first], &uris[(first + 1) % uris.len()]];
                if state.run(one, other, &stopped).await.is_ok() {
                    return;
                }
                tokio::time::sleep(RECONNECT_INTERVAL).await;
            }
        });
        Self { stop, task }
    }

    /// Deletes its last queue, and leaves.
    ///
    /// # Panics
    /// When that does not end.
    pub async fn finish(self) {
        // Nobody listens any more where the client failed; that shows next.
        let _ = self.stop.send(true);
        in_time("a client that declares and deletes leaves", self.task).await.expect("the client");
    }
}

fn all() -> BTreeSet<u32> {
    (0..NAMES).collect()
}

struct State<'a> {
    history: &'a History,
    /// The name that is next.
    number: u32,
    /// Counts the queues that were declared.
    generation: u32,
    /// Names of queues that may be there, from an earlier run, or since a connection was lost.
    unsure: BTreeSet<u32>,
    /// The present queue was published to, and the publish is not answered yet.
    in_doubt: bool,
    /// Names that are not used again: a publish to one was not answered when its connection was lost. A node
    /// that hangs may read it from its socket, and route it by that name, much later (DUR-02).
    retired: BTreeSet<u32>,
}

impl<'a> State<'a> {
    fn new(history: &'a History) -> Self {
        let (unsure, retired) = (all(), BTreeSet::new());
        Self { history, number: 0, generation: 0, unsure, in_doubt: false, retired }
    }

    /// Until told to stop, or a connection is lost.
    async fn run(
        &mut self,
        one: &str,
        other: &str,
        stopped: &watch::Receiver<bool>,
    ) -> lapin::Result<()> {
        let (declaring, declares) = open(one).await?;
        let (publishing, publishes) = open(other).await?;
        let work = while_connected(&declaring, self.work(&declares, &publishes, stopped));
        while_connected(&publishing, work).await
    }

    async fn work(
        &mut self,
        declares: &Channel,
        publishes: &Channel,
        stopped: &watch::Receiver<bool>,
    ) -> lapin::Result<()> {
        while !*stopped.borrow() {
            let name = format!("churn-{}", self.number);
            if self.unsure.contains(&self.number) {
                declares.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await?;
            }
            if std::mem::take(&mut self.in_doubt) {
                self.unsure.remove(&self.number);
                self.retired.insert(self.number);
                self.take_next();
                continue;
            }
            self.unsure.insert(self.number);
            self.generation += 1;
            self.live(&name, declares, publishes).await?;
            self.unsure.remove(&self.number);
            self.history.churned();
            self.take_next();
        }
        self.leave(declares).await
    }

    /// Goes on to the next name.
    fn take_next(&mut self) {
        assert!(
            self.retired.len() < NAMES as usize,
            "no name is left: connections are lost too often"
        );
        let names = (1..=NAMES).map(|step| (self.number + step) % NAMES);
        let mut usable = names.filter(|name| !self.retired.contains(name));
        self.number = usable.next().unwrap_or_default();
    }

    /// Deletes what the loss of a connection has left of the last queue.
    async fn leave(&mut self, declares: &Channel) -> lapin::Result<()> {
        if self.unsure.contains(&self.number) {
            let name = format!("churn-{}", self.number);
            declares.queue_delete(name.into(), QueueDeleteOptions::default()).await?;
        }
        Ok(())
    }

    /// The life of one queue.
    async fn live(
        &mut self,
        name: &str,
        declares: &Channel,
        publishes: &Channel,
    ) -> lapin::Result<()> {
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared = declares.queue_declare(name.into(), durable, of_type("quorum")).await?;
        if declared.message_count() > 0 {
            let count = declared.message_count();
            self.history
                .forgotten(format!("'{name}' was deleted, then declared with {count} messages"));
        }
        let (bind, none) = (QueueBindOptions::default(), FieldTable::default());
        declares.queue_bind(name.into(), EXCHANGE.into(), name.into(), bind, none).await?;
        for message in 0..MESSAGES {
            let body = self.body(message);
            let mandatory = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = crate::harness::amqp::persistent();
            let (exchange, key) = (EXCHANGE.into(), name.into());
            self.in_doubt = true;
            let sent = publishes.basic_publish(exchange, key, mandatory, &body, properties).await?;
            let confirm = sent.await?;
            self.in_doubt = false;
            if !confirm.is_ack() {
                return Err(std::io::Error::other("a publish was refused").into());
            }
            if confirm.take_message().is_some() {
                self.history.forgotten(format!("'{name}' was declared, and a publish came back"));
            }
        }
        let mut asked = Instant::now();
        for message in 0..MESSAGES {
            let before = std::mem::replace(&mut asked, Instant::now());
            let mut got = get(publishes, name).await?;
            let is_again = |got: &Delivery| message > 0 && got.data == self.body(message - 1);
            if before.elapsed() > UNREACHABLE
                && got.as_ref().is_some_and(|got| got.redelivered && is_again(got))
            {
                // A node settles a get with no-ack after it has answered. If it is cut off before the queue's
                // leader has received that, the message returns to the queue (NDF-03).
                got = get(publishes, name).await?;
            }
            let got = got.map(|got| got.data);
            if got.as_deref() != Some(&self.body(message)) {
                let wanted = self.body(message);
                self.history.forgotten(format!("'{name}' gave {got:?}, not {wanted:?}"));
            }
        }
        declares.queue_delete(name.into(), QueueDeleteOptions::default()).await.map(drop)
    }

    fn body(&self, message: u32) -> [u8; 8] {
        let [generation, message] = [self.generation, message].map(u32::to_be_bytes);
        let mut body = [0; 8];
        body[..4].copy_from_slice(&generation);
        body[4..].copy_from_slice(&message);
        body
    }
}
