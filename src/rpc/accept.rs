//! The streams that other nodes open to this one.

use crate::{
    bounded::{Caller, TlsPeer},
    door::host_of,
    frame::{Head, Outgoing},
    hello::{PeerHello, Refusal},
    join::{FrameError, Incoming, Joiner},
    lane::{FRAME_BYTES_MAX, Lane, LaneFrames, LaneQueue},
    links::{Origin, Responder, Shared},
    payload::Payload,
    rejection::status,
    wire::{
        Frame,
        links_server::{Links, LinksServer},
    },
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use quorate_types::GroupId;
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::time::Instant;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

/// Longest wait for the hello of a stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(1);

/// Refused streams are logged this often, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum size of a frame without its payload, bytes.
const FRAME_HEAD_BYTES_MAX: usize = 1024;

/// The gRPC service of the links: what the other nodes dial.
pub type LinkService = LinksServer<Acceptor>;

/// Accepts the streams of other nodes.
pub struct Acceptor {
    shared: Arc<Shared>,
    streams: AtomicU64,
    /// When a refusal was logged last.
    logged_at: Mutex<Option<Instant>>,
}

impl Acceptor {
    pub(crate) fn service(shared: Arc<Shared>) -> LinkService {
        let acceptor = Self { shared, streams: AtomicU64::new(0), logged_at: Mutex::default() };
        LinksServer::new(acceptor).max_decoding_message_size(FRAME_BYTES_MAX + FRAME_HEAD_BYTES_MAX)
    }

    async fn accept(
        &self,
        lane: Lane,
        request: Request<Streaming<Frame>>,
    ) -> Result<Response<Answers>, Status> {
        if *self.shared.stopping.borrow() {
            return Err(Status::unavailable("this node is stopping"));
        }
        if !self.shared.is_open() {
            return Err(Status::unavailable("this node is starting"));
        }
        // Each connection to the rpc port has one (`bounded`).
        let caller = request.extensions().get::<Caller>();
        let tls = caller.map_or(TlsPeer::Shown(None), |caller| caller.tls.clone());
        let mut frames = request.into_inner();
        let greeted = self.greet(&mut frames, &tls).await;
        let peer = greeted.map_err(|refusal| self.refuse(&refusal))?;
        let queue = LaneQueue::new(lane.bytes_max(self.shared.config.lane_bytes));
        let mine = self.shared.hello(peer.node);
        queue.push_beyond(Outgoing::new(Head::Hello(mine), Payload::new()));
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let origin = Origin { peer, stream, lane };
        self.shared.peers.stream_opened(peer.node, peer.boot);
        let reading = read(Arc::clone(&self.shared), origin, frames, Arc::clone(&queue));
        tokio::spawn(reading);
        Ok(Response::new(Box::pin(LaneFrames(queue).map(Ok))))
    }

    /// The status for a refused stream. The refusal is logged only now and then, since the peer
    /// retries for ever, many times a second.
    fn refuse(&self, refusal: &Refusal) -> Status {
        let mut logged = self.logged_at.lock();
        if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!("refused a stream of another node: {refusal}");
        }
        status(refusal, self.shared.is_member())
    }

    /// Reads the hello at the beginning of a stream, and records the peer.
    async fn greet(
        &self,
        frames: &mut Streaming<Frame>,
        tls: &TlsPeer,
    ) -> Result<PeerHello, Refusal> {
        let first = timeout(HELLO_TIMEOUT, frames.message()).await;
        let Ok(Ok(Some(first))) = first else { return Err(Refusal::NoHello) };
        let incoming = Joiner::default().push(first).map_err(|_| Refusal::NoHello)?;
        let Some(Incoming { head: Head::Hello(theirs), .. }) = incoming else {
            return Err(Refusal::NoHello);
        };
        let peer = self.shared.examine(&theirs)?;
        if let Some(address) = self.shared.roster.address(peer.node)
            && !tls.may_be(host_of(&address))
        {
            return Err(Refusal::OtherHost(peer.node));
        }
        let is_ours = self.shared.is_ours(&peer);
        let replaced = self.shared.peers.meet(&peer, &theirs.former_boots, is_ours)?;
        self.shared.report_lost(replaced);
        // Only the present process of a node says where it is, not one that was refused.
        self.shared.roster.claim(peer.node, &theirs.address);
        Ok(peer)
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<Frame, Status>> + Send>>;

#[tonic::async_trait]
impl Links for Acceptor {
    type ControlStream = Answers;
    type BulkStream = Answers;

    async fn control(
        &self,
        request: Request<Streaming<Frame>>,
    ) -> Result<Response<Answers>, Status> {
        self.accept(Lane::Control, request).await
    }

    async fn bulk(&self, request: Request<Streaming<Frame>>) -> Result<Response<Answers>, Status> {
        self.accept(Lane::Bulk, request).await
    }
}

/// Reads a stream to its end, and passes its messages on. While too many bytes of answers wait to
/// be sent back, the stream is not read: the caller's own lane fills up to its bound.
async fn read(
    shared: Arc<Shared>,
    origin: Origin,
    mut frames: Streaming<Frame>,
    queue: Arc<LaneQueue>,
) {
    let mut stopping = shared.stopping.subscribe();
    let reading = async {
        let mut joiner = Joiner::default();
        loop {
            queue.wait_for_room().await;
            let Ok(Some(frame)) = frames.message().await else { return };
            let handed = joiner.push(frame).and_then(|incoming| match incoming {
                Some(incoming) => hand_on(&shared, &origin, incoming, &queue),
                None => Ok(()),
            });
            if let Err(error) = handed {
                tracing::error!(node = %origin.peer.node, "protocol error: {error}");
                return;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        // So that the process learns of it when it opens another stream (MEM 11).
        () = shared.peers.until_refused(&origin.peer) => {}
        _ = stopping.wait_for(|stop| *stop) => {}
    }
    queue.close();
    let PeerHello { node, boot, .. } = origin.peer;
    shared.report_lost(shared.peers.stream_ended(node, boot));
}

fn hand_on(
    shared: &Shared,
    origin: &Origin,
    incoming: Incoming,
    queue: &Arc<LaneQueue>,
) -> Result<(), FrameError> {
    let Incoming { head, payload } = incoming;
    let group = |group: u32| u16::try_from(group).map(GroupId).map_err(|_| FrameError::WrongKind);
    match head {
        Head::Request { id, service, group: number } => {
            let responder = Responder::new(id, Arc::clone(queue));
            shared.handler.request(origin, service, group(number)?, payload, responder);
        }
        Head::Notice { service, group: number } => {
            shared.handler.notice(origin, service, group(number)?, payload);
        }
        Head::Hello(_) | Head::Response { .. } => return Err(FrameError::WrongKind),
    }
    Ok(())
}
