//! Which requests are answered from this node's copy of the catalog as a client of AMQP is: only under a routing lease,
//! since the copy of a node that is cut off may be old by any time (NAM 5). Lists, figures and checks are answered
//! without one, so that operators see what a cut-off node knows.

use crate::api::refusal::Refusal;
use crate::api::route::{Endpoint as E, Method};
use quorate_broker::Broker;
use std::time::Duration;

/// How long a request waits for the lease, or for the other nodes: as long as it waits for what they answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether a request is about one object: that it is there or not, what its properties are, or what becomes of it.
pub(crate) fn is_about_one(endpoint: E, method: Method) -> bool {
    match endpoint {
        E::Vhost
        | E::VhostStart
        | E::VhostProtection
        | E::VhostLimit
        | E::User
        | E::UserLimit
        | E::UserPermissions
        | E::UserTopicPermissions
        | E::UsersBulkDelete
        | E::Permission
        | E::TopicPermission
        | E::Queue
        | E::QueueContents
        | E::QueueGet
        | E::QueueSettings
        | E::BindingsOfQueue
        | E::BindingsFrom
        | E::BindingsTo
        | E::BindingsBetween
        | E::Binding
        | E::Exchange
        | E::Publish
        | E::Policy
        | E::OperatorPolicy
        | E::Parameter
        | E::GlobalParameter => true,
        E::Definitions | E::VhostDefinitions => method != Method::Get,
        _ => false,
    }
}

/// Waits until the copy has all that any node has answered.
///
/// # Errors
/// 503 when this node has no lease for a second.
pub(crate) async fn may_answer(broker: &Broker) -> Result<(), Refusal> {
    refuse_unless(broker.may_answer(PATIENCE).await)
}

/// Waits until every node would answer what this one's copy says now.
///
/// # Errors
/// 503 when the others do not confirm that within a second.
pub(crate) async fn is_agreed(broker: &Broker) -> Result<(), Refusal> {
    refuse_unless(broker.is_agreed(PATIENCE).await)
}

fn refuse_unless(holds: bool) -> Result<(), Refusal> {
    let text = "this node is cut off from the leader of the catalog, so what it knows may be old";
    if holds { Ok(()) } else { Err(Refusal::Unavailable(text.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_checks_are_answered_without_a_lease() {
        for endpoint in [E::Queues, E::Overview, E::Nodes, E::Aliveness, E::QuorateCluster] {
            assert!(!is_about_one(endpoint, Method::Get), "{endpoint:?}");
        }
        assert!(is_about_one(E::Queue, Method::Get) && is_about_one(E::Queue, Method::Delete));
        assert!(!is_about_one(E::Definitions, Method::Get));
        assert!(is_about_one(E::Definitions, Method::Post));
    }
}
