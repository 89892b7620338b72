//! Who has logged in to the page: a session is known by a random cookie, and its changes by a random
//! token that the page repeats in a header.
//!
//! Sessions are in the memory of the node that took the login; only hashes of their cookies are. A
//! session ends with a logout, after a time without requests, after a day at the latest, and when the
//! password or the tags of its user change.

use axum::http::{HeaderMap, header};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use quorate_catalog::{PasswordHash, UserRecord};
use quorate_types::{NodeId, ShortString};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sessions of a node. A further one ends the one that was used longest ago.
const SESSIONS_MAX: usize = 1_024;
/// Sessions of one user, likewise.
const OF_USER_MAX: usize = 32;
/// A session ends after this time without requests.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);
/// A session ends after this time, whatever is requested.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Random bytes of a cookie and of a token.
const RANDOM_BYTES: usize = 32;
/// The header in which the page repeats the token of its session.
pub(crate) const TOKEN_HEADER: &str = "x-quorate-csrf";

/// The hash of a secret: what is looked up and compared is not the secret, so that the time that this
/// takes tells nothing about it.
type Hash = [u8; 32];

fn hash(secret: &str) -> Hash {
    Sha256::digest(secret.as_bytes()).into()
}

fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; RANDOM_BYTES]>())
}

#[derive(Debug)]
struct Session {
    user: ShortString,
    password: PasswordHash,
    tags: Vec<ShortString>,
    token: String,
    /// It was begun, and is used, from this machine: some users may come from there only (ACL-24).
    loopback: bool,
    began: Instant,
    used: Instant,
}

impl Session {
    fn has_ended(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) > IDLE_MAX
            || now.saturating_duration_since(self.began) > AGE_MAX
    }

    fn is_of(&self, record: &UserRecord) -> bool {
        self.password == record.password && self.tags == record.tags
    }
}

/// The sessions of one node.
#[derive(Clone, Debug)]
pub struct Sessions {
    cookie: Arc<str>,
    open: Arc<Mutex<BTreeMap<Hash, Session>>>,
}

/// The secrets of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secrets {
    /// The value of its cookie.
    pub(crate) cookie: String,
    /// What its changes repeat.
    pub(crate) token: String,
}

/// A session that is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    /// Its user, as the catalog has it.
    pub(crate) record: UserRecord,
    /// What its changes repeat.
    pub(crate) token: String,
}

impl Sessions {
    /// No sessions yet. Browsers send the cookies of a host to all its ports: each node of a machine
    /// needs a name of its own.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self { cookie: format!("quorate_session_{}", node.0).into(), open: Arc::default() }
    }

    /// Begins a session of a user that has logged in.
    pub(crate) fn begin(&self, record: UserRecord, loopback: bool, now: Instant) -> Secrets {
        let secrets = Secrets { cookie: random(), token: random() };
        let mut open = self.open.lock();
        open.retain(|_, session| !session.has_ended(now));
        let of_user = open.values().filter(|session| session.user == record.name).count();
        if of_user >= OF_USER_MAX {
            end_oldest(&mut open, |session| session.user == record.name);
        } else if open.len() >= SESSIONS_MAX {
            end_oldest(&mut open, |_| true);
        }
        let session = Session {
            user: record.name,
            password: record.password,
            tags: record.tags,
            token: secrets.token.clone(),
            loopback,
            began: now,
            used: now,
        };
        open.insert(hash(&secrets.cookie), session);
        secrets
    }

    /// The session of a request, if it is in force; `user` looks up the catalog.
    pub(crate) fn find(
        &self,
        headers: &HeaderMap,
        loopback: bool,
        now: Instant,
        user: impl FnOnce(&ShortString) -> Option<UserRecord>,
    ) -> Option<Known> {
        let key = hash(self.given(headers)?);
        let mut open = self.open.lock();
        let session = open.get_mut(&key)?;
        let record = user(&session.user).filter(|record| session.is_of(record));
        let Some(record) = record.filter(|_| !session.has_ended(now)) else {
            open.remove(&key);
            return None;
        };
        if session.loopback && !loopback {
            return None;
        }
        session.used = now;
        Some(Known { record, token: session.token.clone() })
    }

    /// Ends the session of a request.
    pub(crate) fn end(&self, headers: &HeaderMap) {
        if let Some(cookie) = self.given(headers) {
            self.open.lock().remove(&hash(cookie));
        }
    }

    /// True if a request comes from the page: it must not be answered with a question for a password,
    /// for which the browser would show a dialog.
    pub(crate) fn is_of_page(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(TOKEN_HEADER) || self.given(headers).is_some()
    }

    /// The header that sets the cookie, or lets the browser drop it. `secured`: over TLS.
    pub(crate) fn set_cookie(&self, value: Option<&str>, secured: bool) -> String {
        let name = &self.cookie;
        let (value, age) = value.map_or(("", "; Max-Age=0"), |value| (value, ""));
        let secure = if secured { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")
    }

    /// The cookie of a request.
    fn given<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut cookies = lines.flat_map(|line| line.split(';'));
        cookies.find_map(|cookie| {
            let (name, value) = cookie.trim().split_once('=')?;
            (name == &*self.cookie).then_some(value)
        })
    }
}

/// True if the request repeats the token.
pub(crate) fn repeats(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(TOKEN_HEADER).and_then(|given| given.to_str().ok());
    given.is_some_and(|given| hash(given) == hash(token))
}

fn end_oldest(open: &mut BTreeMap<Hash, Session>, which: impl Fn(&Session) -> bool) {
    let some = open.iter().filter(|(_, session)| which(session));
    let oldest = some.min_by_key(|(_, session)| session.used).map(|(key, _)| *key);
    if let Some(key) = oldest {
        open.remove(&key);
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
