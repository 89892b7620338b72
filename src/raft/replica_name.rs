//! Names of replicas: openraft's numbers for them, and requests that name the one that they are for
//! (MEM 5).
//!
//! A replica that comes back to a node is a new one: it must not be taken for the earlier one, which
//! may have voted and acknowledged. So Raft names (node, number). A request for a replica whose
//! number is not 0 begins with byte 2 and the number; what follows is the request as it is without a
//! number, which begins with byte 1. Replicas of the founding have the number 0, so that binaries
//! that know no numbers understand all requests that they get.

use crate::codec::DecodeError;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use quorate_rpc::Payload;
use quorate_types::{NodeId, ReplicaId, ReplicaNumber};

/// First byte of a request that names its replica's number.
const NUMBERED: u8 = 2;

/// openraft's number of a replica.
pub(crate) fn raft_id(replica: ReplicaId) -> u64 {
    u64::from(replica.number.0) << 16 | u64::from(replica.node.0)
}

/// The replica with that number; all numbers are made by [`raft_id`].
pub(crate) fn replica_of(id: u64) -> ReplicaId {
    let number = ReplicaNumber(u32::try_from(id >> 16).unwrap_or(u32::MAX));
    ReplicaId { node: node_of(id), number }
}

/// The node of the replica with that number.
pub(crate) fn node_of(id: u64) -> NodeId {
    NodeId((id & 0xffff) as u16)
}

/// A request for the replica with that number.
pub(crate) fn for_replica(number: ReplicaNumber, request: impl Into<Payload>) -> Payload {
    let request = request.into();
    if number == ReplicaNumber(0) {
        return request;
    }
    let mut name = BytesMut::with_capacity(5);
    name.put_u8(NUMBERED);
    name.put_u32(number.0);
    request.preceded_by(name.freeze())
}

/// The number of the replica that a request is for, and the request without it.
pub(crate) fn number_of(mut request: Bytes) -> Result<(ReplicaNumber, Bytes), DecodeError> {
    if request.first() != Some(&NUMBERED) {
        return Ok((ReplicaNumber(0), request));
    }
    request.advance(1);
    let number = request.try_get_u32().map_err(|_| DecodeError::Truncated)?;
    Ok((ReplicaNumber(number), request))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn mem_05_names_of_replicas_and_numbers_of_openraft_are_the_same() {
        for (node, number) in [(1, 0), (3, 1), (u16::MAX, 7), (2, u32::MAX)] {
            let replica = ReplicaId { node: NodeId(node), number: ReplicaNumber(number) };
            let id = raft_id(replica);
            assert_eq!((replica_of(id), node_of(id)), (replica, replica.node));
        }
        let founder = ReplicaId { node: NodeId(3), number: ReplicaNumber(0) };
        assert_eq!(raft_id(founder), 3, "as binaries without numbers have it");
    }

    #[test]
    fn mem_05_a_request_names_its_replica_unless_it_is_of_the_founding() {
        let request = Bytes::from_static(&[1, 5, 5]);
        let founder = for_replica(ReplicaNumber(0), request.clone()).into_bytes();
        assert_eq!(founder, request);
        assert_eq!(number_of(founder).unwrap(), (ReplicaNumber(0), request.clone()));
        let later = for_replica(ReplicaNumber(9), request.clone()).into_bytes();
        assert_eq!(later[..], [2, 0, 0, 0, 9, 1, 5, 5]);
        assert_eq!(number_of(later).unwrap(), (ReplicaNumber(9), request));
        assert_eq!(number_of(Bytes::new()).unwrap(), (ReplicaNumber(0), Bytes::new()));
        assert!(number_of(Bytes::from_static(&[2, 0, 0])).is_err());
    }
}
