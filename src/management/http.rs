//! Health and metrics over HTTP.
//!
//! Counting what 100,000 queues hold takes long, and anybody may ask for `/metrics`. So a page is
//! served for 20 times as long as it took to write, at most 1 s.

use crate::convert::not_ready;
use crate::facts::{NodeFacts, ProcessFacts};
use crate::metrics;
use crate::source::Source;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at once. At the bound, further clients wait in the listen queue.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send a request's head, the wait for it included.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// A connection that is kept alive is closed after so long, with its answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// How long the last answer of such a connection may take to be read.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a stop waits for the requests under way.
const STOP_MAX: Duration = Duration::from_secs(3);
/// How long to wait after an accept that failed for want of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How old the numbers shown may be at most.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// The reciprocal of the part of a core's time that numbers may take.
const PAGE_TIME_PART: u32 = 20;

#[derive(Clone, Debug)]
struct Shown<S> {
    source: S,
    facts: Arc<NodeFacts>,
    page: Arc<Mutex<Page>>,
}

/// `/metrics` as it was written last. To count what 100,000 queues hold takes a while, and anybody
/// may ask; a page that was cheap is soon written again.
#[derive(Debug, Default)]
struct Page {
    text: Bytes,
    good_until: Option<Instant>,
}

impl Page {
    /// The page, written again if it is too old.
    fn shown(&mut self, write: impl FnOnce() -> String) -> Bytes {
        let began = Instant::now();
        if self.good_until.is_none_or(|until| until <= began) {
            self.text = write().into();
            let now = Instant::now();
            self.good_until = Some(now + (PAGE_TIME_PART * (now - began)).min(PAGE_AGE_MAX));
        }
        self.text.clone()
    }
}

/// The pages of a node: `/health/live`, `/health/ready`, `/metrics`.
pub fn router<S: Source>(source: S, facts: Arc<NodeFacts>) -> Router {
    Router::new()
        .route("/health/live", get(live))
        .route("/health/ready", get(ready::<S>))
        .route("/metrics", get(numbers::<S>))
        .with_state(Shown { source, facts, page: Arc::default() })
}

/// Serves `router` until `stop` resolves, then lets the requests under way end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    serve_within(HEAD_TIME_MAX, listener, router, stop).await;
}

async fn serve_within(
    head_time_max: Duration,
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let (closing, closed) = watch::channel(false);
    let (mut connections, mut stop) = (JoinSet::new(), pin!(stop));
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                Ok((stream, _)) => {
                    let (router, closed) = (router.clone(), closed.clone());
                    connections.spawn(connection(stream, router, head_time_max, closed));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP client");
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    closing.send_replace(true);
    // Who does not read its answer by then is not waited for.
    let _ = timeout(STOP_MAX, async { while connections.join_next().await.is_some() {} }).await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    head_time_max: Duration,
    mut closed: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_time_max);
    let service = TowerToHyperService::new(router);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), service));
    let closing = async {
        // The sender's end is a stop too.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    let ended = tokio::select! {
        ended = served.as_mut() => Ok(ended),
        () = closing => {
            served.as_mut().graceful_shutdown();
            Ok(served.await)
        }
        // Who does not read would have its place for ever.
        () = sleep(CONNECTION_TIME_MAX) => {
            served.as_mut().graceful_shutdown();
            timeout(ANSWER_TIME_MAX, served).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "an HTTP connection failed");
    }
}

/// The process answers at all.
async fn live() -> &'static str {
    "ok\n"
}

/// 503 with the reason until clients can be served: the node has a routing lease and every group
/// a leader.
async fn ready<S: Source>(State(shown): State<Shown<S>>) -> Response {
    let readiness = shown.source.readiness();
    if readiness.is_ready() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", not_ready(&readiness))).into_response()
}

async fn numbers<S: Source>(State(shown): State<Shown<S>>) -> Response {
    let text = shown.page.lock().shown(|| {
        let (view, cluster) = (shown.source.metrics(), shown.source.cluster());
        metrics::text(&shown.facts, ProcessFacts::read(), &cluster, &view)
    });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const HEAD_TIME: Duration = Duration::from_millis(300);

    async fn serving() -> std::net::SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/health/live", get(live));
        tokio::spawn(serve_within(HEAD_TIME, listener, router, std::future::pending()));
        address
    }

    async fn answer(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut bytes = vec![0; 1_024];
        let read = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
    }

    /// As many idle connections as there may be keep nobody out for long.
    #[tokio::test]
    async fn clients_that_ask_for_nothing_are_let_go() {
        let address = serving().await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        let answered = timeout(HEAD_TIME * 10, answer(&mut late)).await.unwrap();
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
        // After an answer too.
        let mut bytes = Vec::new();
        timeout(HEAD_TIME * 10, late.read_to_end(&mut bytes)).await.unwrap().unwrap();
        for mut stream in idle {
            timeout(HEAD_TIME * 10, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        }
    }

    /// What takes long is written once for all who ask within a second.
    #[test]
    fn a_dear_page_is_shared() {
        let (mut page, mut written) = (Page::default(), 0);
        for _ in 0..5 {
            page.shown(|| {
                written += 1;
                std::thread::sleep(Duration::from_millis(60));
                String::new()
            });
        }
        assert_eq!(written, 1);
        page.good_until = Some(Instant::now());
        page.shown(|| "anew".to_owned());
        assert_eq!(page.text, "anew");
    }
}
