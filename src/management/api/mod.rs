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
mod list;
mod names;
mod order;
mod output;
mod refusal;
mod route;
mod spans;
mod statistics;
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
use crate::api::route::{Check, Endpoint, Needs, Route};
pub(crate) use crate::api::uri::{Query, not_decoded};
use crate::browser::Browser;
use crate::facts::NodeFacts;
use crate::http::HttpClient;
use crate::page::Sessions;
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
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Requests that are carried out at the same time. Further ones wait.
const REQUESTS_MAX: usize = 32;
/// Changes at the same time; lists, which may wait for memory, do not keep them waiting.
const CHANGES_MAX: usize = 32;
/// Tasks that are made at the same time. Dry runs are answered when they have ended, and must not keep
/// other requests waiting.
const TASKS_MAX: usize = 8;
/// Browses, explanations, dry runs and exports of definitions at the same time. Each may take seconds.
const LOOKS_MAX: usize = 4;
/// Gets at the same time, each of which may have many bytes.
const GETS_MAX: usize = 2;
/// Publishes at the same time, which wait for other nodes.
const PUBLISHES_MAX: usize = 16;
/// Longest wait for one of them.
const TURN_MAX: Duration = Duration::from_secs(5);
/// Why a request is refused for which there was no turn in that time.
const BUSY: &str = "too many requests are being carried out";
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

/// What bounds the requests that are carried out at the same time, by what they do: one kind does not keep
/// the others waiting.
#[derive(Debug)]
struct Turns {
    requests: Semaphore,
    changes: Semaphore,
    looks: Semaphore,
    gets: Semaphore,
    publishes: Semaphore,
    tasks: Semaphore,
}

impl Turns {
    fn new() -> Self {
        Self {
            requests: Semaphore::new(REQUESTS_MAX),
            changes: Semaphore::new(CHANGES_MAX),
            looks: Semaphore::new(LOOKS_MAX),
            gets: Semaphore::new(GETS_MAX),
            publishes: Semaphore::new(PUBLISHES_MAX),
            tasks: Semaphore::new(TASKS_MAX),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are quick")]
    fn of(&self, endpoint: Endpoint, method: Method) -> &Semaphore {
        match endpoint {
            Endpoint::Tasks if method == Method::Post => &self.tasks,
            Endpoint::BrowseQueue
            | Endpoint::ExplainMessage
            | Endpoint::DryRunPolicy
            | Endpoint::DryRunOperatorPolicy
            | Endpoint::DryRunDefinitions
            | Endpoint::DryRunVhostDefinitions => &self.looks,
            Endpoint::Definitions | Endpoint::VhostDefinitions if method == Method::Get => {
                &self.looks
            }
            Endpoint::QueueGet => &self.gets,
            Endpoint::Publish => &self.publishes,
            _ if method == Method::Get => &self.requests,
            _ => &self.changes,
        }
    }
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

/// A check must not wait for lists that others ask for, unless it makes one itself.
fn is_quick_check(endpoint: Endpoint) -> bool {
    let lists = |check| matches!(check, Check::QuorumCritical | Check::LeaderlessQueues);
    matches!(endpoint, Endpoint::Health(check) if !lists(check))
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
        let _turn = match is_quick_check(endpoint) {
            true => None,
            false => Some(turn(self.turns.of(endpoint, call.method), BUSY).await?),
        };
        let answer = dispatch::dispatch(&self.api, &call, endpoint).await?;
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

/// One of the turns that there are at once.
///
/// # Errors
/// 503 with the reason `busy`: none was free in time.
async fn turn<'a>(turns: &'a Semaphore, busy: &str) -> Result<SemaphorePermit<'a>, Refusal> {
    match timeout(TURN_MAX, turns.acquire()).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(Refusal::Unavailable(busy.to_owned())),
    }
}

/// Makes and writes a list where it may take its time.
async fn written(
    make: impl FnOnce() -> Result<Value, Refusal> + Send + 'static,
) -> Result<String, Refusal> {
    let written = tokio::task::spawn_blocking(move || make().map(|list| list.to_string()));
    let unavailable = |_| Refusal::Unavailable("the list cannot be written".to_owned());
    written.await.map_err(unavailable)?
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
