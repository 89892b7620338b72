//! The service that gives other nodes' HTTP APIs this node's part of a list.

use crate::admin::{Batches, batches, check, cut, vhost};
use crate::convert;
use crate::wire::{self, parts_server::Parts};
use quorate_broker::Broker;
use quorate_types::{ResourceName, ShortString, VhostName};
use std::collections::BTreeSet;
use tonic::{Request, Response, Status};

/// The service of one node.
#[derive(Clone, Debug)]
pub struct PartService {
    broker: Broker,
}

impl PartService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self { broker }
    }
}

/// The virtual hosts of a request.
fn vhosts(request: &wire::PartRequest) -> Result<BTreeSet<VhostName>, Status> {
    check(request.caller)?;
    request.vhosts.iter().map(|name| vhost(name)).collect()
}

/// The queues that this node leads or is the home of.
pub(crate) fn led_queues(broker: &Broker, vhosts: &BTreeSet<VhostName>) -> Vec<wire::Queue> {
    broker.lookup().led_queues(vhosts, convert::queue)
}

/// The same queues, of which the replicated ones have only what no other node knows.
fn led_counts(broker: &Broker, vhosts: &BTreeSet<VhostName>) -> Vec<wire::Queue> {
    let this = broker.node();
    let bound = broker.lookup().bound_queues(vhosts, convert::queue);
    let counted = broker.lookup().led_counts(vhosts);
    let counted = counted.into_iter().map(|(id, counts)| convert::counted(id, this, counts));
    bound.into_iter().chain(counted).collect()
}

/// The consumers of this node's clients, for each virtual host.
pub(crate) fn own_consumers(
    broker: &Broker,
    vhosts: &BTreeSet<VhostName>,
) -> Vec<(VhostName, wire::Consumer)> {
    let of_vhost = |vhost: &VhostName| {
        let views = broker.views().consumers(vhost);
        let named = |view| (vhost.clone(), convert::consumer(view));
        views.iter().map(named).collect::<Vec<_>>()
    };
    vhosts.iter().flat_map(of_vhost).collect()
}

/// Whose turn it is, of the consumers of the queues that this node leads.
pub(crate) fn led_turns(broker: &Broker, vhosts: &BTreeSet<VhostName>) -> Vec<wire::Turn> {
    let of_vhost = |vhost: &VhostName| broker.views().single_active(vhost);
    vhosts.iter().flat_map(of_vhost).map(|turn| convert::turn(&turn)).collect()
}

/// Makes something on a thread that may take its time: with many queues that is not for the threads of the
/// broker. `None`: it has failed.
pub(crate) async fn blocking<T: Send + 'static>(
    make: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(make).await.ok()
}

/// Views are made where they may take their time.
///
/// # Errors
/// INTERNAL: the view was not made.
pub(crate) async fn viewed<T: Send + 'static>(
    view: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Status> {
    blocking(view).await.ok_or_else(|| Status::internal("the list was not made"))
}

#[tonic::async_trait]
impl Parts for PartService {
    type LedQueuesStream = Batches<wire::Queues>;
    type OwnConsumersStream = Batches<wire::VhostConsumers>;
    type LedTurnsStream = Batches<wire::Turns>;

    async fn led_queues(
        &self,
        request: Request<wire::PartRequest>,
    ) -> Result<Response<Self::LedQueuesStream>, Status> {
        let (vhosts, broker) = (vhosts(request.get_ref())?, self.broker.clone());
        let queues = if request.get_ref().counts_only {
            viewed(move || led_counts(&broker, &vhosts)).await?
        } else {
            viewed(move || led_queues(&broker, &vhosts)).await?
        };
        Ok(batches(queues, Vec::new(), |queues, silent| wire::Queues { queues, silent }))
    }

    async fn get_queue(
        &self,
        request: Request<wire::QueueName>,
    ) -> Result<Response<wire::Queue>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let name = ShortString::try_from(request.name.as_str())
            .map_err(|error| Status::invalid_argument(format!("queue: {error}")))?;
        let name = ResourceName { vhost: vhost(&request.vhost)?, name };
        match self.broker.lookup().queue(&name) {
            Some(view) => Ok(Response::new(convert::queue(view))),
            None => Err(Status::not_found(format!("no queue {name}"))),
        }
    }

    async fn own_consumers(
        &self,
        request: Request<wire::PartRequest>,
    ) -> Result<Response<Self::OwnConsumersStream>, Status> {
        let (vhosts, broker) = (vhosts(request.get_ref())?, self.broker.clone());
        let consumers = viewed(move || own_consumers(&broker, &vhosts)).await?;
        let of_vhosts = consumers.chunk_by(|(left, _), (right, _)| left == right);
        let messages = of_vhosts.flat_map(|rows| {
            let vhost = rows.first().map(|(vhost, _)| vhost.to_string()).unwrap_or_default();
            let consumers = rows.iter().map(|(_, consumer)| consumer.clone()).collect();
            let message = move |consumers| wire::VhostConsumers { vhost: vhost.clone(), consumers };
            cut(consumers).into_iter().map(message).map(Ok)
        });
        Ok(Response::new(tokio_stream::iter(messages.collect::<Vec<_>>())))
    }

    async fn led_turns(
        &self,
        request: Request<wire::PartRequest>,
    ) -> Result<Response<Self::LedTurnsStream>, Status> {
        let (vhosts, broker) = (vhosts(request.get_ref())?, self.broker.clone());
        let turns = viewed(move || led_turns(&broker, &vhosts)).await?;
        Ok(batches(turns, Vec::new(), |turns, _| wire::Turns { turns }))
    }
}
