//! The bytes of answers that are written and not sent yet, within one bound. A client that does not read
//! its answer holds its part of them, until its connection gives up its place.

use crate::api::input::{SMALL_BYTES, UNIT_BYTES};
use crate::api::refusal::Refusal;
use crate::api::turns::{TURN_MAX, turns};
use crate::places::Place;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

/// Bytes of large answers together, at least and at most. An answer that is larger has all of them.
const BYTES: std::ops::RangeInclusive<usize> = 16 << 20..=256 << 20;
/// Their part of what clients may make the node hold.
const SHARE: u64 = 2;
/// Lists and messages that are written at the same time, whose sizes are not known yet.
const WRITERS_MAX: usize = 2;
/// How long a connection may take to read its answer while another answer waits for its part.
const READ_MAX: Duration = Duration::from_secs(1);
/// The same for an answer with messages that are in no queue any more.
const TAKEN_READ_MAX: Duration = Duration::from_secs(10);
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
    sending: Sending,
}

/// The answers that have a part, in the order in which they got it.
type Sending = Arc<Mutex<BTreeMap<u64, Reader>>>;

/// Who reads an answer.
#[derive(Debug)]
struct Reader {
    place: Weak<Place>,
    /// When it may be ended.
    until: Instant,
}

/// The connection that an answer is sent to, and whether the answer may be refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recipient {
    /// The connection that gives up its place if it does not read.
    pub(crate) place: Weak<Place>,
    /// The answer has messages that are in no queue any more, so it is not refused.
    pub(crate) is_taken: bool,
}

/// A part of the memory; it is free when this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    sending: Sending,
    number: u64,
    _units: Option<OwnedSemaphorePermit>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.sending.lock().remove(&self.number);
    }
}

/// An answer, and its part of the memory, which is free when the answer is sent.
struct Held {
    text: String,
    _part: Part,
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
            sending: Sending::default(),
        }
    }

    /// Waits until a large answer may be written.
    ///
    /// # Errors
    /// 503: others are being written all the time.
    pub(crate) async fn writer(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        turns(&self.writers, 1, BUSY).await
    }

    /// Reserves memory for an answer of this size; a small one needs none. While too little is free,
    /// connections that have not read their answers in time are ended, the first one first.
    ///
    /// # Errors
    /// 503: the others need all of it.
    pub(crate) async fn part(
        &self,
        bytes: usize,
        recipient: &Recipient,
    ) -> Result<Option<Part>, Refusal> {
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let units = bytes.min(self.bytes_max) / UNIT_BYTES;
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let until = Instant::now() + TURN_MAX;
        let acquired = Arc::clone(&self.bytes).acquire_many_owned(units);
        tokio::pin!(acquired);
        while Instant::now() < until {
            match timeout(ROOM_RETRY, &mut acquired).await {
                Ok(Ok(units)) => return Ok(Some(self.given(Some(units), recipient))),
                Ok(Err(_)) => break,
                Err(_) => self.make_room(),
            }
        }
        Err(busy())
    }

    /// A part beyond the bound, for an answer that must not be refused. Its connection is ended like the
    /// others if it does not read.
    pub(crate) fn extra(&self, recipient: &Recipient) -> Part {
        self.given(None, recipient)
    }

    fn given(&self, units: Option<OwnedSemaphorePermit>, recipient: &Recipient) -> Part {
        let time = if recipient.is_taken { TAKEN_READ_MAX } else { READ_MAX };
        let reader = Reader { place: Weak::clone(&recipient.place), until: Instant::now() + time };
        let mut sending = self.sending.lock();
        let number = sending.last_key_value().map_or(0, |(last, _)| last + 1);
        sending.insert(number, reader);
        Part { sending: Arc::clone(&self.sending), number, _units: units }
    }

    /// Ends the connection that has read its answer for longest, if that is too long.
    fn make_room(&self) {
        let now = Instant::now();
        let late = |reader: &&Reader| reader.until <= now && reader.place.strong_count() > 0;
        let place = self.sending.lock().values().find(late).and_then(|it| it.place.upgrade());
        if let Some(place) = place {
            place.end();
        }
    }
}

/// The bytes of an answer, which has this part of the memory until they are sent.
pub(crate) fn holding(text: String, part: Option<Part>) -> Bytes {
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
    use crate::places::Places;
    use futures::FutureExt;

    const BYTES_MAX: usize = *BYTES.start();

    async fn held(answers: &Answers, bytes: usize) -> Result<Bytes, Refusal> {
        Ok(holding(" ".repeat(bytes), answers.part(bytes, &Recipient::default()).await?))
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

    /// A client that never reads: its answer takes all of the memory until its connection is ended.
    /// Returns how long that took.
    async fn read(answers: &Answers, places: &Places, is_taken: bool) -> Option<Duration> {
        let place = places.take("10.0.0.1".parse().unwrap());
        let recipient = Recipient { place: Arc::downgrade(&place), is_taken };
        let part = answers.part(BYTES_MAX, &recipient).await.ok()?;
        let begun = Instant::now();
        place.lost().await;
        drop(part);
        Some(begun.elapsed())
    }

    /// A client that does not read its answer keeps nobody out for long, and each has the same time, however
    /// long the others have waited.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_gives_up_its_place() {
        let (answers, places) = (Answers::new(0), Places::default());
        let read = || read(&answers, &places, false);
        let last = async {
            tokio::time::sleep(ROOM_RETRY).await;
            answers.part(BYTES_MAX, &Recipient::default()).await.is_ok()
        };
        let (first, second, third, last) = tokio::join!(read(), read(), read(), last);
        assert!(last);
        for time in [first, second, third] {
            let time = time.unwrap();
            assert!(READ_MAX <= time && time <= READ_MAX + 2 * ROOM_RETRY, "{time:?}");
        }
    }

    /// A client that reads messages which are in no queue any more has longer.
    #[tokio::test(start_paused = true)]
    async fn messages_that_were_taken_have_more_time() {
        let (answers, places) = (Answers::new(0), Places::default());
        let others = async {
            tokio::time::sleep(ROOM_RETRY).await;
            let nobody = Recipient::default();
            let ask = async || answers.part(BYTES_MAX, &nobody).await.is_ok();
            [ask().await, ask().await, ask().await]
        };
        let (taken, others) = tokio::join!(read(&answers, &places, true), others);
        assert!(taken.unwrap() >= TAKEN_READ_MAX);
        assert_eq!(others, [false, true, true], "the first one has waited for too long");
    }

    /// Messages that found no room are sent all the same, but not for longer than others.
    #[tokio::test(start_paused = true)]
    async fn a_part_beyond_the_bound_is_ended_too() {
        let (answers, places) = (Answers::new(0), Places::default());
        let _all = answers.part(BYTES_MAX, &Recipient::default()).await.unwrap();
        let place = places.take("10.0.0.1".parse().unwrap());
        let recipient = Recipient { place: Arc::downgrade(&place), is_taken: true };
        assert!(answers.part(BYTES_MAX, &recipient).await.is_err(), "there is no room");
        let (begun, _part) = (Instant::now(), answers.extra(&recipient));
        let others =
            async { while answers.part(BYTES_MAX, &Recipient::default()).await.is_err() {} };
        tokio::select! {
            () = place.lost() => {}
            () = others => unreachable!("the first one does not give up its part"),
        }
        let time = begun.elapsed();
        assert!(TAKEN_READ_MAX <= time && time <= TAKEN_READ_MAX + TURN_MAX, "{time:?}");
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
