//! Counters of this node for metrics, incremented where the events occur: once for each batch where
//! possible, since all connections write to the same cache lines.

use crate::views::{
    attempts::LoginCounters,
    exchange_counters::Exchanges,
    view::{DeadLetterCounters, DeliveryCounters, HistogramView, MetricsView},
    waits::LedWaits,
};
use parking_lot::Mutex;
use quorate_queue::{DeadLetterFact, DeadLetterStrategy};
use quorate_storage::Recorder;
use quorate_types::QueueType;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections_opened: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) logins: LoginCounters,
    pub(crate) channels_opened: Counter,
    pub(crate) channels_closed: Counter,
    pub(crate) queues_declared: Counter,
    pub(crate) queues_created: Counter,
    pub(crate) queues_deleted: Counter,
    pub(crate) received: Counter,
    pub(crate) received_confirm: Counter,
    pub(crate) routed: Counter,
    pub(crate) unroutable_returned: Counter,
    pub(crate) unroutable_dropped: Counter,
    pub(crate) confirmed: Counter,
    pub(crate) refused: Counter,
    /// Batches that a full lane refused; each is sent later.
    pub(crate) batches_refused: Counter,
    classic: Deliveries,
    quorum: Deliveries,
    /// Deaths and letters of queues that this node leads; behind a lock, since each entry adds
    /// once.
    dead_letters: Mutex<DeadLetterCounters>,
    /// What clients publish to each exchange.
    pub(crate) exchanges: Exchanges,
    /// Body sizes of publishes.
    pub(crate) message_sizes: MessageSizes,
    /// Waiting times of messages in the led queues.
    pub(crate) waits: LedWaits,
    /// Commands in each batch that this node's proposers have cut.
    pub(crate) batch_commands: Recorder,
    /// How long the first command of each batch had waited.
    pub(crate) batch_wait_us: Recorder,
}

/// Counters of deliveries from queues of one type.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    pub(crate) consumed_manual_ack: Counter,
    pub(crate) consumed_auto_ack: Counter,
    pub(crate) got_manual_ack: Counter,
    pub(crate) got_auto_ack: Counter,
    pub(crate) got_empty: Counter,
    pub(crate) redelivered: Counter,
    pub(crate) acknowledged: Counter,
}

/// A counter that several threads increment.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of message sizes, bytes: RabbitMQ's.
pub(crate) const SIZE_BOUNDS: [u64; 8] =
    [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 50_000_000, 100_000_000];

/// Body sizes of publishes.
#[derive(Debug, Default)]
pub(crate) struct MessageSizes {
    counts: [Counter; SIZE_BOUNDS.len() + 1],
    sum: Counter,
}

/// Sizes that are counted before they are added to the node's.
#[derive(Debug, Default)]
pub(crate) struct SizesCounted {
    counts: [u64; SIZE_BOUNDS.len() + 1],
    sum: u64,
}

impl SizesCounted {
    pub(crate) fn add(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        let bucket = SIZE_BOUNDS.partition_point(|bound| *bound < bytes);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += bytes;
    }
}

impl MessageSizes {
    pub(crate) fn take(&self, counted: &SizesCounted) {
        for (counter, count) in self.counts.iter().zip(counted.counts) {
            if count > 0 {
                counter.add(count);
            }
        }
        self.sum.add(counted.sum);
    }

    pub(crate) fn view(&self) -> HistogramView {
        HistogramView {
            bounds: SIZE_BOUNDS.to_vec(),
            counts: self.counts.iter().map(Counter::get).collect(),
            sum: self.sum.get(),
        }
    }
}

impl Counters {
    /// The counters of queues of that type.
    pub(crate) fn deliveries(&self, queue_type: QueueType) -> &Deliveries {
        match queue_type {
            QueueType::Classic => &self.classic,
            QueueType::Quorum => &self.quorum,
        }
    }

    /// Counts publishes that were answered by `basic.ack` or `basic.nack`.
    pub(crate) fn answered_publishes(&self, count: u64, taken: bool) {
        if taken { &self.confirmed } else { &self.refused }.add(count);
    }

    /// Counts messages that have died, or letters that have ended.
    pub(crate) fn dead_letters(
        &self,
        queue_type: QueueType,
        strategy: DeadLetterStrategy,
        fact: DeadLetterFact,
        count: u64,
    ) {
        *self.dead_letters.lock().entry((queue_type, strategy, fact)).or_default() += count;
    }

    /// Copies all counters into the view.
    pub(crate) fn show(&self, view: &mut MetricsView) {
        view.connections_opened = self.connections_opened.get();
        view.connections_closed = self.connections_closed.get();
        view.logins = self.logins.all();
        view.channels_opened = self.channels_opened.get();
        view.channels_closed = self.channels_closed.get();
        view.queues_declared = self.queues_declared.get();
        view.queues_created = self.queues_created.get();
        view.queues_deleted = self.queues_deleted.get();
        view.received = self.received.get();
        view.received_confirm = self.received_confirm.get();
        view.routed = self.routed.get();
        view.unroutable_returned = self.unroutable_returned.get();
        view.unroutable_dropped = self.unroutable_dropped.get();
        view.confirmed = self.confirmed.get();
        view.refused = self.refused.get();
        view.batches_refused = self.batches_refused.get();
        view.classic = self.classic.view();
        view.quorum = self.quorum.view();
        view.message_bytes = self.message_sizes.view();
        view.dead_letters = self.dead_letters.lock().clone();
    }
}

impl Deliveries {
    fn view(&self) -> DeliveryCounters {
        DeliveryCounters {
            consume_manual_ack: self.consumed_manual_ack.get(),
            consume_auto_ack: self.consumed_auto_ack.get(),
            get_manual_ack: self.got_manual_ack.get(),
            get_auto_ack: self.got_auto_ack.get(),
            get_empty: self.got_empty.get(),
            redelivered: self.redelivered.get(),
            acknowledged: self.acknowledged.get(),
        }
    }

    /// Counts messages delivered to a consumer.
    pub(crate) fn consumed(&self, count: u64, redelivered: u64, no_ack: bool) {
        if no_ack { &self.consumed_auto_ack } else { &self.consumed_manual_ack }.add(count);
        if redelivered > 0 {
            self.redelivered.add(redelivered);
        }
    }

    /// Counts a message that was fetched by basic.get.
    pub(crate) fn got(&self, redelivered: bool, no_ack: bool) {
        if no_ack { &self.got_auto_ack } else { &self.got_manual_ack }.add(1);
        self.redelivered.add(u64::from(redelivered));
    }
}
