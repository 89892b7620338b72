//! Appends to one follower, pipelined: many in flight at once, answered in order.
//!
//! A follower of a queue group performs no effects, so it need not learn at once what is committed.
//! An append that would carry only the commit index waits 10 ms for entries to carry it. With a
//! window of one message this saves a third of the broker's CPU time for each message.

use crate::{
    codec::{decode_append_answer, encode_append},
    network::{Client, malformed, next_number},
    replica_name::for_replica,
    service::Service,
    type_config::{LogId, TypeConfig, Vote},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use openraft::{
    errors::RPCError,
    raft::{AppendEntriesRequest, StreamAppendResult},
};
use quorate_rpc::{CallError, Lane, PendingCall};
use quorate_types::GroupId;
use std::{collections::VecDeque, pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep};

/// Maximum of appends in flight to one follower of one group. At this limit no more are read from
/// the log.
pub(crate) const APPENDS_MAX: usize = 64;
/// Bytes in flight above which no more are read from the log; the last append may exceed it.
const APPEND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest wait for an answer of a follower; then the leader starts the stream again, and may purge
/// its log meanwhile. Appends in flight have additional time, by their bytes.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Bytes a second that every follower is expected to receive and write.
const BYTES_A_SECOND: usize = 8 * 1024 * 1024;

/// How long a commit notice waits for entries that can carry it, except in the catalog group, whose
/// copies are read on every node (NAM 3). Followers of queue groups perform no effects, and a new
/// leader applies committed entries first.
const NOTICE_DELAY: Duration = Duration::from_millis(10);

type Request = AppendEntriesRequest<TypeConfig>;
type Answer = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

struct Pipeline<'a, S> {
    client: &'a Client,
    input: S,
    /// Number of this stream of appends, so that the follower can distinguish it from earlier ones.
    stream: u64,
    /// True until the input has ended.
    open: bool,
    under_way: VecDeque<Append>,
    bytes: usize,
    silence: Pin<Box<Sleep>>,
    /// Last entry that this stream has sent.
    sent: Option<LogId>,
    /// The latest commit index that no request has carried yet. It needs no separate answer: the
    /// answer to the request that carries it is more useful to openraft.
    notice: Option<Request>,
    /// When the notice is sent by itself; in the past while there is none.
    notice_due: Pin<Box<Sleep>>,
}

struct Append {
    call: PendingCall,
    bytes: usize,
    vote: Vote,
    has_entries: bool,
}

/// The answers to a stream of appends, in their order. It ends with the first that is not a
/// success.
pub(crate) fn pipeline<'a, S>(
    client: &'a Client,
    input: S,
) -> impl Stream<Item = Answer> + Send + 'a
where
    S: Stream<Item = Request> + Send + Unpin + 'a,
{
    let pipeline = Pipeline {
        client,
        input,
        stream: next_number(),
        open: true,
        under_way: VecDeque::new(),
        bytes: 0,
        silence: Box::pin(sleep(SILENCE_MAX)),
        sent: None,
        notice: None,
        notice_due: Box::pin(sleep(NOTICE_DELAY)),
    };
    stream::unfold(Some(pipeline), |pipeline| async move {
        let mut pipeline = pipeline?;
        let answer = pipeline.next().await?;
        let goes_on = matches!(answer, Ok(Ok(_)));
        Some((answer, goes_on.then_some(pipeline)))
    })
}

impl<S> Pipeline<'_, S>
where
    S: Stream<Item = Request> + Send + Unpin,
{
    /// Sends waiting requests until an answer arrives.
    async fn next(&mut self) -> Option<Answer> {
        loop {
            if !self.open && self.under_way.is_empty() {
                return None;
            }
            let room = self.under_way.len() < APPENDS_MAX && self.bytes < APPEND_BYTES_MAX;
            tokio::select! {
                biased;
                answer = first(&mut self.under_way) => return Some(self.answered(answer).await),
                request = self.input.next(), if self.open && room => match request {
                    Some(request) if self.may_wait(&request) => {
                        if self.notice.replace(request).is_none() {
                            self.notice_due.as_mut().reset(Instant::now() + NOTICE_DELAY);
                        }
                    }
                    Some(request) => {
                        self.notice = None;
                        if let Err(error) = self.send(&request).await {
                            return Some(Err(self.failed(error)));
                        }
                    }
                    None => self.open = false,
                },
                () = &mut self.notice_due, if self.notice.is_some() => {
                    if let Some(request) = self.notice.take()
                        && let Err(error) = self.send(&request).await
                    {
                        return Some(Err(self.failed(error)));
                    }
                }
                () = &mut self.silence, if !self.under_way.is_empty() => {
                    let late = CallError::Timeout(self.client.target.node);
                    return Some(Err(self.failed(late)));
                }
            }
        }
    }

    /// True if a request only carries the commit index, after entries of this stream. A request
    /// that asks for the position of the follower's log is sent at once.
    fn may_wait(&self, request: &Request) -> bool {
        request.entries.is_empty()
            && self.sent.is_some()
            && request.prev_log_id == self.sent
            && self.client.group != GroupId::CATALOG
    }

    async fn send(&mut self, request: &Request) -> Result<(), CallError> {
        if let Some(last) = request.entries.last() {
            self.sent = Some(last.log_id);
        }
        let client = self.client;
        let target = client.target;
        let payload = for_replica(target.number, encode_append(self.stream, request));
        let bytes = payload.len();
        let number = Service::Append.number();
        let call =
            client.links.request(target.node, Lane::Bulk, number, client.group, payload).await?;
        self.bytes += bytes;
        if self.under_way.is_empty() || bytes > BYTES_A_SECOND {
            self.have_patience();
        }
        let (vote, has_entries) = (request.vote, !request.entries.is_empty());
        self.under_way.push_back(Append { call, bytes, vote, has_entries });
        client.metrics.appends_sent.add(1);
        client.metrics.append_bytes_sent.add(bytes as u64);
        Ok(())
    }

    async fn answered(&mut self, answer: Result<Bytes, CallError>) -> Answer {
        let append = self.under_way.pop_front();
        self.bytes -= append.as_ref().map_or(0, |append| append.bytes);
        self.have_patience();
        let answer = answer.map_err(|error| self.failed(error))?;
        let answer = decode_append_answer(&answer).map_err(malformed)?;
        let Some(Append { vote, has_entries, .. }) = append else { return Ok(answer) };
        if has_entries && let Ok(Some(last)) = &answer {
            self.client.followers.acknowledged(self.client.target, vote, *last);
        }
        self.client.examine(vote, answer).await
    }

    fn have_patience(&mut self) {
        let writing = Duration::from_millis((self.bytes * 1_000 / BYTES_A_SECOND) as u64);
        self.silence.as_mut().reset(Instant::now() + SILENCE_MAX + writing);
    }

    fn failed(&self, error: CallError) -> RPCError<TypeConfig> {
        self.client.rpc_error(error, Service::Append.rpc_type(), SILENCE_MAX)
    }
}

/// The answer to the first append in flight; pending while there is none.
async fn first(under_way: &mut VecDeque<Append>) -> Result<Bytes, CallError> {
    match under_way.front_mut() {
        Some(append) => (&mut append.call).await,
        None => std::future::pending().await,
    }
}
