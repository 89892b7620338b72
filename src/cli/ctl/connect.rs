//! Connections to a node's admin service.

use super::exit::{Exit, Failure};
use super::options::Options;
use crate::cli::{secret, tls};
use quorate_management::OPERATOR_METADATA;
use quorate_management::wire::{
    self, Cluster, access_client::AccessClient, admin_client::AdminClient,
    events_client::EventsClient, messages_client::MessagesClient, policies_client::PoliciesClient,
    process_admin_client::ProcessAdminClient, tasks_client::TasksClient,
};
use quorate_rpc::Connector;
use quorate_tls::Dialer;
use std::net::ToSocketAddrs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;
use tonic::metadata::{BinaryMetadataValue, MetadataValue};
use tonic::service::{Interceptor, interceptor::InterceptedService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// Port of a node, unless the command line gives one.
const DEFAULT_PORT: u16 = 7672;
const DEFAULT_HOST: &str = "127.0.0.1";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection whose calls say who makes them.
pub(crate) type Named = InterceptedService<Channel, Caller>;

/// The client of virtual hosts, users and permissions.
pub(crate) type AccessPeer = AccessClient<Named>;

pub(crate) type Client = AdminClient<Named>;
pub(crate) type PolicyClient = PoliciesClient<Named>;
pub(crate) type MessageClient = MessagesClient<Named>;
pub(crate) type ProcessClient = ProcessAdminClient<Named>;
pub(crate) type TaskClient = TasksClient<Named>;
pub(crate) type EventClient = EventsClient<Named>;

/// Who calls, in each call's metadata, for the node's audit log: user, user id and host.
#[derive(Clone, Debug)]
pub(crate) struct Caller(BinaryMetadataValue);

impl Caller {
    /// Who runs this process.
    fn own() -> Self {
        let uid = std::fs::metadata("/proc/self").map(|process| process.uid().to_string());
        // What is not known is left out.
        let uid = uid.unwrap_or_default();
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = user_of(&users, &uid).or_else(|| std::env::var("USER").ok());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let told = format!("{}\n{uid}\n{}", user.unwrap_or_default(), host.trim());
        Self(MetadataValue::from_bytes(told.as_bytes()))
    }
}

/// The name of a user id, by the lines of `/etc/passwd`.
fn user_of(users: &str, uid: &str) -> Option<String> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    };
    users.lines().find_map(user)
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert_bin(OPERATOR_METADATA, self.0.clone());
        Ok(request)
    }
}

/// A node, as given with `-n`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The text as it was given.
    pub(crate) text: String,
    /// The whole name, if it was given as `NAME@HOST`.
    pub(crate) name: Option<String>,
    pub(crate) address: String,
}

impl Target {
    /// Parses `HOST:PORT`, `HOST`, `NAME@HOST` or `NAME@HOST:PORT`.
    pub(crate) fn read(text: Option<&str>) -> Self {
        let text = text.unwrap_or(DEFAULT_HOST);
        let (name, host) = match text.split_once('@') {
            Some((name, host)) => (Some(name), host),
            None => (None, text),
        };
        // A bare IPv6 address has more than one colon and no brackets.
        let bare_ipv6 = host.matches(':').count() > 1 && !host.starts_with('[');
        let has_port = !bare_ipv6
            && host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port {
            host.to_owned()
        } else if bare_ipv6 {
            format!("[{host}]:{DEFAULT_PORT}")
        } else {
            format!("{host}:{DEFAULT_PORT}")
        };
        let host = match host.rsplit_once(':') {
            Some((host, _)) if has_port => host,
            Some(_) | None => host,
        };
        let name = name.map(|name| format!("{name}@{host}"));
        Self { text: text.to_owned(), name, address }
    }
}

/// Creates the connector, with the cluster secret and the TLS files that a client has.
pub(crate) fn connector(options: &Options) -> Result<Connector, Failure> {
    let variable = std::env::var(secret::VARIABLE).ok();
    let home = std::env::var("HOME").ok();
    let file = std::env::var("QUORATE_CLUSTER_SECRET_FILE").ok().map(Into::into);
    let file = options.secret_file.clone().or(file);
    let secret = secret::find(variable.as_deref(), file.as_deref(), home.as_deref());
    let secret = secret.and_then(|secret| secret.cluster_secret()).map_err(unusable)?;
    Ok(Connector::new(secret, dialer(options)?))
}

fn unusable(why: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Unavailable, format!("Error: {why}\n"))
}

/// The dialing end of TLS, if `rpc_tls` is true. Each setting is taken from the command line, or
/// else from its environment variable.
fn dialer(options: &Options) -> Result<Option<Dialer>, Failure> {
    let find = |setting: &str| {
        let given = options.tls.iter().rev().find(|(name, _)| *name == setting);
        let variable = || std::env::var(format!("QUORATE_{}", setting.to_uppercase())).ok();
        let text = given.map(|(_, text)| text.clone()).or_else(variable);
        text.filter(|text| !text.is_empty())
    };
    match find("rpc_tls").as_deref() {
        None | Some("false") => return Ok(None),
        Some("true") => {}
        Some(other) => {
            return Err(unusable(format!("setting rpc_tls: '{other}' is neither true nor false")));
        }
    }
    let files = tls::rpc_files(|setting| find(setting).map(PathBuf::from)).map_err(|missing| {
        unusable(format!("setting {missing}: must be set, since rpc_tls is true"))
    })?;
    Dialer::load(files).map(Some).map_err(unusable)
}

/// A connection to a node that has answered: its clients, and the cluster as that node sees it.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) policies: PolicyClient,
    pub(crate) messages: MessageClient,
    pub(crate) access: AccessPeer,
    pub(crate) process: ProcessClient,
    pub(crate) tasks: TaskClient,
    pub(crate) events: EventClient,
    pub(crate) cluster: Cluster,
}

impl Connected {
    /// The node that the client is connected to.
    pub(crate) fn asked(&self) -> Option<&wire::Member> {
        self.cluster.members.iter().find(|member| member.id == self.cluster.asked)
    }
}

/// Connects to a node. If the target has a name, and the node at that address knows a node of that
/// name at another address, connects to that one: so nodes of one host can be selected by name.
pub(crate) async fn connect(target: &Target, connector: &Connector) -> Result<Connected, Failure> {
    let connected = connect_to(&target.address, target, connector).await?;
    let Some(name) = &target.name else { return Ok(connected) };
    let named = connected.cluster.members.iter().find(|member| member.name == *name);
    match named {
        Some(member) if member.id != connected.cluster.asked => {
            connect_to(&member.rpc_address, target, connector).await
        }
        Some(_) | None => Ok(connected),
    }
}

/// Connects to a node, and asks it about itself alone: the other nodes are not needed for that, unless
/// the target has a name that is not the node's.
pub(crate) async fn connect_to_node(
    target: &Target,
    connector: &Connector,
) -> Result<(Client, wire::Node), Failure> {
    let channel = dial(&target.address, target, connector).await?;
    let mut client = AdminClient::with_interceptor(channel, Caller::own());
    let refuse = |status: Status| unreachable(target, Exit::Unavailable, status.message());
    let request = wire::NodeRequest { caller: wire::caller() };
    let node = client.get_node(request).await.map_err(refuse)?.into_inner();
    if target.name.as_ref().is_none_or(|name| *name == node.name) {
        return Ok((client, node));
    }
    let mut named = connect(target, connector).await?;
    let request = wire::NodeRequest { caller: wire::caller() };
    let node = named.client.get_node(request).await.map_err(refuse)?.into_inner();
    Ok((named.client, node))
}

async fn dial(address: &str, target: &Target, connector: &Connector) -> Result<Channel, Failure> {
    if let Err(error) = address.to_socket_addrs() {
        return Err(unreachable(target, Exit::NoHost, &error.to_string()));
    }
    let refuse =
        |error: tonic::transport::Error| unreachable(target, Exit::Unavailable, &innermost(&error));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(refuse)?;
    let endpoint = endpoint.connect_timeout(CONNECT_TIMEOUT);
    endpoint.connect_with_connector(connector.clone()).await.map_err(refuse)
}

async fn connect_to(
    address: &str,
    target: &Target,
    connector: &Connector,
) -> Result<Connected, Failure> {
    let channel = dial(address, target, connector).await?;
    let caller = Caller::own();
    let policies = PoliciesClient::with_interceptor(channel.clone(), caller.clone());
    let access = AccessClient::with_interceptor(channel.clone(), caller.clone());
    let messages = MessagesClient::with_interceptor(channel.clone(), caller.clone());
    let process = ProcessAdminClient::with_interceptor(channel.clone(), caller.clone());
    let tasks = TasksClient::with_interceptor(channel.clone(), caller.clone());
    let events = EventsClient::with_interceptor(channel.clone(), caller.clone());
    let mut client = AdminClient::with_interceptor(channel, caller);
    let request = wire::ClusterRequest { caller: wire::caller() };
    match client.get_cluster(request).await {
        Ok(cluster) => {
            let cluster = cluster.into_inner();
            Ok(Connected { client, policies, messages, access, process, tasks, events, cluster })
        }
        Err(status) => Err(unreachable(target, Exit::Unavailable, status.message())),
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// rabbitmqctl's message, with hints that help to find the cause.
fn unreachable(target: &Target, exit: Exit, cause: &str) -> Failure {
    let text = format!(
        "Error: unable to perform an operation on node '{}'. Please see diagnostics information and suggestions below.

Most common reasons for this are:

 * Target node is unreachable (e.g. due to hostname resolution, TCP connection or firewall issues)
 * CLI tool fails to authenticate with the server (e.g. due to its cluster secret not matching that of the server)
 * Target node is not running

DIAGNOSTICS
===========

attempted to contact: {}
cause: {cause}
",
        target.text, target.address
    );
    Failure::new(exit, text)
}

/// A call that failed, with rabbitmqctl's text if there is one, and its exit code (CTL-12).
pub(crate) fn call_failure(status: &Status) -> Failure {
    let text = status.message();
    match status.code() {
        Code::NotFound => Failure::new(Exit::Data, format!("{text}\n")),
        Code::FailedPrecondition => {
            let term = format!("{{:amqp_error, :precondition_failed, ~c\"{text}\", :none}}");
            Failure::new(Exit::Unavailable, format!("Error:\n{term}\n"))
        }
        Code::DeadlineExceeded => Failure::new(Exit::TimedOut, format!("Error:\n{text}\n")),
        Code::Internal | Code::DataLoss => {
            Failure::new(Exit::Software, format!("Error:\n{text}\n"))
        }
        Code::InvalidArgument => Failure::new(Exit::Data, format!("Error:\n{text}\n")),
        // So a service or a call that is not there is answered.
        Code::Unimplemented if text.is_empty() => {
            let text = "the node is of an earlier release, which does not know this command";
            Failure::new(Exit::Unavailable, format!("Error:\n{text}\n"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Unavailable
        | Code::Unauthenticated => Failure::new(Exit::Unavailable, format!("Error:\n{text}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<String>, String) {
        let target = Target::read(Some(text));
        (target.name, target.address)
    }

    #[test]
    fn users_are_named_as_the_system_names_them() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_of(users, "1000").as_deref(), Some("ann"));
        assert_eq!(user_of(users, "1001"), None);
        assert_eq!(user_of(users, ""), None);
    }

    #[test]
    fn nodes_are_named_by_address_or_like_erlang_nodes() {
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(read("h:1"), (None, "h:1".to_owned()));
        assert_eq!(read("h"), (None, "h:7672".to_owned()));
        assert_eq!(read("rabbit2@h"), (name("rabbit2@h"), "h:7672".to_owned()));
        assert_eq!(read("rabbit@h:7673"), (name("rabbit@h"), "h:7673".to_owned()));
        assert_eq!(read("::1"), (None, "[::1]:7672".to_owned()));
        assert_eq!(read("[::1]:9"), (None, "[::1]:9".to_owned()));
        assert_eq!(Target::read(None).address, "127.0.0.1:7672");
    }
}
