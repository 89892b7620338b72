//! Queues of every group and of every kind, and clients that load them all: beside the load of a
//! test, so that its verdict is about more than one plain queue.

use super::{ConsumerOptions, Load, PublisherOptions, Traits};
use crate::harness::Cluster;
use crate::harness::amqp::{declare_with, int, open, text};
use crate::harness::spread::{declare_in_groups, queue_groups};
use lapin::options::QueuePurgeOptions;
use lapin::types::AMQPValue;

/// Where dead letters go.
const DEAD: &[&str] = &["mix-rejected", "mix-expired", "mix-dropped"];

/// Number of plain queues at a broker whose groups are not known.
const PLAIN: usize = 6;

/// The queues, declared.
#[derive(Debug)]
pub struct Mix {
    /// One in each group, with nothing particular about it.
    plain: Vec<String>,
}

/// Where the clients of a mix connect.
#[derive(Clone, Debug)]
pub struct Homes {
    /// Each client begins at another of these, in turn.
    pub uris: Vec<String>,
    /// Whether clients go on to the next when they lose their connection.
    pub reconnects: bool,
}

impl Mix {
    /// Declares them, through all nodes.
    ///
    /// # Panics
    /// When that does not work, or leaves a group without a queue.
    pub async fn declare(cluster: &Cluster) -> Self {
        let groups = queue_groups(cluster).await;
        let plain = declare_in_groups(cluster, "mix-plain", groups).await;
        declare_particular(&cluster.amqp_uri(1), &[]).await;
        Self { plain }
    }

    /// Declares them at a broker of which only the address of a node is known, and purges them.
    ///
    /// # Panics
    /// When that does not work.
    pub async fn declare_at(uri: &str) -> Self {
        let plain: Vec<String> = (1..=PLAIN).map(|number| format!("mix-plain-{number}")).collect();
        declare_particular(uri, &plain).await;
        Self { plain }
    }

    /// Adds a light load on all of them.
    #[must_use]
    pub fn load(&self, load: Load, homes: &Homes) -> Load {
        describe(&load);
        let mut place = 0;
        let mut uris = || {
            place += 1;
            let all = homes.uris.iter().cycle().skip(place);
            all.take(homes.uris.len()).cloned().collect::<Vec<_>>()
        };
        let particular =
            ["mix-letters", "mix-ages", "mix-short", "mix-refuses", "mix-classic", "mix-single"];
        let particular: Vec<String> = particular.map(str::to_owned).into();
        let levels = vec!["mix-levels".to_owned()];
        let mut load = load;
        for (queues, per_second, priorities, transactions_of) in [
            (self.plain.clone(), 120, 0, 0),
            (self.plain.clone(), 120, 0, 0),
            (particular, 240, 0, 0),
            (levels, 40, 3, 0),
            // A transaction takes in several groups.
            (self.plain.clone(), 40, 0, 8),
        ] {
            load = load.publish(PublisherOptions {
                uris: uris(),
                queues,
                priorities,
                per_second,
                transactions_of,
                reconnects: homes.reconnects,
                ..PublisherOptions::new(String::new(), "")
            });
        }
        let plain = self.plain.iter().map(|queue| (queue.as_str(), 20, 0, 0));
        let dead = DEAD.iter().map(|queue| (*queue, 20, 0, 0));
        let others = [
            // Queue, prefetch, one of so many returned, one of so many rejected.
            ("mix-letters", 20, 5, 3),
            ("mix-ages", 2, 10, 0),
            ("mix-short", 2, 10, 0),
            ("mix-refuses", 5, 0, 0),
            ("mix-classic", 20, 10, 0),
            ("mix-single", 20, 10, 0),
            ("mix-single", 20, 10, 0),
            ("mix-levels", 5, 10, 0),
        ];
        for (queue, prefetch, returns_every, rejects_every) in plain.chain(dead).chain(others) {
            load = load.consume(ConsumerOptions {
                uris: uris(),
                prefetch,
                returns_every,
                rejects_every,
                reconnects: homes.reconnects,
                ..ConsumerOptions::new(String::new(), queue)
            });
        }
        load
    }
}

/// Declares these plain queues and all others, and purges them.
async fn declare_particular(uri: &str, plain: &[String]) {
    let (connection, channel) = open(uri).await;
    let quorum = || vec![("x-queue-type", text("quorum"))];
    let plain = plain.iter().map(|queue| (queue.as_str(), quorum()));
    let dead = DEAD.iter().map(|queue| (*queue, quorum()));
    for (queue, arguments) in plain.chain(dead).chain(particular()) {
        declare_with(&channel, queue, &arguments).await;
        let purged = channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await;
        purged.unwrap_or_else(|error| panic!("purge '{queue}': {error}"));
    }
    connection.close(200, "declared".into()).await.expect("close-ok");
}

type Arguments = Vec<(&'static str, AMQPValue)>;

fn particular() -> Vec<(&'static str, Arguments)> {
    let quorum = || ("x-queue-type", text("quorum"));
    let to = |queue| {
        vec![
            quorum(),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(queue)),
        ]
    };
    let with = |mut arguments: Arguments, further: Arguments| {
        arguments.extend(further);
        arguments
    };
    let at_least_once = || ("x-dead-letter-strategy", text("at-least-once"));
    vec![
        ("mix-letters", with(to("mix-rejected"), vec![at_least_once()])),
        ("mix-ages", with(to("mix-expired"), vec![("x-message-ttl", int(50))])),
        ("mix-short", with(to("mix-dropped"), vec![("x-max-length", int(3))])),
        (
            "mix-refuses",
            vec![quorum(), ("x-max-length", int(20)), ("x-overflow", text("reject-publish"))],
        ),
        ("mix-levels", vec![quorum(), ("x-max-priority", int(5))]),
        ("mix-single", vec![quorum(), ("x-single-active-consumer", AMQPValue::Boolean(true))]),
        ("mix-classic", vec![("x-queue-type", text("classic"))]),
    ]
}

fn describe(load: &Load) {
    let letters = |queue: &str, dies| Traits {
        dead_letters: Some(queue.to_owned()),
        dies,
        ..Traits::default()
    };
    let history = load.history();
    history.describe("mix-letters", letters("mix-rejected", false));
    history.describe("mix-ages", letters("mix-expired", true));
    history.describe("mix-short", letters("mix-dropped", true));
    history.describe("mix-single", Traits { single_active: true, ..Traits::default() });
}
