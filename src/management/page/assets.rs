//! The files of the page. Each is revalidated by browsers, so that after an upgrade none is of another
//! version than the rest.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

/// Bytes of a file's hash in its `ETag`.
const TAG_BYTES: usize = 12;

/// A file of the page.
#[derive(Clone, Copy, Debug)]
struct File {
    path: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file below `/page`.
macro_rules! file {
    ($name:literal, $media:expr) => {
        File {
            path: concat!("/page/", $name),
            media: $media,
            bytes: include_bytes!(concat!("assets/", $name)),
        }
    };
}

/// All files.
const FILES: &[File] = &[
    File { path: "/", media: HTML, bytes: include_bytes!("assets/index.html") },
    file!("style.css", CSS),
    file!("icon.svg", SVG),
    file!("main.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("form.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("list.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("history.js", SCRIPT),
    file!("view_overview.js", SCRIPT),
    file!("view_queues.js", SCRIPT),
    file!("view_queue.js", SCRIPT),
    file!("view_messages.js", SCRIPT),
    file!("view_tasks.js", SCRIPT),
    file!("view_exchanges.js", SCRIPT),
    file!("view_topology.js", SCRIPT),
    file!("view_connections.js", SCRIPT),
    file!("view_users.js", SCRIPT),
    file!("view_policies.js", SCRIPT),
    file!("view_definitions.js", SCRIPT),
    file!("view_cluster.js", SCRIPT),
    file!("view_events.js", SCRIPT),
];

/// The version of a file, as `ETag` has it.
fn tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex = digest.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}"));
    format!("\"{}\"", hex.collect::<String>())
}

/// True if the browser has the file already.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|it| it.to_str().ok());
    // A proxy that has compressed the file has made its tag a weak one.
    known.flat_map(|list| list.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

fn answer(file: File, tag: &HeaderValue, headers: &HeaderMap) -> Response {
    let cached = [
        (header::ETAG, tag.clone()),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    if tag.to_str().is_ok_and(|tag| is_known(headers, tag)) {
        return (StatusCode::NOT_MODIFIED, cached).into_response();
    }
    let media = [(header::CONTENT_TYPE, HeaderValue::from_static(file.media))];
    (cached, media, file.bytes).into_response()
}

/// The routes of all files.
pub(super) fn routes() -> Router {
    FILES.iter().fold(Router::new(), |router, file| {
        let tag = HeaderValue::from_str(&tag(file.bytes));
        let tag = tag.unwrap_or_else(|_| HeaderValue::from_static("\"\""));
        router.route(file.path, get(async move |headers: HeaderMap| answer(*file, &tag, &headers)))
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::collections::BTreeSet;

    fn text(path: &str) -> &'static str {
        let file = FILES.iter().find(|file| file.path == path).unwrap();
        std::str::from_utf8(file.bytes).unwrap()
    }

    #[test]
    fn a_file_is_sent_once_a_version() {
        let file = *FILES.first().unwrap();
        let tag = HeaderValue::from_str(&tag(file.bytes)).unwrap();
        let sent = answer(file, &tag, &HeaderMap::new());
        assert_eq!(sent.status(), StatusCode::OK);
        assert_eq!(sent.headers().get(header::CONTENT_TYPE).unwrap(), HTML);
        let asked = |given: String| {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, given.parse().unwrap())]);
            answer(file, &tag, &headers).status().as_u16()
        };
        let own = tag.to_str().unwrap();
        assert_eq!(asked(own.to_owned()), 304);
        assert_eq!(asked(format!("\"x\", W/{own}")), 304);
        assert_eq!(asked("\"x\"".to_owned()), 200);
    }

    /// A script that is not served would leave the page blank.
    #[test]
    fn every_module_that_is_imported_is_served() {
        let served: BTreeSet<_> = FILES.iter().map(|file| file.path).collect();
        let mut imports = 0;
        for file in FILES.iter().filter(|file| file.media == SCRIPT) {
            for line in text(file.path).lines().filter(|line| line.contains(" from \"./")) {
                let name = line.split(" from \"./").nth(1).and_then(|rest| rest.split('"').next());
                let path = format!("/page/{}", name.unwrap());
                assert!(served.contains(path.as_str()), "{}: {line}", file.path);
                imports += 1;
            }
        }
        assert!(imports > FILES.len(), "only {imports} imports found");
    }

    /// The policy of content forbids inline code, and names of objects must never become markup.
    #[test]
    fn no_file_has_inline_code_or_makes_markup_of_text() {
        for file in FILES {
            let text = text(file.path);
            for wrong in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "DOMParser",
                "srcdoc",
                "javascript:",
                "<style",
                " style=\"",
                "onclick=\"",
                "http://",
                "https://",
            ] {
                // The name of SVG is a word, not an address.
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(wrong), "{}: {wrong}", file.path);
            }
        }
        let page = text("/");
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script type=\"module\" src=").count()
        );
    }
}
