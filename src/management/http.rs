//! Health and metrics over HTTP.

use crate::convert::not_ready;
use crate::facts::{NodeFacts, ProcessFacts};
use crate::metrics;
use crate::source::Source;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;

#[derive(Clone, Debug)]
struct Shown<S> {
    source: S,
    facts: Arc<NodeFacts>,
}

/// The pages of a node: `/health/live`, `/health/ready`, `/metrics`.
pub fn router<S: Source>(source: S, facts: Arc<NodeFacts>) -> Router {
    Router::new()
        .route("/health/live", get(live))
        .route("/health/ready", get(ready::<S>))
        .route("/metrics", get(numbers::<S>))
        .with_state(Shown { source, facts })
}

/// Serves `router` until `stop` resolves, then lets the requests under way end.
///
/// # Errors
/// The listener's.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router).with_graceful_shutdown(stop).await
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
    let view = shown.source.metrics();
    let cluster = shown.source.cluster();
    let text = metrics::text(&shown.facts, ProcessFacts::read(), &cluster, &view);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
