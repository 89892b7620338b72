//! Which requests are answered from this node's copy of the catalog as a client of AMQP is: only under a routing lease,
//! since the copy of a node that is cut off may be old by any time (NAM 5). Lists, figures and checks are answered
//! without one, so that operators see what a cut-off node knows.

use crate::api::refusal::Refusal;
use crate::api::route::{Endpoint as E, Method};
use quorate_broker::Broker;
use std::time::Duration;

/// How long a question waits for the lease, or for the other nodes: longer than they wait for one that hangs, which the
/// catalog's leader counts out within 1.3 s.
const PATIENCE: Duration = Duration::from_secs(3);

/// Whether a request is about one object: that it is there or not, what its properties are, or what becomes of it.
pub(crate) fn is_about_one(endpoint: E, method: Method) -> bool {
    let is_document = matches!(endpoint, E::Definitions | E::VhostDefinitions);
    (is_document && method != Method::Get)
        || matches!(
            endpoint,
            E::Vhost
                | E::VhostStart
                | E::VhostProtection
                | E::VhostLimit
                | E::VhostPermissions
                | E::VhostTopicPermissions
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
                | E::QueueStatus
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
                | E::GlobalParameter
        )
}

/// Waits until the copy has all that any node has answered: a change as long as a client of AMQP waits.
///
/// # Errors
/// 503 when this node gets no lease in time.
pub(crate) async fn may_answer(broker: &Broker, method: Method) -> Result<(), Refusal> {
    let patience = if method == Method::Get { PATIENCE } else { broker.operation_timeout() };
    let text = "this node is cut off from the leader of the catalog, so what it knows may be old";
    refuse_unless(broker.may_answer(patience).await, text)
}

/// Whether an answer says what the copy says: that something is there or not, or what the user may do. A change that was
/// carried out has waited for the others by itself.
pub(crate) fn rests_on_copy<T>(method: Method, answer: &Result<T, Refusal>) -> bool {
    match answer {
        Ok(_) => method == Method::Get,
        Err(refusal) => matches!(refusal, Refusal::NoObject | Refusal::NotFound(_)),
    }
}

/// Waits until every node would answer what this one's copy says now.
///
/// # Errors
/// 503 when the others do not confirm that in time.
pub(crate) async fn is_agreed(broker: &Broker) -> Result<(), Refusal> {
    let text = "not all nodes know the latest change yet, so they might answer otherwise";
    refuse_unless(broker.is_agreed(PATIENCE).await, text)
}

fn refuse_unless(holds: bool, text: &str) -> Result<(), Refusal> {
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
