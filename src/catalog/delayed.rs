//! Exchanges of type `x-delayed-message` (EXC-17). They route like the type that their argument
//! `x-delayed-type` names. A message with a positive header `x-delay` is first kept for that many
//! milliseconds, in a queue that is created and removed with the exchange. So delayed messages are
//! replicated, listed and counted like all others.

use crate::{
    exchange::Exchange,
    machine::{Catalog, Vhost},
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
/// The longest delay, ms: ten years, the same bound as for TTLs (TTL-02).
pub const DELAY_MAX_MS: u64 = 315_360_000_000;
/// Prefix of the names of the queues of delayed exchanges; no client can declare such a name.
const PREFIX: &str = "amq.delayed.";
/// The argument that names the exchange type by which messages are routed after the delay.
pub(crate) const DELAYED_TYPE: &str = "x-delayed-type";

impl ExchangeRecord {
    /// The exchange type by which it routes: its own, or that of the argument `x-delayed-type`.
    pub(crate) fn routing_kind(&self) -> ExchangeType {
        if self.kind != ExchangeType::Delayed {
            return self.kind;
        }
        // The declare was refused if the argument was invalid.
        delayed_kind(self).unwrap_or(ExchangeType::Direct)
    }

    /// The queue in which a delayed exchange keeps messages; `None` for exchanges of other types.
    #[must_use]
    pub fn delay_queue(&self) -> Option<ResourceName> {
        if self.kind != ExchangeType::Delayed {
            return None;
        }
        let name = ShortString::try_from(format!("{PREFIX}{}", self.name.name).as_str()).ok()?;
        Some(ResourceName { vhost: self.name.vhost.clone(), name })
    }
}

/// The name of the delayed exchange that a queue of this name belongs to.
#[must_use]
pub fn delays_for(queue: &ShortString) -> Option<ShortString> {
    ShortString::try_from(queue.as_str().strip_prefix(PREFIX)?).ok()
}

/// The settings of the queue of a delayed exchange; policies do not apply to it. A message that
/// finds no route after its delay is dropped, like an unroutable publish.
#[must_use]
pub fn delay_config(exchange: ShortString, resolved_at: CatalogIndex) -> QueueConfig {
    QueueConfig {
        resolved_at,
        dead_letter: Some(DeadLetter { exchange, routing_key: None, at_least_once: false }),
        delays: true,
        ..QueueConfig::plain(QueueType::Quorum)
    }
}

impl Vhost {
    /// The name of the delayed exchange whose queue has this name, if there is such an exchange.
    pub(crate) fn delays_for(&self, queue: &ShortString) -> Option<ShortString> {
        let exchange = delays_for(queue)?;
        let is_delayed = |it: &Exchange| it.record.kind == ExchangeType::Delayed;
        self.exchanges.get(&exchange).is_some_and(is_delayed).then_some(exchange)
    }
}

impl Catalog {
    /// The name of the delayed exchange that a queue belongs to, if there is such an exchange. Such a
    /// queue gets messages from its exchange only, and is neither bound nor deleted but with it.
    #[must_use]
    pub fn delayed_exchange_of(&self, queue: &ResourceName) -> Option<ShortString> {
        self.vhosts.get(&queue.vhost)?.delays_for(&queue.name)
    }
}

/// How long a delayed exchange keeps a message, ms; `None`: the message is routed at once.
#[must_use]
pub fn delay_of(properties: &Properties) -> Option<u64> {
    // Searching the bytes avoids decoding the headers of all other messages.
    let bytes = properties.headers.as_ref()?;
    if !bytes.windows(DELAY.len()).any(|name| name == DELAY.as_bytes()) {
        return None;
    }
    let headers = properties.decode_headers().ok()??;
    let delay = headers.get(DELAY)?.as_whole_number()?;
    u64::try_from(delay).ok().filter(|delay| *delay > 0)
}

/// The headers of a message after its delay. The header `x-delay` is negated, so that no exchange
/// delays the message again, and its receiver sees how long the delay was.
#[must_use]
pub fn after_delay(headers: FieldTable) -> FieldTable {
    let negated = |(name, value): (ShortString, FieldValue)| {
        let delay = if name.as_str() == DELAY { value.as_whole_number() } else { None };
        match delay {
            Some(delay) if delay > 0 => (name, FieldValue::I64(-delay)),
            Some(_) | None => (name, value),
        }
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
    /// All delayed exchanges whose queue does not exist (yet).
    pub fn delayed_exchanges_without_queue(&self) -> impl Iterator<Item = &ExchangeRecord> {
        let without = |record: &&ExchangeRecord| {
            record.delay_queue().is_some_and(|queue| self.queue_by_name(&queue).is_none())
        };
        self.exchanges().filter(without)
    }

    /// Removes the queue entry of a delayed exchange that was removed; the queue ends in its group.
    pub(crate) fn remove_delay_queue(&mut self, queue: &ResourceName, out: &mut CatalogOutput) {
        let Some(queue) = self.queue_by_name(queue).map(|entry| entry.id) else { return };
        drop(self.remove_queue(queue, out));
        out.events.push(CatalogEvent::DelayQueueRemoved { queue });
    }
}
