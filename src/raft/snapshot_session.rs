//! Snapshots from leaders: downloaded first, beside the data, then installed in one step (STO 6).

use crate::{
    codec::{SnapshotStep, decode_snapshot_step, encode_transfer_answer, encode_vote},
    disk_wait::disk_wait,
    group::Group,
    snapshot::{Snapshot, SnapshotData, snapshot_meta},
    type_config::{LogId, Vote, entry_id},
};
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_rpc::{Origin, Responder};
use quorate_storage::{ReceivedSnapshot, SnapshotDownload, StorageError};
use quorate_types::{GroupId, NodeId};
use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::timeout};

/// Maximum of steps that wait for the disk; the sender has fewer in flight.
const STEPS_MAX: usize = 32;

/// A transfer without a step for this time is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Longest wait for the group's Raft to have no work in progress before an install.
const QUIET_WAIT: Duration = Duration::from_secs(1);

/// Snapshots that are being received, the latest of each node and group.
#[derive(Default)]
pub(crate) struct SnapshotSessions(Mutex<BTreeMap<(NodeId, GroupId), Session>>);

struct Session {
    transfer: u64,
    steps: mpsc::Sender<(SnapshotStep, Responder)>,
}

impl SnapshotSessions {
    /// Ends all transfers.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Handles the next step of a transfer; refuses steps of any transfer except the latest.
    pub(crate) fn step(
        &self,
        member: &Arc<Group>,
        origin: &Origin,
        payload: &Bytes,
        responder: Responder,
    ) {
        let step = match decode_snapshot_step(payload) {
            Ok(step) => step,
            Err(error) => {
                tracing::error!(
                    node = %origin.peer.node, "cannot decode a snapshot message: {error}"
                );
                return;
            }
        };
        let key = (origin.peer.node, member.id());
        let mut sessions = self.0.lock();
        let transfer = match step {
            SnapshotStep::Begin { transfer, applied, ref meta, .. } => {
                let (sender, receiver) = mpsc::channel(STEPS_MAX);
                let meta = meta.clone();
                tokio::spawn(run(Arc::clone(member), applied, meta, receiver));
                sessions.insert(key, Session { transfer, steps: sender });
                transfer
            }
            SnapshotStep::Chunk { transfer, .. } | SnapshotStep::End { transfer, .. } => transfer,
        };
        match sessions.get(&key) {
            Some(session) if session.transfer == transfer => {
                // If the channel is full or closed, the responder is dropped, which refuses the
                // step.
                let _ = session.steps.try_send((step, responder));
            }
            Some(_) | None => responder.refuse(Bytes::from_static(b"no such transfer")),
        }
    }
}

/// Why a transfer ends without an install.
#[derive(Debug, thiserror::Error)]
enum ReceiveError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("received chunk {found} instead of chunk {wanted}")]
    Order { found: u64, wanted: u64 },
    #[error("{0}")]
    Failed(String),
}

async fn run(
    member: Arc<Group>,
    applied: LogId,
    meta: Bytes,
    mut steps: mpsc::Receiver<(SnapshotStep, Responder)>,
) {
    let mut download = Download { member: &member, applied, meta, state: None, chunks: 0 };
    while let Ok(Some((step, responder))) = timeout(SILENCE_MAX, steps.recv()).await {
        match download.step(step).await {
            Ok(answer) => responder.answer(answer),
            Err(ReceiveError::Storage(error @ StorageError::NoRoom { .. })) => {
                tracing::error!(group = %member.id(), "snapshot refused: {error}");
                return responder.answer(encode_transfer_answer(false));
            }
            Err(error) => {
                tracing::warn!(group = %member.id(), "cannot receive a snapshot: {error}");
                responder.refuse(error.to_string().into_bytes());
                return;
            }
        }
    }
}

struct Download<'a> {
    member: &'a Group,
    applied: LogId,
    meta: Bytes,
    state: Option<SnapshotDownload>,
    chunks: u64,
}

impl Download<'_> {
    async fn step(&mut self, step: SnapshotStep) -> Result<Bytes, ReceiveError> {
        match step {
            SnapshotStep::Begin { vote, bytes, .. } => {
                let present = self.member.standing().vote();
                if present.is_some_and(|present| present.leader_id.term > vote.leader_id.term) {
                    return Err(ReceiveError::Failed(
                        "the snapshot comes from a former leader".into(),
                    ));
                }
                let (store, meta) = (self.member.store().clone(), self.meta.clone());
                let applied = entry_id(&self.applied);
                let begin = self.blocking(move || Ok(store.download(applied, bytes, meta)?));
                self.state = Some(begin.await?);
                Ok(encode_transfer_answer(true))
            }
            SnapshotStep::Chunk { number, bytes, .. } => {
                self.chunk(number, bytes).await?;
                Ok(encode_transfer_answer(true))
            }
            SnapshotStep::End { vote, chunks, .. } => self.install(vote, chunks).await,
        }
    }

    async fn chunk(&mut self, number: u64, bytes: Bytes) -> Result<(), ReceiveError> {
        if number != self.chunks {
            return Err(ReceiveError::Order { found: number, wanted: self.chunks });
        }
        let mut download = self.download()?;
        let written = self.blocking(move || {
            download.chunk(&bytes)?;
            Ok(download)
        });
        self.state = Some(written.await?);
        self.chunks += 1;
        Ok(())
    }

    fn download(&mut self) -> Result<SnapshotDownload, ReceiveError> {
        self.state
            .take()
            .ok_or_else(|| ReceiveError::Failed("no snapshot is being received".into()))
    }

    async fn install(&mut self, vote: Vote, chunks: u64) -> Result<Bytes, ReceiveError> {
        if chunks != self.chunks {
            return Err(ReceiveError::Order { found: self.chunks, wanted: chunks });
        }
        let download = self.download()?;
        let received: ReceivedSnapshot = self.blocking(move || Ok(download.complete()?)).await?;
        let meta = snapshot_meta(received.applied(), received.meta())
            .map_err(|error| ReceiveError::Failed(error.to_string()))?;
        tracing::info!(group = %self.member.id(), "installing a snapshot");
        // openraft's issue 2116: an install must not overtake entries that are still to be applied.
        self.member.quiet(QUIET_WAIT).await;
        let snapshot = Snapshot { meta, snapshot: SnapshotData::Received(Box::new(received)) };
        let installed = self.member.raft().install_full_snapshot(vote, snapshot).await;
        let answer = installed.map_err(|error| ReceiveError::Failed(error.to_string()))?;
        Ok(encode_vote(&answer.vote))
    }

    /// Runs an operation that waits for the disk.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ReceiveError> + Send + 'static,
    ) -> impl Future<Output = Result<T, ReceiveError>> + Send + 'static {
        let done = disk_wait(self.member.store().is_stepped(), work);
        async move { done.await.unwrap_or_else(|error| Err(ReceiveError::Failed(error.to_string()))) }
    }
}
