//! Tests of sessions.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use quorate_catalog::{HashAlgorithm, UserLimits};

fn record(name: &str) -> UserRecord {
    UserRecord {
        name: ShortString::try_from(name).unwrap(),
        password: PasswordHash { algorithm: HashAlgorithm::default(), bytes: vec![1, 2, 3] },
        tags: vec![ShortString::from_static("administrator")],
        limits: UserLimits::default(),
    }
}

fn sessions() -> Sessions {
    Sessions::new(NodeId(2))
}

fn with_cookie(cookie: &str) -> HeaderMap {
    let line = format!("a=b; quorate_session_2={cookie}");
    HeaderMap::from_iter([(header::COOKIE, line.parse().unwrap())])
}

/// Whether the session is in force then.
fn is_open(sessions: &Sessions, secrets: &Secrets, now: Instant) -> bool {
    sessions
        .find(&with_cookie(&secrets.cookie), true, now, |user| Some(record(user.as_str())))
        .is_some()
}

#[test]
fn a_session_is_known_by_its_cookie_only() {
    let (sessions, now) = (sessions(), Instant::now());
    let secrets = sessions.begin(record("u"), true, now);
    assert_eq!(secrets.cookie.len(), 43, "256 bits in base64");
    assert_ne!(secrets.cookie, secrets.token);
    let known = sessions.find(&with_cookie(&secrets.cookie), true, now, |_| Some(record("u")));
    assert_eq!(known, Some(Known { record: record("u"), token: secrets.token.clone() }));
    for wrong in ["", "x", &secrets.token] {
        assert_eq!(sessions.find(&with_cookie(wrong), true, now, |_| Some(record("u"))), None);
    }
    assert_eq!(sessions.find(&HeaderMap::new(), true, now, |_| Some(record("u"))), None);
    sessions.end(&with_cookie(&secrets.cookie));
    assert!(!is_open(&sessions, &secrets, now));
}

#[test]
fn a_session_ends_when_it_is_idle_or_old() {
    let (sessions, began) = (sessions(), Instant::now());
    let idle = sessions.begin(record("u"), true, began);
    assert!(is_open(&sessions, &idle, began + IDLE_MAX));
    assert!(!is_open(&sessions, &idle, began + IDLE_MAX * 2 + Duration::from_secs(1)));
    let old = sessions.begin(record("u"), true, began);
    let mut now = began;
    while now + IDLE_MAX <= began + AGE_MAX {
        now += IDLE_MAX;
        assert!(is_open(&sessions, &old, now));
    }
    assert!(!is_open(&sessions, &old, began + AGE_MAX + Duration::from_secs(1)));
    assert!(!is_open(&sessions, &old, began), "it has ended for good");
}

#[test]
fn a_session_ends_with_the_password_the_tags_or_the_user() {
    let now = Instant::now();
    let changed = UserRecord { password: PasswordHash::default(), ..record("u") };
    let demoted = UserRecord { tags: Vec::new(), ..record("u") };
    for present in [None, Some(changed), Some(demoted)] {
        let sessions = sessions();
        let secrets = sessions.begin(record("u"), true, now);
        let cookie = with_cookie(&secrets.cookie);
        assert_eq!(sessions.find(&cookie, true, now, |_| present), None);
        assert!(!is_open(&sessions, &secrets, now), "it has ended for good");
    }
}

/// ACL-24: such a user could otherwise log in here and use the cookie elsewhere.
#[test]
fn acl_24_a_session_of_this_machine_is_not_used_from_another() {
    let (sessions, now) = (sessions(), Instant::now());
    let here = sessions.begin(record("u"), true, now);
    let there = sessions.begin(record("u"), false, now);
    let find = |secrets: &Secrets, loopback| {
        let cookie = with_cookie(&secrets.cookie);
        sessions.find(&cookie, loopback, now, |_| Some(record("u"))).is_some()
    };
    assert!(find(&here, true) && !find(&here, false));
    assert!(find(&there, true) && find(&there, false));
}

#[test]
fn sessions_are_bounded() {
    let (sessions, began) = (sessions(), Instant::now());
    let at = |second: usize| began + Duration::from_secs(second as u64);
    let first = sessions.begin(record("other"), true, began);
    let of_user: Vec<_> =
        (0..=OF_USER_MAX).map(|number| sessions.begin(record("u"), true, at(number))).collect();
    let open = of_user.iter().filter(|secrets| is_open(&sessions, secrets, at(99))).count();
    assert_eq!(open, OF_USER_MAX);
    assert!(!is_open(&sessions, of_user.first().unwrap(), at(99)), "the oldest makes room");
    assert!(is_open(&sessions, &first, at(99)), "of the same user only");
    for number in 0..SESSIONS_MAX * 2 {
        sessions.begin(record(&format!("u{number}")), true, at(100));
    }
    assert_eq!(sessions.open.lock().len(), SESSIONS_MAX);
    sessions.begin(record("late"), true, at(100) + IDLE_MAX * 2);
    assert_eq!(sessions.open.lock().len(), 1, "those that have ended take no room");
}

#[test]
fn a_token_is_repeated_to_the_letter() {
    let given = |token: &str| {
        HeaderMap::from_iter([(TOKEN_HEADER.parse().unwrap(), token.parse().unwrap())])
    };
    assert!(repeats(&given("abc"), "abc"));
    assert!(!repeats(&given("abcd"), "abc") && !repeats(&given(""), "abc"));
    assert!(!repeats(&HeaderMap::new(), "abc") && !repeats(&HeaderMap::new(), ""));
}

#[test]
fn cookies_stay_with_the_browser_and_its_host() {
    let sessions = sessions();
    let set = sessions.set_cookie(Some("abc"), true);
    assert_eq!(set, "quorate_session_2=abc; Path=/; HttpOnly; SameSite=Strict; Secure");
    let dropped = sessions.set_cookie(None, false);
    assert_eq!(dropped, "quorate_session_2=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    assert!(sessions.is_of_page(&with_cookie("x")) && !sessions.is_of_page(&HeaderMap::new()));
}
