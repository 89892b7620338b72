//! The machine of one group: dispatches each command to the file that owns it, then lets the
//! touched queues settle down (hand out what is ready, end what is to end).

use crate::{
    command::{ConsumerTerms, Entry},
    config::QueueConfig,
    output::{Delivery, Effect, Output, RecordKey},
    record::{Record, RecordError},
    store::{MessageStore, StoreError},
};
use quorate_types::{ConsumerId, DeliveryNumber, Home, LogIndex, QueueId, ResourceName};

/// All queues of one group, or all connection-bound queues of one node.
#[derive(Debug)]
pub struct Machine {
    home: Home,
}

impl Machine {
    /// An empty machine.
    #[must_use]
    pub fn new(home: Home) -> Self {
        Self { home }
    }

    /// A machine from the records of a checkpoint, in any order.
    ///
    /// # Errors
    /// A record that contradicts another.
    pub fn load(
        home: Home,
        records: impl IntoIterator<Item = (RecordKey, Record)>,
    ) -> Result<Self, RecordError> {
        let _ = records;
        Ok(Self { home })
    }

    /// Applies the entry at `index`. `out` is filled from where it stands; the caller clears it.
    ///
    /// # Errors
    /// A failed read of the store; the machine is then of no further use.
    pub fn apply(
        &mut self,
        index: LogIndex,
        entry: &Entry,
        store: &dyn MessageStore,
        out: &mut Output,
    ) -> Result<(), StoreError> {
        let _ = (index, entry, store, out, self.home);
        Ok(())
    }

    /// The record of that name as it is now; `None` if it is no more.
    #[must_use]
    pub fn record(&self, key: RecordKey) -> Option<Record> {
        let _ = key;
        None
    }

    /// Every effect that the state still owes: what a new leader performs first. Deliveries are
    /// not among them; front ends ask by re-attaching (DLV 2).
    pub fn obligations(&self, effects: &mut Vec<Effect>) {
        let _ = effects;
    }

    /// What the consumer holds above number `after`, for a re-attach (DLV 2). `None`: no such
    /// consumer, its queue has ended.
    #[must_use]
    pub fn held_after(&self, consumer: ConsumerId, after: DeliveryNumber) -> Option<Vec<Delivery>> {
        let _ = (consumer, after);
        None
    }

    /// Rolling digest of everything applied.
    #[must_use]
    pub fn digest(&self) -> u64 {
        0
    }

    /// A queue's counts, for lists and metrics.
    #[must_use]
    pub fn queue(&self, id: QueueId) -> Option<QueueView> {
        let _ = id;
        None
    }

    /// Ids of all queues, ascending.
    pub fn queues(&self) -> impl Iterator<Item = QueueId> + '_ {
        std::iter::empty()
    }

    /// A queue's consumers, cancelled ones left out.
    #[must_use]
    pub fn consumers(&self, queue: QueueId) -> Vec<ConsumerView> {
        let _ = queue;
        Vec::new()
    }
}

/// A queue as lists and metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// Name.
    pub name: ResourceName,
    /// Effective settings.
    pub config: QueueConfig,
    /// Ready messages.
    pub ready: u64,
    /// Octets of their bodies.
    pub ready_bytes: u64,
    /// Messages held by consumers and gets.
    pub unacknowledged: u64,
    /// Consumers attached.
    pub consumers: u32,
}

/// A consumer as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerView {
    /// Consumer.
    pub consumer: ConsumerId,
    /// How it consumes.
    pub terms: ConsumerTerms,
    /// Messages that it holds.
    pub held: u64,
}
