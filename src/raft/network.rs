//! openraft's messages to the other members of a group, over the links: entries on the bulk lane,
//! pipelined; heartbeats, votes and transfers on the control lane, so that a large body does not
//! depose a leader (DESIGN §6).

use crate::{
    codec::{
        decode_append_answer, decode_transfer_answer, decode_vote, decode_vote_answer,
        encode_heartbeat, encode_lost, encode_snapshot_begin, encode_snapshot_chunk,
        encode_snapshot_end, encode_transfer, encode_vote_request,
    },
    disk_wait::disk_wait,
    followers::Followers,
    metrics::GroupMetrics,
    pipeline::pipeline,
    purge::Sending,
    replica_name::{for_replica, raft_id, replica_of},
    service::Service,
    snapshot::{Snapshot, SnapshotData},
    type_config::{TypeConfig, Vote, entry_id},
};
use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    future::{Either, select},
    stream,
};
use openraft::{
    OptionalSend, RPCTypes, RaftNetworkFactory, RaftNetworkV2,
    base::{BoxFuture, BoxStream},
    errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable},
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, StreamAppendError,
        StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse, VoteRequest,
        VoteResponse,
    },
};
use quorate_rpc::{CallError, Lane, Links, Payload, PendingCall};
use quorate_storage::SnapshotReader;
use quorate_types::{GroupId, ReplicaId};
use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Pause before a node that cannot be reached is tried again. The links report when it is reachable
/// again.
const UNREACHABLE_PAUSE: Duration = Duration::from_millis(50);

/// Longest wait for the answer to one step of a snapshot; the last step, the install, may take
/// longer.
const SNAPSHOT_STEP_TIMEOUT: Duration = Duration::from_secs(10);
const SNAPSHOT_INSTALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Longest wait for a follower's answer to the notice that it has lost entries.
const LOST_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum of chunks of a snapshot in flight.
const SNAPSHOT_WINDOW: usize = 8;

type RpcResult<T> = Result<T, RPCError<TypeConfig>>;

/// Creates the clients of one group.
pub(crate) struct Network {
    pub(crate) links: Links,
    pub(crate) me: u64,
    pub(crate) group: GroupId,
    pub(crate) metrics: Arc<GroupMetrics>,
    pub(crate) sending: Arc<Sending>,
    pub(crate) followers: Arc<Followers>,
}

/// The purpose of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Replication,
    Heartbeats,
}

/// A client to one member.
pub(crate) struct Client {
    pub(crate) links: Links,
    pub(crate) me: u64,
    pub(crate) group: GroupId,
    pub(crate) metrics: Arc<GroupMetrics>,
    pub(crate) followers: Arc<Followers>,
    pub(crate) target: ReplicaId,
    sending: Arc<Sending>,
    purpose: Purpose,
}

impl Network {
    fn client(&self, target: u64, purpose: Purpose) -> Client {
        Client {
            links: self.links.clone(),
            me: self.me,
            group: self.group,
            metrics: Arc::clone(&self.metrics),
            followers: Arc::clone(&self.followers),
            target: replica_of(target),
            sending: Arc::clone(&self.sending),
            purpose,
        }
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, _: &()) -> Client {
        self.client(target, Purpose::Replication)
    }

    async fn new_heartbeat_client(&mut self, target: u64, _: &()) -> Client {
        self.client(target, Purpose::Heartbeats)
    }
}

/// The next number for a stream of appends or a transfer of a snapshot, of any group.
pub(crate) fn next_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Client {
    async fn call(
        &self,
        service: Service,
        payload: impl Into<Payload>,
        deadline: Duration,
    ) -> RpcResult<Bytes> {
        let payload = for_replica(self.target.number, payload);
        let lane = Lane::Control;
        let number = service.number();
        let answer =
            self.links.call(self.target.node, lane, number, self.group, payload, deadline).await;
        answer.map_err(|error| self.rpc_error(error, service.rpc_type(), deadline))
    }

    /// The error for openraft after a failed call: a call that cannot be made, or was refused, is
    /// repeated after a pause, others at once.
    pub(crate) fn rpc_error(
        &self,
        error: CallError,
        action: RPCTypes,
        timeout: Duration,
    ) -> RPCError<TypeConfig> {
        match error {
            CallError::NotConnected(_) | CallError::TooLarge(_) | CallError::Refused { .. } => {
                RPCError::Unreachable(Unreachable::from_string(error))
            }
            CallError::Lost(_) => RPCError::Network(NetworkError::from_string(error)),
            CallError::Timeout(_) => {
                let target = raft_id(self.target);
                RPCError::Timeout(Timeout { action, id: self.me, target, timeout })
            }
        }
    }

    async fn heartbeat(
        &self,
        request: AppendEntriesRequest<TypeConfig>,
        deadline: Duration,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let answer = self.call(Service::Heartbeat, encode_heartbeat(&request), deadline).await?;
        let answer = decode_append_answer(&answer).map_err(malformed)?;
        self.examine(request.vote, answer).await
    }

    /// Withholds from openraft an answer by which the follower lacks entries that it has
    /// acknowledged, and informs the follower. openraft then retries after a pause, until the
    /// follower has exited.
    pub(crate) async fn examine(
        &self,
        vote: Vote,
        answer: StreamAppendResult<TypeConfig>,
    ) -> RpcResult<StreamAppendResult<TypeConfig>> {
        let lost = match &answer {
            Err(StreamAppendError::Conflict(lacking)) => {
                self.followers.lost(self.target, vote, *lacking)
            }
            Ok(_) | Err(StreamAppendError::HigherVote(_)) => None,
        };
        let Some(lost) = lost else { return Ok(answer) };
        // The follower may exit before it answers.
        let _ = self.call(Service::Lost, encode_lost(&vote, &lost), LOST_TIMEOUT).await;
        let error = format!("the node lacks log entry {}, which it has acknowledged", lost.index);
        Err(RPCError::Unreachable(Unreachable::from_string(error)))
    }
}

/// The error for a peer's answer that cannot be decoded.
pub(crate) fn malformed(error: crate::codec::DecodeError) -> RPCError<TypeConfig> {
    RPCError::Unreachable(Unreachable::from_string(format!("cannot decode an answer: {error}")))
}

impl RaftNetworkV2<TypeConfig> for Client {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<AppendEntriesResponse<TypeConfig>> {
        let one = Box::pin(stream::once(async { request }));
        let mut answers = self.stream_append(one, option).await?;
        let closed = || RPCError::Network(NetworkError::from_string("the stream has ended"));
        Ok(answers.next().await.ok_or_else(closed)??.into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, RpcResult<BoxStream<'s, RpcResult<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            let answers: BoxStream<'s, _> = match self.purpose {
                Purpose::Replication => Box::pin(pipeline(self, input)),
                Purpose::Heartbeats => {
                    let Some(request) = input.next().await else {
                        return Ok(Box::pin(stream::empty()) as BoxStream<'s, _>);
                    };
                    let answer = self.heartbeat(request, option.hard_ttl()).await;
                    Box::pin(stream::iter([answer]))
                }
            };
            Ok(answers)
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let payload = encode_vote_request(&request);
        let answer = self.call(Service::Vote, payload, option.hard_ttl()).await?;
        decode_vote_answer(&answer).map_err(malformed)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<VoteResponse<TypeConfig>> {
        let payload = encode_vote_request(&request);
        let answer = self.call(Service::PreVote, payload, option.hard_ttl()).await?;
        decode_vote_answer(&answer).map_err(malformed)
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let SnapshotData::Outgoing(reader) = snapshot.snapshot else {
            let error = NetworkError::from_string("there is no checkpoint to send yet");
            return Err(StreamingError::Network(error));
        };
        let sending = pin!(self.offer_snapshot(&vote, reader));
        match select(sending, pin!(cancel)).await {
            Either::Left((sent, _)) => sent,
            Either::Right((closed, _)) => Err(StreamingError::Closed(closed)),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> RpcResult<TransferLeaderResponse<TypeConfig>> {
        let payload = encode_transfer(&request);
        let answer = self.call(Service::Transfer, payload, option.hard_ttl()).await?;
        if decode_transfer_answer(&answer).map_err(malformed)? {
            return Ok(Ok(()));
        }
        Err(RPCError::Network(NetworkError::from_string(
            "the node does not take the leadership now",
        )))
    }

    fn backoff(&self) -> Option<Backoff> {
        Some(Backoff::new(std::iter::repeat(UNREACHABLE_PAUSE)))
    }
}

impl Client {
    /// Sends a snapshot, unless the follower is not connected, or has recently refused one or had no room for
    /// it. Then this waits for as long as that lasts: to read a snapshot costs a thread and keeps removed
    /// files on disk, and a node may be away for days. The next snapshot is read again.
    async fn offer_snapshot(
        &self,
        vote: &Vote,
        reader: Box<SnapshotReader>,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let error = if let Some((until, why)) = self.followers.held_back(self.target) {
            drop(reader);
            tokio::time::sleep_until(until).await;
            why
        } else if self.links.connected(self.target.node).is_none() {
            drop(reader);
            while self.links.connected(self.target.node).is_none() {
                tokio::time::sleep(UNREACHABLE_PAUSE).await;
            }
            "the node was not connected"
        } else {
            return self.send_snapshot(vote, reader).await;
        };
        Err(StreamingError::Unreachable(Unreachable::from_string(error)))
    }

    /// Streams a snapshot, with a few chunks in flight at a time, and waits for its install.
    async fn send_snapshot(
        &self,
        vote: &Vote,
        mut reader: Box<SnapshotReader>,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let transfer = next_number();
        let applied = crate::type_config::log_id(reader.applied());
        tracing::info!(group = %self.group, node = %self.target.node, at = %entry_id(&applied).index, "sending a snapshot");
        // The entries after the snapshot stay in the log until the follower has it.
        let _held = self.sending.begin(self.target, applied.index);
        let begin = encode_snapshot_begin(transfer, vote, &applied, reader.bytes(), reader.meta());
        self.taken(&self.step(begin, SNAPSHOT_STEP_TIMEOUT).await?)?;
        self.followers.takes(self.target);
        let mut under_way = VecDeque::new();
        let mut chunks = 0;
        loop {
            let (chunk, back) = read_chunk(reader).await?;
            reader = back;
            let Some(chunk) = chunk else { break };
            if under_way.len() == SNAPSHOT_WINDOW {
                self.chunk_taken(under_way.pop_front()).await?;
            }
            let payload = encode_snapshot_chunk(transfer, chunks, chunk);
            under_way.push_back(self.begin_step(payload).await?);
            chunks += 1;
        }
        while !under_way.is_empty() {
            self.chunk_taken(under_way.pop_front()).await?;
        }
        let end = encode_snapshot_end(transfer, vote, chunks);
        let answer = self.step(end, SNAPSHOT_INSTALL_TIMEOUT).await?;
        self.metrics.snapshots_sent.add(1);
        let vote = decode_vote(&answer).map_err(|error| StreamingError::from(malformed(error)))?;
        Ok(SnapshotResponse::new(vote))
    }

    async fn begin_step(
        &self,
        payload: Payload,
    ) -> Result<PendingCall, StreamingError<TypeConfig>> {
        let number = Service::Snapshot.number();
        let payload = for_replica(self.target.number, payload);
        let request =
            self.links.request(self.target.node, Lane::Bulk, number, self.group, payload).await;
        request.map_err(|error| self.snapshot_error(error, SNAPSHOT_STEP_TIMEOUT))
    }

    async fn chunk_taken(
        &self,
        call: Option<PendingCall>,
    ) -> Result<(), StreamingError<TypeConfig>> {
        let Some(call) = call else { return Ok(()) };
        let late = CallError::Timeout(self.target.node);
        let taken = tokio::time::timeout(SNAPSHOT_STEP_TIMEOUT, call).await;
        match taken.unwrap_or(Err(late)) {
            Ok(answer) => self.taken(&answer),
            Err(error) => Err(self.snapshot_error(error, SNAPSHOT_STEP_TIMEOUT)),
        }
    }

    /// Checks whether the follower has room for the snapshot. If not, it is not offered one for a
    /// while.
    fn taken(&self, answer: &Bytes) -> Result<(), StreamingError<TypeConfig>> {
        if decode_transfer_answer(answer).map_err(malformed)? {
            return Ok(());
        }
        let (group, node) = (self.group, self.target.node);
        tracing::warn!(
            %group, %node, "a follower has no disk space for a snapshot; will retry later"
        );
        self.followers.no_room(self.target);
        let error = "the node has no disk space for a snapshot";
        Err(StreamingError::Unreachable(Unreachable::from_string(error)))
    }

    async fn step(
        &self,
        payload: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, StreamingError<TypeConfig>> {
        let (number, target) = (Service::Snapshot.number(), self.target);
        let payload = for_replica(target.number, payload);
        let answer =
            self.links.call(target.node, Lane::Bulk, number, self.group, payload, deadline).await;
        if matches!(answer, Err(CallError::Refused { .. })) {
            self.followers.refused(target);
        }
        answer.map_err(|error| self.snapshot_error(error, deadline))
    }

    fn snapshot_error(&self, error: CallError, timeout: Duration) -> StreamingError<TypeConfig> {
        let action = Service::Snapshot.rpc_type();
        self.rpc_error(error, action, timeout).into()
    }
}

/// Reads the next chunk.
async fn read_chunk(
    mut reader: Box<SnapshotReader>,
) -> Result<(Option<Bytes>, Box<SnapshotReader>), StreamingError<TypeConfig>> {
    let is_stepped = reader.is_stepped();
    let read = disk_wait(is_stepped, move || (reader.next_chunk(), reader)).await;
    let failed = |error: String| StreamingError::Network(NetworkError::from_string(error));
    let (chunk, reader) = read.map_err(|error| failed(error.to_string()))?;
    let chunk = chunk.map_err(|error| failed(format!("cannot read the snapshot: {error}")))?;
    Ok((chunk, reader))
}
