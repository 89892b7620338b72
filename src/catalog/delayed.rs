//! Exchanges of type `x-delayed-message` (EXC-17): they route as the type that their argument
//! `x-delayed-type` names, but keep a message with a positive header `x-delay` for so many
//! milliseconds first. They keep it in a queue of their own, which is made with them and goes with
//! them: so it is replicated, listed and counted like any other.

use crate::{
    machine::Catalog,
    objects::{ExchangeRecord, ExchangeType},
    output::{CatalogEvent, CatalogOutput},
    refusal,
};
use quorate_queue::{DeadLetter, QueueConfig};
use quorate_types::{
    CatalogIndex, Exception, FieldTable, FieldValue, Properties, QueueType, ResourceName,
    ShortString,
};

/// The header that asks for a delay, ms.
pub const DELAY: &str = "x-delay";
/// The longest delay, ms: ten years, as with times to live (TTL-02).
pub const DELAY_MAX_MS: u64 = 315_360_000_000;
/// What names of the queues of delayed exchanges begin with; no client can declare such a name.
const PREFIX: &str = "amq.delayed.";
/// The argument that names the type to delay for.
pub(crate) const DELAYED_TYPE: &str = "x-delayed-type";

impl ExchangeRecord {
    /// How it routes: its type, or that which it delays for.
    pub(crate) fn routing_kind(&self) -> ExchangeType {
        if self.kind != ExchangeType::Delayed {
            return self.kind;
        }
        // It was accepted at declare.
        delayed_kind(self).unwrap_or(ExchangeType::Direct)
    }

    /// The queue that a delayed exchange keeps messages in; `None` for every other one.
    #[must_use]
    pub fn delay_queue(&self) -> Option<ResourceName> {
        if self.kind != ExchangeType::Delayed {
            return None;
        }
        let name = ShortString::try_from(format!("{PREFIX}{}", self.name.name).as_str()).ok()?;
        Some(ResourceName { vhost: self.name.vhost.clone(), name })
    }
}

/// The exchange whose delayed messages a queue of that name keeps.
#[must_use]
pub fn delays_for(queue: &ShortString) -> Option<ShortString> {
    ShortString::try_from(queue.as_str().strip_prefix(PREFIX)?).ok()
}

/// What the queue of a delayed exchange is set to; policies are not for it. What is due and finds
/// no route is dropped, as a publish without one is.
#[must_use]
pub fn delay_config(exchange: ShortString, resolved_at: CatalogIndex) -> QueueConfig {
    QueueConfig {
        resolved_at,
        dead_letter: Some(DeadLetter { exchange, routing_key: None, at_least_once: false }),
        delays: true,
        ..QueueConfig::plain(QueueType::Quorum)
    }
}

/// How long a delayed exchange keeps a message, ms; `None`: it routes it at once.
#[must_use]
pub fn delay_of(properties: &Properties) -> Option<u64> {
    // A look at the bytes spares decoding all other messages' headers.
    let bytes = properties.headers.as_ref()?;
    if !bytes.windows(DELAY.len()).any(|name| name == DELAY.as_bytes()) {
        return None;
    }
    let headers = properties.decode_headers().ok()??;
    let delay = headers.get(DELAY)?.as_integer()?;
    u64::try_from(delay).ok().filter(|delay| *delay > 0)
}

/// The headers of a message that has been kept for as long as it asked: the header is negated, so
/// that nothing keeps it again, and its receiver sees how long it was.
#[must_use]
pub fn after_delay(headers: FieldTable) -> FieldTable {
    let negated = |(name, value): (ShortString, FieldValue)| match value.as_integer() {
        Some(delay) if name.as_str() == DELAY && delay > 0 => (name, FieldValue::I64(-delay)),
        Some(_) | None => (name, value),
    };
    FieldTable(headers.0.into_iter().map(negated).collect())
}

/// EXC-17: the arguments of a new exchange.
pub(crate) fn check_delayed(declared: &ExchangeRecord) -> Result<(), Exception> {
    if declared.kind != ExchangeType::Delayed {
        return Ok(());
    }
    delayed_kind(declared)?;
    match declared.delay_queue() {
        Some(_) => Ok(()),
        None => Err(refusal::delayed_exchange_name(&declared.name, PREFIX)),
    }
}

fn delayed_kind(declared: &ExchangeRecord) -> Result<ExchangeType, Exception> {
    let given = declared.arguments.get(DELAYED_TYPE).and_then(FieldValue::as_long_string);
    let given = given.and_then(|name| std::str::from_utf8(name).ok());
    match given.map(ExchangeType::parse) {
        Some(Ok(ExchangeType::Delayed)) | None => Err(refusal::delayed_type()),
        Some(kind) => kind,
    }
}

impl Catalog {
    /// All delayed exchanges whose queue is not there (yet).
    pub fn delayed_exchanges_without_queue(&self) -> impl Iterator<Item = &ExchangeRecord> {
        let without = |record: &&ExchangeRecord| {
            record.delay_queue().is_some_and(|queue| self.queue_by_name(&queue).is_none())
        };
        self.exchanges().filter(without)
    }

    /// A delayed exchange is gone: so is its queue's entry, and the queue ends in its group.
    pub(crate) fn remove_delay_queue(&mut self, queue: &ResourceName, out: &mut CatalogOutput) {
        let Some(queue) = self.queue_by_name(queue).map(|entry| entry.id) else { return };
        drop(self.remove_queue(queue, out));
        out.events.push(CatalogEvent::DelayQueueRemoved { queue });
    }
}
