//! Limits of connections and channels (VLM-01, VLM-02, CONN-20, CHN-03), and of what clients
//! declare and send. Nodes send each other their counts for virtual hosts and users that have a
//! limit. A limit may be exceeded while these counts are in flight (VLM-04).
//!
//! Nodes send their counts at every change and twice a second. Queues are counted by the catalog,
//! exactly.
//!
//! What clients declare and send takes memory, and RabbitMQ does not bound it. Here the settings
//! `argument_max`, `argument_max_bytes`, `header_max`, `cc_max` and `cluster_binding_limit` bound
//! it with 406, and `consumer_max_per_connection` with 530. A table counts as the memory that it
//! takes. Of client properties the known keys and 16 KiB are kept (`amqp/connection/properties`).
//! Imported definitions have the same bounds.

use crate::{
    front::{
        client_handle::{Client, ConsumerOperations},
        clients::Clients,
        connection::Connection,
        connection_state::ConnectionState,
        counts::Counts,
    },
    peers::{PeerMessage, message::PeerCounts},
    settings::NodeLimits,
};
use quorate_catalog::{Catalog, reached, refusal};
use quorate_types::{Exception, FieldTable, ReplyCode, ShortString, TableSize, VhostName};
use std::{
    fmt::Display,
    sync::{Arc, atomic::Ordering},
};

impl ConnectionState {
    /// Counts connections and channels of this connection that were opened or closed.
    pub(crate) fn count(&self, counts: &Counts, connections: i64, channels: i64) {
        let mut own = counts.own.lock();
        own.change(&self.info.vhost, &self.info.user, connections, channels);
    }
}

impl Clients {
    /// Sum of what the other reachable nodes last counted.
    fn counted_by_others(&self, count: impl Fn(&PeerCounts) -> u64) -> u64 {
        let of_others = self.counts.of_others.lock();
        let reachable = of_others.iter().filter(|(node, _)| self.base.context.is_reachable(**node));
        reachable.map(|(_, counts)| count(counts)).sum()
    }

    /// The node's limit of connections, if it is reached.
    pub(crate) fn node_connections_reached(&self) -> Option<u64> {
        let limit = i64::from(self.base.context.settings.limits.connection_max?);
        reached(Some(limit), self.counts.own.lock().connections)
    }

    /// The node's limit of channels, if it is reached.
    fn node_channels_reached(&self) -> Option<u64> {
        let limit = i64::from(self.base.context.settings.limits.channel_max_per_node?);
        reached(Some(limit), self.counts.own.lock().channels)
    }

    /// The virtual host's limit, if it is reached.
    pub(crate) fn vhost_connections_reached(
        &self,
        catalog: &Catalog,
        vhost: &VhostName,
    ) -> Option<u64> {
        let limit = Some(catalog.vhost_limits(vhost).connections_max?);
        let own = self.counts.own.lock().vhosts.get(vhost).copied().unwrap_or(0);
        reached(
            limit,
            own + self.counted_by_others(|it| it.vhosts.get(vhost).copied().unwrap_or(0)),
        )
    }

    /// The user's limit, if it is reached.
    pub(crate) fn user_connections_reached(
        &self,
        catalog: &Catalog,
        user: &ShortString,
    ) -> Option<u64> {
        let limit = Some(catalog.user_limits(user).connections_max?);
        reached(limit, self.of_user(user, |(connections, _)| connections))
    }

    fn user_channels_reached(&self, user: &ShortString) -> Option<u64> {
        let limit = Some(self.base.catalog.read().user_limits(user).channels_max?);
        reached(limit, self.of_user(user, |(_, channels)| channels))
    }

    fn of_user(&self, user: &ShortString, count: impl Fn((u64, u64)) -> u64) -> u64 {
        let own = self.counts.own.lock().users.get(user).copied().unwrap_or_default();
        count(own) + self.counted_by_others(|it| it.users.get(user).map_or(0, |it| count(*it)))
    }

    /// This node's counts of all that has a limit.
    fn counted(&self) -> PeerCounts {
        let mut counted = PeerCounts::default();
        {
            let catalog = self.base.catalog.read();
            let vhosts = catalog.vhosts().filter(|vhost| vhost.limits.connections_max.is_some());
            counted.vhosts = vhosts.map(|vhost| (vhost.name.clone(), 0)).collect();
            let users = catalog.users().filter(|user| user.limits != Default::default());
            counted.users = users.map(|user| (user.name.clone(), (0, 0))).collect();
        }
        let own = self.counts.own.lock();
        for (vhost, count) in &mut counted.vhosts {
            *count = own.vhosts.get(vhost).copied().unwrap_or(0);
        }
        for (user, count) in &mut counted.users {
            *count = own.users.get(user).copied().unwrap_or_default();
        }
        drop(own);
        counted.vhosts.retain(|_, count| *count > 0);
        counted.users.retain(|_, count| *count != (0, 0));
        counted
    }

    /// Sends this node's counts to all nodes, unless they are zero and were zero before.
    pub(crate) fn send_counts(&self) {
        let counted = self.counted();
        let something = counted != PeerCounts::default();
        if !self.counts.sent_nonzero.swap(something, Ordering::AcqRel) && !something {
            return;
        }
        self.base.context.peers.send_to_others(&PeerMessage::Counts(counted));
    }
}

impl NodeLimits {
    /// Checks whether the arguments of that object are small enough to be kept on every node.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn check_arguments(
        &self,
        arguments: &FieldTable,
        object: &dyn Display,
    ) -> Result<(), Exception> {
        let TableSize { values, bytes } = arguments.size();
        let (values_max, bytes_max) = (self.argument_max, self.argument_max_bytes);
        exceeds(values as u64, values_max.map(u64::from), || {
            format!("arguments of {object} have {values} values")
        })?;
        exceeds(bytes as u64, bytes_max, || {
            format!("arguments of {object} take {bytes} bytes of memory")
        })
    }

    /// Checks the number of a message's headers and of its further routing keys.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn check_publish(
        &self,
        header_values: usize,
        further_keys: usize,
    ) -> Result<(), Exception> {
        exceeds(header_values as u64, self.header_max.map(u64::from), || {
            format!("invalid message: its headers have {header_values} values")
        })?;
        exceeds(further_keys as u64, self.cc_max.map(u64::from), || {
            format!("invalid message: CC and BCC name {further_keys} routing keys")
        })
    }
}

fn exceeds(count: u64, max: Option<u64>, what: impl FnOnce() -> String) -> Result<(), Exception> {
    match max.filter(|max| count > *max) {
        Some(max) => {
            let text = format!("{}, more than the limit of {max}", what());
            Err(Exception::new(ReplyCode::PreconditionFailed, text))
        }
        None => Ok(()),
    }
}

impl Client<'_> {
    /// The checked arguments of that object, copied out of the frame that they came in.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn bounded(
        &self,
        arguments: &FieldTable,
        object: &dyn Display,
    ) -> Result<FieldTable, Exception> {
        self.node.base.context.settings.limits.check_arguments(arguments, object)?;
        Ok(arguments.detached())
    }
}

impl ConsumerOperations<'_> {
    /// Checks whether the connection may have one more consumer.
    ///
    /// # Errors
    /// 530.
    pub(crate) fn check_consumers(&self) -> Result<(), Exception> {
        let count = self.client.state.consumers.load(Ordering::Relaxed);
        match self.client.base().context.settings.limits.consumer_max_per_connection {
            Some(max) if count >= u64::from(max) => {
                let text = format!("reached maximum ({max}) of consumers per connection");
                Err(Exception::new(ReplyCode::NotAllowed, text))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl Connection {
    /// Checks the limits of channels, of the node and of the user (CHN-03).
    pub(crate) fn check_channels(&self) -> Result<(), Exception> {
        let user = &self.state.info.user;
        if let Some(limit) = self.node.clients.user_channels_reached(user) {
            return Err(refusal::user_channel_limit(user, limit));
        }
        match self.node.clients.node_channels_reached() {
            Some(limit) => {
                Err(refusal::node_channel_limit(&self.node.base.context.settings.name, limit))
            }
            None => Ok(()),
        }
    }

    /// Counts opened or closed connections or channels again, and soon sends the counts to nodes
    /// with limits.
    pub(crate) fn recount(&self) {
        let has_limit = {
            let catalog = self.node.base.catalog.read();
            let info = &self.state.info;
            catalog.vhost_limits(&info.vhost).connections_max.is_some()
                || catalog.user_limits(&info.user) != Default::default()
        };
        if has_limit {
            let node = Arc::clone(&self.node);
            self.node.base.context.spawn(async move { node.clients.send_counts() });
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use quorate_types::FieldValue;

    /// Arguments count as the memory that they take: a void value of one byte takes forty.
    #[test]
    fn arguments_are_measured_in_memory_with_what_is_nested_in_them() {
        let limits = NodeLimits {
            argument_max: Some(1_024),
            argument_max_bytes: Some(64 << 10),
            ..NodeLimits::default()
        };
        let table = |value| FieldTable(vec![(ShortString::from_static("a"), value)]);
        let check = |value| limits.check_arguments(&table(value), &"queue 'q' in vhost '/'");
        let voids = |count| FieldValue::Array(vec![FieldValue::Void; count]);
        assert_eq!(check(voids(1_023)), Ok(()));
        let refused = check(FieldValue::Table(table(voids(1_023)))).unwrap_err().explanation;
        let text =
            "arguments of queue 'q' in vhost '/' have 1025 values, more than the limit of 1024";
        assert_eq!(refused, text);
        let long = FieldValue::LongString(vec![0; 64 << 10].into());
        let refused = check(long).unwrap_err().explanation;
        assert!(refused.ends_with("bytes of memory, more than the limit of 65536"), "{refused}");
    }

    #[test]
    fn a_message_has_no_more_headers_and_keys_than_it_may() {
        let limits = NodeLimits { header_max: Some(10), cc_max: Some(2), ..NodeLimits::default() };
        assert_eq!(limits.check_publish(10, 2), Ok(()));
        for (headers, keys) in [(11, 0), (10, 3)] {
            let refused = limits.check_publish(headers, keys).unwrap_err();
            assert_eq!(refused.code, ReplyCode::PreconditionFailed);
        }
    }
}
