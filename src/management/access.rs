//! The access service: `quorate ctl` reads and changes virtual hosts, users, permissions and limits
//! through it (CTL-04 to CTL-07, CTL-11).

use crate::admin::{Batches, batches, check, opened};
use crate::peers::Peers;
use crate::source::Source;
use crate::wire::{self, access_request::What, access_server::Access, change_request::Change};
use quorate_broker::view::MemberView;
use quorate_broker::{ChangeError, Closing, hash_password};
use quorate_catalog::{
    AccessCommand, ConnectionId, Denial, HashAlgorithm, MemberState, PasswordHash,
    PermissionRecord, TopicPermissionRecord, UserLimit, UserLimits, UserRecord, VhostLimits,
    VhostMetadata, VhostRecord, VhostUpdate,
};
use quorate_types::{NodeId, QueueType, SessionId, ShortString, StartNumber};
use std::time::Duration;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

/// Longest wait for one other node to close its connections.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// The service of one node; a change applies to the whole cluster.
#[derive(Clone, Debug)]
pub struct AccessService<S> {
    source: S,
    peers: Peers,
}

fn name(what: &str, name: &str) -> Result<ShortString, Status> {
    ShortString::try_from(name)
        .map_err(|error| Status::invalid_argument(format!("{what}: {error}")))
}

fn user(text: &str) -> Result<ShortString, Status> {
    name("user", text)
}

fn vhost(text: &str) -> Result<ShortString, Status> {
    name("virtual host", text)
}

fn tags(tags: &[String]) -> Result<Vec<ShortString>, Status> {
    tags.iter().map(|tag| name("tag", tag)).collect()
}

fn queue_type(name: &str) -> Result<Option<QueueType>, Status> {
    match name {
        "" => Ok(None),
        "classic" => Ok(Some(QueueType::Classic)),
        "quorum" => Ok(Some(QueueType::Quorum)),
        other => Err(Status::invalid_argument(format!("{other} is not a valid queue type"))),
    }
}

fn password(password: Option<wire::Password>) -> Result<PasswordHash, Status> {
    Ok(match password.and_then(|password| password.given) {
        // With an empty password nobody could log in.
        Some(wire::password::Given::Plain(plain)) => hash_password(&plain)
            .map_err(|refused| Status::invalid_argument(refused.to_string()))?,
        Some(wire::password::Given::Hash(hash)) => {
            PasswordHash { algorithm: HashAlgorithm::default(), bytes: hash.to_vec() }
        }
        None => PasswordHash::default(),
    })
}

fn vhost_limits(limits: Option<wire::VhostLimits>) -> VhostLimits {
    let limits = limits.unwrap_or_default();
    VhostLimits { connections_max: limits.max_connections, queues_max: limits.max_queues }
}

fn user_limits(limits: Option<wire::UserLimits>) -> UserLimits {
    let limits = limits.unwrap_or_default();
    UserLimits { connections_max: limits.max_connections, channels_max: limits.max_channels }
}

fn metadata(vhost: wire::Vhost) -> Result<VhostMetadata, Status> {
    Ok(VhostMetadata {
        description: vhost.description,
        tags: tags(&vhost.tags)?,
        default_queue_type: queue_type(&vhost.default_queue_type)?,
    })
}

fn update(update: wire::UpdateVhost) -> Result<VhostUpdate, Status> {
    Ok(VhostUpdate {
        description: update.description,
        tags: update.tags.map(|given| tags(&given.tags)).transpose()?,
        default_queue_type: queue_type(&update.default_queue_type.unwrap_or_default())?,
    })
}

/// The requested change, as a command of the catalog.
fn command(change: Change) -> Result<AccessCommand, Status> {
    use AccessCommand as C;
    Ok(match change {
        Change::AddVhost(one) => C::AddVhost { vhost: vhost(&one.name)?, metadata: metadata(one)? },
        Change::UpdateVhost(one) => {
            C::UpdateVhost { vhost: vhost(&one.vhost)?, update: update(one)? }
        }
        Change::DeleteVhost(one) => C::DeleteVhost { vhost: vhost(&one)? },
        Change::SetVhostLimits(one) => {
            C::SetVhostLimits { vhost: vhost(&one.vhost)?, limits: vhost_limits(one.limits) }
        }
        Change::AddUser(one) => C::AddUser(UserRecord {
            name: user(&one.user)?,
            password: password(one.password)?,
            tags: Vec::new(),
            limits: UserLimits::default(),
        }),
        Change::ChangePassword(one) => {
            C::ChangePassword { user: user(&one.user)?, password: password(one.password)? }
        }
        Change::SetUserTags(one) => {
            C::SetUserTags { user: user(&one.user)?, tags: tags(&one.tags)? }
        }
        Change::DeleteUser(one) => C::DeleteUser { user: user(&one)? },
        Change::SetUserLimits(one) => {
            C::SetUserLimits { user: user(&one.user)?, limits: user_limits(one.limits) }
        }
        Change::ClearUserLimits(one) => {
            C::ClearUserLimits { user: user(&one.user)?, which: cleared(&one)? }
        }
        Change::SetPermissions(one) => C::SetPermissions(PermissionRecord {
            vhost: vhost(&one.vhost)?,
            user: user(&one.user)?,
            configure: one.configure,
            write: one.write,
            read: one.read,
        }),
        Change::ClearPermissions(one) => {
            C::ClearPermissions { vhost: vhost(&one.vhost)?, user: user(&one.user)? }
        }
        Change::SetTopicPermissions(one) => C::SetTopicPermissions(TopicPermissionRecord {
            vhost: vhost(&one.vhost)?,
            user: user(&one.user)?,
            exchange: name("exchange", &one.exchange)?,
            write: one.write,
            read: one.read,
        }),
        Change::ClearTopicPermissions(one) => C::ClearTopicPermissions {
            vhost: vhost(&one.vhost)?,
            user: user(&one.user)?,
            exchange: one.exchange.map(|exchange| name("exchange", &exchange)).transpose()?,
        },
        Change::SetProtection(one) => {
            C::SetProtection { vhost: vhost(&one.vhost)?, protected: one.protected }
        }
        Change::SetTracing(one) => {
            C::SetTracing { vhost: vhost(&one.vhost)?, tracing: one.tracing }
        }
    })
}

fn cleared(which: &wire::ClearUserLimits) -> Result<UserLimit, Status> {
    match (which.connections, which.channels) {
        (true, true) => Ok(UserLimit::All),
        (true, false) => Ok(UserLimit::Connections),
        (false, true) => Ok(UserLimit::Channels),
        (false, false) => Err(Status::invalid_argument("no limit is named")),
    }
}

fn denial(denial: &Denial) -> wire::Denial {
    use wire::denial::Kind;
    let text = denial.to_string();
    let named = |kind: Kind, subject: &str| wire::Denial {
        kind: kind.into(),
        text: text.clone(),
        subject: subject.to_owned(),
        ..wire::Denial::default()
    };
    match denial {
        Denial::NoSuchUser(name) => named(Kind::NoSuchUser, name.as_str()),
        Denial::UserExists(name) => named(Kind::UserExists, name.as_str()),
        Denial::NoSuchVhost(name) => named(Kind::NoSuchVhost, name.as_str()),
        Denial::InvalidPattern { pattern, reason, at } => {
            wire::Denial { reason: reason.clone(), at: *at, ..named(Kind::InvalidPattern, pattern) }
        }
        Denial::TooManyTags { .. }
        | Denial::VhostProtected(_)
        | Denial::ProtectionTooEarly { .. }
        | Denial::Member(_)
        | Denial::Task(_) => named(Kind::Other, ""),
    }
}

fn words(words: &[ShortString]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn shown_vhost(vhost: &VhostRecord) -> wire::Vhost {
    wire::Vhost {
        name: vhost.name.to_string(),
        description: vhost.metadata.description.clone(),
        tags: words(&vhost.metadata.tags),
        default_queue_type: vhost
            .metadata
            .default_queue_type
            .map(|queue_type| queue_type.name().to_owned())
            .unwrap_or_default(),
        limits: Some(wire::VhostLimits {
            max_connections: vhost.limits.connections_max,
            max_queues: vhost.limits.queues_max,
        }),
        tracing: vhost.tracing,
    }
}

fn shown_user(user: &UserRecord) -> wire::User {
    wire::User {
        name: user.name.to_string(),
        tags: words(&user.tags),
        limits: Some(wire::UserLimits {
            max_connections: user.limits.connections_max,
            max_channels: user.limits.channels_max,
        }),
    }
}

fn shown_permission(record: PermissionRecord) -> wire::Permission {
    wire::Permission {
        vhost: record.vhost.to_string(),
        user: record.user.to_string(),
        configure: record.configure,
        write: record.write,
        read: record.read,
    }
}

fn shown_topic(record: TopicPermissionRecord) -> wire::TopicPermission {
    wire::TopicPermission {
        vhost: record.vhost.to_string(),
        user: record.user.to_string(),
        exchange: record.exchange.to_string(),
        write: record.write,
        read: record.read,
    }
}

fn closing(which: Option<&wire::close_request::Which>) -> Result<Closing, Status> {
    use wire::close_request::Which;
    match which {
        Some(Which::Connection(id)) => {
            let node = u16::try_from(id.node)
                .map_err(|_| Status::invalid_argument("no node has that id"))?;
            let session = SessionId { node: NodeId(node), start: StartNumber(id.start) };
            Ok(Closing::One(ConnectionId { session, number: id.number }))
        }
        Some(Which::Vhost(name)) => Ok(Closing::OfVhost(vhost(name)?)),
        Some(Which::All(_)) => Ok(Closing::All),
        None => Err(Status::invalid_argument("no connection is named")),
    }
}

fn no_majority() -> Status {
    Status::deadline_exceeded("the operation timed out: the catalog has no majority")
}

/// The verb of a change, and what it is about, in the log: without passwords.
fn shown_change(change: &Change) -> (&'static str, String) {
    let user = |user: &str| format!("user '{user}'");
    let vhost = |vhost: &str| format!("vhost '{vhost}'");
    let of = |name: &str, of: &str| format!("user '{name}' in vhost '{of}'");
    match change {
        Change::AddVhost(one) => ("add_vhost", vhost(&one.name)),
        Change::UpdateVhost(one) => ("update_vhost_metadata", vhost(&one.vhost)),
        Change::DeleteVhost(one) => ("delete_vhost", vhost(one)),
        Change::SetVhostLimits(one) => ("set_vhost_limits", vhost(&one.vhost)),
        Change::AddUser(one) => ("add_user", user(&one.user)),
        Change::ChangePassword(one) => ("change_password", user(&one.user)),
        Change::SetUserTags(one) => {
            ("set_user_tags", format!("user '{}' [{}]", one.user, one.tags.join(", ")))
        }
        Change::DeleteUser(one) => ("delete_user", user(one)),
        Change::SetUserLimits(one) => ("set_user_limits", user(&one.user)),
        Change::ClearUserLimits(one) => ("clear_user_limits", user(&one.user)),
        Change::SetPermissions(one) => ("set_permissions", of(&one.user, &one.vhost)),
        Change::ClearPermissions(one) => ("clear_permissions", of(&one.user, &one.vhost)),
        Change::SetTopicPermissions(one) => ("set_topic_permissions", of(&one.user, &one.vhost)),
        Change::ClearTopicPermissions(one) => {
            ("clear_topic_permissions", of(&one.user, &one.vhost))
        }
        Change::SetProtection(one) if one.protected => {
            ("enable_vhost_protection_from_deletion", vhost(&one.vhost))
        }
        Change::SetProtection(one) => ("disable_vhost_protection_from_deletion", vhost(&one.vhost)),
        Change::SetTracing(one) if one.tracing => ("trace_on", vhost(&one.vhost)),
        Change::SetTracing(one) => ("trace_off", vhost(&one.vhost)),
    }
}

/// The connections that are closed, in the log.
fn shown_closing(which: Option<&wire::close_request::Which>) -> String {
    use wire::close_request::Which;
    match which {
        Some(Which::Connection(id)) => {
            format!("connection {} of start {} of node {}", id.number, id.start, id.node)
        }
        Some(Which::Vhost(name)) => format!("all of vhost '{name}'"),
        Some(Which::All(_)) => "all".to_owned(),
        None => "none".to_owned(),
    }
}

impl<S: Source> AccessService<S> {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(source: S, peers: Peers) -> Self {
        Self { source, peers }
    }

    async fn close(&self, request: &wire::CloseRequest) -> Result<wire::CloseReply, Status> {
        let which = closing(request.which.as_ref())?;
        let most = if request.limit == 0 { u32::MAX } else { request.limit };
        let own = self.source.close_connections(&which, most as usize, &request.reason);
        let mut closed = u32::try_from(own).unwrap_or(u32::MAX);
        if request.scope == i32::from(wire::Scope::Local) {
            return Ok(wire::CloseReply { closed });
        }
        let mut silent = Vec::new();
        // One node after the other, so that the limit is kept.
        for member in self.others(&which) {
            if closed >= most {
                break;
            }
            let Some(mut peer) = self.peers.access(&member) else {
                silent.push(member.id);
                continue;
            };
            let request = wire::CloseRequest {
                caller: wire::caller(),
                scope: wire::Scope::Local.into(),
                limit: if request.limit == 0 { 0 } else { most - closed },
                ..request.clone()
            };
            match timeout(CLOSE_MAX, peer.close_connections(request)).await {
                Ok(Ok(reply)) => closed = closed.saturating_add(reply.into_inner().closed),
                Ok(Err(_)) | Err(_) => silent.push(member.id),
            }
        }
        closed_by(closed, &silent)
    }

    /// The other nodes that may have such connections. A node that leaves has none.
    fn others(&self, which: &Closing) -> Vec<MemberView> {
        let (view, this) = (self.source.cluster(), self.peers.this());
        let is_meant = |member: &MemberView| match which {
            Closing::One(id) => id.session.node == member.id,
            Closing::OfVhost(_) | Closing::All => true,
        };
        let others = view.members.into_iter().filter(|member| member.id != this);
        let stays = |member: &MemberView| member.state != MemberState::Leaving;
        others.filter(|member| stays(member) && is_meant(member)).collect()
    }
}

/// The answer: so many connections are closed, while these nodes did not answer.
fn closed_by(closed: u32, silent: &[NodeId]) -> Result<wire::CloseReply, Status> {
    if silent.is_empty() {
        return Ok(wire::CloseReply { closed });
    }
    let nodes: Vec<String> = silent.iter().map(ToString::to_string).collect();
    Err(Status::unavailable(format!(
        "{closed} connections were closed; others may still be open: no answer from nodes {}",
        nodes.join(", ")
    )))
}

#[tonic::async_trait]
impl<S: Source> Access for AccessService<S> {
    type ListStream = Batches<wire::AccessList>;

    async fn change(
        &self,
        request: Request<wire::ChangeRequest>,
    ) -> Result<Response<wire::ChangeReply>, Status> {
        let (operator, request) = opened(request)?;
        let change =
            request.change.ok_or_else(|| Status::invalid_argument("no change is named"))?;
        let (verb, object) = shown_change(&change);
        let result = match command(change) {
            Ok(command) => self.source.change_access(command).await,
            Err(status) => {
                operator.log::<()>(verb, &object, &Err(status.clone()));
                return Err(status);
            }
        };
        let logged = result.as_ref().map_err(|error| match error {
            ChangeError::Denied(why) => Status::failed_precondition(why.to_string()),
            ChangeError::TimedOut => no_majority(),
        });
        operator.log(verb, &object, &logged);
        match result {
            Ok(()) => Ok(Response::new(wire::ChangeReply { denial: None })),
            Err(ChangeError::Denied(why)) => {
                Ok(Response::new(wire::ChangeReply { denial: Some(denial(&why)) }))
            }
            Err(ChangeError::TimedOut) => Err(no_majority()),
        }
    }

    async fn list(
        &self,
        request: Request<wire::AccessRequest>,
    ) -> Result<Response<Self::ListStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let none = wire::AccessList::default;
        Ok(match request.what() {
            What::Vhosts => {
                let vhosts = self.source.vhosts().iter().map(shown_vhost).collect();
                batches(vhosts, Vec::new(), |vhosts, _| wire::AccessList { vhosts, ..none() })
            }
            What::Users => {
                let users = self.source.users().iter().map(shown_user).collect();
                batches(users, Vec::new(), |users, _| wire::AccessList { users, ..none() })
            }
            What::Permissions => {
                let rows = self.source.permissions().into_iter().map(shown_permission).collect();
                batches(rows, Vec::new(), |permissions, _| wire::AccessList {
                    permissions,
                    ..none()
                })
            }
            What::TopicPermissions => {
                let rows = self.source.topic_permissions().into_iter().map(shown_topic).collect();
                batches(rows, Vec::new(), |topic_permissions, _| wire::AccessList {
                    topic_permissions,
                    ..none()
                })
            }
        })
    }

    async fn authenticate(
        &self,
        request: Request<wire::AuthenticateRequest>,
    ) -> Result<Response<wire::AuthenticateReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let user = ShortString::try_from(request.user.as_str());
        let accepted = user.is_ok_and(|user| self.source.is_password(&user, &request.password));
        Ok(Response::new(wire::AuthenticateReply { accepted }))
    }

    async fn close_connections(
        &self,
        request: Request<wire::CloseRequest>,
    ) -> Result<Response<wire::CloseReply>, Status> {
        let (operator, request) = opened(request)?;
        let result = self.close(&request).await;
        // Nodes ask each other to close theirs.
        if operator.is_named() || request.scope == i32::from(wire::Scope::Cluster) {
            let (which, reason) = (shown_closing(request.which.as_ref()), &request.reason);
            operator.log("close_connections", &format!("{which}: {reason}"), &result);
        }
        result.map(Response::new)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn nodes_that_do_not_answer_are_named() {
        assert_eq!(closed_by(3, &[]).unwrap().closed, 3);
        let refused = closed_by(3, &[NodeId(2), NodeId(5)]).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        let text = "3 connections were closed; others may still be open: no answer from nodes 2, 5";
        assert_eq!(refused.message(), text);
    }
}
