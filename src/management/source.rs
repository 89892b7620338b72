//! Where the views come from: the broker, behind a trait so that what shows them can be tested
//! without one.

use quorate_broker::Broker;
use quorate_broker::view::{
    BindingView, ChannelView, ClusterView, ConnectionView, ConsumerView, ExchangeView, GroupAudit,
    MetricsView, NodeView, QueueView, Readiness,
};
use quorate_types::{Exception, ResourceName, VhostName};
use std::future::Future;

/// One node's views of itself, as `quorate_broker::view` describes them.
pub trait Source: Clone + Send + Sync + 'static {
    /// Queues of a virtual host.
    fn queues(&self, vhost: &VhostName) -> Vec<QueueView>;
    /// Exchanges of a virtual host.
    fn exchanges(&self, vhost: &VhostName) -> Vec<ExchangeView>;
    /// Explicit bindings of a virtual host.
    fn bindings(&self, vhost: &VhostName) -> Vec<BindingView>;
    /// Connections of this node's clients.
    fn connections(&self) -> Vec<ConnectionView>;
    /// Channels of this node's clients.
    fn channels(&self) -> Vec<ChannelView>;
    /// Consumers of this node's clients.
    fn consumers(&self, vhost: &VhostName) -> Vec<ConsumerView>;
    /// The cluster.
    fn cluster(&self) -> ClusterView;
    /// The node.
    fn node_status(&self) -> NodeView;
    /// State digests of this node's replicas.
    fn audit(&self) -> Vec<GroupAudit>;
    /// Counters and times.
    fn metrics(&self) -> MetricsView;
    /// Whether clients can be served.
    fn readiness(&self) -> Readiness;
    /// Deletes a queue; answers the ready messages that went with it.
    ///
    /// # Errors
    /// 404, 406, 541.
    fn delete_queue(
        &self,
        queue: &ResourceName,
        if_unused: bool,
        if_empty: bool,
    ) -> impl Future<Output = Result<u64, Exception>> + Send;
    /// Removes a queue's ready messages; answers how many.
    ///
    /// # Errors
    /// 404, 541.
    fn purge_queue(
        &self,
        queue: &ResourceName,
    ) -> impl Future<Output = Result<u64, Exception>> + Send;
}

impl Source for Broker {
    fn queues(&self, vhost: &VhostName) -> Vec<QueueView> {
        Broker::queues(self, vhost)
    }

    fn exchanges(&self, vhost: &VhostName) -> Vec<ExchangeView> {
        Broker::exchanges(self, vhost)
    }

    fn bindings(&self, vhost: &VhostName) -> Vec<BindingView> {
        Broker::bindings(self, vhost)
    }

    fn connections(&self) -> Vec<ConnectionView> {
        Broker::connections(self)
    }

    fn channels(&self) -> Vec<ChannelView> {
        Broker::channels(self)
    }

    fn consumers(&self, vhost: &VhostName) -> Vec<ConsumerView> {
        Broker::consumers(self, vhost)
    }

    fn cluster(&self) -> ClusterView {
        Broker::cluster(self)
    }

    fn node_status(&self) -> NodeView {
        Broker::node_status(self)
    }

    fn audit(&self) -> Vec<GroupAudit> {
        Broker::audit(self)
    }

    fn metrics(&self) -> MetricsView {
        Broker::metrics(self)
    }

    fn readiness(&self) -> Readiness {
        Broker::readiness(self)
    }

    async fn delete_queue(
        &self,
        queue: &ResourceName,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        Broker::delete_queue(self, queue, if_unused, if_empty).await
    }

    async fn purge_queue(&self, queue: &ResourceName) -> Result<u64, Exception> {
        Broker::purge_queue(self, queue).await
    }
}
