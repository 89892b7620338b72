//! Queues of every group and of every kind, and clients that load them all: beside the load of a
//! test, so that its verdict is about more than one plain queue.

use super::{ConsumerOptions, Length, Load, Overflow, PublisherOptions, Traits, Victims};
use crate::harness::amqp::{arguments, bind, declare_with, durable, int, open, text};
use crate::harness::spread::{declare_in_groups, queue_groups};
use crate::harness::{Cluster, scale};
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueuePurgeOptions};
use lapin::types::AMQPValue;
use std::time::Duration;

/// Where dead letters go.
const DEAD: [&str; 5] =
    ["mix-rejected", "mix-expired", "mix-dropped", "mix-limited", "mix-chain-end"];

/// Queues from one to the next of which messages expire.
const CHAIN: [&str; 3] = ["mix-chain-1", "mix-chain-2", "mix-chain-3"];

/// The exchange that delays messages.
const DELAYS: &str = "mix-delays";
/// The queue with priorities.
const LEVELS: &str = "mix-levels";

/// The queue whose messages have 1 to 8 MiB.
const LARGE: &str = "mix-large";

/// The queue that has no consumer until the publishers have ended.
const KEPT: &str = "mix-kept";

/// Time to live in each queue of the chain, and in the queue whose messages die of age, in milliseconds.
const LIVES_MS: u32 = 50;

/// How often the queue with a limit delivers a message again.
const DELIVERY_LIMIT: u32 = 3;

/// Most ready messages of the queue that drops its oldest, and of the queue that refuses publishes.
const SHORT_LENGTH: u32 = 3;
const REFUSES_LENGTH: u32 = 20;

/// Number of plain queues at a broker whose groups are not known.
const PLAIN: usize = 6;

/// The queues, declared.
#[derive(Debug)]
pub struct Mix {
    /// One in each group, with nothing particular about it.
    plain: Vec<String>,
    /// Whether the broker has delayed exchanges: the peer wants a plugin for them.
    has_delays: bool,
    /// Whether it has quorum queues with priorities: the peer has not.
    has_levels: bool,
}

/// Where the clients of a mix connect.
#[derive(Clone, Debug)]
pub struct Homes {
    /// Each client begins at another of these, in turn.
    pub uris: Vec<String>,
    /// Whether clients go on to the next when they lose their connection.
    pub reconnects: bool,
    /// What the rates of all publishers are divided by, as far as at least one message a second is left.
    pub divisor: u32,
}

impl Homes {
    /// With the rates that this run of the tests has.
    #[must_use]
    pub fn new(uris: Vec<String>, reconnects: bool) -> Self {
        let divisor = u32::try_from(scale::MIX_DIVISOR.get()).unwrap_or(u32::MAX);
        Self { uris, reconnects, divisor }
    }
}

impl Mix {
    /// Declares them, through all nodes.
    ///
    /// # Panics
    /// When that does not work, or leaves a group without a queue.
    pub async fn declare(cluster: &Cluster) -> Self {
        let groups = queue_groups(cluster).await;
        let plain = declare_in_groups(cluster, "mix-plain", groups).await;
        let uri = cluster.amqp_uri(1);
        declare_particular(&uri, &[]).await;
        declare_delays(&uri).await.unwrap_or_else(|error| panic!("declare '{DELAYS}': {error}"));
        declare_levels(&uri).await.unwrap_or_else(|error| panic!("declare '{LEVELS}': {error}"));
        Self { plain, has_delays: true, has_levels: true }
    }

    /// Declares them at a broker of which only the address of a node is known, and purges them.
    ///
    /// # Panics
    /// When that does not work.
    pub async fn declare_at(uri: &str) -> Self {
        let plain: Vec<String> = (1..=PLAIN).map(|number| format!("mix-plain-{number}")).collect();
        declare_particular(uri, &plain).await;
        let has = |what: &str, declared: lapin::Result<()>| match declared {
            Ok(()) => true,
            Err(error) => {
                eprintln!("no {what} here: {error}");
                false
            }
        };
        let has_delays = has("delayed messages", declare_delays(uri).await);
        let has_levels = has("priorities", declare_levels(uri).await);
        Self { plain, has_delays, has_levels }
    }

    /// Adds a load on all of them.
    #[must_use]
    pub fn load(&self, load: Load, homes: &Homes) -> Load {
        describe(&load);
        let mut place = 0;
        let mut uris = || {
            place += 1;
            let all = homes.uris.iter().cycle().skip(place);
            all.take(homes.uris.len()).cloned().collect::<Vec<_>>()
        };
        let mut load = CHAIN.iter().fold(load, |load, queue| load.passes_on(queue));
        for publisher in self.publishers() {
            let (uris, reconnects) = (uris(), homes.reconnects);
            let per_second = (publisher.per_second / homes.divisor).max(1);
            load = load.publish(PublisherOptions { uris, reconnects, per_second, ..publisher });
        }
        let plain = self.plain.iter();
        let plain = plain.map(|queue| ConsumerOptions { holds: true, ..of(queue, 20, 0, 0) });
        let levels = self.has_levels.then(|| of(LEVELS, 5, 10, 0));
        for consumer in plain.chain(consumers()).chain(levels) {
            let (uris, reconnects) = (uris(), homes.reconnects);
            // A get without a majority closes its connection (GET-06).
            let polls = consumer.polls && reconnects;
            load = load.consume(ConsumerOptions { uris, reconnects, polls, ..consumer });
        }
        let (uris, reconnects) = (uris(), homes.reconnects);
        let kept = ConsumerOptions { uris, reconnects, ..of(KEPT, 100, 0, 0) };
        load = load.consume_in_the_end(kept);
        if !homes.reconnects {
            return load;
        }
        let victims = Victims { plain: self.plain.clone(), large: LARGE.to_owned() };
        load.churn(homes.uris.clone()).request(homes.uris.clone()).rude(&homes.uris, victims)
    }

    fn publishers(&self) -> Vec<PublisherOptions> {
        let to = |queues: &[String], per_second| PublisherOptions {
            queues: queues.to_vec(),
            per_second,
            ..PublisherOptions::new(String::new(), "")
        };
        let named =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let particular = named(&[
            "mix-letters",
            "mix-ages",
            "mix-short",
            "mix-refuses",
            "mix-classic",
            "mix-single",
        ]);
        let mut publishers = vec![
            to(&self.plain, 120),
            to(&self.plain, 120),
            to(&particular, 240),
            to(&named(&["mix-chain-1", "mix-limit", "mix-polled"]), 60),
            to(&named(&[KEPT]), 20),
            // 1, 2, 4 and 8 MiB.
            PublisherOptions {
                body_bytes: 1 << 20,
                doublings: 3,
                window: 2,
                ..to(&named(&[LARGE]), 1)
            },
            // A transaction takes in several groups.
            PublisherOptions { transactions_of: 8, ..to(&self.plain, 40) },
        ];
        if self.has_levels {
            publishers.push(PublisherOptions { priorities: 3, ..to(&named(&[LEVELS]), 40) });
        }
        if self.has_delays {
            publishers.push(PublisherOptions {
                exchange: DELAYS.to_owned(),
                delay_max_ms: 2_000,
                ..to(&named(&["mix-delayed"]), 30)
            });
        }
        publishers
    }
}

/// A consumer with this prefetch, which returns one of so many and rejects one of so many.
fn of(queue: &str, prefetch: u16, returns_every: u64, rejects_every: u64) -> ConsumerOptions {
    ConsumerOptions {
        prefetch,
        returns_every,
        rejects_every,
        ..ConsumerOptions::new(String::new(), queue)
    }
}

/// The consumers of all queues but the plain ones.
fn consumers() -> Vec<ConsumerOptions> {
    let dead = |queue, deaths| ConsumerOptions { deaths, ..of(queue, 20, 0, 0) };
    vec![
        of("mix-letters", 20, 5, 3),
        of("mix-ages", 2, 10, 0),
        of("mix-short", 2, 10, 0),
        of("mix-refuses", 5, 0, 0),
        of("mix-classic", 20, 10, 0),
        of("mix-single", 20, 10, 0),
        of("mix-single", 20, 10, 0),
        of(LARGE, 2, 0, 0),
        of("mix-delayed", 20, 10, 0),
        ConsumerOptions { polls: true, ..of("mix-polled", 1, 7, 0) },
        ConsumerOptions { returns_all: true, ..of("mix-limit", 10, 0, 0) },
        dead("mix-rejected", &[("mix-letters", "rejected")]),
        dead("mix-expired", &[("mix-ages", "expired")]),
        dead("mix-dropped", &[("mix-short", "maxlen")]),
        dead("mix-limited", &[("mix-limit", "delivery_limit")]),
        dead(
            "mix-chain-end",
            &[("mix-chain-3", "expired"), ("mix-chain-2", "expired"), ("mix-chain-1", "expired")],
        ),
    ]
}

/// Declares these plain queues and all others, and purges them.
async fn declare_particular(uri: &str, plain: &[String]) {
    let (connection, channel) = open(uri).await;
    let quorum = || vec![("x-queue-type", text("quorum"))];
    let plain = plain.iter().map(|queue| (queue.as_str(), quorum()));
    let dead = DEAD.into_iter().map(|queue| (queue, quorum()));
    for (queue, arguments) in plain.chain(dead).chain(particular()) {
        declare_with(&channel, queue, &arguments).await;
        let purged = channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await;
        purged.unwrap_or_else(|error| panic!("purge '{queue}': {error}"));
    }
    connection.close(200, "declared".into()).await.expect("close-ok");
}

/// The exchange that delays messages, and its binding.
async fn declare_delays(uri: &str) -> lapin::Result<()> {
    let (connection, channel) = open(uri).await;
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let kind = ExchangeKind::Custom("x-delayed-message".into());
    let of = arguments(&[("x-delayed-type", text("direct"))]);
    channel.exchange_declare(DELAYS.into(), kind, options, of).await?;
    bind(&channel, "mix-delayed", DELAYS, "mix-delayed").await;
    connection.close(200, "declared".into()).await
}

/// The queue with priorities.
async fn declare_levels(uri: &str) -> lapin::Result<()> {
    let (connection, channel) = open(uri).await;
    let of = arguments(&[("x-queue-type", text("quorum")), ("x-max-priority", int(5))]);
    channel.queue_declare(LEVELS.into(), durable(), of).await?;
    channel.queue_purge(LEVELS.into(), QueuePurgeOptions::default()).await?;
    connection.close(200, "declared".into()).await
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
    let lives = || ("x-message-ttl", int(LIVES_MS.into()));
    // The peer transfers dead letters at least once only from queues that refuse what is too much.
    let surely_to = |queue| {
        let at_least_once = ("x-dead-letter-strategy", text("at-least-once"));
        with(to(queue), vec![at_least_once, ("x-overflow", text("reject-publish"))])
    };
    let chain = |next| with(surely_to(next), vec![lives()]);
    vec![
        ("mix-chain-1", chain("mix-chain-2")),
        ("mix-chain-2", chain("mix-chain-3")),
        ("mix-chain-3", chain("mix-chain-end")),
        (
            "mix-limit",
            with(surely_to("mix-limited"), vec![("x-delivery-limit", int(DELIVERY_LIMIT.into()))]),
        ),
        ("mix-polled", vec![quorum()]),
        (KEPT, vec![quorum()]),
        (LARGE, vec![quorum()]),
        ("mix-delayed", vec![quorum()]),
        ("mix-letters", surely_to("mix-rejected")),
        ("mix-ages", with(to("mix-expired"), vec![lives()])),
        ("mix-short", with(to("mix-dropped"), vec![("x-max-length", int(SHORT_LENGTH.into()))])),
        (
            "mix-refuses",
            vec![
                quorum(),
                ("x-max-length", int(REFUSES_LENGTH.into())),
                ("x-overflow", text("reject-publish")),
            ],
        ),
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
    let lives = Duration::from_millis(LIVES_MS.into());
    let history = load.history();
    history.describe("mix-letters", letters("mix-rejected", false));
    history.describe("mix-ages", Traits { lives, ..letters("mix-expired", true) });
    let length = |limit, overflow| Some(Length { limit, overflow });
    let short = length(SHORT_LENGTH.into(), Overflow::DropHead);
    history.describe("mix-short", Traits { length: short, ..letters("mix-dropped", true) });
    let refuses = length(REFUSES_LENGTH.into(), Overflow::RejectPublish);
    history.describe("mix-refuses", Traits { length: refuses, ..Traits::default() });
    history.describe("mix-single", Traits { single_active: true, ..Traits::default() });
    let delivery_limit = Some(DELIVERY_LIMIT);
    history.describe("mix-limit", Traits { delivery_limit, ..letters("mix-limited", false) });
    // The queues in between have no consumers.
    history.describe("mix-chain-1", Traits { lives: lives * 3, ..letters("mix-chain-end", true) });
}
