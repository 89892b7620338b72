//! The web page at `/`: its files, which are part of the binary, and who has logged in to it.
//!
//! The page is a client of `/api`: it shows what the API answers to its user, and changes what the
//! API lets that user change. A browser knows its user by a cookie instead of a password in each
//! request; so a request that changes something must also repeat a token that other sites cannot
//! read.
//!
//! - `/`, `/page/...`: the files, the same for everybody;
//! - `POST /login`, `POST /logout`: begin and end a session;
//! - `GET /session`: whose session it is, for a page that is loaded again.

mod assets;
mod events;
mod login;
mod session;

use crate::facts::NodeFacts;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use quorate_broker::Broker;
use std::sync::Arc;

pub(crate) use events::newest;
pub use events::{EventRecorder, EventService, event_json};
pub(crate) use login::is_of_this_site;
pub use session::Sessions;
pub(crate) use session::repeats;

/// What browsers may do with an answer: nothing from another host, nothing inline, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; \
     base-uri 'none'";

/// The headers of every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The page of a node, to be merged with [`crate::health_pages`] and [`crate::api`], which takes the same
/// sessions.
pub fn page(broker: Broker, facts: Arc<NodeFacts>, sessions: Sessions) -> Router {
    let logins = Router::new()
        .route("/login", post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/session", get(login::session))
        .with_state(login::Logins { broker, facts, sessions });
    assets::routes().merge(logins).layer(from_fn(with_headers))
}

async fn with_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
