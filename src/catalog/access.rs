//! Authorization: whether a user may do an operation (ACL-01 to ACL-16). All such decisions are
//! made in this file.
//!
//! The decision needs only the copy of the catalog that each node has. `broker/front/access` asks
//! for it at the operations for which the access rules (ACL) require it.

use crate::{machine::Catalog, objects::ExchangeType, permission::Rights, refusal};
use quorate_types::{CatalogIndex, Exception, ResourceName, ShortString, VhostName};
use std::sync::Arc;

/// The default exchange is checked under this name (ACL-03).
const DEFAULT_EXCHANGE: ShortString = ShortString::from_static("amq.default");

/// An operation on a queue or exchange, as permissions distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are RabbitMQ's own")]
pub enum Access {
    Configure,
    Write,
    Read,
}

impl Access {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The queue or exchange that an operation acts on.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// A queue, by its name.
    Queue(&'a ShortString),
    /// An exchange, by its name.
    Exchange(&'a ShortString),
}

impl Resource<'_> {
    /// The name that the permission's pattern is matched against.
    fn checked(self) -> ShortString {
        match self {
            Self::Exchange(name) if name.is_empty() => DEFAULT_EXCHANGE,
            Self::Queue(name) | Self::Exchange(name) => name.clone(),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Exchange(_) => "exchange",
        }
    }
}

/// The user that asks, and the virtual host in which it asks.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// Name of the virtual host.
    pub vhost: &'a VhostName,
    /// Name of the user.
    pub user: &'a ShortString,
}

impl Rights {
    /// True if the permission for `access` matches the resource's name.
    #[must_use]
    pub fn allow(&self, access: Access, resource: Resource<'_>) -> bool {
        let pattern = match access {
            Access::Configure => &self.configure,
            Access::Write => &self.write,
            Access::Read => &self.read,
        };
        pattern.matches(resource.checked().as_bytes())
    }
}

impl Catalog {
    /// Grows whenever users, virtual hosts, permissions or limits change: a decision that was
    /// cached at a lower version may be outdated.
    #[must_use]
    pub fn access_version(&self) -> CatalogIndex {
        self.access_version.0
    }

    /// The user's permissions in the virtual host; `None`: the user may not even connect to it
    /// (ACL-01).
    #[must_use]
    pub fn rights(&self, who: Who<'_>) -> Option<&Arc<Rights>> {
        self.rights.get(&(who.vhost.clone(), who.user.clone()))
    }

    /// Checks whether the user has `access` to `resource` (ACL-02 to ACL-04).
    ///
    /// # Errors
    /// 403.
    pub fn check_access(
        &self,
        who: Who<'_>,
        access: Access,
        resource: Resource<'_>,
    ) -> Result<(), Exception> {
        match self.rights(who) {
            Some(rights) if rights.allow(access, resource) => Ok(()),
            Some(_) | None => Err(access_refused(who, access, resource)),
        }
    }

    /// Checks a passive declare, which needs any one of the three permissions.
    ///
    /// # Errors
    /// 403 that names `configure` (ACL-04).
    pub fn check_passive(&self, who: Who<'_>, resource: Resource<'_>) -> Result<(), Exception> {
        let all = [Access::Configure, Access::Write, Access::Read];
        let any = |rights: &Arc<Rights>| all.iter().any(|access| rights.allow(*access, resource));
        match self.rights(who) {
            Some(rights) if any(rights) => Ok(()),
            Some(_) | None => Err(access_refused(who, Access::Configure, resource)),
        }
    }

    /// True if the user has topic permissions in the virtual host, on any exchange.
    #[must_use]
    pub fn has_topic_rights(&self, who: Who<'_>) -> bool {
        let first = (who.vhost.clone(), who.user.clone(), ShortString::EMPTY);
        let next = self.topic_rights.range(first..).next();
        next.is_some_and(|((vhost, user, _), _)| vhost == who.vhost && user == who.user)
    }

    /// Checks topic permissions, if the exchange is a topic exchange: whether the user may publish
    /// with a routing key (`Access::Write`) or bind with a binding key (`Access::Read`) (ACL-14,
    /// ACL-15).
    ///
    /// # Errors
    /// 403.
    pub fn check_topic(
        &self,
        who: Who<'_>,
        access: Access,
        exchange: &ShortString,
        key: &ShortString,
    ) -> Result<(), Exception> {
        let row = (who.vhost.clone(), who.user.clone(), exchange.clone());
        let Some(rights) = self.topic_rights.get(&row) else { return Ok(()) };
        let name = ResourceName { vhost: who.vhost.clone(), name: exchange.clone() };
        let is_topic = |kind: ExchangeType| kind == ExchangeType::Topic;
        if !self.exchange(&name).is_some_and(|record| is_topic(record.routing_kind())) {
            return Ok(());
        }
        let pattern = match access {
            Access::Write => &rights.write,
            Access::Read | Access::Configure => &rights.read,
        };
        if pattern.matches(key.as_bytes()) {
            return Ok(());
        }
        Err(refusal::topic(access.name(), key, &name, who.user))
    }
}

/// The refusal of an operation that the user has no permission for (ACL-04).
#[must_use]
pub fn access_refused(who: Who<'_>, access: Access, resource: Resource<'_>) -> Exception {
    let name = ResourceName { vhost: who.vhost.clone(), name: resource.checked() };
    refusal::access(access.name(), resource.kind(), &name, who.user)
}
