//! Bodies of messages: from this node's own copy, else from the leader's, else from another
//! replica's (DLV 1).
//!
//! A body that cannot be read may still exist: the search ends only when a leader reports that the
//! message has been settled.
//!
//! Only a leader that has applied the entry can know that a message has been settled. So after a
//! read error the body is requested from the leader and then from the other replicas, and the error
//! is logged once a minute for each queue. The process does not end because of it: it would end
//! again at each start, and the other copies are intact.

use crate::{
    context::Context,
    front::{
        proposers::Proposers,
        unwritten::{Fetching, Unwritten},
    },
    leader::led_homes::LedHomes,
    memory::{MemoryBudget, Share},
    once_per_minute::OncePerMinute,
    peers::{PeerReply, PeerRequest},
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_raft::Group;
use quorate_storage::{Committed, MessageRef, StorageError, StoredMessage};
use quorate_types::{Home, NodeId, QueueId, Term};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Pause between two attempts to get a body: the first one, and the longest.
const RETRY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];
/// Longest time of one attempt to get a body from another node.
const FETCH: Duration = Duration::from_secs(30);
/// Most bodies and bytes in one answer to another node. The first body is sent whatever its size.
const ANSWER_MAX: usize = 256;
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What was found of messages that were asked for together.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) first: StoredMessage,
    /// The bodies of those that follow it.
    pub(crate) next: Vec<Bytes>,
}

impl Found {
    fn unknown() -> Self {
        Self { first: StoredMessage::Unknown, next: Vec::new() }
    }
}

/// Reads bodies here and fetches them from other nodes.
#[derive(Debug)]
pub(crate) struct Bodies {
    context: Arc<Context>,
    led: Arc<LedHomes>,
    proposers: Arc<Proposers>,
    /// When an unreadable message of each queue was last logged.
    unreadable: Mutex<OncePerMinute<QueueId>>,
    /// Bodies fetched at the same time for consumers; each is counted as memory when it has
    /// arrived.
    fetches: Arc<Semaphore>,
}

impl Bodies {
    pub(crate) fn new(
        context: Arc<Context>,
        led: Arc<LedHomes>,
        proposers: Arc<Proposers>,
    ) -> Self {
        let message_bytes_max = context.settings.front.max_message_size;
        let fetches = fetches(&context.memory, message_bytes_max);
        Self { context, led, proposers, unreadable: Mutex::default(), fetches }
    }

    /// Whether an unreadable message of the queue may be logged now.
    pub(crate) fn may_report_unreadable(&self, queue: QueueId) -> bool {
        self.unreadable.lock().is_due(queue, Instant::now())
    }

    /// What this node has of messages that the leader of `term`, or of an earlier term, has named:
    /// in the order asked for, about `bytes_max` bytes of them, at least one if any is wanted.
    pub(crate) fn read_messages(
        &self,
        queue: QueueId,
        wanted: &[MessageRef],
        term: Option<Term>,
        bytes_max: usize,
    ) -> Vec<StoredMessage> {
        let Home::Group(group) = queue.home else {
            return self.led.local.messages(wanted, bytes_max);
        };
        let read = self.context.group(group).map(|group| {
            let applied = group.applied().unwrap_or_default();
            group.store().messages(wanted, Committed { applied, term }, bytes_max)
        });
        match read {
            Some(Ok(messages)) => messages,
            Some(Err(error)) => {
                self.report_unreadable(queue, &error);
                wanted.first().map(|_| StoredMessage::Unknown).into_iter().collect()
            }
            // Another node has them (MEM 12).
            None => wanted.first().map(|_| StoredMessage::Unknown).into_iter().collect(),
        }
    }

    fn report_unreadable(&self, queue: QueueId, error: &StorageError) {
        if self.may_report_unreadable(queue) {
            tracing::error!(
                %queue, %error, "a message body cannot be read; reading it from another replica"
            );
        }
    }

    /// Gets a body from any node; `None` if it is gone or cannot be found within the time of an
    /// operation. If no leader has named the message, only applied entries count.
    pub(crate) async fn message(&self, wanted: MessageRef) -> Option<Bytes> {
        if let StoredMessage::Here(body) = self.own_copy(wanted, None) {
            return Some(body);
        }
        let bound = self.context.operation_timeout();
        // The size is not known yet, so no more bodies are fetched at the same time than memory
        // allows.
        let wanted = [wanted];
        let find = self.find(&wanted, None, || self.fetches.acquire(), || true);
        match tokio::time::timeout(bound, find).await.map(|(found, _)| found.first) {
            Ok(StoredMessage::Here(body)) => Some(body),
            Ok(StoredMessage::Absent | StoredMessage::Unknown) | Err(_) => None,
        }
    }

    /// Gets a body from any node; absent if it has been settled. Unknown only if it is no longer
    /// wanted.
    pub(crate) async fn find_message(
        &self,
        wanted: MessageRef,
        term: Option<Term>,
        is_wanted: impl Fn() -> bool,
    ) -> StoredMessage {
        self.find(&[wanted], term, || std::future::ready(()), is_wanted).await.0.first
    }

    /// As [`Bodies::find_message`], for a consumer of a connection, one of which fetches at a time; with
    /// the bodies that follow the first one, as far as a node sends them with it. The turn ends while no
    /// node has the first body, so that other consumers get theirs.
    pub(crate) async fn find_in_turn(
        &self,
        wanted: &[MessageRef],
        term: Term,
        unwritten: &Unwritten,
        is_wanted: impl Fn() -> bool,
    ) -> (Found, Fetching) {
        self.find(wanted, Some(term), || unwritten.turn_to_fetch(&self.fetches), is_wanted).await
    }

    /// Searches repeatedly, each time in a new turn; returns the last turn too.
    async fn find<T, F: Future<Output = T>>(
        &self,
        wanted: &[MessageRef],
        term: Option<Term>,
        turn: impl Fn() -> F,
        is_wanted: impl Fn() -> bool,
    ) -> (Found, T) {
        let [mut pause, pause_max] = RETRY;
        loop {
            let turn = turn().await;
            if !is_wanted() {
                return (Found::unknown(), turn);
            }
            let Some(first) = wanted.first() else { return (Found::unknown(), turn) };
            let found = self.search(*first, wanted, term).await;
            if found.first != StoredMessage::Unknown {
                return (found, turn);
            }
            drop(turn);
            self.pause(*first, pause).await;
            pause = (2 * pause).min(pause_max);
        }
    }

    /// Searches once: here, at the leader, at the other replicas.
    async fn search(&self, first: MessageRef, all: &[MessageRef], term: Option<Term>) -> Found {
        let home = first.queue.home;
        let own = self.own_copy(first, term);
        if own != StoredMessage::Unknown || matches!(home, Home::Node(_)) {
            return Found { first: own, next: Vec::new() };
        }
        let leader = self.proposers.leader(home).map(|(node, _)| node);
        if leader == Some(self.context.me) && !self.has_applied(first) {
            // The entry is being applied here.
            return Found::unknown();
        }
        let others = self.context.members().into_iter().filter(|node| Some(*node) != leader);
        for node in leader.into_iter().chain(others).filter(|node| *node != self.context.me) {
            let found = self.ask_for_bodies(node, all, term).await;
            if found.first != StoredMessage::Unknown {
                return found;
            }
        }
        Found::unknown()
    }

    /// What this node knows of a message. Only a leader can report a message as settled, since it
    /// has every body that is not (STO 7).
    fn own_copy(&self, wanted: MessageRef, term: Option<Term>) -> StoredMessage {
        // Read first: if the leadership ends during the read, its result was still complete.
        let leads = self.led.leading(wanted.queue.home).is_some();
        let found = self.read_messages(wanted.queue, &[wanted], term, 0).pop();
        let found = found.filter(|found| leads || *found != StoredMessage::Absent);
        found.unwrap_or(StoredMessage::Unknown)
    }

    /// Waits until another search may succeed: the entry is applied here, or some time has passed.
    async fn pause(&self, wanted: MessageRef, time: Duration) {
        match self.group_of(wanted) {
            Some(group) if !self.has_applied(wanted) => {
                // The entry was not applied in time, so other nodes are searched again.
                let _ = group.wait_applied(wanted.message.index, time).await;
            }
            Some(_) | None => tokio::time::sleep(time).await,
        }
    }

    fn has_applied(&self, wanted: MessageRef) -> bool {
        let applied = self.group_of(wanted).and_then(|group| group.applied());
        applied.is_some_and(|applied| applied >= wanted.message.index)
    }

    fn group_of(&self, wanted: MessageRef) -> Option<Arc<Group>> {
        let Home::Group(group) = wanted.queue.home else { return None };
        self.context.groups()?.group(group)
    }

    /// Asks another node for bodies; unknown if it does not answer.
    async fn ask_for_bodies(
        &self,
        node: NodeId,
        wanted: &[MessageRef],
        term: Option<Term>,
    ) -> Found {
        let request = PeerRequest::Bodies { messages: wanted.to_vec(), term };
        let Some(PeerReply::Bodies(bodies)) = self.context.peers.ask(node, request, FETCH).await
        else {
            return Found::unknown();
        };
        let mut bodies = bodies.into_iter();
        let first = bodies.next().unwrap_or(StoredMessage::Unknown);
        let body = |found| match found {
            StoredMessage::Here(body) => Some(body),
            StoredMessage::Absent | StoredMessage::Unknown => None,
        };
        Found { first, next: bodies.map_while(body).collect() }
    }

    /// What this node knows of messages, for another node: as many as one reply may have, at least
    /// one.
    pub(crate) fn own_copies(
        &self,
        messages: &[MessageRef],
        term: Option<Term>,
    ) -> Vec<StoredMessage> {
        let mut bodies = Vec::new();
        let mut bytes = 0;
        for wanted in messages.iter().take(ANSWER_MAX) {
            if bytes >= ANSWER_BYTES_MAX {
                break;
            }
            let found = self.own_copy(*wanted, term);
            bytes += found.bytes();
            bodies.push(found);
        }
        bodies
    }
}

/// Bodies of unknown size that the node may fetch at the same time for consumers: so many that half
/// of its memory for deliveries holds them, if each has the largest size of a message.
fn fetches(memory: &MemoryBudget, message_bytes_max: u64) -> Arc<Semaphore> {
    let fit = memory.share_bytes_max(Share::Deliveries) / 2 / message_bytes_max.max(1);
    Arc::new(Semaphore::new(usize::try_from(fit).unwrap_or(usize::MAX).clamp(2, 64)))
}
