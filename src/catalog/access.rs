//! Whether a user may do something: the one place where it is decided (ACL-01 to ACL-16). When
//! which question is asked is the broker's to know.
//!
//! The decision needs only the copy of the catalog that each node has. `broker/front/access` asks for it
//! at the operations for which the access rules (ACL) require it.

use crate::{machine::Catalog, objects::ExchangeType, permission::Rights, refusal};
use quorate_types::{CatalogIndex, Exception, ResourceName, ShortString, VhostName};
use std::sync::Arc;

/// The default exchange is checked under this name (ACL-03).
const DEFAULT_EXCHANGE: ShortString = ShortString::from_static("amq.default");

/// What is to be done to a queue or exchange.
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

/// What it is done to.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// A queue, by its name.
    Queue(&'a ShortString),
    /// An exchange, by its name.
    Exchange(&'a ShortString),
}

impl Resource<'_> {
    /// The name that is checked.
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

/// Who does it, and where.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// Name of the virtual host.
    pub vhost: &'a VhostName,
    /// Name of the user.
    pub user: &'a ShortString,
}

impl Rights {
    /// True if the name is among those that this may be done to.
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
    /// Grows whenever users, virtual hosts, permissions or limits change: what was found out
    /// before may not hold any more.
    #[must_use]
    pub fn access_version(&self) -> CatalogIndex {
        self.access_version.0
    }

    /// The user's permissions in the virtual host; `None`: it may not even connect (ACL-01).
    #[must_use]
    pub fn rights(&self, who: Who<'_>) -> Option<&Arc<Rights>> {
        self.rights.get(&(who.vhost.clone(), who.user.clone()))
    }

    /// Whether this may be done to that (ACL-02 to ACL-04).
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

    /// A passive declare wants any one of the three.
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

    /// Whether a routing key may be published with (`Access::Write`) or a binding key bound with
    /// (`Access::Read`), where the exchange is a topic exchange (ACL-14, ACL-15).
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

/// ACL-04.
#[must_use]
pub fn access_refused(who: Who<'_>, access: Access, resource: Resource<'_>) -> Exception {
    let name = ResourceName { vhost: who.vhost.clone(), name: resource.checked() };
    refusal::access(access.name(), resource.kind(), &name, who.user)
}
