//! One message explained: where it came from, what it went through, why it died, and what will
//! become of it by the settings of its queue and the routes of the catalog as they are now.

pub(crate) mod text;

use crate::{
    Broker,
    node::Node,
    views::browse::{
        BrowsedMessage, Unreadable, as_it_died, browsed,
        looker::{Ahead, LookError, Looker, MessageState},
        place::{Position, Shown},
        retry_at,
    },
};
use bytes::Bytes;
use quorate_catalog::{Catalog, QueueEntry};
use quorate_queue::{DeathReason, Destination, QueueConfig, Via};
use quorate_storage::codec::message;
use quorate_types::{QueueId, ResourceName, ShortString};

/// Bytes of the body that an explanation shows.
const SHOWN_BYTES: usize = 1_024;

/// What a message will become, and what it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The message.
    pub message: BrowsedMessage,
    /// The messages that are delivered before it; `None` unless it is ready.
    pub ahead: Option<Ahead>,
    /// Returns after which it dies; `None`: any number.
    pub delivery_limit: Option<u32>,
    /// Its time to live by its own expiration and its queue's settings, ms; `None`: any time.
    pub ttl_ms: Option<u64>,
    /// Where it goes when it dies; `None`: its queue names no dead-letter exchange.
    pub dead_letter: Option<DeadLetterPath>,
    /// All of it in words.
    pub text: Vec<String>,
}

/// Where dead letters of a queue go now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterPath {
    /// The dead-letter exchange.
    pub exchange: ShortString,
    /// The routing key that it would have.
    pub routing_key: ShortString,
    /// Names of the queues that it would reach.
    pub queues: Vec<ShortString>,
    /// Why it would reach none.
    pub nowhere: Option<Nowhere>,
}

/// Why a dead letter would reach no queue, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nowhere {
    /// The exchange does not exist: the letter is dropped.
    NoExchange,
    /// No queue is bound with its key: the letter is dropped.
    NoQueue,
    /// As one of both, but the strategy is at-least-once: the letter waits until a queue takes it.
    Kept,
    /// It has died in all of these queues before, and no client has rejected it since: it is dropped.
    Cycle,
}

impl Broker {
    /// Explains one message of a queue, from this node's replica.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    pub async fn explain(
        &self,
        queue: &ResourceName,
        position: Position,
    ) -> Result<Explanation, LookError> {
        let entry = self.0.base.known_queue(queue).ok_or(LookError::NoQueue)?;
        self.0.is_up_to_date(entry.id).await?;
        self.0.looked(move |node| explain(&node, &entry, position)).await
    }
}

fn explain(node: &Node, entry: &QueueEntry, position: Position) -> Result<Explanation, LookError> {
    let looker = Looker::new(&node.base, entry.id)?;
    let now = node.clock(&looker, entry.id)?;
    let item = looker.find(position)?;
    let gone = || LookError::NoMessage(Shown(item.id).to_string());
    let stored = node.stored(entry.id, item.id);
    let unreadable =
        |Unreadable| LookError::Store(format!("message {} cannot be read", Shown(item.id)));
    let bytes = stored.map_err(unreadable)?.ok_or_else(gone)?;
    let decoded = message::decode(&bytes).map_err(|error| LookError::Store(error.to_string()))?;
    let decoded = as_it_died(&entry.name, &item, decoded);
    let mut message = browsed(&item, &decoded, node.age(now, &item), SHOWN_BYTES);
    message.targets = node.letter_targets(&item.state);
    message.retry_at = retry_at(node, now, &item.state);
    let ahead = match item.state {
        MessageState::Ready => Some(looker.ahead_of(item.id)?),
        MessageState::Delayed { .. } | MessageState::Unacked { .. } | MessageState::Letter(..) => {
            None
        }
    };
    let config = looker.machine(|machine| machine.queue(entry.id))?.map(|view| view.config);
    let config = config.ok_or(LookError::NoQueue)?;
    let ttl_ms = match (config.message_ttl_ms, item.expiration_ms) {
        (Some(queue), Some(own)) => Some(queue.min(own)),
        (queue, own) => queue.or(own),
    };
    // Only a rejection by a client may lead a letter back to where it died.
    let reason = if ttl_ms.is_some() { DeathReason::Expired } else { DeathReason::Rejected };
    let mut explanation = Explanation {
        ahead,
        ttl_ms,
        delivery_limit: config.delivery_limit,
        dead_letter: path(node, entry, &config, (&decoded.routing_key, &bytes), reason),
        message,
        text: Vec::new(),
    };
    explanation.text = text::sentences(entry, &config, &explanation);
    Ok(explanation)
}

/// Where the message goes when it dies.
fn path(
    node: &Node,
    entry: &QueueEntry,
    config: &QueueConfig,
    (key, bytes): (&ShortString, &Bytes),
    reason: DeathReason,
) -> Option<DeadLetterPath> {
    let dead_letter = config.dead_letter.as_ref()?;
    let (exchange, routing_key) = (dead_letter.exchange.clone(), dead_letter.routing_key.clone());
    let via = Via { exchange: exchange.clone(), routing_key: routing_key.clone() };
    let reason = if config.delays { DeathReason::Delayed } else { reason };
    let destination = node.letters.would_go((&entry.name, reason), bytes, &via);
    let catalog = node.base.catalog.read();
    let full = ResourceName { vhost: entry.name.vhost.clone(), name: exchange.clone() };
    let exists = exchange.is_empty() || catalog.exchange(&full).is_some();
    let (queues, nowhere) = match destination {
        Destination::Targets(targets) => (names(&catalog, &targets), None),
        Destination::Cycle => (Vec::new(), Some(Nowhere::Cycle)),
        Destination::Nothing | Destination::NotYet if dead_letter.at_least_once => {
            (Vec::new(), Some(Nowhere::Kept))
        }
        Destination::Nothing | Destination::NotYet if exists => {
            (Vec::new(), Some(Nowhere::NoQueue))
        }
        Destination::Nothing | Destination::NotYet => (Vec::new(), Some(Nowhere::NoExchange)),
    };
    let routing_key = routing_key.unwrap_or_else(|| key.detached());
    Some(DeadLetterPath { exchange, routing_key, queues, nowhere })
}

fn names(catalog: &Catalog, queues: &[QueueId]) -> Vec<ShortString> {
    let entries = queues.iter().filter_map(|queue| catalog.queue_by_id(*queue));
    entries.map(|entry| entry.name.name.clone()).collect()
}
