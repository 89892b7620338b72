//! A client that makes requests and one that answers them, on two nodes: requests through an exclusive queue
//! of a name that the broker gave (EXQ-04), replies by direct reply-to (DRT). Neither is stored, so a fault
//! may lose one; but none comes twice or damaged, and the queue is gone after its connection (EXQ-01).

use super::History;
use super::publisher::{RECONNECT_INTERVAL, open};
use crate::harness::amqp::{close_in_time, exclusive, persistent, while_connected};
use crate::harness::wait::HANGS;
use futures::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Consumer};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The pseudo-queue of a channel's replies (DRT-01).
const REPLIES: &str = "amq.rabbitmq.reply-to";
/// Requests to one exclusive queue.
const REQUESTS: u32 = 20;
/// Time after which a request or a reply is taken for lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// How long both clients of a publish that came back remain connected before that is wrong: a node that others
/// have declared dead has closed its connections by then.
const REMAIN: Duration = HANGS.checked_div(2).expect("not by zero");
/// Interval between two requests, and between two looks at a queue that has to go.
const INTERVAL: Duration = Duration::from_millis(20);

/// What the clients are doing, for the error message if they do not end in time.
#[derive(Debug)]
struct Stage(Mutex<&'static str>);

impl Stage {
    fn at(&self, now: &'static str) {
        *self.0.lock().expect("a stage") = now;
    }
}

/// The running clients.
#[derive(Debug)]
pub struct Requests {
    stop: watch::Sender<bool>,
    stage: Arc<Stage>,
    task: JoinHandle<()>,
}

impl Requests {
    /// Starts them. They connect to two nodes at a time, and go on to the next two.
    #[must_use]
    pub fn start(history: Arc<History>, uris: Vec<String>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stage = Arc::new(Stage(Mutex::new("begins")));
        let told = Arc::clone(&stage);
        let task = tokio::spawn(async move {
            for first in (0..uris.len()).cycle() {
                let [one, other] = [&uris[first], &uris[(first + 1) % uris.len()]];
                // A lost connection ends a conversation; the next begins on the next nodes.
                let _ = converse(&history, [one, other], &stopped, &told).await;
                if *stopped.borrow() {
                    return;
                }
                tokio::time::sleep(RECONNECT_INTERVAL).await;
            }
        });
        Self { stop, stage, task }
    }

    /// Ends the conversation under way.
    ///
    /// # Panics
    /// When that does not end.
    pub async fn finish(self) {
        // Nobody listens any more where the clients failed; that shows next.
        let _ = self.stop.send(true);
        let ended = tokio::time::timeout(HANGS, self.task).await;
        let stage = || *self.stage.0.lock().expect("a stage");
        ended
            .unwrap_or_else(|_| {
                panic!("not within {HANGS:?}: a client that requests leaves; it {}", stage())
            })
            .expect("the clients");
    }
}

/// Some requests to one exclusive queue, and its end.
async fn converse(
    history: &History,
    [one, other]: [&str; 2],
    stopped: &watch::Receiver<bool>,
    stage: &Stage,
) -> lapin::Result<()> {
    stage.at("connects");
    let (asking, asks) = open(one).await?;
    let (answering, answers) = open(other).await?;
    stage.at("declares a queue and consumes");
    let talk = async {
        let queue = answers.queue_declare("".into(), exclusive(), FieldTable::default()).await?;
        let queue = queue.name().to_string();
        let mut talk = Talk {
            history,
            requests: Numbered::consume(&answers, &queue).await?,
            replies: Numbered::consume(&asks, REPLIES).await?,
            asks: &asks,
            answers: &answers,
            stage,
        };
        for number in 1..=REQUESTS {
            if *stopped.borrow() {
                break;
            }
            talk.ask(&queue, number).await?;
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(queue)
    };
    let queue = while_connected(&asking, while_connected(&answering, talk)).await?;
    stage.at("closes a connection");
    close_in_time(&answering).await?;
    stage.at("waits until the queue is gone");
    // Closing does not wait for the other nodes to hear of it.
    let gone = async {
        while !is_returned(&asks, &queue, persistent(), &[]).await? {
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    };
    while_connected(&asking, gone).await
}

struct Talk<'a> {
    history: &'a History,
    asks: &'a Channel,
    answers: &'a Channel,
    stage: &'a Stage,
    requests: Numbered,
    replies: Numbered,
}

impl Talk<'_> {
    /// One request, and its answer unless one of the two is lost.
    async fn ask(&mut self, queue: &str, number: u32) -> lapin::Result<()> {
        let properties = BasicProperties::default().with_reply_to(REPLIES.into());
        self.stage.at("publishes a request");
        if is_returned(self.asks, queue, properties, &number.to_be_bytes()).await? {
            self.came_back(&format!("'{queue}' was declared, and request {number} came back"))
                .await;
        }
        self.stage.at("waits for a request");
        let Some(request) = self.requests.next(self.history, number).await else { return Ok(()) };
        let reply_to = request.properties.reply_to().as_ref().map(ToString::to_string);
        let Some(reply_to) = reply_to else {
            self.history.damaged(format!("a request to '{queue}' has no address for its reply"));
            return Ok(());
        };
        self.stage.at("publishes a reply");
        if is_returned(self.answers, &reply_to, persistent(), &request.data).await? {
            self.came_back(&format!("reply {number} to '{reply_to}' came back")).await;
        }
        self.stage.at("waits for a reply");
        if self.replies.next(self.history, number).await.is_some() {
            self.history.replied();
        }
        Ok(())
    }

    /// A publish came back although the client that waits for it is connected. A node that the others
    /// have declared dead learns that after them, and only then closes its connections. So this is a
    /// violation only if both connections remain: the loss of one ends this wait (see [`while_connected`]).
    async fn came_back(&self, what: &str) {
        self.stage.at("waits for the end of a connection, since a publish came back");
        tokio::time::sleep(REMAIN).await;
        self.history.forgotten(format!("{what}, and both clients remained connected"));
    }
}

/// Publishes with `mandatory`; tells whether the message came back.
async fn is_returned(
    channel: &Channel,
    queue: &str,
    properties: BasicProperties,
    body: &[u8],
) -> lapin::Result<bool> {
    let mandatory = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let sent = channel.basic_publish("".into(), queue.into(), mandatory, body, properties).await?;
    Ok(sent.await?.take_message().is_some())
}

/// Deliveries with numbers that only grow.
struct Numbered {
    consumer: Consumer,
    last: u32,
}

impl Numbered {
    async fn consume(channel: &Channel, queue: &str) -> lapin::Result<Self> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let consumer =
            channel.basic_consume(queue.into(), "".into(), options, FieldTable::default());
        Ok(Self { consumer: consumer.await?, last: 0 })
    }

    /// The delivery of this number; none if it is taken for lost. One that was taken for lost before may
    /// come late.
    async fn next(&mut self, history: &History, number: u32) -> Option<Delivery> {
        loop {
            let next = tokio::time::timeout(LOST_AFTER, self.consumer.next()).await.ok()??.ok()?;
            let came = <[u8; 4]>::try_from(next.data.as_slice()).map(u32::from_be_bytes);
            match came {
                Ok(came) if came > self.last && came <= number => self.last = came,
                Ok(_) | Err(_) => {
                    let last = self.last;
                    let data = &next.data;
                    history.damaged(format!("{data:?} came as a request or reply after {last}"));
                }
            }
            if self.last == number {
                return Some(next);
            }
        }
    }
}
