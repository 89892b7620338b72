//! The service about a node's process, which `quorate ctl` calls: its settings, log, certificates and
//! threads, and its end.

use crate::admin::{check, opened};
use crate::wire::{self, process_admin_server::ProcessAdmin};
use futures::Stream;
use futures::stream::{self, StreamExt};
use std::fmt::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tonic::{Request, Response, Status};

/// Longest wait for a host name's addresses.
const RESOLVE_MAX: Duration = Duration::from_secs(10);
/// Longest wait for what the operating system says of the process.
const DESCRIBE_MAX: Duration = Duration::from_secs(10);
/// Lines of the log in one message.
const LINES_AT_ONCE: usize = 64;

/// A line of the log.
pub type LogLine = Arc<str>;

/// The process of this node, for its operators.
pub trait Process: Debug + Send + Sync + 'static {
    /// What is to be seen of it. Reads files, so it blocks.
    fn describe(&self) -> wire::Process;
    /// The newest lines of its log, at most so many, and all that follow.
    fn log_lines(&self, most: usize) -> (Vec<LogLine>, Receiver<LogLine>);
    /// Logs only what is at least this important: `debug`, `info`, `warn`, `error`, `off`.
    ///
    /// # Errors
    /// There is no such level, or the log's filter cannot be changed.
    fn set_log_level(&self, level: &str) -> Result<(), String>;
    /// Ends it as SIGTERM does, without waiting for that.
    fn stop(&self);
}

/// The service of one node.
#[derive(Clone, Debug)]
pub struct ProcessService(Arc<dyn Process>);

impl ProcessService {
    /// The service of one node, to be mounted at the rpc port.
    #[must_use]
    pub fn new(process: Arc<dyn Process>) -> Self {
        Self(process)
    }
}

fn done() -> Response<wire::Done> {
    Response::new(wire::Done {})
}

/// The addresses of a host, of one family.
async fn resolve(host: &str, ipv6: bool) -> Result<Vec<String>, Status> {
    let found = timeout(RESOLVE_MAX, lookup_host((host, 0))).await;
    let found = found.map_err(|_| Status::deadline_exceeded("the resolver has not answered"))?;
    let addresses = found.into_iter().flatten().map(|address| address.ip());
    let mut addresses: Vec<IpAddr> = addresses.filter(|it| it.is_ipv6() == ipv6).collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(Status::not_found("Hostname does not resolve"));
    }
    Ok(addresses.iter().map(ToString::to_string).collect())
}

/// The lines that follow, each message with those that are there.
fn following(lines: Receiver<LogLine>) -> impl Stream<Item = Result<wire::LogLines, Status>> {
    stream::unfold(lines, async |mut lines| {
        let first = match lines.recv().await {
            Ok(line) => vec![line.to_string()],
            Err(RecvError::Lagged(skipped)) => {
                return Some((Ok(wire::LogLines { lines: Vec::new(), skipped }), lines));
            }
            Err(RecvError::Closed) => return None,
        };
        let mut batch = wire::LogLines { lines: first, skipped: 0 };
        while batch.lines.len() < LINES_AT_ONCE
            && let Ok(line) = lines.try_recv()
        {
            batch.lines.push(line.to_string());
        }
        Some((Ok(batch), lines))
    })
}

#[tonic::async_trait]
impl ProcessAdmin for ProcessService {
    type TailLogStream = Pin<Box<dyn Stream<Item = Result<wire::LogLines, Status>> + Send>>;

    async fn describe(
        &self,
        request: Request<wire::NodeRequest>,
    ) -> Result<Response<wire::Process>, Status> {
        check(request.into_inner().caller)?;
        let process = Arc::clone(&self.0);
        match timeout(DESCRIBE_MAX, spawn_blocking(move || process.describe())).await {
            Ok(Ok(process)) => Ok(Response::new(process)),
            Ok(Err(_)) => Err(Status::unavailable("the process is ending")),
            Err(_) => Err(Status::deadline_exceeded("a file system has not answered")),
        }
    }

    async fn resolve(
        &self,
        request: Request<wire::ResolveRequest>,
    ) -> Result<Response<wire::ResolveReply>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let addresses = resolve(&request.host, request.ipv6).await?;
        Ok(Response::new(wire::ResolveReply { addresses }))
    }

    async fn tail_log(
        &self,
        request: Request<wire::LogRequest>,
    ) -> Result<Response<Self::TailLogStream>, Status> {
        let request = request.into_inner();
        check(request.caller)?;
        let most = usize::try_from(request.lines).unwrap_or(usize::MAX);
        let (lines, next) = self.0.log_lines(most);
        let message = |lines: &[LogLine]| {
            let lines = lines.iter().map(ToString::to_string).collect();
            Ok(wire::LogLines { lines, skipped: 0 })
        };
        let present: Vec<_> = lines.chunks(LINES_AT_ONCE).map(message).collect();
        let present = stream::iter(present);
        Ok(Response::new(if request.follow {
            present.chain(following(next)).boxed()
        } else {
            present.boxed()
        }))
    }

    async fn set_log_level(
        &self,
        request: Request<wire::LogLevelRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, request) = opened(request)?;
        let set = self.0.set_log_level(&request.level).map_err(Status::invalid_argument);
        operator.log("set_log_level", &request.level, &set);
        set.map(|()| done())
    }

    async fn stop(
        &self,
        request: Request<wire::StopRequest>,
    ) -> Result<Response<wire::Done>, Status> {
        let (operator, _) = opened(request)?;
        let stopped = Ok(done());
        operator.log("stop", "this node", &stopped);
        self.0.stop();
        stopped
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use tokio::sync::broadcast;

    #[tokio::test]
    async fn who_follows_the_log_too_slowly_learns_how_much_was_skipped() {
        let (sender, lines) = broadcast::channel(2);
        for line in ["a", "b", "c"] {
            sender.send(Arc::from(line)).unwrap();
        }
        drop(sender);
        let read: Vec<_> = following(lines).map(Result::unwrap).collect().await;
        let skipped = wire::LogLines { lines: Vec::new(), skipped: 1 };
        let rest = wire::LogLines { lines: vec!["b".to_owned(), "c".to_owned()], skipped: 0 };
        assert_eq!(read, [skipped, rest]);
    }

    #[tokio::test]
    async fn hosts_have_addresses_of_one_family() {
        assert_eq!(resolve("127.0.0.1", false).await.unwrap(), ["127.0.0.1"]);
        let refused = resolve("127.0.0.1", true).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound);
    }
}
