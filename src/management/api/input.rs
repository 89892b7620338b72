//! The body of a request, read within bounds of size, time and memory.

use crate::api::Target;
use crate::api::refusal::{Refusal, bad_request};
use crate::api::route::{Endpoint, Method};
use crate::api::turns::TURN_MAX;
use axum::body::{Body, HttpBody as _};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes of a body, for requests other than publishes and imports.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of the body of a publish or an import.
const LARGE_BYTES_MAX: usize = 64 << 20;
/// What exceeds this size shares [`LARGE_BYTES_MAX`] bytes with all other bodies.
pub(crate) const SMALL_BYTES: usize = 64 << 10;
/// The unit in which they are counted.
pub(crate) const UNIT_BYTES: usize = 1 << 10;
/// Longest wait for a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// The memory that large bodies share.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Arc<Semaphore>);

impl Default for Bodies {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_BYTES_MAX / UNIT_BYTES)))
    }
}

/// A body, and its part of the memory for large ones.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) bytes: Bytes,
    _part: Option<OwnedSemaphorePermit>,
}

/// A body that is being read, and its part of the memory, which grows with what has come: a length
/// that is only announced takes none.
struct Growing<'a> {
    bodies: &'a Bodies,
    bytes: BytesMut,
    /// Bytes that it has room for.
    room: usize,
    part: Option<OwnedSemaphorePermit>,
}

impl Growing<'_> {
    /// Makes room for so many bytes, twice as much each time, up to `most`.
    ///
    /// # Errors
    /// 503: the others need all of it. Of two bodies that wait for each other's parts, the one that
    /// waits longer gives up its own, so that the other goes on.
    async fn grow(&mut self, needed: usize, most: usize) -> Result<(), Refusal> {
        if needed <= self.room {
            return Ok(());
        }
        let room = needed.next_power_of_two().min(most).max(needed);
        let held = self.part.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let further = room.div_ceil(UNIT_BYTES).saturating_sub(held);
        let further = u32::try_from(further).unwrap_or(u32::MAX);
        let acquired = Arc::clone(&self.bodies.0).acquire_many_owned(further);
        match (timeout(TURN_MAX, acquired).await, &mut self.part) {
            (Ok(Ok(further)), Some(part)) => part.merge(further),
            (Ok(Ok(further)), part @ None) => *part = Some(further),
            (Ok(Err(_)) | Err(_), _) => {
                let text = "too many large requests are being received".to_owned();
                return Err(Refusal::Unavailable(text));
            }
        }
        self.room = room;
        self.bytes.reserve(room - self.bytes.len());
        Ok(())
    }
}

/// Reads the body of a request.
///
/// # Errors
/// 400: it is too long, or does not come in time or to its end. 503: see [`Growing::grow`].
pub(crate) async fn read_body(
    bodies: &Bodies,
    target: &Target,
    body: Body,
) -> Result<Read, Refusal> {
    if target.method == Method::Get {
        return Ok(Read::default());
    }
    let is_large = matches!(
        target.route.endpoint,
        Endpoint::Publish
            | Endpoint::Definitions
            | Endpoint::VhostDefinitions
            | Endpoint::DryRunDefinitions
            | Endpoint::DryRunVhostDefinitions
    );
    let most = if is_large { LARGE_BYTES_MAX } else { BODY_BYTES_MAX };
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return too_long();
    }
    match timeout(BODY_TIME_MAX, read_frames(bodies, body, most)).await {
        Ok(read) => read,
        Err(_) => bad_request("the body of the request did not come in time"),
    }
}

fn too_long<T>() -> Result<T, Refusal> {
    bad_request("Exceeded HTTP request body size limit")
}

async fn read_frames(bodies: &Bodies, body: Body, most: usize) -> Result<Read, Refusal> {
    let mut read = Growing { bodies, bytes: BytesMut::new(), room: SMALL_BYTES, part: None };
    let mut frames = body.into_data_stream();
    while let Some(frame) = frames.next().await {
        let Ok(frame) = frame else {
            return bad_request("the body of the request did not come to its end");
        };
        let needed = read.bytes.len().saturating_add(frame.len());
        if needed > most {
            return too_long();
        }
        read.grow(needed, most).await?;
        read.bytes.extend_from_slice(&frame);
    }
    Ok(Read { bytes: read.bytes.freeze(), _part: read.part })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::api::target;
    use futures::stream;
    use std::convert::Infallible;

    fn to(method: &str, path: &str) -> Target {
        target(method, path).unwrap().unwrap()
    }

    fn endless() -> Body {
        let frame = Bytes::from(vec![b' '; 9_999]);
        Body::from_stream(stream::repeat(Ok::<_, Infallible>(frame)))
    }

    /// Large bodies share the memory of one; a small one does not wait for them.
    #[tokio::test(start_paused = true)]
    async fn bodies_are_bounded() {
        let bodies = Bodies::default();
        let queue = to("PUT", "/api/queues/v/q");
        let read = |target, bytes: usize| {
            let (bodies, body) = (bodies.clone(), Body::from(vec![b' '; bytes]));
            async move { read_body(&bodies, target, body).await }
        };
        assert_eq!(read(&queue, 5).await.unwrap().bytes.len(), 5);
        assert!(read(&queue, BODY_BYTES_MAX).await.is_ok());
        assert!(matches!(read(&queue, BODY_BYTES_MAX + 1).await, Err(Refusal::BadRequest(_))));
        let refused = read_body(&bodies, &queue, endless()).await;
        assert!(matches!(refused, Err(Refusal::BadRequest(_))));

        let import = to("POST", "/api/definitions");
        let held = read(&import, LARGE_BYTES_MAX).await.unwrap();
        assert!(read(&queue, 5).await.is_ok());
        let refused = read(&import, SMALL_BYTES + 1).await;
        assert!(matches!(refused, Err(Refusal::Unavailable(_))), "there is no room for it");
        drop(held);
        assert!(read(&import, SMALL_BYTES + 1).await.is_ok());
        assert_eq!(read(&to("GET", "/api/queues"), 5).await.unwrap().bytes.len(), 0);
    }

    /// Clients that announce long bodies and send nothing keep nobody out.
    #[tokio::test(start_paused = true)]
    async fn a_body_takes_memory_as_it_comes() {
        let bodies = Bodies::default();
        let import = to("POST", "/api/definitions");
        let all = || bodies.0.available_permits() == LARGE_BYTES_MAX / UNIT_BYTES;
        let beginning = |bytes: usize| {
            let frame = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b' '; bytes]))]);
            Body::from_stream(frame.chain(stream::pending()))
        };
        let mut idle: Vec<_> = (0..100)
            .map(|_| Box::pin(read_body(&bodies, &import, beginning(SMALL_BYTES))))
            .collect();
        for one in &mut idle {
            assert!(futures::poll!(one).is_pending());
        }
        assert!(all(), "what is only announced takes no memory");
        let mut begun = Box::pin(read_body(&bodies, &import, beginning(SMALL_BYTES + 1)));
        assert!(futures::poll!(&mut begun).is_pending());
        assert!(!all());
        drop(begun);
        assert!(all());
        let late = idle.pop().unwrap().await;
        assert!(matches!(late, Err(Refusal::BadRequest(_))), "{late:?}");
    }

    /// Two bodies that have taken all of the memory before they are complete do not wait for each
    /// other for ever.
    #[tokio::test(start_paused = true)]
    async fn bodies_do_not_wait_for_each_other_for_ever() {
        let bodies = Bodies::default();
        let import = to("POST", "/api/definitions");
        let frame = Bytes::from(vec![b' '; 1 << 20]);
        let body = || {
            let frames = stream::iter(std::iter::repeat_n(frame.clone(), 64));
            Body::from_stream(frames.then(async |frame| {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok::<_, Infallible>(frame)
            }))
        };
        let first = read_body(&bodies, &import, body());
        let second = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            read_body(&bodies, &import, body()).await
        };
        let (first, second) = tokio::join!(first, second);
        assert!(matches!(first, Err(Refusal::Unavailable(_))), "{first:?}");
        assert_eq!(second.unwrap().bytes.len(), LARGE_BYTES_MAX);
    }
}
