//! What operators read and change: virtual hosts, users, permissions and limits; and the
//! connections that they close (CTL-04 to CTL-07, CTL-11).

use crate::{
    client::{ConnectionInfo, Event},
    front::{access::ChangeError, login::PASSWORD_BYTES_MAX},
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
    /// The connection with this id.
    One(ConnectionId),
    /// All connections of a virtual host on this node.
    OfVhost(VhostName),
    /// All connections of this node.
    All,
}

/// Why a password is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// No login would take it.
    #[error("a password has at most {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
}

/// The stored form of a password, with a random salt (ACL-23).
///
/// # Errors
/// It is too long.
pub fn hash_password(password: &[u8]) -> Result<PasswordHash, PasswordError> {
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(PasswordError::TooLong);
    }
    Ok(PasswordHash::of(HashAlgorithm::default(), quorate_rpc::chance::random(), password))
}

impl Operator<'_> {
    /// Makes this node not ready for the given reason while its definitions are not imported. `None`
    /// ends that: all are imported, or the node has none to import.
    pub fn await_definitions(&self, reason: Option<String>) {
        self.0.base.context.awaited.lock().definitions = reason;
    }

    /// Says why this node has not entered the cluster yet; `None` ends that (MEM 3).
    pub fn await_entrance(&self, reason: Option<String>) {
        self.0.base.context.awaited.lock().entrance = reason;
    }

    /// Changes vhosts, users or permissions, and waits until all routing nodes have applied the
    /// change.
    ///
    /// # Errors
    /// The catalog's refusal, or the lack of a majority.
    pub async fn change_access(&self, command: AccessCommand) -> Result<(), ChangeError> {
        self.change_access_at_once(command, Vec::new()).await
    }

    /// Makes several such changes, all or none of them unless one is refused: `further` ones after the
    /// first.
    ///
    /// # Errors
    /// The catalog's refusal, or the lack of a majority.
    pub async fn change_access_at_once(
        &self,
        first: AccessCommand,
        further: Vec<AccessCommand>,
    ) -> Result<(), ChangeError> {
        let node = &self.0;
        // Read before the change: a repeated deletion succeeds, so a missing record must be found
        // here; and so must a command that other nodes do not know yet.
        let mut refusal = node.base.catalog.read().refusal_of(&first);
        if refusal.is_some() {
            if !node.base.catalog_client.read().await {
                return Err(ChangeError::TimedOut);
            }
            refusal = node.base.catalog.read().refusal_of(&first);
        }
        if let Some(denial) = refusal {
            return Err(denial.into());
        }
        let commands = [first].into_iter().chain(further).map(CatalogCommand::Access).collect();
        let proposed = node.base.catalog_client.propose_all(commands).await;
        let (index, replies) = proposed.map_err(|_| ChangeError::TimedOut)?;
        for reply in replies {
            if let CatalogReply::Denied(denial) = reply {
                return Err(denial.into());
            }
            if !matches!(reply, CatalogReply::Done) {
                tracing::error!(?reply, "unexpected reply of the catalog");
                return Err(ChangeError::TimedOut);
            }
        }
        node.base.lease.barrier(index).await.map_err(|_| ChangeError::TimedOut)
    }
}

impl Views<'_> {
    /// All virtual hosts of the catalog.
    #[must_use]
    pub fn vhosts(&self) -> Vec<VhostRecord> {
        self.0.base.catalog.read().vhosts().cloned().collect()
    }

    /// All users of the catalog.
    #[must_use]
    pub fn users(&self) -> Vec<UserRecord> {
        self.0.base.catalog.read().users().cloned().collect()
    }

    /// All permissions of users on virtual hosts.
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
    /// Closes at most `most` connections of this node with a reason (CONN-29). Returns their
    /// number.
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
