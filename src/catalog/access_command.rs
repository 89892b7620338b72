//! Commands of operators that change virtual hosts, users, permissions and limits, dispatched to
//! the files that own each object.

use crate::{
    command::CatalogReply,
    denial::Denial,
    limits::{UserLimit, UserLimits, VhostLimits},
    machine::Catalog,
    output::CatalogOutput,
    password::PasswordHash,
    record::{PermissionRecord, TopicPermissionRecord, UserRecord},
    vhost::{VhostMetadata, VhostUpdate},
};
use quorate_types::{ShortString, VhostName};

/// A change of virtual hosts, users, permissions or limits. A repeat of each is harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessCommand {
    /// rabbitmqctl's `add_vhost`.
    AddVhost {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Description, tags and default queue type.
        metadata: VhostMetadata,
    },
    /// rabbitmqctl's `update_vhost_metadata`.
    UpdateVhost {
        /// Name of the virtual host.
        vhost: VhostName,
        /// The changed fields; the others stay as they are.
        update: VhostUpdate,
    },
    /// `delete_vhost`, with everything in it.
    DeleteVhost {
        /// Name of the virtual host.
        vhost: VhostName,
    },
    /// rabbitmqctl's `set_vhost_limits`, `clear_vhost_limits`.
    SetVhostLimits {
        /// Name of the virtual host.
        vhost: VhostName,
        /// The new limits, which replace all earlier ones.
        limits: VhostLimits,
    },
    /// `add_user`. The proposer draws the salt of the password hash.
    AddUser(UserRecord),
    /// rabbitmqctl's `change_password`.
    ChangePassword {
        /// Name of the user.
        user: ShortString,
        /// Hash of the new password.
        password: PasswordHash,
    },
    /// rabbitmqctl's `set_user_tags`.
    SetUserTags {
        /// Name of the user.
        user: ShortString,
        /// The new tags, which replace all earlier ones.
        tags: Vec<ShortString>,
    },
    /// `delete_user`, with its permissions.
    DeleteUser {
        /// Name of the user.
        user: ShortString,
    },
    /// rabbitmqctl's `set_user_limits`.
    SetUserLimits {
        /// Name of the user.
        user: ShortString,
        /// The new limits; a limit that is not set here stays as it is.
        limits: UserLimits,
    },
    /// rabbitmqctl's `clear_user_limits`.
    ClearUserLimits {
        /// Name of the user.
        user: ShortString,
        /// The limits that are cleared.
        which: UserLimit,
    },
    /// rabbitmqctl's `set_permissions`.
    SetPermissions(PermissionRecord),
    /// rabbitmqctl's `clear_permissions`.
    ClearPermissions {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Name of the user.
        user: ShortString,
    },
    /// rabbitmqctl's `set_topic_permissions`.
    SetTopicPermissions(TopicPermissionRecord),
    /// rabbitmqctl's `clear_topic_permissions`.
    ClearTopicPermissions {
        /// Name of the virtual host.
        vhost: VhostName,
        /// Name of the user.
        user: ShortString,
        /// The exchange; `None`: all exchanges.
        exchange: Option<ShortString>,
    },
    /// rabbitmqctl's `trace_on`, `trace_off`.
    SetTracing {
        /// Name of the virtual host.
        vhost: VhostName,
        /// True turns tracing on, false turns it off.
        tracing: bool,
    },
    /// rabbitmqctl's `enable_vhost_protection_from_deletion`, `disable_vhost_protection_from_deletion`.
    SetProtection {
        /// Name of the virtual host.
        vhost: VhostName,
        /// True refuses its deletion, false allows it again.
        protected: bool,
    },
}

impl Catalog {
    /// Why the proposer refuses a command: the object of a deletion does not exist, and apply takes
    /// such a deletion for a repeat; or other nodes may not know the command yet (MEM 15).
    #[must_use]
    pub fn refusal_of(&self, command: &AccessCommand) -> Option<Denial> {
        use AccessCommand as C;
        match command {
            C::DeleteVhost { vhost } if !self.has_vhost(vhost) => {
                Some(Denial::NoSuchVhost(vhost.clone()))
            }
            C::DeleteUser { user } if self.user(user).is_none() => {
                Some(Denial::NoSuchUser(user.clone()))
            }
            C::SetProtection { .. } => self.unprotectable(),
            C::DeleteVhost { .. }
            | C::DeleteUser { .. }
            | C::AddVhost { .. }
            | C::UpdateVhost { .. }
            | C::SetVhostLimits { .. }
            | C::AddUser(_)
            | C::ChangePassword { .. }
            | C::SetUserTags { .. }
            | C::SetUserLimits { .. }
            | C::ClearUserLimits { .. }
            | C::SetPermissions(_)
            | C::ClearPermissions { .. }
            | C::SetTopicPermissions(_)
            | C::ClearTopicPermissions { .. }
            | C::SetTracing { .. } => None,
        }
    }

    pub(crate) fn access_command(
        &mut self,
        command: &AccessCommand,
        out: &mut CatalogOutput,
    ) -> CatalogReply {
        use AccessCommand as C;
        match command {
            C::AddVhost { vhost, metadata } => self.add_vhost(vhost, metadata, out),
            C::UpdateVhost { vhost, update } => self.update_vhost(vhost, update, out),
            C::DeleteVhost { vhost } => self.delete_vhost(vhost, out),
            C::SetVhostLimits { vhost, limits } => self.set_vhost_limits(vhost, *limits, out),
            C::AddUser(user) => self.add_user(user, out),
            C::ChangePassword { user, password } => self.change_password(user, password, out),
            C::SetUserTags { user, tags } => self.set_user_tags(user, tags, out),
            C::DeleteUser { user } => self.delete_user(user, out),
            C::SetUserLimits { user, limits } => self.set_user_limits(user, *limits, out),
            C::ClearUserLimits { user, which } => self.clear_user_limits(user, *which, out),
            C::SetPermissions(record) => self.set_permissions(record, out),
            C::ClearPermissions { vhost, user } => self.clear_permissions(vhost, user, out),
            C::SetTopicPermissions(record) => self.set_topic_permissions(record, out),
            C::ClearTopicPermissions { vhost, user, exchange } => {
                self.clear_topic_permissions(vhost, user, exchange.as_ref(), out)
            }
            C::SetTracing { vhost, tracing } => self.set_tracing(vhost, *tracing, out),
            C::SetProtection { vhost, protected } => self.set_protection(vhost, *protected, out),
        }
    }
}
