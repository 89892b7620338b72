//! Appends to one follower, pipelined: many under way at once, answered in order.

use crate::{
    codec::{decode_append_answer, encode_append},
    network::{Client, malformed, next_number},
    service::Service,
    type_config::TypeConfig,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use openraft::{
    errors::RPCError,
    raft::{AppendEntriesRequest, StreamAppendResult},
};
use quorate_rpc::{CallError, Lane, PendingCall};
use std::{collections::VecDeque, pin::Pin, time::Duration};
use tokio::time::{Instant, Sleep, sleep};

/// Appends under way to one follower of one group. When reached, no more are read from the log.
pub(crate) const APPENDS_MAX: usize = 64;
/// Octets of them, beyond which no more are read from the log; the last one may exceed it.
const APPEND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A follower that answers nothing for so long is given up; the leader then begins anew, and may
/// purge its log meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(3);

type Answer = Result<StreamAppendResult<TypeConfig>, RPCError<TypeConfig>>;

struct Pipeline<'a, S> {
    client: &'a Client,
    input: S,
    /// Numbers this stream of appends, so that the follower can tell it from the one before.
    stream: u64,
    /// The input has more.
    open: bool,
    under_way: VecDeque<Append>,
    bytes: usize,
    silence: Pin<Box<Sleep>>,
}

struct Append {
    call: PendingCall,
    bytes: usize,
}

/// The answers to a stream of appends, in their order. Ends with the first that is not a success.
pub(crate) fn pipeline<'a, S>(
    client: &'a Client,
    input: S,
) -> impl Stream<Item = Answer> + Send + 'a
where
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin + 'a,
{
    let pipeline = Pipeline {
        client,
        input,
        stream: next_number(),
        open: true,
        under_way: VecDeque::new(),
        bytes: 0,
        silence: Box::pin(sleep(SILENCE_MAX)),
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
    S: Stream<Item = AppendEntriesRequest<TypeConfig>> + Send + Unpin,
{
    /// Sends what there is to send until an answer is there.
    async fn next(&mut self) -> Option<Answer> {
        loop {
            if !self.open && self.under_way.is_empty() {
                return None;
            }
            let room = self.under_way.len() < APPENDS_MAX && self.bytes < APPEND_BYTES_MAX;
            tokio::select! {
                biased;
                answer = first(&mut self.under_way) => return Some(self.answered(answer)),
                request = self.input.next(), if self.open && room => match request {
                    Some(request) => {
                        if let Err(error) = self.send(&request).await {
                            return Some(Err(self.failed(error)));
                        }
                    }
                    None => self.open = false,
                },
                () = &mut self.silence, if !self.under_way.is_empty() => {
                    let late = CallError::Timeout(self.client.target);
                    return Some(Err(self.failed(late)));
                }
            }
        }
    }

    async fn send(&mut self, request: &AppendEntriesRequest<TypeConfig>) -> Result<(), CallError> {
        let client = self.client;
        let payload = encode_append(self.stream, request);
        let bytes = payload.len();
        if self.under_way.is_empty() {
            self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
        }
        let number = Service::Append.number();
        let call =
            client.links.request(client.target, Lane::Bulk, number, client.group, payload).await?;
        self.bytes += bytes;
        self.under_way.push_back(Append { call, bytes });
        client.metrics.appends_sent.add(1);
        client.metrics.append_bytes_sent.add(bytes as u64);
        Ok(())
    }

    fn answered(&mut self, answer: Result<Bytes, CallError>) -> Answer {
        if let Some(append) = self.under_way.pop_front() {
            self.bytes -= append.bytes;
        }
        self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
        let answer = answer.map_err(|error| self.failed(error))?;
        decode_append_answer(&answer).map_err(malformed)
    }

    fn failed(&self, error: CallError) -> RPCError<TypeConfig> {
        self.client.rpc_error(error, Service::Append.rpc_type(), SILENCE_MAX)
    }
}

/// The answer to the first append under way; none comes while there is none.
async fn first(under_way: &mut VecDeque<Append>) -> Result<Bytes, CallError> {
    match under_way.front_mut() {
        Some(append) => (&mut append.call).await,
        None => std::future::pending().await,
    }
}
