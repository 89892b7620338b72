//! Publishers and consumers, from the first message to the verdict.

use super::{
    Churn, Consumer, ConsumerOptions, History, Log, Publisher, PublisherOptions, Requests, Rude,
    Victims,
};
use crate::harness::amqp::{close_in_time, ready, try_connect};
use crate::harness::wait::{HANGS, eventually, hold};
use crate::harness::{Cluster, ctl};
use crate::invariant;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the names of the queues begin in which delayed exchanges keep messages (EXC-17).
const DELAYED: &str = "amq.delayed.";
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Clients under way, and what they wrote down.
#[derive(Debug)]
pub struct Load {
    /// The queue whose flow is waited for and measured.
    queue: String,
    /// All queues that are empty when the consumers have drained theirs.
    queues: BTreeSet<String>,
    history: Arc<History>,
    publishers: Vec<Publisher>,
    consumers: Vec<Consumer>,
    /// Queues without consumers until the publishers have ended.
    kept: Vec<ConsumerOptions>,
    churns: Vec<Churn>,
    requests: Vec<Requests>,
    rude: Vec<Rude>,
}

/// What came of it, once the verdict was good.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Number of confirmed publishes.
    pub confirmed: usize,
    /// Deliveries, repeated ones included.
    pub deliveries: usize,
}

impl Load {
    /// No clients yet. It is this queue whose flow is waited for and measured; others may be loaded too.
    #[must_use]
    pub fn on(queue: &str) -> Self {
        Self {
            queue: queue.to_owned(),
            queues: BTreeSet::new(),
            history: Arc::default(),
            publishers: Vec::new(),
            consumers: Vec::new(),
            kept: Vec::new(),
            churns: Vec::new(),
            requests: Vec::new(),
            rude: Vec::new(),
        }
    }

    /// What is written down.
    #[must_use]
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }

    /// Adds a publisher.
    #[must_use]
    pub fn publish(mut self, options: PublisherOptions) -> Self {
        self.publishers.push(Publisher::start(Arc::clone(&self.history), options));
        self
    }

    /// Adds a consumer.
    #[must_use]
    pub fn consume(mut self, options: ConsumerOptions) -> Self {
        self.queues.insert(options.queue.clone());
        self.consumers.push(Consumer::start(Arc::clone(&self.history), options));
        self
    }

    /// Adds a queue without consumers whose messages all go to queues that have some.
    #[must_use]
    pub fn passes_on(mut self, queue: &str) -> Self {
        self.queues.insert(queue.to_owned());
        self
    }

    /// Adds a consumer that begins when the publishers have ended and the messages of its queue were
    /// counted.
    #[must_use]
    pub fn consume_in_the_end(mut self, options: ConsumerOptions) -> Self {
        self.kept.push(options);
        self
    }

    /// Adds a client that declares and deletes queues.
    #[must_use]
    pub fn churn(mut self, uris: Vec<String>) -> Self {
        self.churns.push(Churn::start(Arc::clone(&self.history), uris));
        self
    }

    /// Adds clients that request and answer.
    #[must_use]
    pub fn request(mut self, uris: Vec<String>) -> Self {
        self.requests.push(Requests::start(Arc::clone(&self.history), uris));
        self
    }

    /// Adds a client that behaves badly.
    #[must_use]
    pub fn rude(mut self, uris: &[String], victims: Victims) -> Self {
        self.rude.push(Rude::start(Arc::clone(&self.history), uris, victims));
        self
    }

    /// Waits for so many further deliveries.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn delivers(&self, further: usize) {
        let goal = self.history.deliveries_of(&self.queue) + further;
        eventually(&format!("{further} further deliveries"), || {
            let have = self.history.deliveries_of(&self.queue);
            std::future::ready(hold(have >= goal, || format!("{have} of {goal}")))
        })
        .await;
    }

    /// Waits for so many further confirms.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn confirms(&self, further: usize) {
        let goal = self.history.confirms_of(&self.queue) + further;
        eventually(&format!("{further} further confirms"), || {
            let have = self.history.confirms_of(&self.queue);
            std::future::ready(hold(have >= goal, || format!("{have} of {goal}")))
        })
        .await;
    }

    /// The longest times without a confirm and without a delivery since `from`.
    #[must_use]
    pub fn longest_gaps(&self, from: Duration) -> [Duration; 2] {
        let (history, to) = (&self.history, self.history.now());
        [
            history.longest_confirm_gap(&self.queue, from, to),
            history.longest_delivery_gap(&self.queue, from, to),
        ]
    }

    /// Stops the publishers, lets the consumers drain their queues, stops them too, and judges: the
    /// history against every invariant, the replicas against each other. All nodes must run.
    ///
    /// # Panics
    /// When anything of it does not end in time, or an invariant is broken.
    pub async fn finish(self, cluster: &Cluster) -> Summary {
        let log = self.drain(cluster).await;
        invariant::assert_sound(&log);
        Summary { confirmed: log.confirms(), deliveries: log.delivered.len() }
    }

    /// Stops the publishers, lets the consumers drain their queues, stops them too, and compares the
    /// replicas: the finished history. All nodes must run.
    ///
    /// # Panics
    /// When anything of it does not end in time, or replicas differ.
    pub async fn drain(mut self, cluster: &Cluster) -> Log {
        // If not all has come, the verdict is about what is lost.
        if self.deliver_all().await {
            // Unconfirmed ones that the queues have all the same, letters and acks under way. A letter that
            // was on its way while the queues were inspected one by one is where it goes at the second time.
            for _ in 0..2 {
                self.are_empty(cluster).await;
            }
        }
        self.stop_consumers().await;
        invariant::assert_replicas_equal(cluster).await;
        self.history.snapshot()
    }

    /// As [`Load::drain`], at a broker of which only the address of a node is known: ready messages are
    /// counted by passive declares, again after the consumers have gone, and replicas are not compared.
    ///
    /// # Panics
    /// When anything of it does not end in time.
    pub async fn drain_at(mut self, uri: &str) -> Log {
        let all_came = self.deliver_all().await;
        if all_came {
            for _ in 0..2 {
                self.are_empty_at(uri).await;
            }
        }
        self.stop_consumers().await;
        if all_came {
            self.are_empty_at(uri).await;
        }
        self.history.snapshot()
    }

    /// Stops the publishers, and waits until all confirmed messages are delivered; false if none is
    /// for [`HANGS`].
    async fn deliver_all(&mut self) -> bool {
        for publisher in std::mem::take(&mut self.publishers) {
            publisher.finish().await;
        }
        for churn in std::mem::take(&mut self.churns) {
            churn.finish().await;
        }
        for requests in std::mem::take(&mut self.requests) {
            requests.finish().await;
        }
        for rude in std::mem::take(&mut self.rude) {
            rude.finish().await;
        }
        for kept in std::mem::take(&mut self.kept) {
            for uri in &kept.uris {
                self.count(uri, &kept.queue).await;
            }
            self.queues.insert(kept.queue.clone());
            self.consumers.push(Consumer::start(Arc::clone(&self.history), kept));
        }
        // Slow consumers may have left many, so that only a standstill says that no more will come.
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            let awaited = self.history.awaited();
            if awaited == 0 {
                return true;
            } else if awaited < least {
                (least, since) = (awaited, Instant::now());
            } else if since.elapsed() > HANGS {
                return false;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Writes down how many messages a node counts in a queue.
    async fn count(&self, uri: &str, queue: &str) {
        let count = eventually("a node counts a queue's messages", || async {
            let connection = try_connect(uri).await.map_err(|error| error.to_string())?;
            let count = ready(&connection, queue).await;
            let _ = close_in_time(&connection).await;
            count.map_err(|code| format!("'{queue}' at {uri}: reply code {code:?}"))
        });
        self.history.counted(queue, u64::from(count.await));
    }

    async fn stop_consumers(&mut self) {
        for consumer in std::mem::take(&mut self.consumers) {
            consumer.finish().await;
        }
    }

    async fn are_empty_at(&self, uri: &str) {
        eventually("the queues are empty", || async {
            let text = |error: lapin::Error| error.to_string();
            let connection = try_connect(uri).await.map_err(text)?;
            for queue in &self.queues {
                let ready = ready(&connection, queue).await;
                let ready = ready.map_err(|code| format!("'{queue}': reply code {code:?}"))?;
                hold(ready == 0, || format!("'{queue}' has {ready} messages"))?;
            }
            // The channels of the inspection may still be closing, which is no news of the queues.
            let _ = close_in_time(&connection).await;
            Ok(())
        })
        .await;
    }

    async fn are_empty(&self, cluster: &Cluster) {
        eventually("the queues are empty", || async {
            let rows = cluster.rows(1, &["list_queues", "name", "messages"]).await?;
            let mut filled = rows.iter().filter(|row| {
                let name = ctl::text(row, "name");
                let loaded = self.queues.contains(&name) || name.starts_with(DELAYED);
                loaded && ctl::count(row, "messages") != Ok(0)
            });
            let filled = filled.next();
            hold(filled.is_none(), || format!("{filled:?}"))
        })
        .await;
    }
}
