//! The one match on what is at a path: each is carried out in the file of its kind.

use crate::api::call::{Answer, Api, Call};
use crate::api::refusal::Refusal;
use crate::api::route::Endpoint as E;
use crate::api::{
    attempts, bindings, channels, connections, consumers, definitions, exchanges, features, health,
    limits, messages, nodes, overview, parameters, permissions, policies, queues, quorate_browse,
    quorate_cluster, quorate_dry_run, quorate_events, quorate_settings, quorate_tasks, replicas,
    users, vhosts,
};
use quorate_catalog::PolicyKind;

/// Carries out a request.
#[expect(clippy::too_many_lines, reason = "a line for each endpoint")]
pub(crate) async fn dispatch(api: &Api, call: &Call, endpoint: E) -> Result<Answer, Refusal> {
    match endpoint {
        E::Overview => overview::overview(api, call).await,
        E::ClusterName => overview::name(api, call).await,
        E::Version => Ok(overview::version(api)),
        E::Whoami => Ok(overview::whoami(call)),
        E::Extensions => Ok(overview::extensions()),
        E::Rebalance => Ok(overview::rebalance(api, call).await),
        E::AuthAttempts => attempts::attempts(api, call, false).await,
        E::AuthAttemptsBySource => attempts::attempts(api, call, true).await,
        E::HashPassword => overview::hashed_password(call),
        E::Nodes => nodes::list(api, call).await,
        E::Node => nodes::one(api, call, false).await,
        E::NodeMemory => nodes::one(api, call, true).await,
        E::Vhosts => vhosts::list(api, call).await,
        E::Vhost => vhosts::one(api, call).await,
        E::VhostStart => vhosts::start(api, call).await,
        E::VhostProtection => vhosts::protection(api, call).await,
        E::Users => Ok(users::list(api, false)),
        E::UsersWithoutPermissions => Ok(users::list(api, true)),
        E::UsersBulkDelete => users::bulk_delete(api, call).await,
        E::User => users::one(api, call).await,
        E::Permissions | E::VhostPermissions | E::UserPermissions => permissions::list(api, call),
        E::TopicPermissions | E::VhostTopicPermissions | E::UserTopicPermissions => {
            permissions::list_topic(api, call)
        }
        E::Permission => permissions::one(api, call).await,
        E::TopicPermission => permissions::one_topic(api, call).await,
        E::VhostLimits => limits::list_vhosts(api, call),
        E::VhostLimit => limits::vhost(api, call).await,
        E::UserLimits => limits::list_users(api, call),
        E::UserLimit => limits::user(api, call).await,
        E::Queues => queues::list(api, call).await,
        E::Queue => queues::one(api, call).await,
        E::QueueContents => queues::purge(api, call).await,
        E::QueueGet => messages::get(api, call).await,
        E::QueueStatus => replicas::status(api, call).await,
        E::ReplicaAdd => replicas::add(api, call).await,
        E::ReplicaDelete => replicas::delete(api, call).await,
        E::ReplicasGrow => replicas::grow(api, call).await,
        E::ReplicasShrink => replicas::shrink(api, call).await,
        E::Exchanges => exchanges::list(api, call).await,
        E::Exchange => exchanges::one(api, call).await,
        E::Publish => messages::publish(api, call).await,
        E::Bindings | E::BindingsFrom | E::BindingsTo | E::BindingsOfQueue | E::BindingsBetween => {
            bindings::list(api, call, endpoint).await
        }
        E::Binding => bindings::one(api, call).await,
        E::Connections => connections::list(api, call).await,
        E::ConnectionsOfUser => connections::of_user(api, call).await,
        E::Connection => connections::one(api, call).await,
        E::ConnectionChannels => connections::channels(api, call).await,
        E::Channels => channels::list(api, call).await,
        E::Channel => channels::one(api, call).await,
        E::Consumers => consumers::list(api, call).await,
        E::Policies => policies::list(api, call, PolicyKind::User),
        E::Policy => policies::one(api, call, PolicyKind::User).await,
        E::OperatorPolicies => policies::list(api, call, PolicyKind::Operator),
        E::OperatorPolicy => policies::one(api, call, PolicyKind::Operator).await,
        E::Parameters => parameters::list(api, call),
        E::Parameter => parameters::one(api, call, false).await,
        E::GlobalParameters => parameters::list_global(api),
        E::GlobalParameter => parameters::one(api, call, true).await,
        E::Definitions => definitions::all(api, call).await,
        E::VhostDefinitions => definitions::of_vhost(api, call).await,
        E::FeatureFlags => Ok(features::list()),
        E::FeatureFlag => features::enable(call),
        E::Aliveness => health::aliveness(api, call),
        E::Health(check) => health::check(api, call, check).await,
        E::BrowseQueue => quorate_browse::page(api, call).await,
        E::ExplainMessage => quorate_browse::explain(api, call).await,
        E::QueueSettings => quorate_settings::settings(api, call).await,
        E::DryRunPolicy => quorate_dry_run::policy(api, call, PolicyKind::User).await,
        E::DryRunOperatorPolicy => quorate_dry_run::policy(api, call, PolicyKind::Operator).await,
        E::DryRunDefinitions => quorate_dry_run::definitions(api, call).await,
        E::DryRunVhostDefinitions => quorate_dry_run::vhost_definitions(api, call).await,
        E::QuorateCluster => Ok(quorate_cluster::cluster(api).await),
        E::QuorateDrain => quorate_cluster::maintenance(api, call, true).await,
        E::QuorateRevive => quorate_cluster::maintenance(api, call, false).await,
        E::QuorateEvents => quorate_events::list(api, call).await,
        E::Tasks => quorate_tasks::all(api, call).await,
        E::Task => quorate_tasks::one(api, call).await,
        E::TaskControl => quorate_tasks::control(api, call).await,
        E::DeprecatedFeatures => Ok(features::deprecated()),
        E::Nothing => Ok(Answer::list(&["name"], Vec::new)),
    }
}
