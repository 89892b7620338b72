//! What a connection remembers of its user's rights to publish (ACL-13).

use quorate_catalog::{Access, Catalog, Resource, Rights, Who, access_refused};
use quorate_types::{CatalogIndex, Exception, ShortString};
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
    allowed: Vec<ShortString>,
}

impl PublishAccess {
    /// Drops what it remembers if the catalog's access version has changed.
    pub(crate) fn refresh(&mut self, catalog: &Catalog, who: Who<'_>) {
        let version = Some(catalog.access_version());
        if self.version != version {
            let (rights, topics) = (catalog.rights(who).cloned(), catalog.has_topic_rights(who));
            *self = Self { version, rights, topics, allowed: Vec::new() };
        }
    }

    /// Checks write access to an exchange.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check(&mut self, who: Who<'_>, exchange: &ShortString) -> Result<(), Exception> {
        if self.allowed.contains(exchange) {
            return Ok(());
        }
        let resource = Resource::Exchange(exchange);
        if !self.rights.as_ref().is_some_and(|rights| rights.allow(Access::Write, resource)) {
            return Err(access_refused(who, Access::Write, resource));
        }
        if self.allowed.len() >= REMEMBERED_MAX {
            self.allowed.remove(0);
        }
        self.allowed.push(exchange.detached());
        Ok(())
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
