//! Access checks of client operations. The catalog decides what is allowed (ACL-01 to ACL-16); this
//! module decides when it is asked, and what publishing remembers of the answers.
//!
//! A connection remembers which exchanges it may publish to, so that a publish does not evaluate
//! permissions again. It forgets them when `Catalog::access_version` grows, so that a revoked right
//! takes effect at once.

use crate::{
    Broker,
    client::ConnectionInfo,
    front::{
        client_handle::{Client, ConsumerOperations},
        clients::Clients,
        connection_state::ConnectionState,
        login::PASSWORD_BYTES_MAX,
    },
};
use quorate_catalog::{Access, Catalog, Denial, Resource, Who, refusal};
use quorate_types::{Exception, ReplyCode, ResourceName, ShortString};
use std::{collections::BTreeSet, sync::atomic::Ordering};

/// Tag of users that may name other users in `user-id` (ACL-20).
const IMPERSONATOR: &str = "impersonator";

/// Checks the `user-id` of a message: it must be the publishing user, or that user must be an
/// impersonator (PRP-06).
///
/// # Errors
/// 406 if it names another user.
pub(crate) fn check_user_id(
    catalog: &Catalog,
    who: Who<'_>,
    named: Option<&ShortString>,
) -> Result<(), Exception> {
    let user = who.user;
    let Some(named) = named.filter(|named| *named != user) else { return Ok(()) };
    let tags = catalog.user(user).map(|user| user.tags.as_slice()).unwrap_or_default();
    if tags.iter().any(|tag| tag.as_str() == IMPERSONATOR) {
        return Ok(());
    }
    let text = format!("user_id property set to '{named}' but authenticated user was '{user}'");
    Err(Exception::new(ReplyCode::PreconditionFailed, text))
}

/// Whether a user may log in from a loopback address or another one (ACL-24).
fn may_come_from(loopback: bool, user: &ShortString, loopback_users: &[String]) -> bool {
    loopback || loopback_users.iter().all(|name| name != user.as_str())
}

impl ConnectionState {
    /// The user and virtual host whose rights apply to the connection.
    pub(crate) fn who(&self) -> Who<'_> {
        Who { vhost: &self.info.vhost, user: &self.info.user }
    }
}

impl Client<'_> {
    /// Checks the connection user's `access` to `resource`.
    ///
    /// # Errors
    /// 403 (ACL-04).
    pub(crate) fn check(&self, access: Access, resource: Resource<'_>) -> Result<(), Exception> {
        self.node.base.catalog.read().check_access(self.state.who(), access, resource)
    }

    /// Checks whether the connection's user may declare `resource` passively.
    ///
    /// # Errors
    /// 403 (ACL-04).
    pub(crate) fn check_passive(&self, resource: Resource<'_>) -> Result<(), Exception> {
        self.node.base.catalog.read().check_passive(self.state.who(), resource)
    }

    /// Checks whether the user may bind something to the exchange `source` with this key: it needs
    /// read access to the exchange and to the topic (BND-01, ACL-14, ACL-16).
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check_source(
        &self,
        source: &ShortString,
        key: &ShortString,
    ) -> Result<(), Exception> {
        if source.is_empty() {
            return Err(refusal::default_exchange());
        }
        self.check(Access::Read, Resource::Exchange(source))?;
        let catalog = self.node.base.catalog.read();
        catalog.check_topic(self.state.who(), Access::Read, source, key)
    }

    /// Checks that precede those of a publish's properties: write access, then whether the exchange
    /// exists and clients may publish to it (PUB-01).
    ///
    /// # Errors
    /// 403, 404.
    pub(crate) fn check_publish(&self, exchange: &ShortString) -> Result<(), Exception> {
        self.check(Access::Write, Resource::Exchange(exchange))?;
        let name = ResourceName { vhost: self.state.info.vhost.clone(), name: exchange.clone() };
        self.node.base.catalog.read().check_publishable(&name)
    }
}

impl ConsumerOperations<'_> {
    /// `connection.update-secret`. The secret of an internal user does not expire (CONN-31). Checks
    /// again whether the user may still use the virtual host, and what its consumers may read:
    /// others are cancelled (CONN-30).
    ///
    /// # Errors
    /// 530.
    pub(crate) fn update_secret(&self) -> Result<(), Exception> {
        if self.client.base().catalog.read().rights(self.client.state.who()).is_none() {
            let text = "New secret was refused by one of the backends";
            return Err(Exception::new(ReplyCode::NotAllowed, text));
        }
        // Rights have not changed since the last check, and later consumers were checked when they
        // began.
        let version = self.client.base().catalog.read().access_version();
        if self.client.state.secret_checked.swap(version.0, Ordering::AcqRel) == version.0 {
            return Ok(());
        }
        let consumers: Vec<_> = {
            let held = self.client.state.held.lock();
            let channels = held.channels.values();
            channels.flat_map(|channel| channel.consumers.values().cloned()).collect()
        };
        let queues: BTreeSet<_> = consumers.iter().map(|consumer| consumer.about.queue).collect();
        let names = self.client.base().queue_names(&queues);
        let check =
            |name: &ResourceName| self.client.check(Access::Read, Resource::Queue(&name.name));
        let lost: BTreeSet<_> = names
            .iter()
            .filter(|(_, name)| check(name).is_err())
            .map(|(queue, _)| *queue)
            .collect();
        let unreadable = consumers.iter().filter(|consumer| lost.contains(&consumer.about.queue));
        unreadable.for_each(|consumer| self.take_from(consumer));
        Ok(())
    }
}

impl Broker {
    /// Checks a password. `loopback`: the client's address is a loopback address (ACL-24, CONN-13).
    #[must_use]
    pub fn authenticate(&self, user: &ShortString, password: &[u8], loopback: bool) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        // The password is checked first, so that the time of a refusal does not reveal who may log
        // in.
        let right = self.0.base.catalog.read().is_password(user, password);
        right && self.admits(user, loopback)
    }

    /// Whether the user exists and may log in from such an address (ACL-24).
    #[must_use]
    pub fn admits(&self, user: &ShortString, loopback: bool) -> bool {
        may_come_from(loopback, user, &self.0.base.context.settings.loopback_users)
            && self.0.base.catalog.read().user(user).is_some()
    }
}

impl Clients {
    /// Checks a new connection against limits and rights, in the order of CONN-20. Only open
    /// connections count.
    pub(crate) fn check_connection(
        &self,
        catalog: &Catalog,
        info: &ConnectionInfo,
    ) -> Result<(), Exception> {
        let ConnectionInfo { vhost, user, .. } = info;
        if let Some(limit) = self.node_connections_reached() {
            return Err(refusal::node_connection_limit(limit));
        }
        if let Some(limit) = self.vhost_connections_reached(catalog, vhost) {
            return Err(refusal::vhost_connection_limit(vhost, user, limit));
        }
        if !catalog.has_vhost(vhost) {
            return Err(refusal::no_vhost(vhost));
        }
        // The user may have been deleted since the login.
        if catalog.user(user).is_none() {
            return Err(refusal::no_permissions(vhost, user));
        }
        if let Some(limit) = self.user_connections_reached(catalog, user) {
            return Err(refusal::user_connection_limit(user, limit));
        }
        match catalog.rights(Who { vhost, user }) {
            Some(_) => Ok(()),
            None => Err(refusal::no_permissions(vhost, user)),
        }
    }

    /// Closes the connections that remain of a deleted virtual host or user (CONN-33).
    pub(crate) fn close_where(&self, is_meant: impl Fn(&ConnectionInfo) -> bool, why: &Exception) {
        let connections = self.connections.all();
        let meant = connections.iter().filter(|one| is_meant(&one.info));
        meant.for_each(|one| one.mailbox.put(crate::client::Event::Close(why.clone())));
    }

    /// Closes connections whose virtual host or user no longer exists, after a snapshot has
    /// replaced this node's copy without single events.
    pub(crate) fn close_orphans(&self) {
        for connection in self.connections.all() {
            let ConnectionInfo { vhost, user, .. } = &connection.info;
            let catalog = self.base.catalog.read();
            let why = if !catalog.has_vhost(vhost) {
                refusal::vhost_deleted(vhost)
            } else if catalog.user(user).is_none() {
                refusal::user_deleted(user)
            } else {
                continue;
            };
            connection.mailbox.put(crate::client::Event::Close(why));
        }
    }
}

/// Why an operator's change was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The catalog refused the change.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// The catalog has no majority that answered in time.
    #[error("the operation timed out")]
    TimedOut,
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_catalog::{
        AccessCommand, CatalogCommand, CatalogEntry, CatalogOutput, PasswordHash, UserLimits,
        UserRecord,
    };
    use quorate_types::CatalogIndex;

    fn short(text: &str) -> ShortString {
        ShortString::try_from(text).unwrap()
    }

    #[test]
    fn acl_24_some_users_log_in_from_loopback_addresses_only() {
        let loopback_users = ["guest".to_owned()];
        for (user, loopback, may) in [
            ("guest", true, true),
            ("guest", false, false),
            ("other", true, true),
            ("other", false, true),
        ] {
            assert_eq!(may_come_from(loopback, &short(user), &loopback_users), may, "{user}");
        }
        assert!(may_come_from(false, &short("guest"), &[]), "a setting lets guest in too");
    }

    /// PRP-06: a user may name only itself, unless it is an impersonator; an administrator is no
    /// impersonator. The empty name counts as a name.
    #[test]
    fn prp_06_who_names_a_user_is_it_or_an_impersonator() {
        let mut catalog = Catalog::default();
        for (at, (name, tag)) in
            [("plain", "administrator"), ("masked", "impersonator")].into_iter().enumerate()
        {
            let user = UserRecord {
                name: short(name),
                password: PasswordHash::default(),
                tags: vec![short(tag)],
                limits: UserLimits::default(),
            };
            let commands = vec![CatalogCommand::Access(AccessCommand::AddUser(user))];
            let entry = CatalogEntry { commands, ..CatalogEntry::default() };
            catalog.apply(CatalogIndex(at as u64 + 1), &entry, &mut CatalogOutput::default());
        }
        let vhost = short("/");
        let check = |user: &str, named: Option<&str>| {
            let user = short(user);
            let who = Who { vhost: &vhost, user: &user };
            check_user_id(&catalog, who, named.map(short).as_ref())
        };
        assert_eq!(check("plain", None), Ok(()));
        assert_eq!(check("plain", Some("plain")), Ok(()));
        assert_eq!(check("masked", Some("anybody")), Ok(()));
        assert_eq!(check("masked", Some("")), Ok(()));
        for named in ["masked", ""] {
            let refused = check("plain", Some(named)).unwrap_err();
            let text = format!(
                "PRECONDITION_FAILED - user_id property set to '{named}' but authenticated user \
                 was 'plain'"
            );
            assert_eq!(refused.reply_text(), text);
        }
    }
}
