//! The rolling digest of all changes: if two copies of the catalog have the same digest, they have
//! applied the same changes (`quorate ctl audit`). The digest does not resist deliberate
//! collisions.

use crate::{
    limits::Limit,
    objects::{
        Binding, ClusterShape, ConnectionId, Destination, ExchangeRecord, ExchangeType, QueueEntry,
    },
    parameter::{ParameterName, ParameterRecord},
    password::HashAlgorithm,
    permission::{RowKey, TopicRowKey},
    policy::{PolicyKind, PolicyName, PolicyRecord},
    record::{NodeEntry, PermissionRecord, TopicPermissionRecord, UserRecord, VhostRecord},
};
use quorate_types::{FieldTable, Home, QueueId, QueueType, ResourceName, SessionId, ShortString};

/// A 64-bit digest that is continued with each word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    /// Adds a word. For a given word the step is one-to-one, so no earlier input is lost.
    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Adds bytes together with their count, so that adjacent fields cannot be confused.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
            self.word(word);
        }
    }
}

/// A value that can be added to a digest.
pub(crate) trait Feed {
    /// Adds every part of the value.
    fn feed(&self, digest: &mut Digest);
}

impl Feed for bool {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(*self));
    }
}

impl Feed for ShortString {
    fn feed(&self, digest: &mut Digest) {
        digest.bytes(self.as_bytes());
    }
}

impl Feed for ResourceName {
    fn feed(&self, digest: &mut Digest) {
        self.vhost.feed(digest);
        self.name.feed(digest);
    }
}

impl Feed for FieldTable {
    fn feed(&self, digest: &mut Digest) {
        if self.is_empty() {
            return digest.word(0);
        }
        let mut bytes = bytes::BytesMut::new();
        self.encode_content(&mut bytes);
        digest.bytes(&bytes);
    }
}

impl Feed for QueueId {
    fn feed(&self, digest: &mut Digest) {
        match self.home {
            Home::Group(group) => digest.word(u64::from(group.0)),
            Home::Node(node) => digest.word(u64::from(node.0) | 1 << 16),
        }
        digest.word(self.index);
        digest.word(self.position);
    }
}

impl Feed for SessionId {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.node.0));
        digest.word(self.start.0);
    }
}

impl Feed for Option<ConnectionId> {
    fn feed(&self, digest: &mut Digest) {
        let Some(connection) = self else { return digest.word(0) };
        digest.word(1);
        connection.session.feed(digest);
        digest.word(connection.number);
    }
}

impl Feed for QueueEntry {
    fn feed(&self, digest: &mut Digest) {
        self.name.feed(digest);
        self.id.feed(digest);
        self.creator.feed(digest);
        digest.word(match self.queue_type {
            QueueType::Classic => 0,
            QueueType::Quorum => 1,
        });
        self.durable.feed(digest);
        self.auto_delete.feed(digest);
        self.owner.feed(digest);
        self.arguments.feed(digest);
    }
}

impl Feed for ExchangeRecord {
    fn feed(&self, digest: &mut Digest) {
        self.name.feed(digest);
        digest.word(match self.kind {
            ExchangeType::Direct => 0,
            ExchangeType::Fanout => 1,
            ExchangeType::Topic => 2,
            ExchangeType::Headers => 3,
            ExchangeType::ConsistentHash => 4,
            ExchangeType::ModulusHash => 5,
            ExchangeType::Random => 6,
            ExchangeType::Delayed => 7,
            ExchangeType::LocalRandom => 8,
        });
        self.durable.feed(digest);
        self.auto_delete.feed(digest);
        self.internal.feed(digest);
        self.arguments.feed(digest);
    }
}

impl Feed for Destination {
    fn feed(&self, digest: &mut Digest) {
        match self {
            Destination::Queue { name, id } => {
                digest.word(0);
                name.feed(digest);
                id.feed(digest);
            }
            Destination::Exchange(name) => {
                digest.word(1);
                name.feed(digest);
            }
        }
    }
}

impl Feed for Binding {
    fn feed(&self, digest: &mut Digest) {
        self.source.feed(digest);
        self.destination.feed(digest);
        self.key.feed(digest);
        self.arguments.feed(digest);
    }
}

impl Feed for UserRecord {
    fn feed(&self, digest: &mut Digest) {
        self.name.feed(digest);
        digest.word(match self.password.algorithm {
            HashAlgorithm::Sha256 => 0,
            HashAlgorithm::Sha512 => 1,
            HashAlgorithm::Md5 => 2,
        });
        digest.bytes(&self.password.bytes);
        self.tags.feed(digest);
        self.limits.connections_max.feed(digest);
        self.limits.channels_max.feed(digest);
    }
}

impl Feed for Vec<ShortString> {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.len() as u64);
        self.iter().for_each(|word| word.feed(digest));
    }
}

impl Feed for Option<Limit> {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.is_some()));
        self.iter().for_each(|limit| digest.word(limit.cast_unsigned()));
    }
}

impl Feed for VhostRecord {
    fn feed(&self, digest: &mut Digest) {
        self.name.feed(digest);
        digest.word(self.created.0);
        digest.bytes(self.metadata.description.as_bytes());
        self.metadata.tags.feed(digest);
        digest.word(match self.metadata.default_queue_type {
            None => 0,
            Some(QueueType::Classic) => 1,
            Some(QueueType::Quorum) => 2,
        });
        self.limits.connections_max.feed(digest);
        self.limits.queues_max.feed(digest);
        // As before without protection, which binaries of earlier machine versions do not know.
        digest.word(u64::from(self.tracing) | u64::from(self.protected) << 1);
    }
}

impl Feed for RowKey {
    fn feed(&self, digest: &mut Digest) {
        self.0.feed(digest);
        self.1.feed(digest);
    }
}

impl Feed for TopicRowKey {
    fn feed(&self, digest: &mut Digest) {
        self.0.feed(digest);
        self.1.feed(digest);
        self.2.feed(digest);
    }
}

impl Feed for PermissionRecord {
    fn feed(&self, digest: &mut Digest) {
        [&self.configure, &self.write, &self.read]
            .into_iter()
            .for_each(|pattern| digest.bytes(pattern.as_bytes()));
    }
}

impl Feed for TopicPermissionRecord {
    fn feed(&self, digest: &mut Digest) {
        [&self.write, &self.read].into_iter().for_each(|pattern| digest.bytes(pattern.as_bytes()));
    }
}

impl Feed for PolicyName {
    fn feed(&self, digest: &mut Digest) {
        digest.word(match self.kind {
            PolicyKind::User => 0,
            PolicyKind::Operator => 1,
        });
        self.vhost.feed(digest);
        self.name.feed(digest);
    }
}

impl Feed for PolicyRecord {
    fn feed(&self, digest: &mut Digest) {
        digest.bytes(self.pattern.as_bytes());
        digest.bytes(self.apply_to.name().as_bytes());
        digest.word(self.priority.cast_unsigned());
        digest.bytes(self.definition.to_json().to_string().as_bytes());
    }
}

impl Feed for ParameterName {
    fn feed(&self, digest: &mut Digest) {
        match self {
            Self::Global(name) => {
                digest.word(0);
                name.feed(digest);
            }
            Self::Vhost { vhost, component, name } => {
                digest.word(1);
                [vhost, component, name].into_iter().for_each(|part| part.feed(digest));
            }
        }
    }
}

impl Feed for ParameterRecord {
    fn feed(&self, digest: &mut Digest) {
        digest.bytes(self.value.as_bytes());
    }
}

impl Feed for NodeEntry {
    fn feed(&self, digest: &mut Digest) {
        digest.word(self.incarnation.0);
        digest.word(self.boot.0);
        digest.word(self.start.0);
        digest.word(self.fenced.0);
        digest.word(self.former_boots.len() as u64);
        self.former_boots.iter().for_each(|boot| digest.word(boot.0));
        digest.bytes(self.rpc_address.as_bytes());
        digest.bytes(self.amqp_address.as_bytes());
    }
}

impl Feed for ClusterShape {
    fn feed(&self, digest: &mut Digest) {
        digest.word(u64::from(self.queue_groups));
    }
}
