//! The audit log: one line for each change over HTTP, by whom, from where, what, and with which
//! outcome; refused ones too.

use crate::api::route::Method;
use axum::http::StatusCode;
use std::net::SocketAddr;

/// Bytes of a path in the log.
const PATH_BYTES_MAX: usize = 1_024;

/// What comes before a password in a path.
const BEFORE_PASSWORD: &str = "/hash_password/";

/// The part of a path that is logged. A path is percent-encoded, so that it is one line.
fn shown(path: &str) -> &str {
    if let Some(at) = path.find(BEFORE_PASSWORD) {
        return path.get(..at + BEFORE_PASSWORD.len()).unwrap_or_default();
    }
    let end = path.char_indices().map(|(at, _)| at).find(|at| *at >= PATH_BYTES_MAX);
    path.get(..end.unwrap_or(path.len())).unwrap_or_default()
}

/// Writes the line of a request that would change something. The user is empty if nobody has logged
/// in.
pub(crate) fn log(method: Method, path: &str, user: &str, from: SocketAddr, status: StatusCode) {
    let is_anybodys = is_anybodys(user, status);
    let (method, path, status) = (method.name(), shown(path), status.as_u16());
    if is_anybodys {
        tracing::debug!(target: "audit", user, %from, over = "http", method, path, status, "change");
    } else {
        tracing::info!(target: "audit", user, %from, over = "http", method, path, status, "change");
    }
}

/// Requests of nobody that reach no object. Anybody can send any number of them, so that they would
/// push out the events that are kept.
fn is_anybodys(user: &str, status: StatusCode) -> bool {
    let refused = [StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
    user.is_empty() && refused.contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_of_nobody_are_no_events() {
        assert!(is_anybodys("", StatusCode::UNAUTHORIZED));
        assert!(is_anybodys("", StatusCode::NOT_FOUND));
        assert!(!is_anybodys("u", StatusCode::UNAUTHORIZED));
        assert!(!is_anybodys("", StatusCode::NO_CONTENT));
    }

    #[test]
    fn long_paths_are_cut() {
        assert_eq!(shown("/api/users/u"), "/api/users/u");
        assert_eq!(shown("/api/auth/hash_password/secret"), "/api/auth/hash_password/");
        assert_eq!(shown(&"x".repeat(5_000)).len(), PATH_BYTES_MAX);
    }
}
