//! Publishers and consumers on one queue, from the first message to the verdict.

use super::{Consumer, ConsumerOptions, History, Publisher, PublisherOptions};
use crate::harness::wait::{eventually, hold};
use crate::harness::{Cluster, LIFECYCLE_BOUND};
use crate::invariant;
use std::sync::Arc;
use std::time::Duration;

/// Clients under way, and what they wrote down.
#[derive(Debug, Default)]
pub struct Load {
    history: Arc<History>,
    publishers: Vec<Publisher>,
    consumers: Vec<Consumer>,
}

/// What came of it, once the verdict was good.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Publishes confirmed.
    pub confirmed: usize,
    /// Deliveries, repeated ones included.
    pub deliveries: usize,
}

impl Load {
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
        self.consumers.push(Consumer::start(Arc::clone(&self.history), options));
        self
    }

    /// Waits for so many further deliveries.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn delivers(&self, further: usize) {
        let goal = self.history.deliveries() + further;
        eventually(&format!("{further} further deliveries"), LIFECYCLE_BOUND, || {
            let have = self.history.deliveries();
            std::future::ready(hold(have >= goal, || format!("{have} of {goal}")))
        })
        .await;
    }

    /// Waits for so many further confirms.
    ///
    /// # Panics
    /// When they do not come.
    pub async fn confirms(&self, further: usize) {
        let goal = self.history.confirms() + further;
        eventually(&format!("{further} further confirms"), LIFECYCLE_BOUND, || {
            let have = self.history.confirms();
            std::future::ready(hold(have >= goal, || format!("{have} of {goal}")))
        })
        .await;
    }

    /// Stops the publishers, lets the consumers drain `queue`, stops them too, and judges: the
    /// history against every invariant, the replicas against each other. All nodes must run.
    ///
    /// # Panics
    /// When anything of it does not end in time, or an invariant is broken.
    pub async fn finish(self, cluster: &Cluster, queue: &str) -> Summary {
        for publisher in self.publishers {
            publisher.finish(LIFECYCLE_BOUND).await;
        }
        let history = &self.history;
        eventually("all confirmed messages are delivered", Duration::from_secs(120), || {
            let awaited = history.awaited();
            std::future::ready(hold(awaited == 0, || format!("{awaited} are awaited")))
        })
        .await;
        // Unconfirmed ones that the queue has all the same, and acks under way.
        eventually("the queue is empty", LIFECYCLE_BOUND, || async {
            let [messages] = cluster.counts(1, queue, ["messages"]).await?;
            hold(messages == 0, || format!("{messages} messages"))
        })
        .await;
        for consumer in self.consumers {
            consumer.finish(LIFECYCLE_BOUND).await;
        }
        let log = history.snapshot();
        invariant::assert_sound(&log);
        invariant::assert_replicas_equal(cluster).await;
        Summary { confirmed: history.confirms(), deliveries: log.delivered.len() }
    }
}
