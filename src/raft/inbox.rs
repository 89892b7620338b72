//! Requests of other nodes to this node's groups: the part of the rpc port that belongs to this
//! crate.

use crate::{
    append_session::AppendSessions,
    codec::{
        decode_groups, decode_heartbeat, decode_lost, decode_transfer, decode_vote,
        decode_vote_request, encode_append_answer, encode_log_index, encode_positions,
        encode_transfer_answer, encode_vote_answer,
    },
    followers,
    group::Group,
    reach,
    read::follows,
    replica_name::number_of,
    service::{SERVICE_MAX, Service},
    shared::Shared,
    snapshot_session::SnapshotSessions,
    succession,
    type_config::TypeConfig,
};
use bytes::Bytes;
use openraft::raft::{AppendEntriesResponse, StreamAppendError, StreamAppendResult};
use quorate_rpc::{Cause, Origin, PeerHello, Responder};
use quorate_types::{BootNumber, GroupId, NodeId};
use std::sync::{Arc, OnceLock, Weak};

/// Receives the groups' messages from the links. It is created before the links, since they need a
/// handler from the start; it refuses everything until the groups have started.
#[derive(Clone, Default)]
pub struct Inbox(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Weak, since the groups hold the links, which hold the inbox.
    groups: OnceLock<Weak<Shared>>,
    appends: AppendSessions,
    snapshots: SnapshotSessions,
}

impl Inbox {
    /// An inbox whose groups have not started.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self, groups: &Arc<Shared>) {
        // Groups are started once for each inbox.
        let _ = self.0.groups.set(Arc::downgrade(groups));
    }

    /// Closes all streams, because the groups stop.
    pub(crate) fn close(&self) {
        self.0.appends.clear();
        self.0.snapshots.clear();
    }

    fn groups(&self) -> Option<Arc<Shared>> {
        let groups = self.0.groups.get()?.upgrade()?;
        let stopping = *groups.stopping.borrow();
        (!stopping).then_some(groups)
    }

    /// True if a service belongs to this crate. The handler of the links passes such messages on.
    #[must_use]
    pub fn serves(&self, service: u32) -> bool {
        service <= SERVICE_MAX
    }

    /// Handles a request for one of this crate's services; see
    /// [`quorate_rpc::LinkHandler::request`].
    pub fn request(
        &self,
        origin: &Origin,
        service: u32,
        group: GroupId,
        payload: Bytes,
        responder: Responder,
    ) {
        let (Some(groups), Some(service)) = (self.groups(), Service::of(service)) else {
            return responder.refuse(Bytes::from_static(b"not ready"));
        };
        let Some(member) = groups.group(group) else {
            return responder.refuse(Bytes::from_static(b"no such group"));
        };
        let payload = match for_member(&member, service, payload) {
            Ok(payload) => payload,
            Err(reason) => return responder.refuse(reason.into_bytes()),
        };
        match service {
            Service::Append => self.0.appends.append(&member, origin, &payload, responder),
            Service::Snapshot => self.0.snapshots.step(&member, origin, &payload, responder),
            Service::Heartbeat
            | Service::Vote
            | Service::PreVote
            | Service::Transfer
            | Service::ReadIndex
            | Service::Ready
            | Service::Positions
            | Service::Leaving
            | Service::Follows
            | Service::Reach
            | Service::Lost => {
                let answer = answer(groups, member, service, payload);
                tokio::spawn(async move {
                    match answer.await {
                        Ok(answer) => responder.answer(answer),
                        Err(reason) => responder.refuse(reason.into_bytes()),
                    }
                });
            }
        }
    }

    /// Handles a notice for one of this crate's services; see [`quorate_rpc::LinkHandler::notice`].
    pub fn notice(&self, origin: &Origin, service: u32) {
        match (self.groups(), Service::of(service)) {
            (Some(groups), Some(Service::Leaving)) => {
                // The notice of an earlier process may come after the link of its successor.
                if groups.links.lives(origin.peer.node, origin.peer.boot) {
                    groups.departures().note(&origin.peer);
                }
            }
            // Groups that have ended do not hand over to a node, so its departure does not matter.
            (None, Some(Service::Leaving)) => {}
            (_, unexpected) => {
                tracing::warn!(
                    from = %origin.peer.node, service, ?unexpected, "unknown notification"
                );
            }
        }
    }

    /// Handles the linking of a node; see [`quorate_rpc::LinkHandler::connected`].
    pub fn connected(&self, peer: &PeerHello) {
        if let Some(groups) = self.groups() {
            groups.node_connected(peer);
        }
    }

    /// Handles the loss of a process; see [`quorate_rpc::LinkHandler::lost`]. If it is known to be
    /// dead, its leaderships are taken over at once.
    pub fn lost(&self, node: NodeId, boot: BootNumber, cause: Cause) {
        let Some(groups) = self.groups() else { return };
        groups.reach().lost(node);
        if cause.is_known_dead() {
            // Read now: until its death is certain, the node's next process may be elected.
            let led = succession::led(&groups, node);
            tokio::spawn(async move {
                if reach::is_dead(&groups, node, boot).await {
                    tracing::info!(
                        %node, boot = boot.0,
                        "the process of the node has ended: electing leaders of the groups it led"
                    );
                    groups.node_died(node, boot, led);
                }
            });
        }
    }
}

/// A request without the name of the replica that it is for. Refused if that is not this node's
/// present one: an earlier one may have voted or acknowledged, and is no more (MEM 5).
fn for_member(member: &Group, service: Service, payload: Bytes) -> Result<Bytes, String> {
    let (number, payload) = number_of(payload).map_err(text)?;
    let mine = member.name();
    if service.names_replica() && number != mine.number {
        return Err(format!("this node has replica {mine}, not number {number}"));
    }
    Ok(payload)
}

/// Answers a request that does not belong to a stream.
async fn answer(
    groups: Arc<Shared>,
    member: Arc<Group>,
    service: Service,
    payload: Bytes,
) -> Result<Bytes, String> {
    let raft = member.raft();
    match service {
        Service::Heartbeat => heartbeat(&member, &payload).await,
        Service::Vote => {
            let request = decode_vote_request(&payload).map_err(text)?;
            Ok(encode_vote_answer(&raft.vote(request).await.map_err(text)?))
        }
        Service::PreVote => {
            let request = decode_vote_request(&payload).map_err(text)?;
            Ok(encode_vote_answer(&raft.pre_vote(request).await.map_err(text)?))
        }
        Service::Transfer => transfer(&groups, &member, &payload).await,
        Service::ReadIndex => member.read_index().await.map(encode_log_index).map_err(text),
        Service::Reach => Ok(reach::answer(&groups)),
        Service::Ready => Ok(encode_transfer_answer(groups.gate().may_lead())),
        Service::Follows => {
            let leader = decode_vote(&payload).map_err(text)?;
            Ok(encode_transfer_answer(follows(member.standing().vote(), leader)))
        }
        Service::Positions => {
            let asked = decode_groups(&payload).map_err(text)?;
            let positions: Vec<_> =
                asked.into_iter().filter_map(|group| groups.position(group)).collect();
            Ok(encode_positions(&positions))
        }
        Service::Lost => {
            let (vote, acknowledged) = decode_lost(&payload).map_err(text)?;
            if followers::lacks(&member, &vote, &acknowledged) {
                groups.fail(member.id(), &followers::lacking(&acknowledged));
            }
            Ok(Bytes::new())
        }
        Service::Append | Service::Snapshot | Service::Leaving => {
            Err("not a single request".to_owned())
        }
    }
}

async fn heartbeat(member: &Group, payload: &Bytes) -> Result<Bytes, String> {
    let request = decode_heartbeat(payload).map_err(text)?;
    member.catch_up().heard(&request.vote, request.leader_commit);
    let previous = request.prev_log_id;
    let answer = member.raft().append_entries(request).await.map_err(text)?;
    Ok(encode_append_answer(&stream_result(answer, previous)))
}

/// Takes part in a transfer of leadership; as its target only if this node may lead.
async fn transfer(groups: &Shared, member: &Group, payload: &Bytes) -> Result<Bytes, String> {
    let request = decode_transfer(payload).map_err(text)?;
    let to_me = *request.to_node_id() == member.me();
    let accepted = (!to_me || groups.gate().may_lead())
        && member.raft().handle_transfer_leader(request).await.map_err(text)?.is_ok();
    Ok(encode_transfer_answer(accepted))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The answer to a heartbeat, in the form of a stream of appends.
fn stream_result(
    answer: AppendEntriesResponse<TypeConfig>,
    previous: Option<crate::type_config::LogId>,
) -> StreamAppendResult<TypeConfig> {
    match (answer, previous) {
        (AppendEntriesResponse::HigherVote(vote), _) => Err(StreamAppendError::HigherVote(vote)),
        (AppendEntriesResponse::Conflict, Some(previous)) => {
            Err(StreamAppendError::Conflict(previous))
        }
        (AppendEntriesResponse::PartialSuccess(matching), _) => Ok(matching),
        (AppendEntriesResponse::Conflict, None) | (AppendEntriesResponse::Success, _) => {
            Ok(previous)
        }
    }
}
