//! The source of the views: the broker, behind a trait so that the services can be tested without
//! one.

use crate::api;
use quorate_broker::view::{
    BindingView, ChannelView, ClusterView, ConnectionView, ConsumerView, ExchangeView, Figures,
    GroupAudit, MetricsView, NodeView, QueueView, Readiness, SourceAttempts,
};
use quorate_broker::{
    Amount, Broker, ChangeError, Closing, DrainError, ForgetError, Left, MemberError, Rebalanced,
};
use quorate_catalog::{
    AccessCommand, PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord,
};
use quorate_types::{ConsumerId, Exception, NodeId, ResourceName, ShortString, VhostName};
use std::future::Future;
use std::time::Duration;

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
    /// Consumers of the queues with a single active consumer that this node leads; true for the
    /// active one.
    fn single_active(&self, vhost: &VhostName) -> Vec<(ConsumerId, bool)>;
    /// Members of the cluster and their states.
    fn cluster(&self) -> ClusterView;
    /// Figures of this node.
    fn node_status(&self) -> NodeView;
    /// State digests of this node's replicas.
    fn audit(&self) -> Vec<GroupAudit>;
    /// Counters and times.
    fn metrics(&self) -> MetricsView;
    /// Figures of the node's queues, exchanges, connections and channels.
    fn figures(&self) -> Figures;
    /// The name of the cluster, if one was set.
    fn cluster_name(&self) -> Option<String>;
    /// Logins at the node, by their source.
    fn login_sources(&self) -> Vec<SourceAttempts>;
    /// Readiness of the node for clients.
    fn readiness(&self) -> Readiness;
    /// How long the present sync of the disk has taken so far; zero if none is under way.
    fn sync_under_way(&self) -> Duration;
    /// Deletes a queue; returns the number of ready messages that were removed with it.
    ///
    /// # Errors
    /// 404, 406, 541.
    fn delete_queue(
        &self,
        queue: &ResourceName,
        if_unused: bool,
        if_empty: bool,
    ) -> impl Future<Output = Result<u64, Exception>> + Send;
    /// Removes a queue's ready messages; returns their number.
    ///
    /// # Errors
    /// 404, 541.
    fn purge_queue(
        &self,
        queue: &ResourceName,
    ) -> impl Future<Output = Result<u64, Exception>> + Send;
    /// Changes users, virtual hosts, permissions or limits.
    ///
    /// # Errors
    /// Why the change was refused.
    fn change_access(
        &self,
        command: AccessCommand,
    ) -> impl Future<Output = Result<(), ChangeError>> + Send;
    /// All virtual hosts, by name.
    fn vhosts(&self) -> Vec<VhostRecord>;
    /// All users, by name.
    fn users(&self) -> Vec<UserRecord>;
    /// All permissions of all users.
    fn permissions(&self) -> Vec<PermissionRecord>;
    /// All topic permissions.
    fn topic_permissions(&self) -> Vec<TopicPermissionRecord>;
    /// True if the password is the user's.
    fn is_password(&self, user: &ShortString, password: &[u8]) -> bool;
    /// Closes connections of this node's clients; returns their number.
    fn close_connections(&self, which: &Closing, most: usize, reason: &str) -> usize;
    /// Sets the threshold of the memory alarm.
    fn set_memory_high_watermark(&self, amount: Amount);
    /// Sets the threshold of the disk alarm.
    fn set_disk_free_limit(&self, amount: Amount);
    /// Drains this node; returns what is left after that time at the latest.
    ///
    /// # Errors
    /// The node is not drained.
    fn drain(&self, within: Duration) -> impl Future<Output = Result<Left, DrainError>> + Send;
    /// Ends the draining of this node.
    fn revive(&self) -> impl Future<Output = ()> + Send;
    /// Forgets a node, one that runs only if `running` is true.
    ///
    /// # Errors
    /// The node is not forgotten.
    fn forget_member(
        &self,
        node: NodeId,
        running: bool,
    ) -> impl Future<Output = Result<(), ForgetError>> + Send;
    /// Lets an empty directory that asks to join take the place of the node's lost one.
    ///
    /// # Errors
    /// The node is not replaced.
    fn replace_member(&self, node: NodeId) -> impl Future<Output = Result<(), MemberError>> + Send;
    /// Hands leaderships of this node to the nodes that should have them.
    fn rebalance(&self) -> impl Future<Output = Rebalanced> + Send;
}

impl Source for Broker {
    fn queues(&self, vhost: &VhostName) -> Vec<QueueView> {
        self.views().queues(vhost)
    }

    fn exchanges(&self, vhost: &VhostName) -> Vec<ExchangeView> {
        self.views().exchanges(vhost)
    }

    fn bindings(&self, vhost: &VhostName) -> Vec<BindingView> {
        self.views().bindings(vhost)
    }

    fn connections(&self) -> Vec<ConnectionView> {
        self.views().connections()
    }

    fn channels(&self) -> Vec<ChannelView> {
        self.views().channels()
    }

    fn consumers(&self, vhost: &VhostName) -> Vec<ConsumerView> {
        self.views().consumers(vhost)
    }

    fn single_active(&self, vhost: &VhostName) -> Vec<(ConsumerId, bool)> {
        self.views().single_active(vhost)
    }

    fn cluster(&self) -> ClusterView {
        self.views().cluster()
    }

    fn node_status(&self) -> NodeView {
        self.views().node_status()
    }

    fn audit(&self) -> Vec<GroupAudit> {
        self.views().audit()
    }

    fn metrics(&self) -> MetricsView {
        self.views().metrics()
    }

    fn figures(&self) -> Figures {
        self.views().figures()
    }

    fn cluster_name(&self) -> Option<String> {
        api::set_cluster_name(self)
    }

    fn login_sources(&self) -> Vec<SourceAttempts> {
        self.views().attempts_by_source()
    }

    fn readiness(&self) -> Readiness {
        self.views().readiness()
    }

    fn sync_under_way(&self) -> Duration {
        self.views().sync_under_way()
    }

    async fn delete_queue(
        &self,
        queue: &ResourceName,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        self.operator().delete_queue(queue, if_unused, if_empty).await
    }

    async fn purge_queue(&self, queue: &ResourceName) -> Result<u64, Exception> {
        self.operator().purge_queue(queue).await
    }

    async fn change_access(&self, command: AccessCommand) -> Result<(), ChangeError> {
        self.operator().change_access(command).await
    }

    fn vhosts(&self) -> Vec<VhostRecord> {
        self.views().vhosts()
    }

    fn users(&self) -> Vec<UserRecord> {
        self.views().users()
    }

    fn permissions(&self) -> Vec<PermissionRecord> {
        self.views().permissions()
    }

    fn topic_permissions(&self) -> Vec<TopicPermissionRecord> {
        self.views().topic_permissions()
    }

    fn is_password(&self, user: &ShortString, password: &[u8]) -> bool {
        Broker::authenticate(self, user, password, true)
    }

    fn close_connections(&self, which: &Closing, most: usize, reason: &str) -> usize {
        self.operator().close_connections(which, most, reason)
    }

    fn set_memory_high_watermark(&self, amount: Amount) {
        self.operator().set_memory_high_watermark(amount);
    }

    fn set_disk_free_limit(&self, amount: Amount) {
        self.operator().set_disk_free_limit(amount);
    }

    async fn drain(&self, within: Duration) -> Result<Left, DrainError> {
        self.operator().drain().await?;
        Ok(self.operator().left(within).await)
    }

    async fn revive(&self) {
        self.operator().revive().await;
    }

    async fn forget_member(&self, node: NodeId, running: bool) -> Result<(), ForgetError> {
        self.operator().forget_member(node, running).await
    }

    async fn replace_member(&self, node: NodeId) -> Result<(), MemberError> {
        self.operator().replace_member(node).await
    }

    async fn rebalance(&self) -> Rebalanced {
        self.operator().rebalance().await
    }
}
