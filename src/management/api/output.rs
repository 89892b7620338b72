//! The bytes of answers that are written and not sent yet, within one bound. A client that does not read
//! its answer holds its part of them, until its connection gives up its place.

use crate::api::input::{SMALL_BYTES, UNIT_BYTES};
use crate::api::refusal::Refusal;
use crate::api::{TURN_MAX, turn};
use crate::places::Places;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

/// Bytes of large answers together, at least and at most. An answer that is larger has all of them.
const BYTES: std::ops::RangeInclusive<usize> = 16 << 20..=256 << 20;
/// Their part of what clients may make the node hold.
const SHARE: u64 = 2;
/// Lists and messages that are written at the same time, whose sizes are not known yet.
const WRITERS_MAX: usize = 2;
/// How long connections may take to read their answers while another answer waits for their parts.
const READ_MAX: Duration = Duration::from_secs(1);
/// How often a connection is looked for after that.
const ROOM_RETRY: Duration = Duration::from_millis(100);

/// Why an answer is refused.
const BUSY: &str = "too many large answers are being sent";

/// The memory that large answers share; one of up to [`SMALL_BYTES`] takes no part of it.
#[derive(Clone, Debug)]
pub(crate) struct Answers {
    bytes_max: usize,
    bytes: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

/// An answer, and its part of the memory, which is free when the answer is sent.
struct Held {
    text: String,
    _part: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl Answers {
    /// The bounds of a node with that much client memory, in bytes (setting `client_memory`).
    pub(crate) fn new(client_memory: u64) -> Self {
        let share = usize::try_from(client_memory / SHARE).unwrap_or(usize::MAX);
        let bytes_max = share.clamp(*BYTES.start(), *BYTES.end());
        Self {
            bytes_max,
            bytes: Arc::new(Semaphore::new(bytes_max / UNIT_BYTES)),
            writers: Arc::new(Semaphore::new(WRITERS_MAX)),
        }
    }

    /// Waits until a large answer may be written.
    ///
    /// # Errors
    /// 503: others are being written all the time.
    pub(crate) async fn writer(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        turn(&self.writers, BUSY).await
    }

    /// Reserves memory for an answer of this size; a small one needs none. While too little is free,
    /// connections that do not read their answers are closed.
    ///
    /// # Errors
    /// 503: the others need all of it.
    pub(crate) async fn part(
        &self,
        bytes: usize,
        places: Option<&Places>,
    ) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let units = bytes.min(self.bytes_max) / UNIT_BYTES;
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let until = Instant::now() + TURN_MAX;
        let mut patience = READ_MAX;
        let acquired = Arc::clone(&self.bytes).acquire_many_owned(units);
        tokio::pin!(acquired);
        while Instant::now() < until {
            if let Ok(part) = timeout(patience, &mut acquired).await {
                return part.map(Some).map_err(|_| busy());
            }
            patience = ROOM_RETRY;
            if let Some(places) = places {
                places.make_room();
            }
        }
        Err(busy())
    }
}

/// The bytes of an answer, which has this part of the memory until they are sent.
pub(crate) fn holding(text: String, part: Option<OwnedSemaphorePermit>) -> Bytes {
    match part {
        Some(part) => Bytes::from_owner(Held { text, _part: part }),
        None => text.into(),
    }
}

fn busy() -> Refusal {
    Refusal::Unavailable(BUSY.to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use futures::FutureExt;

    const BYTES_MAX: usize = *BYTES.start();

    async fn held(answers: &Answers, bytes: usize) -> Result<Bytes, Refusal> {
        Ok(holding(" ".repeat(bytes), answers.part(bytes, None).await?))
    }

    /// Large answers share the memory; a small one does not wait for them.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_not_sent_are_bounded() {
        let answers = Answers::new(0);
        let first = held(&answers, BYTES_MAX).await.unwrap();
        assert!(held(&answers, SMALL_BYTES).await.is_ok());
        let refused = held(&answers, SMALL_BYTES + 1).await;
        assert!(matches!(refused, Err(Refusal::Unavailable(_))), "there is no room for it");
        let sent = first.clone();
        drop(first);
        assert!(held(&answers, SMALL_BYTES + 1).await.is_err(), "it is being sent");
        drop(sent);
        assert_eq!(held(&answers, 2 * BYTES_MAX).await.unwrap().len(), 2 * BYTES_MAX);
    }

    /// A client that does not read its answer keeps nobody out for long.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gives_up_its_place() {
        let (answers, places) = (Answers::new(0), Places::default());
        let place = places.take("10.0.0.1".parse().unwrap());
        let unread = answers.part(BYTES_MAX, Some(&places)).await.unwrap();
        let ended = async {
            place.lost().await;
            drop(unread);
        };
        let begun = Instant::now();
        let (next, ()) = tokio::join!(answers.part(BYTES_MAX, Some(&places)), ended);
        assert!(next.is_ok());
        assert!(begun.elapsed() < READ_MAX * 2);
    }

    #[tokio::test]
    async fn few_lists_are_written_at_the_same_time() {
        let answers = Answers::new(0);
        let mut writers = Vec::new();
        for _ in 0..WRITERS_MAX {
            writers.push(answers.writer().await.unwrap());
        }
        assert!(answers.writer().now_or_never().is_none());
        writers.pop();
        assert!(answers.writer().now_or_never().is_some());
    }
}
