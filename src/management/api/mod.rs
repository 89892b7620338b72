//! The HTTP API of RabbitMQ's management plugin, under `/api`.
//!
//! The path of a request: `route` finds it in the table of routes; `caller` authenticates its user
//! with the login of AMQP clients, or by the session of the web page; the table says whether that user may; the body is read, up to a
//! bound; the file of the object carries it out, through `client` what AMQP clients can do too, else
//! as `quorate ctl` does; `list` cuts the answer to what was asked for; `audit` notes each change.
//!
//! An answer about the cluster waits one second for other nodes, and says which have not answered in
//! the header `x-quorate-silent-nodes`.

mod attempts;
pub(crate) mod audit;
mod body;
mod call;
mod caller;
mod client;
mod cluster;
mod columns;
mod counts;
mod dispatch;
mod input;
pub(crate) mod json;
mod leased;
mod list;
mod names;
mod order;
mod output;
mod refusal;
mod route;
mod spans;
mod statistics;
mod turns;
mod uri;

mod bindings;
mod channels;
mod connections;
mod consumers;
mod definitions;
mod exchanges;
mod features;
mod health;
mod limits;
mod messages;
mod nodes;
mod overview;
mod parameters;
mod permissions;
mod policies;
mod queues;
mod quorate_browse;
mod quorate_cluster;
mod quorate_dry_run;
mod quorate_events;
mod quorate_settings;
mod quorate_tasks;
mod replicas;
mod users;
mod vhosts;

#[cfg(test)]
mod tests;

pub use crate::api::features::FLAGS;

use crate::api::call::{Answer, Api, Call, Content};
pub(crate) use crate::api::caller::Caller;
use crate::api::cluster::Cluster;
use crate::api::input::{Bodies, read_body};
use crate::api::list::Listing;
use crate::api::output::{Answers, Part, Recipient, holding};
pub(crate) use crate::api::overview::set_cluster_name;
use crate::api::refusal::JSON_HEADERS;
pub(crate) use crate::api::refusal::Refusal;
pub(crate) use crate::api::route::Method;
use crate::api::route::{Endpoint, Needs, Route};
use crate::api::turns::Turns;
pub(crate) use crate::api::uri::{Query, not_decoded};
use crate::browser::Browser;
use crate::facts::NodeFacts;
use crate::http::HttpClient;
use crate::page::Sessions;
use crate::parts::blocking;
use crate::peers::Peers;
use crate::places::Place;
use crate::rates::Rates;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use quorate_broker::Broker;
use quorate_types::ShortString;
use serde_json::Value;
use std::sync::{Arc, Weak};
use tokio::sync::SemaphorePermit;

/// Bytes of the header `X-Reason`.
const REASON_BYTES_MAX: usize = 255;
/// The nodes that did not answer.
const SILENT_NODES: &str = "x-quorate-silent-nodes";

/// The API of one node.
#[derive(Clone, Debug)]
struct Service {
    api: Api,
    sessions: Sessions,
    bodies: Bodies,
    answers: Answers,
    turns: Arc<Turns>,
}

/// The pages under `/api`, to be merged with [`crate::health_pages`].
pub fn api(
    broker: Broker,
    facts: Arc<NodeFacts>,
    peers: Peers,
    (sessions, rates): (Sessions, Rates),
) -> Router {
    let cluster = Cluster::new(broker.clone(), peers.clone(), rates);
    let memory = Arc::clone(quorate_client::Broker::memory(&broker));
    let browser = Browser::new(broker.clone(), peers);
    let service = Service {
        api: Api { broker, facts, cluster, browser },
        sessions,
        bodies: Bodies::default(),
        answers: Answers::new(memory.bytes_max()),
        turns: Arc::new(Turns::new()),
    };
    let routes = Router::new().route("/api", any(answer)).route("/api/", any(answer));
    routes.route("/api/{*path}", any(answer)).with_state(service)
}

/// A task, so that a client that hangs up leaves nothing half done, no change without its line in the
/// audit log, and no work beyond what may be under way at once.
async fn answer(State(service): State<Service>, request: Request) -> Response {
    let ended = |_| Refusal::Unavailable("the request was not carried out".to_owned());
    let carried_out = tokio::spawn(carried_out(service, request)).await;
    carried_out.map_err(ended).unwrap_or_else(IntoResponse::into_response)
}

async fn carried_out(service: Service, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut user = ShortString::EMPTY;
    let answered = service.answered(&parts, body, &mut user).await;
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    let method = Method::parse(parts.method.as_str()).filter(|method| *method != Method::Get);
    if let (Some(method), Some(client)) = (method, parts.extensions.get::<HttpClient>()) {
        audit::log(method, parts.uri.path(), user.as_str(), client.peer, response.status());
    }
    response
}

/// A request whose path and method are known.
struct Target {
    route: &'static Route,
    names: Vec<(&'static str, String)>,
    method: Method,
    needs: Needs,
}

/// What a path leads to. `Err`: the answer to a question for its methods.
fn target(method: &str, path: &str) -> Result<Result<Target, String>, Refusal> {
    let segments = uri::segments(path).ok_or(Refusal::NoObject)?;
    let (route, names) = route::find(&segments).ok_or(Refusal::NoObject)?;
    if method == "OPTIONS" {
        return Ok(Err(route.allowed()));
    }
    let method = Method::parse(method).ok_or_else(|| Refusal::Method(route.allowed()))?;
    Ok(Ok(Target { route, names, method, needs: route.needs(method)? }))
}

impl Service {
    /// Answers a request. `user` is told who it is as soon as that is known.
    async fn answered(
        &self,
        parts: &Parts,
        body: Body,
        user: &mut ShortString,
    ) -> Result<Response, Refusal> {
        let target = match target(parts.method.as_str(), parts.uri.path())? {
            Ok(target) => target,
            Err(allowed) => return Ok(([(header::ALLOW, allowed)], "").into_response()),
        };
        let is_about_one = leased::is_about_one(target.route.endpoint, target.method);
        if is_about_one {
            leased::may_answer(&self.api.broker, target.method).await?;
        }
        let caller = self.permitted(&target, parts, user).await?;
        let query = Query::parse(parts.uri.query().unwrap_or_default())
            .map_err(|part| Refusal::BadRequest(not_decoded(part)))?;
        let listing = Listing::parse(&query)?;
        check_type(&target, parts)?;
        // The body keeps its part of the memory to the end of the request.
        let body = read_body(&self.bodies, &target, body).await?;
        let place: Weak<Place> = parts.extensions.get().cloned().unwrap_or_default();
        if target.needs != Needs::Nobody
            && let Some(place) = place.upgrade()
        {
            place.set_in_progress(true);
        }
        let call = Call {
            method: target.method,
            caller,
            query,
            body: body.bytes.clone(),
            reason: reason(parts),
            names: target.names,
        };
        let endpoint = target.route.endpoint;
        let queues = || self.api.broker.lookup().queue_count();
        let _turn = self.turns.of(endpoint, call.method, queues).await?;
        let answered = dispatch::dispatch(&self.api, &call, endpoint).await;
        if is_about_one && leased::rests_on_copy(call.method, &answered) {
            leased::is_agreed(&self.api.broker).await?;
        }
        let answer = answered?;
        let is_taken = matches!(answer.content, Content::Messages(_, true));
        let recipient = Recipient { place, is_taken };
        respond(answer, listing, &Room { answers: &self.answers, recipient }).await
    }

    /// The user of a request, who may make it. `user` is told who it is, also if it may not.
    async fn permitted(
        &self,
        target: &Target,
        parts: &Parts,
        user: &mut ShortString,
    ) -> Result<Caller, Refusal> {
        let Some(client) = parts.extensions.get::<HttpClient>().copied() else {
            return Err(Refusal::Unavailable("the client's address is not known".to_owned()));
        };
        if target.needs == Needs::Nobody {
            return Ok(Caller::nobody(client));
        }
        let caller = Caller::of(&self.api.broker, &self.sessions, parts, client).await?;
        user.clone_from(&caller.user);
        let named = |kind: &str| {
            let name = target.names.iter().find(|(name, _)| *name == kind)?;
            ShortString::try_from(name.1.as_str()).ok()
        };
        let mut standing = caller.standing();
        let lookup = self.api.broker.lookup();
        // The file of the object answers 404 without the virtual host.
        standing.in_vhost = named("vhost")
            .is_none_or(|vhost| !lookup.has_vhost(&vhost) || lookup.may_use(&caller.user, &vhost));
        standing.same_user = named("user").is_some_and(|user| user == caller.user);
        target.needs.check(standing)?;
        Ok(caller)
    }
}

/// 415: some bodies must be declared as JSON, as RabbitMQ asks.
fn check_type(target: &Target, parts: &Parts) -> Result<(), Refusal> {
    let is_strict = matches!(
        target.route.endpoint,
        Endpoint::Definitions
            | Endpoint::VhostDefinitions
            | Endpoint::VhostLimit
            | Endpoint::UserLimit
    );
    if !is_strict || !matches!(target.method, Method::Put | Method::Post) {
        return Ok(());
    }
    let given = parts.headers.get(header::CONTENT_TYPE).and_then(|given| given.to_str().ok());
    let media = given.and_then(|given| given.split(';').next()).unwrap_or_default();
    let is_json = media.trim().eq_ignore_ascii_case("application/json");
    if is_json { Ok(()) } else { Err(Refusal::MediaType) }
}

/// Why a connection is closed, in the words of who closes it.
fn reason(parts: &Parts) -> Option<String> {
    let reason = parts.headers.get("x-reason")?.to_str().ok()?;
    (!reason.is_empty() && reason.len() <= REASON_BYTES_MAX).then(|| reason.to_owned())
}

/// Makes and writes a list where it may take its time.
async fn written(
    make: impl FnOnce() -> Result<Value, Refusal> + Send + 'static,
) -> Result<String, Refusal> {
    let written = blocking(move || make().map(|list| list.to_string())).await;
    written.ok_or_else(|| Refusal::Unavailable("the list cannot be written".to_owned()))?
}

/// Where the bytes of an answer are counted.
struct Room<'a> {
    answers: &'a Answers,
    recipient: Recipient,
}

impl<'a> Room<'a> {
    /// Waits until a large answer may be written; not for ever if it must not be refused.
    async fn writer(&self) -> Result<Option<SemaphorePermit<'a>>, Refusal> {
        match self.answers.writer().await {
            Err(_) if self.recipient.is_taken => Ok(None),
            writer => writer.map(Some),
        }
    }

    /// A part for a written answer.
    async fn part(&self, bytes: usize) -> Result<Option<Part>, Refusal> {
        match self.answers.part(bytes, &self.recipient).await {
            Err(_) if self.recipient.is_taken => Ok(Some(self.answers.extra(&self.recipient))),
            part => part,
        }
    }
}

/// The answer as HTTP. Its bytes have a part of the memory for large ones until they are sent.
async fn respond(answer: Answer, listing: Listing, room: &Room<'_>) -> Result<Response, Refusal> {
    let Answer { status, content, location, silent } = answer;
    let is_large = match &content {
        Content::List(..) | Content::Rows(..) | Content::Messages(..) => true,
        Content::Nothing | Content::Object(_) | Content::Text(_) => false,
    };
    let _writer = if is_large { room.writer().await? } else { None };
    let mut response = match text(content, listing).await? {
        None => ().into_response(),
        Some(text) => {
            let uncached = [(header::CACHE_CONTROL, "no-cache")];
            let part = room.part(text.len()).await?;
            (JSON_HEADERS, uncached, holding(text, part)).into_response()
        }
    };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let location = location.and_then(|location| HeaderValue::from_str(&location).ok());
    response.headers_mut().extend(location.map(|location| (header::LOCATION, location)));
    if !silent.is_empty() {
        let nodes: Vec<String> = silent.iter().map(ToString::to_string).collect();
        let nodes = HeaderValue::from_str(&nodes.join(", ")).ok();
        let name = header::HeaderName::from_static(SILENT_NODES);
        response.headers_mut().extend(nodes.map(|nodes| (name, nodes)));
    }
    Ok(response)
}

/// The body of an answer.
async fn text(content: Content, listing: Listing) -> Result<Option<String>, Refusal> {
    Ok(match content {
        Content::Nothing => None,
        Content::Text(text) => Some(text),
        Content::Object(value) | Content::Messages(value, _) => {
            Some(listing.of_object(value).to_string())
        }
        Content::List(items, order) => {
            Some(written(move || listing.of_list(items(), order)).await?)
        }
        Content::Rows(rows, order) => Some(written(move || listing.of_rows(&rows, order)).await?),
    })
}
