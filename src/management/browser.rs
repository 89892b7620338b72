//! Messages, settings and dry runs, asked of any node: what this node's replica cannot answer is
//! asked of a node that has one.

use crate::message_json;
use crate::parts::blocking;
use crate::peers::{MessagesPeer, Peers};
use crate::wire;
use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use quorate_broker::browse::{
    BrowseQuery, LookError, PAGE_MESSAGES_MAX, Position, SHOWN_BYTES_MAX,
};
use quorate_broker::view::MemberView;
use quorate_broker::{Bounds, Broker, DryRun, Excess};
use quorate_catalog::{MemberState, QueueChange, refusal};
use quorate_types::{MessageFilter, ResourceName, ShortString};
use std::future::Future;
use std::time::Duration;
use tonic::{Code, Response, Status, Streaming};

/// Longest wait for another node.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Messages of a page, unless the request says how many.
const COUNT: usize = 50;
/// Bytes of each body, unless the request says how many.
const TRUNCATE: usize = 50_000;
/// Bytes of one answer of another node.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Queues that are weighed at the same time.
const WEIGHED_AT_ONCE: usize = 4;
/// How long a dry run goes on to weigh queues.
const WEIGH_MAX: Duration = Duration::from_secs(20);
/// Settings that decide what a queue keeps.
const KEEPING: [&str; 5] = ["message-ttl", "expires", "max-length", "max-length-bytes", "overflow"];

/// Answers about messages of queues, from any node.
#[derive(Clone, Debug)]
pub struct Browser {
    broker: Broker,
    peers: Peers,
}

/// The name of a queue in a request.
///
/// # Errors
/// INVALID_ARGUMENT: it is too long.
pub(crate) fn queue_name(vhost: &str, queue: &str) -> Result<ResourceName, Status> {
    let short = |what: &str, text: &str| {
        ShortString::try_from(text)
            .map_err(|error| Status::invalid_argument(format!("{what}: {error}")))
    };
    Ok(ResourceName { vhost: short("virtual host", vhost)?, name: short("queue", queue)? })
}

/// A position in a request.
///
/// # Errors
/// INVALID_ARGUMENT: it is none.
fn position(text: &str) -> Result<Position, Status> {
    text.parse::<Position>().map_err(|error| Status::invalid_argument(error.to_string()))
}

/// What a request asks of a page.
///
/// # Errors
/// INVALID_ARGUMENT that names what is wrong.
fn query(request: &wire::BrowseRequest) -> Result<BrowseQuery, Status> {
    let from = Some(request.from.as_str()).filter(|from| !from.is_empty());
    let count = request.count.map_or(COUNT, |count| usize::try_from(count).unwrap_or(usize::MAX));
    if !(1..=PAGE_MESSAGES_MAX).contains(&count) {
        let text = format!("count must be from 1 to {PAGE_MESSAGES_MAX}, not {count}");
        return Err(Status::invalid_argument(text));
    }
    let truncate = request.truncate.unwrap_or(TRUNCATE as u64);
    let shown_bytes = usize::try_from(truncate).unwrap_or(usize::MAX).min(SHOWN_BYTES_MAX);
    let mut filter = MessageFilter::default();
    for part in &request.filter {
        let added = filter.add_once(&part.name, &part.value);
        added.map_err(|error| Status::invalid_argument(error.to_string()))?;
    }
    Ok(BrowseQuery { from: from.map(position).transpose()?, count, filter, shown_bytes })
}

/// Why this node does not answer.
enum Unanswered {
    /// Another node may.
    Elsewhere(Status),
    /// No node would answer otherwise.
    Refused(Status),
}

fn unanswered(name: &ResourceName, error: &LookError) -> Unanswered {
    match error {
        LookError::NoReplica | LookError::NoQueue => {
            Unanswered::Elsewhere(Status::not_found(refusal::no_queue(name).explanation))
        }
        LookError::NoMessage(_) | LookError::RankTooHigh(_) => {
            Unanswered::Refused(Status::out_of_range(error.to_string()))
        }
        LookError::Busy => Unanswered::Refused(Status::unavailable(error.to_string())),
        LookError::Store(_) => Unanswered::Refused(Status::internal(error.to_string())),
    }
}

/// JSON as it is sent, made and written where it may take its time. `None`: that has failed.
async fn written(make: impl FnOnce() -> serde_json::Value + Send + 'static) -> Option<Bytes> {
    blocking(move || make().to_string().into()).await
}

/// What this node has found, as JSON.
async fn shown<T: Send + 'static>(
    own: Result<T, LookError>,
    json: fn(&T) -> serde_json::Value,
) -> Result<Bytes, LookError> {
    let own = own?;
    let failed = || LookError::Store("the answer was not written".to_owned());
    written(move || json(&own)).await.ok_or_else(failed)
}

/// EXQ-02: refuses a queue that belongs to a connection, if who asks may not see into it.
fn check_owner(name: &ResourceName, refuse: bool, is_exclusive: bool) -> Result<(), Status> {
    if refuse && is_exclusive {
        return Err(Status::failed_precondition(refusal::exclusive_queue(name).explanation));
    }
    Ok(())
}

/// Reads an answer that came in parts.
async fn joined(
    answer: Result<Response<Streaming<wire::JsonChunk>>, Status>,
) -> Result<Bytes, Status> {
    let (mut chunks, mut joined) = (answer?.into_inner(), BytesMut::new());
    while let Some(chunk) = chunks.message().await? {
        if joined.len() + chunk.json.len() > ANSWER_BYTES_MAX {
            return Err(Status::internal("the answer of another node is too long"));
        }
        joined.extend_from_slice(&chunk.json);
    }
    Ok(joined.freeze())
}

impl Browser {
    /// Answers of this node and its peers.
    #[must_use]
    pub fn new(broker: Broker, peers: Peers) -> Self {
        Self { broker, peers }
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// A page of messages.
    pub(crate) async fn browse(&self, request: wire::BrowseRequest) -> Result<Bytes, Status> {
        let name = queue_name(&request.vhost, &request.queue)?;
        let query = query(&request)?;
        let is_exclusive = self.broker.lookup().is_exclusive(&name);
        check_owner(&name, request.refuse_exclusive, is_exclusive)?;
        let own = shown(self.broker.browse(&name, query).await, message_json::page).await;
        let scope = request.scope;
        self.answered(&name, scope, own, |mut peer| {
            let request = wire::BrowseRequest {
                caller: wire::caller(),
                scope: wire::Scope::Local.into(),
                ..request.clone()
            };
            async move { joined(peer.browse(request).await).await }
        })
        .await
    }

    /// The explanation of one message.
    pub(crate) async fn explain(&self, request: wire::ExplainRequest) -> Result<Bytes, Status> {
        let name = queue_name(&request.vhost, &request.queue)?;
        let is_exclusive = self.broker.lookup().is_exclusive(&name);
        check_owner(&name, request.refuse_exclusive, is_exclusive)?;
        let own = self.broker.explain(&name, position(&request.position)?).await;
        let own = shown(own, message_json::explanation).await;
        let scope = request.scope;
        self.answered(&name, scope, own, |mut peer| {
            let request = wire::ExplainRequest {
                caller: wire::caller(),
                scope: wire::Scope::Local.into(),
                ..request.clone()
            };
            async move { joined(peer.explain(request).await).await }
        })
        .await
    }

    /// The effective settings of a queue, which every node knows, but those of queues bound to
    /// connections of other nodes.
    pub(crate) async fn settings(&self, request: wire::SettingsRequest) -> Result<Bytes, Status> {
        let name = queue_name(&request.vhost, &request.queue)?;
        let own = self.broker.queue_settings(&name).ok_or(LookError::NoQueue);
        let own = shown(own, |settings| message_json::settings(settings)).await;
        let scope = request.scope;
        self.answered(&name, scope, own, |mut peer| {
            let request = wire::SettingsRequest {
                caller: wire::caller(),
                scope: wire::Scope::Local.into(),
                ..request.clone()
            };
            async move { joined(peer.get_settings(request).await).await }
        })
        .await
    }

    /// What a queue would lose at once.
    pub(crate) async fn excess(
        &self,
        request: wire::ExcessRequest,
    ) -> Result<wire::Excess, Status> {
        let name = queue_name(&request.vhost, &request.queue)?;
        let bounds = Bounds {
            message_ttl_ms: request.message_ttl_ms,
            expires_ms: request.expires_ms,
            length_max: request.length_max,
            length_bytes_max: request.length_bytes_max,
        };
        let own = self.broker.excess(&name, bounds).await;
        let own = own.map(|Excess { messages, more, ends }| wire::Excess { messages, more, ends });
        let scope = request.scope;
        self.answered(&name, scope, own, |mut peer| {
            let request = wire::ExcessRequest {
                caller: wire::caller(),
                scope: wire::Scope::Local.into(),
                ..request.clone()
            };
            async move { peer.get_excess(request).await.map(Response::into_inner) }
        })
        .await
    }

    /// This node's answer, or that of another one.
    async fn answered<T, F>(
        &self,
        name: &ResourceName,
        scope: i32,
        own: Result<T, LookError>,
        question: impl Fn(MessagesPeer) -> F,
    ) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut last = match own.map_err(|error| unanswered(name, &error)) {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Refused(status)) => return Err(status),
            Err(Unanswered::Elsewhere(status)) => status,
        };
        if scope == i32::from(wire::Scope::Local) {
            return Err(last);
        }
        for member in self.others(name) {
            let Some(peer) = self.peers.messages(&member) else { continue };
            let answer = tokio::time::timeout(ANSWER_MAX, question(peer)).await;
            let answer = answer.unwrap_or_else(|_| {
                let text = format!("node {} did not answer in time", member.id);
                Err(Status::unavailable(text))
            });
            match answer {
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) if is_unreachable(&status) => last = status,
                Ok(_) | Err(_) => return answer,
            }
        }
        Err(last)
    }

    /// The nodes that may have a replica of a queue, its leader first; all others if this node does
    /// not know the queue, which then is bound to a connection of one of them.
    fn others(&self, name: &ResourceName) -> Vec<MemberView> {
        let view = self.broker.lookup().queue(name);
        let members = self.broker.views().cluster().members.into_iter();
        let mut others: Vec<_> = members
            .filter(|member| member.running && member.state != MemberState::Leaving)
            .filter(|member| view.as_ref().is_none_or(|it| it.members.contains(&member.id)))
            .collect();
        let leader = view.and_then(|view| view.leader);
        others.sort_by_key(|member| Some(member.id) != leader);
        others
    }

    /// A dry run with what each of its queues would lose.
    ///
    /// # Errors
    /// INTERNAL: it was not written.
    pub(crate) async fn weighed(&self, run: DryRun) -> Result<Bytes, Status> {
        let mut excess = Vec::with_capacity(run.queues.len());
        let until = tokio::time::Instant::now() + WEIGH_MAX;
        for changes in run.queues.chunks(WEIGHED_AT_ONCE) {
            let weighed: Vec<_> = changes.iter().map(|change| self.weigh(change)).collect();
            match tokio::time::timeout_at(until, join_all(weighed)).await {
                Ok(lost) => excess.extend(lost),
                Err(_) => break,
            }
        }
        let json = written(move || message_json::dry_run(&run, &excess)).await;
        json.ok_or_else(|| Status::internal("the dry run was not written"))
    }

    /// What a queue would lose at once; `None`: no replica has answered.
    async fn weigh(&self, change: &QueueChange) -> Option<Excess> {
        if !change.changes.iter().any(|it| KEEPING.contains(&it.setting)) {
            return Some(Excess::default());
        }
        let bounds = Bounds::of(&change.after);
        let request = wire::ExcessRequest {
            caller: wire::caller(),
            scope: wire::Scope::Cluster.into(),
            vhost: change.entry.name.vhost.to_string(),
            queue: change.entry.name.name.to_string(),
            message_ttl_ms: bounds.message_ttl_ms,
            expires_ms: bounds.expires_ms,
            length_max: bounds.length_max,
            length_bytes_max: bounds.length_bytes_max,
        };
        let wire::Excess { messages, more, ends } = self.excess(request).await.ok()?;
        Some(Excess { messages, more, ends })
    }
}

/// Another node may answer instead of one that gives such an answer; a node of an earlier release
/// does not know the question.
fn is_unreachable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Unimplemented | Code::Unknown
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn request(count: Option<u32>, from: &str, filter: &[(&str, &str)]) -> wire::BrowseRequest {
        let part = |(name, value): &(&str, &str)| wire::FilterPart {
            name: (*name).into(),
            value: (*value).into(),
        };
        wire::BrowseRequest {
            count,
            from: from.to_owned(),
            filter: filter.iter().map(part).collect(),
            ..wire::BrowseRequest::default()
        }
    }

    #[test]
    fn a_page_has_bounds_unless_it_says_smaller_ones() {
        let least = query(&request(None, "", &[])).unwrap();
        assert_eq!((least.from, least.count, least.shown_bytes), (None, COUNT, TRUNCATE));
        assert!(least.filter.is_empty());
        let given = wire::BrowseRequest { truncate: Some(u64::MAX), ..request(Some(7), "3", &[]) };
        let given = query(&given).unwrap();
        assert_eq!((given.from, given.count), (Some(Position::Rank(3)), 7));
        assert_eq!(given.shown_bytes, SHOWN_BYTES_MAX);
    }

    #[test]
    fn exq_02_a_queue_of_a_connection_is_refused_to_who_may_not_see_into_it() {
        let name = queue_name("/", "q").unwrap();
        for (refuse, is_exclusive) in [(false, false), (false, true), (true, false)] {
            assert!(check_owner(&name, refuse, is_exclusive).is_ok());
        }
        let refused = check_owner(&name, true, true).unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("exclusive access"), "{}", refused.message());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, text) in [
            (request(Some(0), "", &[]), "count must be from 1 to 1000, not 0"),
            (request(Some(1_001), "", &[]), "count must be from 1 to 1000, not 1001"),
            (request(None, "", &[("reason", "x")]), "filter reason: expected"),
            (request(None, "", &[("min_age", "x")]), "filter min_age: expected"),
            (
                request(None, "", &[("routing_key", "a"), ("routing_key", "b")]),
                "filter routing_key: is given more than once",
            ),
            (request(None, "x", &[]), "'x' is not a position"),
        ] {
            let refused = query(&wrong).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().starts_with(text), "{}", refused.message());
        }
        let long = "q".repeat(300);
        assert_eq!(queue_name("/", &long).unwrap_err().code(), Code::InvalidArgument);
    }
}
