//! Permissions: the operations that a user may do in a virtual host, given by regular expressions
//! (ACL-01, ACL-02), and the topics of an exchange that it may use (ACL-14, ACL-15).

use crate::{
    command::CatalogReply,
    denial::Denial,
    machine::Catalog,
    output::CatalogOutput,
    pattern::{Pattern, quoted},
    record::{CatalogKey, PermissionRecord, TopicPermissionRecord},
};
use quorate_types::{ShortString, VhostName};
use std::sync::Arc;

/// Key of a permission: virtual host, user.
pub(crate) type RowKey = (VhostName, ShortString);
/// Key of a topic permission: virtual host, user, exchange.
pub(crate) type TopicRowKey = (VhostName, ShortString, ShortString);

/// A user's permissions in a virtual host, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Rights {
    pub(crate) configure: Pattern,
    pub(crate) write: Pattern,
    pub(crate) read: Pattern,
}

/// A user's permissions on the topics of an exchange, compiled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopicRights {
    pub(crate) write: Pattern,
    pub(crate) read: Pattern,
}

impl Rights {
    pub(crate) fn compile(record: &PermissionRecord) -> Result<Self, Denial> {
        Ok(Self {
            configure: Pattern::new(&record.configure)?,
            write: Pattern::new(&record.write)?,
            read: Pattern::new(&record.read)?,
        })
    }

    /// Permission for everything (ACL-22).
    pub(crate) fn all() -> Self {
        let all = Pattern::everything();
        Self { configure: all.clone(), write: all.clone(), read: all }
    }

    fn record(&self, (vhost, user): &RowKey) -> PermissionRecord {
        PermissionRecord {
            vhost: vhost.clone(),
            user: user.clone(),
            configure: self.configure.text().to_owned(),
            write: self.write.text().to_owned(),
            read: self.read.text().to_owned(),
        }
    }
}

impl TopicRights {
    pub(crate) fn compile(record: &TopicPermissionRecord) -> Result<Self, Denial> {
        // ACL-15: replaces the variables by the quoted names; other braces stay.
        let expanded = |text: &str| {
            let named = text.replace("{username}", &quoted(record.user.as_str()));
            named.replace("{vhost}", &quoted(record.vhost.as_str()))
        };
        let pattern = |text: &str| Pattern::written(text, &expanded(text));
        Ok(Self { write: pattern(&record.write)?, read: pattern(&record.read)? })
    }

    fn record(&self, (vhost, user, exchange): &TopicRowKey) -> TopicPermissionRecord {
        TopicPermissionRecord {
            vhost: vhost.clone(),
            user: user.clone(),
            exchange: exchange.clone(),
            write: self.write.text().to_owned(),
            read: self.read.text().to_owned(),
        }
    }
}

impl Catalog {
    /// All permissions, sorted by virtual host, then user.
    pub fn permissions(&self) -> impl Iterator<Item = PermissionRecord> {
        self.rights.iter().map(|(key, rights)| rights.record(key))
    }

    /// All topic permissions, sorted by virtual host, then user, then exchange.
    pub fn topic_permissions(&self) -> impl Iterator<Item = TopicPermissionRecord> {
        self.topic_rights.iter().map(|(key, rights)| rights.record(key))
    }

    pub(crate) fn permission_record(&self, key: &RowKey) -> Option<PermissionRecord> {
        self.rights.get(key).map(|rights| rights.record(key))
    }

    pub(crate) fn topic_permission_record(
        &self,
        key: &TopicRowKey,
    ) -> Option<TopicPermissionRecord> {
        self.topic_rights.get(key).map(|rights| rights.record(key))
    }

    fn check_row(&self, vhost: &VhostName, user: &ShortString) -> Result<(), Denial> {
        if !self.users.contains_key(user) {
            return Err(Denial::NoSuchUser(user.detached()));
        }
        if !self.has_vhost(vhost) {
            return Err(Denial::NoSuchVhost(vhost.detached()));
        }
        Ok(())
    }

    /// rabbitmqctl's `set_permissions`.
    pub(crate) fn set_permissions(
        &mut self,
        record: &PermissionRecord,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        // RabbitMQ checks the expressions before anything else.
        let compiled = Rights::compile(record);
        let checked = compiled.and_then(|rights| {
            self.check_row(&record.vhost, &record.user)?;
            Ok(rights)
        });
        let rights = match checked {
            Ok(rights) => rights,
            Err(denied) => return CatalogReply::Denied(denied),
        };
        let key = (record.vhost.detached(), record.user.detached());
        if self.rights.get(&key).is_some_and(|there| **there == rights) {
            return CatalogReply::Done;
        }
        self.rights.insert(key.clone(), Arc::new(rights));
        let (vhost, user) = key;
        self.changed(CatalogKey::Permission { vhost, user }, out);
        CatalogReply::Done
    }

    /// `clear_permissions`. Without permissions to clear it succeeds.
    pub(crate) fn clear_permissions(
        &mut self,
        vhost: &VhostName,
        user: &ShortString,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if let Err(denied) = self.check_row(vhost, user) {
            return CatalogReply::Denied(denied);
        }
        let (vhost, user) = (vhost.detached(), user.detached());
        if self.rights.remove(&(vhost.clone(), user.clone())).is_some() {
            self.changed(CatalogKey::Permission { vhost, user }, out);
        }
        CatalogReply::Done
    }

    /// `set_topic_permissions`. The exchange need not exist.
    pub(crate) fn set_topic_permissions(
        &mut self,
        record: &TopicPermissionRecord,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        let checked = TopicRights::compile(record).and_then(|rights| {
            self.check_row(&record.vhost, &record.user)?;
            Ok(rights)
        });
        let rights = match checked {
            Ok(rights) => rights,
            Err(denied) => return CatalogReply::Denied(denied),
        };
        let (vhost, user) = (record.vhost.detached(), record.user.detached());
        let key = (vhost, user, record.exchange.detached());
        if self.topic_rights.get(&key) == Some(&rights) {
            return CatalogReply::Done;
        }
        self.topic_rights.insert(key.clone(), rights);
        let (vhost, user, exchange) = key;
        self.changed(CatalogKey::TopicPermission { vhost, user, exchange }, out);
        CatalogReply::Done
    }

    /// `clear_topic_permissions`: for one exchange, or for all.
    pub(crate) fn clear_topic_permissions(
        &mut self,
        vhost: &VhostName,
        user: &ShortString,
        exchange: Option<&ShortString>,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        if let Err(denied) = self.check_row(vhost, user) {
            return CatalogReply::Denied(denied);
        }
        let is_meant = |key: &TopicRowKey| {
            key.0 == *vhost && key.1 == *user && exchange.is_none_or(|only| key.2 == *only)
        };
        self.remove_topic_permissions(is_meant, out);
        CatalogReply::Done
    }

    /// Removes the permissions and topic permissions of a virtual host or user that is removed.
    pub(crate) fn remove_permissions(
        &mut self,
        is_meant: impl Fn(&VhostName, &ShortString) -> bool,
        out: &mut CatalogOutput,
    ) {
        let rows = self.rights.keys().filter(|(vhost, user)| is_meant(vhost, user));
        for key in rows.cloned().collect::<Vec<_>>() {
            self.rights.remove(&key);
            let (vhost, user) = key;
            self.changed(CatalogKey::Permission { vhost, user }, out);
        }
        self.remove_topic_permissions(|(vhost, user, _)| is_meant(vhost, user), out);
    }

    fn remove_topic_permissions(
        &mut self,
        is_meant: impl Fn(&TopicRowKey) -> bool,
        out: &mut CatalogOutput,
    ) {
        let rows = self.topic_rights.keys().filter(|key| is_meant(key));
        for key in rows.cloned().collect::<Vec<_>>() {
            self.topic_rights.remove(&key);
            let (vhost, user, exchange) = key;
            self.changed(CatalogKey::TopicPermission { vhost, user, exchange }, out);
        }
    }
}
