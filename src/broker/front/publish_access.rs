//! What a connection remembers of its user's rights to publish (ACL-13), and what it has published
//! to each exchange since it last added that to the node's counters.

use crate::views::{
    exchange_counters::{ExchangeCounters, Exchanges},
    figures::ExchangeTraffic,
};
use quorate_catalog::{Access, Catalog, Resource, Rights, Who, access_refused};
use quorate_types::{CatalogIndex, Exception, ResourceName, ShortString};
use std::sync::Arc;

/// Most exchanges that a connection remembers as allowed.
const REMEMBERED_MAX: usize = 12;

/// The user's rights to publish, as of one access version of the catalog. A revoked right takes
/// effect at once (ACL-13).
#[derive(Debug, Default)]
pub(crate) struct PublishAccess {
    version: Option<CatalogIndex>,
    rights: Option<Arc<Rights>>,
    /// The user has topic permissions, which must be checked.
    topics: bool,
    /// Exchanges that were allowed, oldest first.
    allowed: Vec<Allowed>,
    /// Index of the exchange that was checked last.
    last: usize,
}

/// An exchange to which the user may publish.
#[derive(Debug)]
struct Allowed {
    exchange: ShortString,
    /// `None` if too many exchanges are counted.
    counters: Option<Arc<ExchangeCounters>>,
    counted: ExchangeTraffic,
}

impl Allowed {
    fn flush(&mut self) {
        if let Some(counters) = self.counters.as_ref().filter(|_| self.counted.published_in > 0) {
            counters.take(&mut self.counted);
        }
    }
}

impl PublishAccess {
    /// Drops what it remembers if the catalog's access version has changed.
    pub(crate) fn refresh(&mut self, catalog: &Catalog, who: Who<'_>) {
        let version = Some(catalog.access_version());
        if self.version != version {
            let (rights, topics) = (catalog.rights(who).cloned(), catalog.has_topic_rights(who));
            *self = Self { version, rights, topics, allowed: Vec::new(), last: 0 };
        }
    }

    /// Checks write access to an exchange.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check(
        &mut self,
        who: Who<'_>,
        exchange: &ShortString,
        exchanges: &Exchanges,
    ) -> Result<(), Exception> {
        if let Some(at) = self.allowed.iter().position(|allowed| allowed.exchange == *exchange) {
            self.last = at;
            return Ok(());
        }
        let resource = Resource::Exchange(exchange);
        if !self.rights.as_ref().is_some_and(|rights| rights.allow(Access::Write, resource)) {
            return Err(access_refused(who, Access::Write, resource));
        }
        if self.allowed.len() >= REMEMBERED_MAX {
            self.allowed.remove(0).flush();
        }
        self.last = self.allowed.len();
        let (vhost, exchange) = (who.vhost.clone(), exchange.detached());
        let counters = exchanges.of(ResourceName { vhost, name: exchange.clone() });
        self.allowed.push(Allowed { exchange, counters, counted: ExchangeTraffic::default() });
        Ok(())
    }

    /// Counts a publish to the exchange that was checked last.
    pub(crate) fn count(&mut self, targets: usize, is_routed: bool, mandatory: bool) {
        let Some(Allowed { counted, .. }) = self.allowed.get_mut(self.last) else { return };
        counted.published_in += 1;
        counted.published_out += targets as u64;
        counted.returned += u64::from(!is_routed && mandatory);
        counted.dropped += u64::from(!is_routed && !mandatory);
    }

    /// Adds what was counted to the node's counters.
    pub(crate) fn flush(&mut self) {
        self.allowed.iter_mut().for_each(Allowed::flush);
    }

    /// Checks topic permissions on all keys of a publish (ACL-14).
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check_topics<'a>(
        &self,
        catalog: &Catalog,
        who: Who<'_>,
        exchange: &ShortString,
        mut keys: impl Iterator<Item = &'a ShortString>,
    ) -> Result<(), Exception> {
        if !self.topics {
            return Ok(());
        }
        keys.try_for_each(|key| catalog.check_topic(who, Access::Write, exchange, key))
    }
}
