//! Streams of appends from leaders, each passed to its group's Raft in order, pipelined.

use crate::{
    codec::{AppendRequest, decode_append, encode_append_answer},
    group::Group,
    pipeline::APPENDS_MAX,
    type_config::TypeConfig,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;
use quorate_rpc::{Origin, Responder};
use quorate_types::{GroupId, NodeId};
use std::{collections::BTreeMap, pin::pin, sync::Arc};
use tokio::sync::mpsc;

/// The streams of appends that other nodes send to this one, the latest of each node and group.
#[derive(Default)]
pub(crate) struct AppendSessions(Mutex<BTreeMap<(NodeId, GroupId), Session>>);

struct Session {
    /// The stream of the links that carries it.
    over: u64,
    /// The leader's number of this stream.
    number: u64,
    appends: mpsc::Sender<Append>,
}

struct Append {
    request: AppendEntriesRequest<TypeConfig>,
    responder: Responder,
}

impl AppendSessions {
    /// Ends all streams.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Handles the next append. It is refused, by dropping the responder, if its stream has ended,
    /// or if it exceeds the bound, which a leader never does.
    pub(crate) fn append(
        &self,
        member: &Arc<Group>,
        origin: &Origin,
        payload: &Bytes,
        responder: Responder,
    ) {
        let AppendRequest { stream, request } = match decode_append(payload) {
            Ok(request) => request,
            Err(error) => {
                tracing::error!(
                    node = %origin.peer.node, "cannot decode an append request: {error}"
                );
                return;
            }
        };
        member.catch_up().heard(&request.vote, request.leader_commit);
        let mut sessions = self.0.lock();
        let key = (origin.peer.node, member.id());
        let present = sessions.get(&key);
        // A late message of a connection that was replaced.
        if present.is_some_and(|session| session.over > origin.stream) {
            return;
        }
        let same = present
            .is_some_and(|session| session.over == origin.stream && session.number == stream);
        if !same {
            let (sender, receiver) = mpsc::channel(2 * APPENDS_MAX);
            tokio::spawn(run(Arc::clone(member), receiver));
            let session = Session { over: origin.stream, number: stream, appends: sender };
            sessions.insert(key, session);
        }
        if let Some(session) = sessions.get(&key) {
            // If the channel is full or closed, the responder is dropped, which refuses the append.
            let _ = session.appends.try_send(Append { request, responder });
        }
    }
}

/// Passes one stream of appends to the group's Raft and answers in order, until the first answer
/// that is not a success.
async fn run(member: Arc<Group>, appends: mpsc::Receiver<Append>) {
    let (waiting, mut waits) = mpsc::channel::<Responder>(2 * APPENDS_MAX);
    let requests = stream::unfold((appends, waiting), |(mut appends, waiting)| async move {
        let Append { request, responder } = appends.recv().await?;
        waiting.send(responder).await.ok()?;
        Some((request, (appends, waiting)))
    });
    let mut results = pin!(member.raft().stream_append(requests));
    while let Some(result) = results.next().await {
        let Some(responder) = waits.recv().await else { return };
        match result {
            Ok(answer) => responder.answer(encode_append_answer(&answer)),
            Err(fatal) => responder.refuse(fatal.to_string().into_bytes()),
        }
    }
}
