//! Counters of what this node's clients publish to each exchange. A connection looks an exchange up
//! once and adds what it has counted after each read of its socket.

use crate::views::{counters::Counter, figures::ExchangeTraffic};
use parking_lot::Mutex;
use quorate_types::ResourceName;
use std::{collections::BTreeMap, sync::Arc};

/// Exchanges that are counted. Publishes to further ones count with the node only.
const EXCHANGES_MAX: usize = 20_000;

/// The counters of one exchange.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCounters {
    published_in: Counter,
    published_out: Counter,
    returned: Counter,
    dropped: Counter,
}

impl ExchangeCounters {
    /// Adds what was counted elsewhere, and takes it from there.
    pub(crate) fn take(&self, counted: &mut ExchangeTraffic) {
        let ExchangeTraffic { published_in, published_out, returned, dropped } =
            std::mem::take(counted);
        for (counter, count) in [
            (&self.published_in, published_in),
            (&self.published_out, published_out),
            (&self.returned, returned),
            (&self.dropped, dropped),
        ] {
            if count > 0 {
                counter.add(count);
            }
        }
    }

    fn traffic(&self) -> ExchangeTraffic {
        ExchangeTraffic {
            published_in: self.published_in.get(),
            published_out: self.published_out.get(),
            returned: self.returned.get(),
            dropped: self.dropped.get(),
        }
    }
}

/// The exchanges that clients of this node have published to.
#[derive(Debug, Default)]
pub(crate) struct Exchanges(Mutex<BTreeMap<ResourceName, Arc<ExchangeCounters>>>);

impl Exchanges {
    /// The counters of an exchange; `None` if too many are counted already.
    pub(crate) fn of(&self, name: ResourceName) -> Option<Arc<ExchangeCounters>> {
        let mut exchanges = self.0.lock();
        if exchanges.len() >= EXCHANGES_MAX && !exchanges.contains_key(&name) {
            return None;
        }
        Some(Arc::clone(exchanges.entry(name).or_default()))
    }

    pub(crate) fn all(&self) -> Vec<(ResourceName, ExchangeTraffic)> {
        let exchanges = self.0.lock();
        exchanges.iter().map(|(name, counters)| (name.clone(), counters.traffic())).collect()
    }

    /// Forgets an exchange that is not there any more.
    pub(crate) fn forget(&self, name: &ResourceName) {
        self.0.lock().remove(name);
    }
}
