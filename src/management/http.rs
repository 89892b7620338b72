//! Health and metrics over HTTP, with or without TLS.

use crate::api::{Query, not_decoded};
use crate::convert::not_ready;
use crate::facts::{NodeFacts, ProcessFacts};
use crate::liveness::{Pulses, not_live};
use crate::metrics::{self, Scrape, Wanted};
use crate::places::{Place, Places};
use crate::rates::Rates;
use crate::shared_page::{Page, page, unavailable};
use crate::source::Source;
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::TryFutureExt;
use hyper::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use quorate_broker::view::Figures;
use quorate_tls::{Acceptor, Stream};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at once. Another client takes the place of a connection that waits for a request; if
/// none does, further ones wait in the listen queue.
const CONNECTIONS_MAX: usize = 256;
/// Time limit for a client to send the head of a request, including the wait for it.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// A kept-alive connection is closed after this time, with its answer.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// Time limit for reading the last answer of such a connection.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// How long a stop waits for requests in progress.
const STOP_MAX: Duration = Duration::from_secs(3);
/// How long to wait after an accept that failed for lack of descriptors or memory.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often a place is looked for while there is a connection too many.
const ROOM_RETRY: Duration = Duration::from_millis(100);

/// The two ends of an HTTP client's connection, in the extensions of each of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpClient {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address that it connected to.
    pub(crate) local: SocketAddr,
    /// The connection has TLS.
    pub(crate) secured: bool,
}

impl HttpClient {
    /// True if the client is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        self.peer.ip().to_canonical().is_loopback()
    }
}

#[cfg(test)]
impl HttpClient {
    /// A client of this machine.
    pub(crate) fn of_test() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Self { peer: address, local: address, secured: false }
    }
}

/// What the health checks look at.
#[derive(Clone, Debug)]
struct Health<S> {
    source: S,
    pulses: Pulses,
}

/// What the pages of metrics show.
#[derive(Clone, Debug)]
struct Shown<S> {
    source: S,
    facts: Arc<NodeFacts>,
    rates: Rates,
    /// The page without objects, the page with them, and the page of chosen families.
    pages: [Arc<Mutex<Page>>; 4],
}

/// The health checks of a node: `/health/live` and `/health/ready`.
pub fn health_pages<S: Source>(source: S, pulses: Pulses) -> Router {
    Router::new()
        .route("/health/live", get(live::<S>))
        .route("/health/ready", get(ready::<S>))
        .with_state(Health { source, pulses })
}

/// The metrics of a node: `/metrics` and below.
pub fn metric_pages<S: Source>(source: S, facts: Arc<NodeFacts>, rates: Rates) -> Router {
    let pages = Default::default();
    Router::new()
        .route("/metrics", get(aggregated::<S>))
        .route("/metrics/per-object", get(per_object::<S>))
        .route("/metrics/detailed", get(detailed::<S>))
        .route("/metrics/memory-breakdown", get(memory_breakdown::<S>))
        .with_state(Shown { source, facts, rates, pages })
}

/// Serves `router` until `stop` resolves, then lets requests in progress complete; over TLS if there
/// is an acceptor.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    serve_within(HEAD_TIME_MAX, listener, tls, router, stop).await;
}

async fn serve_within(
    head_time_max: Duration,
    listener: TcpListener,
    tls: Option<Acceptor>,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let (closing, closed) = watch::channel(false);
    let (mut connections, mut stop) = (JoinSet::new(), pin!(stop));
    let places = Places::default();
    loop {
        let is_full = connections.len() > CONNECTIONS_MAX;
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            () = sleep(ROOM_RETRY), if is_full => places.make_room(),
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, peer)) => {
                    let (tls, router, closed) = (tls.clone(), router.clone(), closed.clone());
                    // A stream without an address has ended already.
                    let Ok(local) = stream.local_addr() else { continue };
                    let client = HttpClient { peer, local, secured: tls.is_some() };
                    let place = places.take(peer.ip());
                    connections.spawn(async move {
                        let served = async {
                            if let Some(stream) = secured(stream, tls, head_time_max).await {
                                let pages = service(client, router, &place);
                                connection(stream, pages, head_time_max, closed).await;
                            }
                        };
                        tokio::select! {
                            () = served => {}
                            () = place.lost() => tracing::debug!(%peer, "an idle HTTP client made room"),
                        }
                    });
                    if connections.len() > CONNECTIONS_MAX {
                        places.make_room();
                    }
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
    // A client that has not read its answer by then is not awaited.
    let _ = timeout(STOP_MAX, async { while connections.join_next().await.is_some() {} }).await;
}

/// The stream after its TLS handshake, if there is TLS. `None`: the handshake failed.
async fn secured(
    stream: TcpStream,
    tls: Option<Acceptor>,
    time_max: Duration,
) -> Option<Stream<TcpStream>> {
    let Some(tls) = tls else { return Some(Stream::Plain(stream)) };
    match timeout(time_max, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "an HTTPS client was refused");
            None
        }
        Err(_) => None,
    }
}

/// The pages, for one client.
fn service(
    client: HttpClient,
    router: Router,
    place: &Arc<Place>,
) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send> + use<>
{
    let (pages, place) = (TowerToHyperService::new(router), Arc::clone(place));
    service_fn(move |mut request: Request<Incoming>| {
        place.begin();
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(Arc::downgrade(&place));
        if let Some(uri) = without_doubled_slash(request.uri()) {
            *request.uri_mut() = uri;
        }
        let (answered, place) = (pages.call(request), Arc::clone(&place));
        answered.map_ok(move |answer| answer.map(|body| Body::new(Sent { body, place })))
    })
}

/// The body of an answer. Its request is in progress until it is sent.
struct Sent {
    body: Body,
    place: Arc<Place>,
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.place.set_in_progress(false);
    }
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

async fn connection(
    stream: Stream<TcpStream>,
    pages: impl Service<Request<Incoming>, Response = Response, Error = Infallible>,
    head_time_max: Duration,
    mut closed: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_time_max);
    let mut served = pin!(http.serve_connection(TokioIo::new(stream), pages));
    let closing = async {
        // The loss of the sender means a stop too.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    let ended = tokio::select! {
        ended = served.as_mut() => Ok(ended),
        () = closing => {
            served.as_mut().graceful_shutdown();
            Ok(served.await)
        }
        // A client that does not read would otherwise keep its place for ever.
        () = sleep(CONNECTION_TIME_MAX) => {
            served.as_mut().graceful_shutdown();
            timeout(ANSWER_TIME_MAX, served).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "an HTTP connection failed");
    }
}

/// The URI of a request whose path begins with several slashes, with one: clients append `/api` to an
/// address that ends with a slash. `None`: it begins with one.
fn without_doubled_slash(uri: &Uri) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    let rest = path.strip_prefix("//")?.trim_start_matches('/');
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("/{rest}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// 503 with the reason when this process makes no progress, so that only a restart can help.
async fn live<S: Source>(State(of): State<Health<S>>) -> Response {
    match not_live(&of.source, &of.pulses) {
        None => "ok\n".into_response(),
        Some(why) => unavailable(&why),
    }
}

/// 503 with the reason until clients can be served: the node has a routing lease, every group a
/// leader, the definitions of the start are imported, and the node is not drained.
async fn ready<S: Source>(State(of): State<Health<S>>) -> Response {
    let readiness = of.source.readiness();
    if readiness.is_ready() {
        return "ok\n".into_response();
    }
    unavailable(&not_ready(&readiness))
}

impl<S: Source> Shown<S> {
    /// Writes a page about the node, with figures of its objects if they are shown.
    fn write(
        &self,
        wanted: &Wanted,
        with_objects: bool,
        page: impl FnOnce(&Scrape<'_>) -> String,
    ) -> String {
        let (view, cluster) = (self.source.metrics(), self.source.cluster());
        let figures = if with_objects { self.source.figures() } else { Figures::default() };
        let name = self.source.cluster_name();
        page(&Scrape {
            facts: &self.facts,
            process: ProcessFacts::read(),
            cluster: &cluster,
            name: name.as_deref(),
            view: &view,
            figures: &figures,
            rates: &self.rates,
            wanted,
        })
    }
}

async fn aggregated<S: Source>(State(shown): State<Shown<S>>) -> Response {
    let [of_node, ..] = shown.pages.clone();
    let write = move |_: &str| Ok(shown.write(&Wanted::default(), false, metrics::aggregated));
    page(&of_node, String::new(), write).await
}

async fn per_object<S: Source>(State(shown): State<Shown<S>>) -> Response {
    let [_, of_objects, ..] = shown.pages.clone();
    let write = move |_: &str| Ok(shown.write(&Wanted::default(), true, metrics::per_object));
    page(&of_objects, String::new(), write).await
}

/// 400 that names what a scrape asks for wrongly.
async fn detailed<S: Source>(State(shown): State<Shown<S>>, RawQuery(query): RawQuery) -> Response {
    let [.., of_families, _] = shown.pages.clone();
    let write = move |query: &str| {
        // Regular expressions take their time too.
        let parameters = Query::parse(query).map_err(not_decoded)?;
        let wanted = Wanted::parse(parameters.iter())?;
        let page = |scrape: &Scrape<'_>| metrics::detailed(scrape, &shown.source);
        let text = shown.write(&wanted, true, page);
        wanted.check().map(|()| text)
    };
    page(&of_families, query.unwrap_or_default(), write).await
}

async fn memory_breakdown<S: Source>(State(shown): State<Shown<S>>) -> Response {
    let [.., of_memory] = shown.pages.clone();
    let write =
        move |_: &str| Ok(shown.write(&Wanted::default(), false, metrics::memory_breakdown));
    page(&of_memory, String::new(), write).await
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use axum::Extension;
    use futures::FutureExt;
    use std::sync::Weak;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    const HEAD_TIME: Duration = Duration::from_secs(1);
    /// What has not come within this time never comes.
    const HANGS: Duration = Duration::from_secs(600);

    /// A server whose path `/slow` is of a user and answers when told to; `/stuck`, of anybody, never does.
    async fn serving(head_time_max: Duration) -> (SocketAddr, Arc<Notify>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let release = Arc::new(Notify::new());
        let released = Arc::clone(&release);
        let slow = async move |Extension(place): Extension<Weak<Place>>| {
            place.upgrade().unwrap().set_in_progress(true);
            released.notified().await;
            "ok\n"
        };
        let stuck = async || std::future::pending::<&str>().await;
        let router = Router::new()
            .route("/health/live", get(async || "ok\n"))
            .route("/slow", get(slow))
            .route("/stuck", get(stuck));
        tokio::spawn(serve_within(head_time_max, listener, None, router, std::future::pending()));
        (address, release)
    }

    async fn answer(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut bytes = vec![0; 1_024];
        let read = stream.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(bytes.get(..read).unwrap_or_default()).into_owned()
    }

    /// Idle connections up to the bound do not keep others out for long.
    #[tokio::test]
    async fn clients_that_ask_for_nothing_are_let_go() {
        let (address, _) = serving(HEAD_TIME).await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        let answered = timeout(HANGS, answer(&mut late)).await.unwrap();
        assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
        // The same after an answer.
        let mut bytes = Vec::new();
        timeout(HANGS, late.read_to_end(&mut bytes)).await.unwrap().unwrap();
        for mut stream in idle {
            timeout(HANGS, stream.read_to_end(&mut bytes)).await.unwrap().unwrap();
        }
    }

    async fn connected(address: SocketAddr, from: [u8; 4]) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(address).await.unwrap()
    }

    /// Connections that are kept at the bound do not keep out others, nor do requests that nobody
    /// has allowed.
    #[tokio::test]
    async fn a_client_with_many_connections_makes_room() {
        let (address, release) = serving(2 * HANGS).await;
        let mut other = connected(address, [127, 0, 0, 3]).await;
        let mut slow = connected(address, [127, 0, 0, 2]).await;
        slow.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
        let mut kept = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = connected(address, [127, 0, 0, 2]).await;
            stream.write_all(b"GET /stuck HTTP/1.1\r\nHost: h\r\n\r\n").await.unwrap();
            kept.push(stream);
        }
        let mut late = connected(address, [127, 0, 0, 4]).await;
        // Before the server closes the connections that have sent no request.
        let all = timeout(HANGS, async {
            for stream in [&mut late, &mut other] {
                let answered = answer(stream).await;
                assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
            }
        });
        all.await.unwrap();
        release.notify_one();
        let mut bytes = vec![0; 1_024];
        assert!(slow.read(&mut bytes).await.unwrap() > 0, "a request in progress is answered");
        let mut closed = 0;
        for stream in &mut kept {
            closed += usize::from(matches!(stream.read(&mut bytes).now_or_never(), Some(Ok(0))));
        }
        assert!((1..10).contains(&closed), "{closed}");
    }

    #[test]
    fn a_path_may_begin_with_several_slashes() {
        let one =
            |uri: &str| without_doubled_slash(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(one("//api/queues?page=1"), Some("/api/queues?page=1".to_owned()));
        assert_eq!(one("///"), Some("/".to_owned()));
        assert_eq!(one("/api//queues"), None, "the API drops empty parts");
    }
}
