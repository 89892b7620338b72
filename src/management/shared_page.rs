//! Pages of metrics that many may request, written once for all.
//!
//! Counting the contents of 100,000 queues takes long, and anybody may request `/metrics`. So a page
//! is reused for 20 times as long as it took to write, at most 1 s. Pages of chosen families are
//! written one at a time, and as rarely, whatever they are asked for.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

/// The reciprocal of the share of a core's time that the numbers may use.
const PAGE_TIME_PART: u32 = 20;
/// Maximum age of the numbers shown.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// Longest wait for others who have the same page written, or other pages of chosen families.
const TURN_MAX: Duration = Duration::from_secs(10);

/// The last page of a path. Counting the contents of 100,000 queues takes a while, and anybody may
/// request it; a cheap page is soon written again.
#[derive(Debug)]
pub(crate) struct Page {
    /// What it was asked for.
    query: String,
    /// The page, or what was asked for wrongly.
    text: Result<Bytes, String>,
    good_until: Option<Instant>,
}

impl Default for Page {
    fn default() -> Self {
        Self { query: String::new(), text: Ok(Bytes::new()), good_until: None }
    }
}

impl Page {
    /// How long the last page is good. Until then no other one is written.
    fn good_for(&self) -> Duration {
        let now = Instant::now();
        self.good_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Writes the page.
    fn write(&mut self, query: String, write: impl FnOnce(&str) -> Result<String, String>) {
        let began = Instant::now();
        self.text = write(&query).map(Bytes::from);
        self.query = query;
        let now = Instant::now();
        self.good_until = Some(now + (PAGE_TIME_PART * (now - began)).min(PAGE_AGE_MAX));
    }
}

/// The page that a query asks for, if it is its turn in time: the last one if it is good for that
/// query, else one that is written where it may take its time.
pub(crate) async fn page(
    page: &Arc<Mutex<Page>>,
    query: String,
    write: impl FnOnce(&str) -> Result<String, String> + Send + 'static,
) -> Response {
    let Ok(mut page) = timeout(TURN_MAX, Arc::clone(page).lock_owned()).await else {
        return unavailable("other pages take too long to be written at present");
    };
    let good_for = page.good_for();
    let is_same = page.query == query;
    if !good_for.is_zero() && !is_same {
        // At most `PAGE_AGE_MAX`.
        sleep(good_for).await;
    }
    let text = if good_for.is_zero() || !is_same {
        let written = tokio::task::spawn_blocking(move || {
            page.write(query, write);
            page.text.clone()
        });
        let Ok(text) = written.await else { return unavailable("the page was not written") };
        text
    } else {
        page.text.clone()
    };
    match text {
        Ok(text) => exposition(text),
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

/// 503 with the reason.
pub(crate) fn unavailable(why: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

fn exposition(text: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    async fn shown(
        page: &Arc<Mutex<Page>>,
        query: &str,
        write: impl FnOnce(&str) -> Result<String, String> + Send + 'static,
    ) -> (u16, String) {
        let response = super::page(page, query.to_owned(), write).await;
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn dear(query: &str) -> Result<String, String> {
        std::thread::sleep(Duration::from_millis(60));
        Ok(format!("page of {query}"))
    }

    /// An expensive page is written once for all requests within a second, and no other page of its
    /// path within that time.
    #[tokio::test]
    async fn a_dear_page_is_shared() {
        let page = Arc::new(Mutex::new(Page::default()));
        let again = |_: &str| Err("it is written again".to_owned());
        let began = Instant::now();
        assert_eq!(shown(&page, "a", dear).await, (200, "page of a".to_owned()));
        for _ in 0..5 {
            assert_eq!(shown(&page, "a", again).await, (200, "page of a".to_owned()));
        }
        assert_eq!(shown(&page, "b", again).await, (400, "it is written again\n".to_owned()));
        assert!(began.elapsed() >= PAGE_AGE_MAX, "{:?}", began.elapsed());
    }

    /// A thread is not kept by each request that waits.
    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_page_is_bounded() {
        let page = Arc::new(Mutex::new(Page::default()));
        let _writing = page.lock().await;
        let began = tokio::time::Instant::now();
        assert_eq!(shown(&page, "a", dear).await.0, 503);
        assert_eq!(began.elapsed(), TURN_MAX);
    }
}
