//! Messages of a queue, browsed and explained: `quorate/queues/{vhost}/{queue}/messages` and below.
//! The user needs what a consumer of the queue needs, and only an administrator sees into queues that
//! belong to a connection; nothing is consumed.

use crate::api::call::{Answer, Api, Call};
use crate::api::caller::Caller;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::uri::Query;
use crate::wire;
use bytes::Bytes;
use quorate_types::{MessageFilter, ResourceName};
use std::str::FromStr;
use tonic::{Code, Status};

/// The parameters of a page of messages besides the parts of a filter.
const PARAMETERS: [&str; 3] = ["from", "count", "truncate"];

/// The queue of the path, which the user may read.
///
/// # Errors
/// 404 without the virtual host; 401 without the permission.
pub(crate) fn readable(api: &Api, call: &Call) -> Result<ResourceName, Refusal> {
    let name = call.resource(api, "queue")?;
    api.broker.lookup().check_read(&call.caller.user, &name)?;
    Ok(name)
}

/// The refusal of what was asked of a node.
pub(crate) fn refused(status: &Status) -> Refusal {
    let text = status.message().to_owned();
    match status.code() {
        Code::NotFound | Code::OutOfRange => Refusal::NotFound(text),
        Code::InvalidArgument | Code::FailedPrecondition => Refusal::BadRequest(text),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => Refusal::Unavailable(text),
    }
}

/// JSON of a node.
///
/// # Errors
/// The refusal of the node.
pub(crate) fn answer(json: Result<Bytes, Status>) -> Result<Answer, Refusal> {
    let json = json.map_err(|status| refused(&status))?;
    let unreadable = |_| Refusal::Unavailable("the answer of a node is no text".to_owned());
    Ok(Answer::text(String::from_utf8(json.into()).map_err(unreadable)?))
}

/// A number of a query; `None` if it is not there.
fn number<T: FromStr>(query: &Query, name: &str) -> Result<Option<T>, Refusal> {
    let Some(text) = query.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => bad_request(format!("{name} must be a number from 0, not '{text:.20}'")),
    }
}

/// What a query of a caller asks of a page.
fn request(
    name: &ResourceName,
    query: &Query,
    caller: &Caller,
) -> Result<wire::BrowseRequest, Refusal> {
    let is_known = |name: &str| PARAMETERS.contains(&name) || MessageFilter::PARTS.contains(&name);
    if let Some((name, _)) = query.iter().find(|(name, _)| !is_known(name)) {
        return bad_request(format!("{name:.40}: there is no such parameter"));
    }
    let parts = MessageFilter::PARTS.into_iter().flat_map(|part| {
        let values = query.all(part);
        values.map(move |value| wire::FilterPart { name: part.to_owned(), value: value.to_owned() })
    });
    Ok(wire::BrowseRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: name.vhost.to_string(),
        queue: name.name.to_string(),
        from: query.get("from").unwrap_or_default().to_owned(),
        count: number(query, "count")?,
        filter: parts.collect(),
        truncate: number(query, "truncate")?,
        refuse_exclusive: !caller.is_administrator(),
    })
}

/// A page of messages.
pub(crate) async fn page(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = readable(api, call)?;
    answer(api.browser.browse(request(&name, &call.query, &call.caller)?).await)
}

/// One message, explained.
pub(crate) async fn explain(api: &Api, call: &Call) -> Result<Answer, Refusal> {
    let name = readable(api, call)?;
    let request = wire::ExplainRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: name.vhost.to_string(),
        queue: name.name.to_string(),
        position: call.name("position").unwrap_or_default().to_owned(),
        refuse_exclusive: !call.caller.is_administrator(),
    };
    answer(api.browser.explain(request).await)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::tests::caller;
    use quorate_types::ShortString;

    fn name() -> ResourceName {
        ResourceName { vhost: ShortString::from_static("/"), name: ShortString::from_static("q") }
    }

    #[test]
    fn a_query_names_the_parts_of_a_filter() {
        let query = Query::parse(
            "from=4.1.0&count=5&header=a%3Db&header=c=d&routing_key=x.%23&reason=expired\
             &death_queue=w&min_age=5s&truncate=9",
        )
        .unwrap();
        let request = request(&name(), &query, &caller("management")).unwrap();
        assert!(request.refuse_exclusive);
        let of_administrator = super::request(&name(), &query, &caller("administrator")).unwrap();
        assert!(!of_administrator.refuse_exclusive);
        assert_eq!(
            (request.from.as_str(), request.count, request.truncate),
            ("4.1.0", Some(5), Some(9))
        );
        let parts: Vec<_> =
            request.filter.iter().map(|it| (it.name.as_str(), it.value.as_str())).collect();
        let expected = [
            ("header", "a=b"),
            ("header", "c=d"),
            ("routing_key", "x.#"),
            ("reason", "expired"),
            ("death_queue", "w"),
            ("min_age", "5s"),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn wrong_numbers_are_refused_by_name() {
        for (query, text) in [
            ("count=x", "count must be a number from 0, not 'x'"),
            ("reson=expired", "reson: there is no such parameter"),
            ("truncate=-1", "truncate must be a number from 0, not '-1'"),
        ] {
            let refused =
                request(&name(), &Query::parse(query).unwrap(), &caller("management")).unwrap_err();
            assert_eq!(refused, Refusal::BadRequest(text.to_owned()));
        }
    }

    #[test]
    fn a_missing_message_is_not_found() {
        let refusal = refused(&Status::out_of_range("no message at position 4.1.0"));
        assert_eq!(refusal, Refusal::NotFound("no message at position 4.1.0".to_owned()));
        let refusal = refused(&Status::deadline_exceeded("late"));
        assert_eq!(refusal, Refusal::Unavailable("late".to_owned()));
    }
}
