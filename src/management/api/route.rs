//! The table of routes: what is at each path, which methods it takes, and who may use them. Pure.

use crate::api::refusal::Refusal;

/// A method of HTTP. HEAD is a GET without the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Delete,
}

impl Method {
    const ALL: [Self; 4] = [Self::Get, Self::Put, Self::Post, Self::Delete];

    /// The method of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if name == "HEAD" {
            return Some(Self::Get);
        }
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Its name in a request.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// Who may use a route. All but [`Needs::Nobody`] need a user with one of the tags management,
/// policymaker, monitoring, administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Anybody, without a password.
    Nobody,
    /// Such a user. What it sees of a list is decided for each object.
    Management,
    /// The tag monitoring or administrator.
    Monitoring,
    /// Permissions in the virtual host of the path, if it names one; or the tag administrator.
    Vhost,
    /// As [`Needs::Vhost`], or the tag monitoring.
    VisibleVhost,
    /// As [`Needs::Vhost`], with the tag policymaker; or the tag administrator.
    VhostPolicies,
    /// The tag policymaker or administrator.
    GlobalPolicies,
    /// The user that the path names; or the tag monitoring or administrator.
    SameUser,
    /// The user that the path names; or the tag administrator.
    Owner,
    /// The tag administrator.
    Administrator,
}

/// What a user may do, as far as routes ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The tag administrator.
    pub(crate) administrator: bool,
    /// The tag monitoring or administrator.
    pub(crate) monitoring: bool,
    /// The tag policymaker or administrator.
    pub(crate) policymaker: bool,
    /// Any of these tags, or management.
    pub(crate) management: bool,
    /// It has permissions in the virtual host of the path; true if the path names none, or one that
    /// is not there.
    pub(crate) in_vhost: bool,
    /// It is the user of the path.
    pub(crate) same_user: bool,
}

impl Needs {
    /// Whether a user may use the route.
    ///
    /// # Errors
    /// 401 in RabbitMQ's words.
    pub(crate) fn check(self, who: Standing) -> Result<(), Refusal> {
        let refuse = |text: &str| Err(Refusal::NotAuthorised(text.to_owned()));
        if self == Self::Nobody {
            return Ok(());
        }
        if !who.management {
            return refuse("Not management user");
        }
        let (may, text) = match self {
            Self::Nobody | Self::Management => return Ok(()),
            Self::Monitoring => (who.monitoring, "Not monitor user"),
            Self::Vhost => {
                (who.administrator || who.in_vhost, "User not authorised to access virtual host")
            }
            Self::VisibleVhost => {
                (who.monitoring || who.in_vhost, "User not authorised to access virtual host")
            }
            Self::VhostPolicies => (
                who.administrator || (who.policymaker && who.in_vhost),
                "User not authorised to access object",
            ),
            Self::GlobalPolicies => (who.policymaker, "User not authorised to access object"),
            Self::SameUser => {
                (who.monitoring || who.same_user, "User not authorised to access object")
            }
            Self::Owner => {
                (who.administrator || who.same_user, "User not authorised to access object")
            }
            Self::Administrator => (who.administrator, "Not administrator user"),
        };
        if may { Ok(()) } else { refuse(text) }
    }
}

/// What a health check looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Alarms,
    LocalAlarms,
    PortListener,
    ProtocolListener,
    VirtualHosts,
    QuorumCritical,
    ReadyToServe,
    InService,
    ConnectionLimit,
    ClusterSize,
    MetadataStore,
    LeaderlessQueues,
    CertificateExpiration,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Overview,
    ClusterName,
    Version,
    Whoami,
    Extensions,
    Nodes,
    Node,
    NodeMemory,
    Vhosts,
    Vhost,
    VhostStart,
    VhostProtection,
    VhostPermissions,
    VhostTopicPermissions,
    Users,
    UsersWithoutPermissions,
    UsersBulkDelete,
    User,
    UserPermissions,
    UserTopicPermissions,
    HashPassword,
    Permissions,
    Permission,
    TopicPermissions,
    TopicPermission,
    VhostLimits,
    VhostLimit,
    UserLimits,
    UserLimit,
    Queues,
    Queue,
    QueueContents,
    QueueGet,
    QueueStatus,
    ReplicaAdd,
    ReplicaDelete,
    ReplicasGrow,
    ReplicasShrink,
    Exchanges,
    Exchange,
    Publish,
    Bindings,
    BindingsFrom,
    BindingsTo,
    BindingsOfQueue,
    BindingsBetween,
    Binding,
    Connections,
    ConnectionsOfUser,
    Connection,
    ConnectionChannels,
    Channels,
    Channel,
    Consumers,
    Policies,
    Policy,
    OperatorPolicies,
    OperatorPolicy,
    Parameters,
    Parameter,
    GlobalParameters,
    GlobalParameter,
    Definitions,
    VhostDefinitions,
    FeatureFlags,
    FeatureFlag,
    DeprecatedFeatures,
    AuthAttempts,
    AuthAttemptsBySource,
    Rebalance,
    Aliveness,
    Health(Check),
    QuorateCluster,
    QuorateDrain,
    QuorateRevive,
    QuorateEvents,
    BrowseQueue,
    ExplainMessage,
    QueueSettings,
    DryRunPolicy,
    DryRunOperatorPolicy,
    DryRunDefinitions,
    DryRunVhostDefinitions,
    Tasks,
    Task,
    TaskControl,
    /// A list of something that this broker does not have.
    Nothing,
}

/// A path below `/api`, and what its methods need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// Segments separated by slashes; one in braces stands for any name.
    pub(crate) path: &'static str,
    pub(crate) endpoint: Endpoint,
    get: Option<Needs>,
    put: Option<Needs>,
    post: Option<Needs>,
    delete: Option<Needs>,
}

/// A route without methods.
const fn at(path: &'static str, endpoint: Endpoint) -> Route {
    Route { path, endpoint, get: None, put: None, post: None, delete: None }
}

/// A route that is only read.
const fn read(path: &'static str, endpoint: Endpoint, needs: Needs) -> Route {
    at(path, endpoint).get(needs)
}

/// A health check that any user of the API may ask for.
const fn check(path: &'static str, check: Check) -> Route {
    read(path, E::Health(check), Management)
}

impl Route {
    const fn get(self, needs: Needs) -> Self {
        Self { get: Some(needs), ..self }
    }

    const fn put(self, needs: Needs) -> Self {
        Self { put: Some(needs), ..self }
    }

    const fn post(self, needs: Needs) -> Self {
        Self { post: Some(needs), ..self }
    }

    const fn delete(self, needs: Needs) -> Self {
        Self { delete: Some(needs), ..self }
    }

    /// An object that is read, made and deleted with the same needs.
    const fn object(path: &'static str, endpoint: Endpoint, needs: Needs) -> Self {
        at(path, endpoint).get(needs).put(needs).delete(needs)
    }

    /// Who may use the method.
    ///
    /// # Errors
    /// 405 if the route does not take it.
    pub(crate) fn needs(&self, method: Method) -> Result<Needs, Refusal> {
        self.of(method).ok_or_else(|| Refusal::Method(self.allowed()))
    }

    fn of(&self, method: Method) -> Option<Needs> {
        match method {
            Method::Get => self.get,
            Method::Put => self.put,
            Method::Post => self.post,
            Method::Delete => self.delete,
        }
    }

    /// The methods that it takes, as the header `Allow` lists them.
    pub(crate) fn allowed(&self) -> String {
        let taken = Method::ALL.into_iter().filter(|method| self.of(*method).is_some());
        let mut names: Vec<_> = taken.map(Method::name).collect();
        if self.get.is_some() {
            names.insert(0, "HEAD");
        }
        names.push("OPTIONS");
        names.join(", ")
    }

    /// The names of the path, if the segments are of this route.
    fn captures(&self, segments: &[String]) -> Option<Vec<(&'static str, String)>> {
        let pattern: Vec<&'static str> = self.path.split('/').collect();
        if pattern.len() != segments.len() {
            return None;
        }
        let mut captured = Vec::new();
        for (part, segment) in pattern.into_iter().zip(segments) {
            match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                Some(name) if !segment.is_empty() || MAY_BE_EMPTY.contains(&name) => {
                    captured.push((name, segment.clone()));
                }
                None if part == segment => {}
                Some(_) | None => return None,
            }
        }
        Some(captured)
    }
}

/// Names in a path that may be empty.
const MAY_BE_EMPTY: [&str; 2] = ["exchange", "source"];

/// The route of a path, and the names in the path. Where an exchange is named, an empty segment is the
/// default exchange. At the ends of the path it is a slash too many, which does no harm; it is not
/// dropped elsewhere, where what follows would be taken for another name.
pub(crate) fn find(segments: &[String]) -> Option<(&'static Route, Vec<(&'static str, String)>)> {
    let fits = |segments: &[String]| {
        ROUTES.iter().find_map(|route| Some((route, route.captures(segments)?)))
    };
    fits(segments).or_else(|| {
        let first = segments.iter().position(|segment| !segment.is_empty())?;
        let last = segments.iter().rposition(|segment| !segment.is_empty())?;
        fits(segments.get(first..=last)?)
    })
}

use Endpoint as E;
use Needs::{
    Administrator, GlobalPolicies, Management, Monitoring, Nobody, Owner, SameUser, Vhost,
    VhostPolicies, VisibleVhost,
};

/// All routes. Where two fit, the first counts: words stand before names.
pub(crate) const ROUTES: &[Route] = &[
    read("overview", E::Overview, Management),
    read("cluster-name", E::ClusterName, Management).put(Administrator),
    read("version", E::Version, Nobody),
    read("whoami", E::Whoami, Management),
    read("extensions", E::Extensions, Management),
    read("nodes", E::Nodes, Monitoring),
    read("nodes/{node}", E::Node, Monitoring),
    read("nodes/{node}/memory", E::NodeMemory, Monitoring),
    read("vhosts", E::Vhosts, Management),
    read("vhosts/{vhost}", E::Vhost, Administrator).put(Administrator).delete(Administrator),
    at("vhosts/{vhost}/start/{node}", E::VhostStart).post(Administrator),
    at("vhosts/{vhost}/deletion/protection", E::VhostProtection)
        .post(Administrator)
        .delete(Administrator),
    read("vhosts/{vhost}/permissions", E::VhostPermissions, Administrator),
    read("vhosts/{vhost}/topic-permissions", E::VhostTopicPermissions, Administrator),
    read("vhosts/{vhost}/connections", E::Connections, Vhost),
    read("vhosts/{vhost}/channels", E::Channels, Vhost),
    read("users", E::Users, Administrator),
    read("users/without-permissions", E::UsersWithoutPermissions, Administrator),
    at("users/bulk-delete", E::UsersBulkDelete).post(Administrator),
    Route::object("users/{user}", E::User, Administrator),
    read("users/{user}/permissions", E::UserPermissions, Administrator),
    read("users/{user}/topic-permissions", E::UserTopicPermissions, Administrator),
    read("auth/hash_password/{password}", E::HashPassword, Administrator),
    read("auth/attempts/{node}", E::AuthAttempts, Monitoring).delete(Administrator),
    read("auth/attempts/{node}/source", E::AuthAttemptsBySource, Monitoring).delete(Administrator),
    read("permissions", E::Permissions, Administrator),
    Route::object("permissions/{vhost}/{user}", E::Permission, Administrator),
    read("topic-permissions", E::TopicPermissions, Administrator),
    Route::object("topic-permissions/{vhost}/{user}", E::TopicPermission, Administrator),
    Route::object("topic-permissions/{vhost}/{user}/{exchange}", E::TopicPermission, Administrator),
    read("vhost-limits", E::VhostLimits, VisibleVhost),
    read("vhost-limits/{vhost}", E::VhostLimits, VisibleVhost),
    at("vhost-limits/{vhost}/{name}", E::VhostLimit).put(Administrator).delete(Administrator),
    read("user-limits", E::UserLimits, Administrator),
    read("user-limits/{user}", E::UserLimits, SameUser),
    at("user-limits/{user}/{name}", E::UserLimit).put(Administrator).delete(Administrator),
    read("queues", E::Queues, Vhost),
    read("queues/detailed", E::Queues, Vhost),
    read("queues/{vhost}", E::Queues, Vhost),
    at("queues/quorum/replicas/on/{node}/grow", E::ReplicasGrow).post(Administrator),
    at("queues/quorum/replicas/on/{node}/shrink", E::ReplicasShrink).delete(Administrator),
    at("queues/quorum/{vhost}/{queue}/replicas/add", E::ReplicaAdd).post(Administrator),
    at("queues/quorum/{vhost}/{queue}/replicas/delete", E::ReplicaDelete).delete(Administrator),
    read("queues/quorum/{vhost}/{queue}/status", E::QueueStatus, Vhost),
    read("queues/{vhost}/{queue}/status", E::QueueStatus, Vhost),
    Route::object("queues/{vhost}/{queue}", E::Queue, Vhost),
    read("queues/{vhost}/{queue}/bindings", E::BindingsOfQueue, Vhost),
    at("queues/{vhost}/{queue}/contents", E::QueueContents).delete(Vhost),
    at("queues/{vhost}/{queue}/get", E::QueueGet).post(Vhost),
    read("exchanges", E::Exchanges, Vhost),
    read("exchanges/{vhost}", E::Exchanges, Vhost),
    Route::object("exchanges/{vhost}/{exchange}", E::Exchange, Vhost),
    at("exchanges/{vhost}/{exchange}/publish", E::Publish).post(Vhost),
    read("exchanges/{vhost}/{exchange}/bindings/source", E::BindingsFrom, Vhost),
    read("exchanges/{vhost}/{exchange}/bindings/destination", E::BindingsTo, Vhost),
    read("bindings", E::Bindings, Vhost),
    read("bindings/{vhost}", E::Bindings, Vhost),
    read("bindings/{vhost}/e/{source}/{kind}/{destination}", E::BindingsBetween, Vhost).post(Vhost),
    read("bindings/{vhost}/e/{source}/{kind}/{destination}/{props}", E::Binding, Vhost)
        .delete(Vhost),
    read("connections", E::Connections, Management),
    read("connections/username/{user}", E::ConnectionsOfUser, SameUser).delete(Owner),
    read("connections/{connection}", E::Connection, Management).delete(Management),
    read("connections/{connection}/channels", E::ConnectionChannels, Management),
    read("channels", E::Channels, Management),
    read("channels/{channel}", E::Channel, Management),
    read("consumers", E::Consumers, Management),
    read("consumers/{vhost}", E::Consumers, Management),
    read("policies", E::Policies, Vhost),
    read("policies/{vhost}", E::Policies, Vhost),
    Route::object("policies/{vhost}/{name}", E::Policy, VhostPolicies),
    read("operator-policies", E::OperatorPolicies, Vhost),
    read("operator-policies/{vhost}", E::OperatorPolicies, Vhost),
    Route::object("operator-policies/{vhost}/{name}", E::OperatorPolicy, Administrator),
    read("parameters", E::Parameters, VhostPolicies),
    read("parameters/{component}", E::Parameters, VhostPolicies),
    read("parameters/{component}/{vhost}", E::Parameters, VhostPolicies),
    Route::object("parameters/{component}/{vhost}/{name}", E::Parameter, VhostPolicies),
    read("global-parameters", E::GlobalParameters, GlobalPolicies),
    Route::object("global-parameters/{name}", E::GlobalParameter, GlobalPolicies),
    read("definitions", E::Definitions, Administrator).post(Administrator),
    read("all-configuration", E::Definitions, Administrator).post(Administrator),
    read("definitions/{vhost}", E::VhostDefinitions, Administrator).post(Administrator),
    read("feature-flags", E::FeatureFlags, Management),
    at("feature-flags/{name}/enable", E::FeatureFlag).put(Administrator),
    read("deprecated-features", E::DeprecatedFeatures, Management),
    read("deprecated-features/used", E::Nothing, Management),
    at("rebalance/queues", E::Rebalance).post(Administrator),
    read("aliveness-test/{vhost}", E::Aliveness, Vhost),
    check("health/checks/alarms", Check::Alarms),
    check("health/checks/local-alarms", Check::LocalAlarms),
    check("health/checks/port-listener/{port}", Check::PortListener),
    check("health/checks/protocol-listener/{protocols}", Check::ProtocolListener),
    check("health/checks/certificate-expiration/{within}/{unit}", Check::CertificateExpiration),
    check("health/checks/virtual-hosts", Check::VirtualHosts),
    check("health/checks/node-is-quorum-critical", Check::QuorumCritical),
    read("health/checks/ready-to-serve-clients", E::Health(Check::ReadyToServe), Nobody),
    read("health/checks/is-in-service", E::Health(Check::InService), Nobody),
    read("health/checks/below-node-connection-limit", E::Health(Check::ConnectionLimit), Nobody),
    read("health/checks/reached-target-cluster-size", E::Health(Check::ClusterSize), Nobody),
    check("health/checks/metadata-store/initialized", Check::MetadataStore),
    check("health/checks/metadata-store/initialized/with-data", Check::MetadataStore),
    check(
        "health/checks/quorum-queues-without-elected-leaders/all-vhosts",
        Check::LeaderlessQueues,
    ),
    read(
        "health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}",
        E::Health(Check::LeaderlessQueues),
        VisibleVhost,
    ),
    read("quorate/cluster", E::QuorateCluster, Monitoring),
    at("quorate/nodes/{node}/drain", E::QuorateDrain).post(Administrator),
    at("quorate/nodes/{node}/revive", E::QuorateRevive).post(Administrator),
    read("quorate/events", E::QuorateEvents, Monitoring),
    read("quorate/queues/{vhost}/{queue}/messages", E::BrowseQueue, Vhost),
    read("quorate/queues/{vhost}/{queue}/messages/{position}/explain", E::ExplainMessage, Vhost),
    read("quorate/queues/{vhost}/{queue}/settings", E::QueueSettings, Vhost),
    at("quorate/dry-run/policies/{vhost}/{name}", E::DryRunPolicy)
        .post(VhostPolicies)
        .delete(VhostPolicies),
    at("quorate/dry-run/operator-policies/{vhost}/{name}", E::DryRunOperatorPolicy)
        .post(Administrator)
        .delete(Administrator),
    at("quorate/dry-run/definitions", E::DryRunDefinitions).post(Administrator),
    at("quorate/dry-run/definitions/{vhost}", E::DryRunVhostDefinitions).post(Administrator),
    // Who may do what with a task is decided by the permissions on its queue and target.
    read("quorate/tasks", E::Tasks, Management).post(Management),
    read("quorate/tasks/{task}", E::Task, Management),
    at("quorate/tasks/{task}/{control}", E::TaskControl).post(Management),
    read("shovels", E::Nothing, Monitoring),
    read("shovels/{vhost}", E::Nothing, Monitoring),
    read("federation-links", E::Nothing, Monitoring),
    read("federation-links/{vhost}", E::Nothing, Monitoring),
    read("traces", E::Nothing, Administrator),
    read("traces/{vhost}", E::Nothing, Administrator),
    read("stream/connections", E::Nothing, Management),
    read("stream/connections/{vhost}", E::Nothing, Management),
    read("stream/publishers", E::Nothing, Management),
    read("stream/publishers/{vhost}", E::Nothing, Management),
    read("stream/consumers", E::Nothing, Management),
    read("stream/consumers/{vhost}", E::Nothing, Management),
];

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
