//! Messages of a queue, browsed: looked at on any replica, without consuming, counting or marking
//! them.
//!
//! A page looks at a bounded number of messages and reads a bounded number of bytes, and its cursor
//! goes on from there; so a filter that few messages match costs as many pages as are needed, and
//! never a long request. Before a page is read, the replica is brought up to date if the group has a
//! majority; without one, the page shows what the replica has, and says so.

pub(crate) mod looker;
pub(crate) mod place;

pub use looker::{Ahead, LookError, MessageState};
pub use place::{Cursor, Position, PositionError, Shown};
pub use quorate_queue::{DeathReason, Letter, Stage};

use crate::{
    Broker,
    leader::dead_letter::annotate::{Death, annotate},
    node::Node,
    views::browse::looker::{Item, Items, Looker},
};
use bytes::Bytes;
use quorate_catalog::QueueEntry;
use quorate_queue::{Transfer, Via};
use quorate_storage::{MessageRef, StoredMessage, codec::message};
use quorate_types::{
    Counts, Home, Message, MessageFilter, MessageId, QueueId, ResourceName, ShortString, Timestamp,
    WallTime, json_bytes_max, properties_json_bytes_max,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Messages of a page, at most.
pub const PAGE_MESSAGES_MAX: usize = 1_000;
/// Bytes that are shown of one body, at most.
pub const SHOWN_BYTES_MAX: usize = 4 << 20;
/// Bytes of a page in JSON, about: no more messages are added above that.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// Messages that a page looks at, at most.
const LOOKED_AT_MAX: u64 = 10_000;
/// Bytes that a page reads, about.
const READ_BYTES_MAX: usize = 64 << 20;
/// How long a page goes on to look at messages.
const PAGE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a page waits for its replica to be brought up to date.
const FRESH_MAX: Duration = Duration::from_secs(1);
/// Messages that are looked at in one step, and bytes of bodies that are read in one.
const STEP_MESSAGES: usize = 128;
const STEP_BYTES: usize = 1 << 20;
/// What a message takes in a page besides its body and properties, about.
const OVERHEAD_BYTES: usize = 512;

/// What a page shall have.
#[derive(Clone, Debug)]
pub struct BrowseQuery {
    /// Where it begins; `None`: at the first message.
    pub from: Option<Position>,
    /// Messages of the page, at most.
    pub count: usize,
    /// Only messages that it matches.
    pub filter: MessageFilter,
    /// Bytes that are shown of each body.
    pub shown_bytes: usize,
}

/// A message that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct BrowsedMessage {
    /// Its position, which it keeps.
    pub id: MessageId,
    /// Where it is in its life.
    pub state: MessageState,
    /// How often it was acquired and returned.
    pub counts: Counts,
    /// Its own time to live.
    pub expiration_ms: Option<u64>,
    /// Its age: since it was enqueued, or of a dead letter since it died.
    pub age_ms: u64,
    /// When that was, by the wall clock of this node.
    pub since: WallTime,
    /// The message, its body cut to what is shown.
    pub message: Message,
    /// Bytes of the whole body.
    pub body_bytes: usize,
    /// The queues that it waits for as a dead letter.
    pub targets: Vec<LetterTarget>,
    /// When it is ready again, by the wall clock of this node, if it waits for its retry (RQU-08).
    pub retry_at: Option<WallTime>,
}

/// A queue that a dead letter waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterTarget {
    /// Its name; `None`: it has ended, or its name is not known here.
    pub name: Option<ShortString>,
    /// The attempt to send to it that is under way; `None`: it is full, and will be tried again.
    pub attempt: Option<u32>,
}

/// A page of messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Browsed {
    /// The messages, in the order of the queue.
    pub messages: Vec<BrowsedMessage>,
    /// Where the next page begins; `None`: there are no more messages.
    pub next: Option<Cursor>,
    /// Number of messages that were looked at.
    pub looked_at: u64,
    /// Messages that exist, but could not be read on any replica.
    pub unreadable: u64,
    /// The replica could not be brought up to date.
    pub stale: bool,
}

impl Broker {
    /// A page of a queue's messages, from this node's replica.
    ///
    /// # Errors
    /// Why they cannot be looked at.
    pub async fn browse(
        &self,
        queue: &ResourceName,
        query: BrowseQuery,
    ) -> Result<Browsed, LookError> {
        let entry = self.0.base.known_queue(queue).ok_or(LookError::NoQueue)?;
        let stale = !self.0.is_up_to_date(entry.id).await?;
        let page = self.0.looked(move |node| Page::new(query).read(&node, &entry)).await?;
        Ok(Browsed { stale, ..page })
    }
}

impl Node {
    /// Brings this node's replica of a queue up to date. False: there was no majority to ask.
    pub(crate) async fn is_up_to_date(&self, queue: QueueId) -> Result<bool, LookError> {
        let Home::Group(group) = queue.home else { return Ok(true) };
        let replica = self.base.context.group(group).ok_or(LookError::NoReplica)?;
        Ok(replica.linearizable(FRESH_MAX).await.is_ok())
    }

    /// Looks at messages where it may take its time; few at once.
    pub(crate) async fn looked<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(Arc<Self>) -> Result<T, LookError> + Send + 'static,
    ) -> Result<T, LookError> {
        let turn = self.turns.look().await.ok_or(LookError::Busy)?;
        let node = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            look(node)
        });
        looked.await.unwrap_or(Err(LookError::Busy))
    }

    /// The message of an item; `None`: it has been settled since, or (`Err`) cannot be read.
    pub(crate) fn stored(
        &self,
        queue: QueueId,
        id: MessageId,
    ) -> Result<Option<Bytes>, Unreadable> {
        let wanted = MessageRef { queue, message: id };
        let own = self.base.bodies.read_messages(queue, &[wanted], None, 0);
        match own.into_iter().next().unwrap_or(StoredMessage::Unknown) {
            StoredMessage::Here(bytes) => Ok(Some(bytes)),
            StoredMessage::Absent => Ok(None),
            StoredMessage::Unknown => {
                let elsewhere = self.base.bodies.message(wanted);
                let found = tokio::runtime::Handle::current().block_on(elsewhere);
                found.map(Some).ok_or(Unreadable)
            }
        }
    }

    /// The queues that a message waits for.
    pub(crate) fn letter_targets(&self, state: &MessageState) -> Vec<LetterTarget> {
        let MessageState::Letter(_, letter) = state else { return Vec::new() };
        let Stage::Routed(routing) = &letter.stage else { return Vec::new() };
        let target = |(queue, transfer): (&QueueId, &Transfer)| LetterTarget {
            name: self.base.queue_name(*queue).map(|name| name.name),
            attempt: match transfer {
                Transfer::UnderWay { attempt, .. } => Some(*attempt),
                Transfer::Waits => None,
            },
        };
        routing.transfers.iter().map(target).collect()
    }

    /// The age of an item, and when it began.
    pub(crate) fn age(&self, now: Timestamp, item: &Item) -> (u64, WallTime) {
        let wall = self.base.context.settings.wall.now();
        match (&item.state, item.enqueued_at) {
            (MessageState::Letter(_, letter), _) => {
                (wall.0.saturating_sub(letter.died_at.0), letter.died_at)
            }
            (
                MessageState::Ready | MessageState::Delayed { .. } | MessageState::Unacked { .. },
                since,
            ) => {
                let age = now.ms_since(since.unwrap_or(now));
                (age, WallTime(wall.0.saturating_sub(age)))
            }
        }
    }

    /// The clock of a queue's home.
    pub(crate) fn clock(
        &self,
        looker: &Looker<'_>,
        queue: QueueId,
    ) -> Result<Timestamp, LookError> {
        let state = looker.machine(quorate_queue::Machine::time)?;
        Ok(self.base.led.clock(queue.home).unwrap_or(state).max(state))
    }
}

/// When a message is ready again that waits for its retry, by this node's wall clock.
pub(crate) fn retry_at(node: &Node, now: Timestamp, state: &MessageState) -> Option<WallTime> {
    let MessageState::Delayed { until } = state else { return None };
    let wall = node.base.context.settings.wall.now();
    Some(WallTime(wall.0.saturating_add(until.ms_since(now))))
}

/// No replica can read the message at present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable;

/// A page that is being read.
struct Page {
    query: BrowseQuery,
    browsed: Browsed,
    shown_bytes: usize,
    read_bytes: usize,
    until: Instant,
}

impl Page {
    fn new(query: BrowseQuery) -> Self {
        let until = Instant::now() + PAGE_TIME_MAX;
        Self { query, browsed: Browsed::default(), shown_bytes: 0, read_bytes: 0, until }
    }

    fn is_full(&self) -> bool {
        self.browsed.messages.len() >= self.query.count.min(PAGE_MESSAGES_MAX)
            || self.shown_bytes >= PAGE_BYTES_MAX
            || self.browsed.looked_at >= LOOKED_AT_MAX
            || self.read_bytes >= READ_BYTES_MAX
            || (self.browsed.looked_at > 0 && self.is_late())
    }

    /// A step that finds nothing takes its time too.
    fn is_late(&self) -> bool {
        Instant::now() > self.until
    }

    fn read(mut self, node: &Node, entry: &QueueEntry) -> Result<Browsed, LookError> {
        let looker = Looker::new(&node.base, entry.id)?;
        let now = node.clock(&looker, entry.id)?;
        let mut next = match self.query.from {
            None => Some(Cursor::START),
            Some(position) => Some(looker.cursor(position)?),
        };
        while let Some(from) = next
            && !self.is_full()
        {
            let Items { items, next: behind } = looker.items(from, STEP_MESSAGES)?;
            next = self.add(node, (entry, now), &items).or(behind);
            if self.is_late() {
                break;
            }
        }
        // A page that ends with the last message says so.
        while let Some(from) = next
            && !self.is_late()
        {
            let Items { items, next: behind } = looker.items(from, 1)?;
            if !items.is_empty() {
                break;
            }
            next = behind;
        }
        self.browsed.next = next;
        Ok(self.browsed)
    }

    /// Adds messages until the page is full; the cursor at the first one that was not looked at.
    fn add(
        &mut self,
        node: &Node,
        (entry, now): (&QueueEntry, Timestamp),
        items: &[Item],
    ) -> Option<Cursor> {
        let queue = entry.id;
        let mut rest = items;
        while let Some(first) = rest.first() {
            if self.is_full() {
                return Some(first.cursor());
            }
            let wanted: Vec<_> =
                rest.iter().map(|item| MessageRef { queue, message: item.id }).collect();
            let mut read = node.base.bodies.read_messages(queue, &wanted, None, STEP_BYTES);
            if read.is_empty() {
                read.push(StoredMessage::Unknown);
            }
            for found in read {
                let Some((item, behind)) = rest.split_first() else { break };
                if self.is_full() {
                    return Some(item.cursor());
                }
                rest = behind;
                self.browsed.looked_at += 1;
                let bytes = match found {
                    StoredMessage::Here(bytes) => Ok(Some(bytes)),
                    StoredMessage::Absent => Ok(None),
                    StoredMessage::Unknown => node.stored(queue, item.id),
                };
                match bytes
                    .map(|bytes| bytes.map(|bytes| self.show(node, (entry, now), item, &bytes)))
                {
                    // It has been settled since it was looked at.
                    Ok(None) | Ok(Some(Ok(()))) => {}
                    Err(Unreadable) | Ok(Some(Err(Unreadable))) => self.browsed.unreadable += 1,
                }
            }
        }
        None
    }

    /// Adds a message, if the filter matches it.
    fn show(
        &mut self,
        node: &Node,
        (entry, now): (&QueueEntry, Timestamp),
        item: &Item,
        bytes: &Bytes,
    ) -> Result<(), Unreadable> {
        self.read_bytes = self.read_bytes.saturating_add(bytes.len());
        let message = message::decode(bytes).map_err(|_| Unreadable)?;
        let message = as_it_died(&entry.name, item, message);
        let (age_ms, since) = node.age(now, item);
        if !self.query.filter.matches(&message, age_ms) {
            return Ok(());
        }
        let mut shown = browsed(item, &message, (age_ms, since), self.query.shown_bytes);
        shown.targets = node.letter_targets(&item.state);
        shown.retry_at = retry_at(node, now, &item.state);
        let body = json_bytes_max(&shown.message.body);
        let bytes = body + properties_json_bytes_max(&shown.message.properties) + OVERHEAD_BYTES;
        self.shown_bytes = self.shown_bytes.saturating_add(bytes);
        self.browsed.messages.push(shown);
        Ok(())
    }
}

/// A dead letter with the death that its targets will be told of; other messages as they are.
pub(crate) fn as_it_died(queue: &ResourceName, item: &Item, message: Message) -> Message {
    let MessageState::Letter(_, letter) = &item.state else { return message };
    if letter.reason == DeathReason::Delayed {
        return message;
    }
    let death = Death { queue, reason: letter.reason, at: letter.died_at };
    let via = Via { exchange: message.exchange.clone(), routing_key: None };
    match annotate(message.clone(), death, &via) {
        Ok(letter) => Message { annotations: letter.message.annotations, ..message },
        Err(_) => message,
    }
}

/// What is shown of a message. It shares no memory with the stored one, which may be large.
pub(crate) fn browsed(
    item: &Item,
    message: &Message,
    (age_ms, since): (u64, WallTime),
    shown_bytes: usize,
) -> BrowsedMessage {
    let shown = shown_bytes.min(SHOWN_BYTES_MAX).min(message.body.len());
    let body = Bytes::copy_from_slice(message.body.get(..shown).unwrap_or_default());
    BrowsedMessage {
        id: item.id,
        state: item.state.clone(),
        counts: item.counts,
        expiration_ms: item.expiration_ms,
        age_ms,
        since,
        message: Message {
            exchange: message.exchange.detached(),
            routing_key: message.routing_key.detached(),
            further_keys: message.further_keys.iter().map(|key| key.detached()).collect(),
            properties: Bytes::copy_from_slice(&message.properties),
            annotations: message.annotations.detached(),
            body,
        },
        body_bytes: message.body.len(),
        targets: Vec::new(),
        retry_at: None,
    }
}
