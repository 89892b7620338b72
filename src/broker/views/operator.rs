//! What operators see and change of virtual hosts, users, permissions and limits; and connections
//! that they close (CTL-04 to CTL-07, CTL-11).

use crate::{
    client::{ConnectionInfo, Event},
    front::access::ChangeError,
    views::administration::{Operator, Views},
};
use quorate_catalog::{
    AccessCommand, CatalogCommand, CatalogReply, ConnectionId, HashAlgorithm, PasswordHash,
    PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord,
};
use quorate_types::{Exception, ReplyCode, VhostName};

/// Connections that an operator closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// This one.
    One(ConnectionId),
    /// All of a virtual host.
    OfVhost(VhostName),
    /// All of the node.
    All,
}

/// A password as it is kept, with a salt of chance (ACL-23).
#[must_use]
pub fn hash_password(password: &[u8]) -> PasswordHash {
    PasswordHash::of(HashAlgorithm::default(), quorate_rpc::chance::random(), password)
}

impl Operator<'_> {
    /// Changes who may do what, and waits until all routing nodes know.
    ///
    /// # Errors
    /// Why it was not obeyed; or that there was no majority.
    pub async fn change_access(&self, command: AccessCommand) -> Result<(), ChangeError> {
        let node = &self.0;
        // A repeated deletion is harmless, so what was never there has to be seen before.
        let mut missing = node.base.catalog.read().missing_of(&command);
        if missing.is_some() {
            if !node.base.catalog_client.read().await {
                return Err(ChangeError::TimedOut);
            }
            missing = node.base.catalog.read().missing_of(&command);
        }
        if let Some(denial) = missing {
            return Err(denial.into());
        }
        match node.base.catalog_client.propose(CatalogCommand::Access(command)).await {
            Ok((index, CatalogReply::Done)) => {
                node.base.lease.barrier(index).await.map_err(|_| ChangeError::TimedOut)
            }
            Ok((_, CatalogReply::Denied(denial))) => Err(denial.into()),
            Ok((_, other)) => {
                tracing::error!(?other, "unexpected reply of the catalog");
                Err(ChangeError::TimedOut)
            }
            Err(_) => Err(ChangeError::TimedOut),
        }
    }
}

impl Views<'_> {
    /// Virtual hosts.
    #[must_use]
    pub fn vhosts(&self) -> Vec<VhostRecord> {
        self.0.base.catalog.read().vhosts().cloned().collect()
    }

    /// Users.
    #[must_use]
    pub fn users(&self) -> Vec<UserRecord> {
        self.0.base.catalog.read().users().cloned().collect()
    }

    /// All permissions.
    #[must_use]
    pub fn permissions(&self) -> Vec<PermissionRecord> {
        self.0.base.catalog.read().permissions().collect()
    }

    /// All topic permissions.
    #[must_use]
    pub fn topic_permissions(&self) -> Vec<TopicPermissionRecord> {
        self.0.base.catalog.read().topic_permissions().collect()
    }
}

impl Operator<'_> {
    /// Closes connections of this node's, at most so many, with a reason (CONN-29): how many.
    #[must_use]
    pub fn close_connections(&self, which: &Closing, most: usize, reason: &str) -> usize {
        let exception = Exception::new(ReplyCode::ConnectionForced, reason);
        let is_meant = |id: ConnectionId, info: &ConnectionInfo| match which {
            Closing::One(one) => *one == id,
            Closing::OfVhost(vhost) => *vhost == info.vhost,
            Closing::All => true,
        };
        let connections = self.0.clients.connections.all();
        let meant = connections.iter().filter(|one| is_meant(one.id, &one.info)).take(most);
        meant.map(|one| one.mailbox.put(Event::Close(exception.clone()))).count()
    }
}
