//! Who sends a request: HTTP basic authentication against the users of the catalog, by the same
//! login as AMQP: a failed one is answered with a delay (CONN-13), and some users come from loopback
//! addresses only (ACL-24). Or the session of the web page, whose user has logged in so before.

use crate::api::refusal::Refusal;
use crate::api::route::Standing;
use crate::http::HttpClient;
use crate::page::{Sessions, is_of_this_site, repeats};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use quorate_broker::{Broker, view::LoginProtocol};
use quorate_types::ShortString;
use std::time::Instant;

/// Bytes of the header with user and password: more than the longest of both in base64.
const CREDENTIALS_BYTES_MAX: usize = 4_096;

/// The user of a request, or nobody where none is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Name of the user; empty for nobody.
    pub(crate) user: ShortString,
    tags: Vec<ShortString>,
    /// The two ends of its connection.
    pub(crate) client: HttpClient,
}

/// User and password of a request, if it has some.
fn credentials(headers: &HeaderMap) -> Option<(ShortString, Vec<u8>)> {
    let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    if header.len() > CREDENTIALS_BYTES_MAX {
        return None;
    }
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let at = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = decoded.split_at_checked(at)?;
    let user = ShortString::try_from(std::str::from_utf8(user).ok()?).ok()?;
    Some((user, password.get(1..)?.to_vec()))
}

fn is_read(parts: &Parts) -> bool {
    matches!(parts.method, Method::GET | Method::HEAD)
}

impl Caller {
    /// Nobody, for what needs no user.
    pub(crate) fn nobody(client: HttpClient) -> Self {
        Self { user: ShortString::EMPTY, tags: Vec::new(), client }
    }

    /// The user of a request.
    ///
    /// # Errors
    /// 401 without a user and its password, or a session; 403 for a change by a session that does not
    /// repeat its token, or from a page of another site.
    pub(crate) async fn of(
        broker: &Broker,
        sessions: &Sessions,
        parts: &Parts,
        client: HttpClient,
    ) -> Result<Self, Refusal> {
        let headers = &parts.headers;
        if !headers.contains_key(header::AUTHORIZATION) && sessions.is_of_page(headers) {
            return Self::of_session(broker, sessions, parts, client);
        }
        // A browser repeats a password that it was given once, also for forms of other sites.
        if !is_read(parts) && !is_of_this_site(headers) {
            return Err(Refusal::Forged("a change must not come from a page of another site"));
        }
        let Some((user, password)) = credentials(headers) else {
            return Err(Refusal::NotLoggedIn);
        };
        let caller = Self::with_password(broker, user, &password, client).await;
        caller.ok_or(Refusal::NotLoggedIn)
    }

    /// The user, if the password is its own. A failure takes a while.
    pub(crate) async fn with_password(
        broker: &Broker,
        user: ShortString,
        password: &[u8],
        client: HttpClient,
    ) -> Option<Self> {
        if !broker.log_in(LoginProtocol::Http, &user, Some(password), client.peer.ip()).await {
            return None;
        }
        // It may have been deleted since.
        let record = broker.lookup().user(&user)?;
        Some(Self { user, tags: record.tags, client })
    }

    fn of_session(
        broker: &Broker,
        sessions: &Sessions,
        parts: &Parts,
        client: HttpClient,
    ) -> Result<Self, Refusal> {
        let (headers, lookup) = (&parts.headers, broker.lookup());
        let find = |user: &ShortString| lookup.user(user);
        let known = sessions.find(headers, client.is_loopback(), Instant::now(), find);
        let known = known.ok_or(Refusal::NoSession("no session, or it has ended"))?;
        if !is_read(parts) && !repeats(headers, &known.token) {
            return Err(Refusal::Forged("a change must repeat the token of its session"));
        }
        let record = known.record;
        Ok(Self { user: record.name, tags: record.tags, client })
    }

    /// A user with a tag.
    #[cfg(test)]
    pub(crate) fn of_test(user: &'static str, tag: &'static str) -> Self {
        let (user, tags) = (ShortString::from_static(user), vec![ShortString::from_static(tag)]);
        Self { user, tags, client: HttpClient::of_test() }
    }

    fn has_one_of(&self, tags: &[&str]) -> bool {
        self.tags.iter().any(|tag| tags.contains(&tag.as_str()))
    }

    /// Its tags.
    pub(crate) fn tags(&self) -> Vec<&str> {
        self.tags.iter().map(ShortString::as_str).collect()
    }

    /// It has the tag administrator.
    pub(crate) fn is_administrator(&self) -> bool {
        self.has_one_of(&["administrator"])
    }

    /// It sees what belongs to other users.
    pub(crate) fn is_monitor(&self) -> bool {
        self.has_one_of(&["administrator", "monitoring"])
    }

    /// What it may do, without regard to a path.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            administrator: self.is_administrator(),
            monitoring: self.is_monitor(),
            policymaker: self.has_one_of(&["administrator", "policymaker"]),
            management: self.has_one_of(&[
                "administrator",
                "monitoring",
                "policymaker",
                "management",
            ]),
            in_vhost: true,
            same_user: false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn of(header: &str) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, header.parse().unwrap());
        credentials(&headers).map(|(user, password)| (user.to_string(), password))
    }

    #[test]
    fn credentials_are_those_of_basic_authentication() {
        let given = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(of(&given("guest:a:b")), Some(("guest".to_owned(), b"a:b".to_vec())));
        assert_eq!(of(&given("ü:")), Some(("ü".to_owned(), Vec::new())));
        assert_eq!(of(&given("guest:x").replace("Basic", "bASIC")).unwrap().0, "guest");
        let (colon, long) = (given("no colon"), given(&format!("{}:x", "u".repeat(256))));
        for wrong in ["Basic", "Basic ???", "Bearer abc", &colon, &long] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(of(&given(&format!("u:{}", "x".repeat(5_000)))), None);
        assert_eq!(credentials(&HeaderMap::new()), None);
    }

    #[test]
    fn tags_give_standing() {
        let standing = |tag: &'static str| {
            let Standing { administrator, monitoring, policymaker, management, .. } =
                Caller::of_test("u", tag).standing();
            [administrator, monitoring, policymaker, management]
        };
        assert_eq!(standing("administrator"), [true, true, true, true]);
        assert_eq!(standing("monitoring"), [false, true, false, true]);
        assert_eq!(standing("policymaker"), [false, false, true, true]);
        assert_eq!(standing("management"), [false, false, false, true]);
        assert_eq!(standing("impersonator"), [false, false, false, false]);
    }
}
