//! The beginning and the end of a session.
//!
//! A login takes a form with `user` and `password`, and is the login of `/api`: a failed one is
//! answered with a delay, and the user needs a tag of management. A form of another site is refused,
//! which could otherwise log a browser in as somebody else.

use super::session::{Known, Secrets, Sessions, repeats};
use crate::api::{Caller, Method, Query, Refusal, audit};
use crate::facts::NodeFacts;
use crate::http::HttpClient;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use quorate_broker::Broker;
use quorate_catalog::UserRecord;
use quorate_types::ShortString;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Bytes of a form: more than the longest user and password, encoded.
const FORM_BYTES_MAX: usize = 8_192;
/// Longest wait for it.
const FORM_TIME_MAX: Duration = Duration::from_secs(10);

/// What logins are carried out with.
#[derive(Clone, Debug)]
pub(super) struct Logins {
    pub(super) broker: Broker,
    pub(super) facts: Arc<NodeFacts>,
    pub(super) sessions: Sessions,
}

/// True if the request comes from a page of this host, or from no page.
pub(crate) fn is_of_this_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text("origin") else { return true };
    let host = origin.split_once("://").map(|(_, host)| host);
    host.is_some() && host == text("host")
}

/// True if the browser has come over TLS, to this node or to a proxy before it. Only the client itself
/// could be deceived about that.
fn is_secured(headers: &HeaderMap, client: HttpClient) -> bool {
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    client.secured || forwarded.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"))
}

fn client(parts: &Parts) -> Result<HttpClient, Refusal> {
    let unknown = || Refusal::Unavailable("the client's address is not known".to_owned());
    parts.extensions.get::<HttpClient>().copied().ok_or_else(unknown)
}

/// User and password of a form.
async fn form(parts: &Parts, body: Body) -> Result<(ShortString, Vec<u8>), Refusal> {
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    let media = media.and_then(|media| media.split(';').next()).unwrap_or_default();
    if !media.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(Refusal::MediaType);
    }
    let wrong = |why: &str| Refusal::BadRequest(format!("the login form {why}"));
    let read = timeout(FORM_TIME_MAX, to_bytes(body, FORM_BYTES_MAX)).await;
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => return Err(wrong("is too long, or was cut off")),
        Err(_) => return Err(wrong("did not come in time")),
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("is not UTF-8"))?;
    let fields = Query::parse(text).map_err(|_| wrong("is not percent-encoded UTF-8"))?;
    let user = fields.get("user").ok_or_else(|| wrong("has no field user"))?;
    let password = fields.get("password").ok_or_else(|| wrong("has no field password"))?;
    let user = ShortString::try_from(user).map_err(|_| Refusal::NoSession("Login failed"))?;
    Ok((user, password.as_bytes().to_vec()))
}

impl Logins {
    async fn log_in(
        &self,
        parts: &Parts,
        body: Body,
        user: &mut ShortString,
    ) -> Result<Response, Refusal> {
        let client = client(parts)?;
        if !is_of_this_site(&parts.headers) {
            return Err(Refusal::Forged("a login must come from the page of this host"));
        }
        let (name, password) = form(parts, body).await?;
        let caller = Caller::with_password(&self.broker, name, &password, client).await;
        let caller = caller.ok_or(Refusal::NoSession("Login failed"))?;
        user.clone_from(&caller.user);
        if !caller.standing().management {
            return Err(Refusal::NoSession("Not management user"));
        }
        let record = self.broker.lookup().user(&caller.user);
        let record = record.ok_or(Refusal::NoSession("Login failed"))?;
        // A browser that logs in again needs its former session no more.
        self.sessions.end(&parts.headers);
        let Secrets { cookie, token } =
            self.sessions.begin(record.clone(), client.is_loopback(), Instant::now());
        let cookie = self.sessions.set_cookie(Some(&cookie), is_secured(&parts.headers, client));
        Ok(self.told(&record, &token, Some(&cookie)))
    }

    /// The session of a request.
    fn known(&self, parts: &Parts) -> Result<Known, Refusal> {
        let (client, lookup) = (client(parts)?, self.broker.lookup());
        let find = |user: &ShortString| lookup.user(user);
        let known = self.sessions.find(&parts.headers, client.is_loopback(), Instant::now(), find);
        known.ok_or(Refusal::NoSession("no session, or it has ended"))
    }

    fn log_out(&self, parts: &Parts, user: &mut ShortString) -> Result<Response, Refusal> {
        let Known { record, token } = self.known(parts)?;
        *user = record.name;
        if !repeats(&parts.headers, &token) {
            return Err(Refusal::Forged("a logout must repeat the token of its session"));
        }
        self.sessions.end(&parts.headers);
        let dropped = self.sessions.set_cookie(None, is_secured(&parts.headers, client(parts)?));
        Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, dropped)]).into_response())
    }

    /// What the page must know of its session.
    fn told(&self, record: &UserRecord, token: &str, cookie: Option<&str>) -> Response {
        let tags: Vec<_> = record.tags.iter().map(ShortString::as_str).collect();
        let body = json!({
            "user": record.name.as_str(),
            "tags": tags,
            "csrf": token,
            "node": self.facts.name,
            "version": self.facts.version,
        });
        let headers =
            [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
        let mut response = (headers, body.to_string()).into_response();
        let cookie = cookie.and_then(|cookie| HeaderValue::from_str(cookie).ok());
        response.headers_mut().extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
        response
    }
}

fn noted(parts: &Parts, user: &ShortString, answered: Result<Response, Refusal>) -> Response {
    let response = answered.unwrap_or_else(IntoResponse::into_response);
    if let Ok(client) = client(parts) {
        let (path, status) = (parts.uri.path(), response.status());
        audit::log(Method::Post, path, user.as_str(), client.peer, status);
    }
    response
}

/// `POST /login`. A task, so that a client that hangs up is not spared the delay of a failed login.
pub(super) async fn log_in(State(logins): State<Logins>, request: Request) -> Response {
    let carried_out = tokio::spawn(async move {
        let (parts, body) = request.into_parts();
        let mut user = ShortString::EMPTY;
        let answered = logins.log_in(&parts, body, &mut user).await;
        noted(&parts, &user, answered)
    });
    let ended = |_| Refusal::Unavailable("the login was not carried out".to_owned());
    carried_out.await.map_err(ended).unwrap_or_else(IntoResponse::into_response)
}

/// `POST /logout`.
pub(super) async fn log_out(State(logins): State<Logins>, request: Request) -> Response {
    let parts = request.into_parts().0;
    let mut user = ShortString::EMPTY;
    let answered = logins.log_out(&parts, &mut user);
    noted(&parts, &user, answered)
}

/// `GET /session`.
pub(super) async fn session(State(logins): State<Logins>, request: Request) -> Response {
    let parts = request.into_parts().0;
    match logins.known(&parts) {
        Ok(Known { record, token }) => logins.told(&record, &token, None),
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use axum::http::HeaderName;

    fn headers(given: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        };
        given.iter().map(pair).collect()
    }

    #[test]
    fn a_form_of_another_site_is_told_apart() {
        for (given, own) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://h:1"), ("host", "h:1")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("origin", "http://h:15672"), ("host", "h:15672")], true),
            (&[("origin", "http://h:15673"), ("host", "h:15672")], false),
            (&[("origin", "null"), ("host", "h:15672")], false),
        ] {
            assert_eq!(is_of_this_site(&headers(given)), own, "{given:?}");
        }
    }

    #[test]
    fn a_cookie_is_for_tls_only_where_the_browser_uses_it() {
        let plain = HttpClient::of_test();
        assert!(!is_secured(&HeaderMap::new(), plain));
        assert!(is_secured(&HeaderMap::new(), HttpClient { secured: true, ..plain }));
        assert!(is_secured(&headers(&[("x-forwarded-proto", "https")]), plain));
        assert!(!is_secured(&headers(&[("x-forwarded-proto", "http")]), plain));
    }

    #[tokio::test]
    async fn a_form_has_a_user_and_a_password() {
        let read = async |media: &str, body: String| {
            let request = Request::builder().header(header::CONTENT_TYPE, media);
            let parts = request.body(()).unwrap().into_parts().0;
            form(&parts, Body::from(body)).await
        };
        let url = "application/x-www-form-urlencoded;charset=UTF-8";
        let (user, password) = read(url, "user=a%26b&password=p+%C3%BC".to_owned()).await.unwrap();
        assert_eq!((user.as_str(), password.as_slice()), ("a&b", "p ü".as_bytes()));
        assert_eq!(
            read("text/plain", "user=a&password=b".to_owned()).await,
            Err(Refusal::MediaType)
        );
        for wrong in ["user=a", "password=b", ""] {
            let refused = read(url, wrong.to_owned()).await;
            assert!(matches!(refused, Err(Refusal::BadRequest(_))), "{wrong}");
        }
        let long = read(url, format!("user=a&password={}", "x".repeat(FORM_BYTES_MAX))).await;
        assert!(matches!(long, Err(Refusal::BadRequest(_))));
        let long = read(url, format!("user={}&password=x", "u".repeat(300))).await;
        assert_eq!(long, Err(Refusal::NoSession("Login failed")));
    }
}
