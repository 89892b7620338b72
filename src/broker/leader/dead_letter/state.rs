//! What this node keeps for the worker of one home while it leads that home.
//! `quorate_queue::LetterWorker` makes the decisions; its fetched body and its memory account are
//! here.

use crate::memory::Held;
use bytes::Bytes;
use quorate_queue::LetterWorker;
use quorate_storage::MessageRef;
use quorate_types::Term;
use std::time::Duration;
use tokio::time::Instant;

/// The worker of one home.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) term: Term,
    letters: LetterWorker,
    /// The origin of the worker's time.
    began: Instant,
    /// A body that could not be read here and was fetched from another node.
    fetched: Option<(MessageRef, Bytes)>,
    fetching: bool,
    /// Memory of the letters in flight and of the fetched body.
    held: Held,
}

impl Worker {
    pub(crate) fn new(term: Term, held: Held) -> Self {
        let letters = LetterWorker::default();
        Self { term, letters, began: Instant::now(), fetched: None, fetching: false, held }
    }

    /// Calls the worker with its present time.
    pub(crate) fn decide<T>(&mut self, act: impl FnOnce(&mut LetterWorker, Duration) -> T) -> T {
        let decided = act(&mut self.letters, self.began.elapsed());
        self.account();
        decided
    }

    /// Begins a fetch of a body; false if another one is running.
    pub(crate) fn begin_fetch(&mut self) -> bool {
        !std::mem::replace(&mut self.fetching, true)
    }

    /// Ends the fetch of the worker of that term; `None` if no node has the body.
    pub(crate) fn fetched(&mut self, term: Term, wanted: MessageRef, body: Option<Bytes>) {
        if self.term == term {
            self.fetching = false;
            self.fetched = body.map(|body| (wanted, body));
            self.account();
        }
    }

    /// The body that was fetched last, if it is this one. It is kept: the letter may be routed
    /// again by a newer catalog copy, and is sent after that.
    pub(crate) fn body_fetched(&self, wanted: MessageRef) -> Option<Bytes> {
        self.fetched.as_ref().filter(|(of, _)| *of == wanted).map(|(_, body)| body.clone())
    }

    fn account(&mut self) {
        let fetched = self.fetched.as_ref().map_or(0, |(_, body)| body.len());
        self.held.set((self.letters.bytes() + fetched) as u64);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::memory::{MemoryBudget, Share};
    use quorate_types::{GroupId, Home, LetterHome, Level, LogIndex, MessageId, QueueId, Sequence};

    #[test]
    fn what_is_under_way_and_what_was_fetched_count() {
        let budget = MemoryBudget::new(1 << 40);
        let mut worker = Worker::new(Term(1), budget.account(Share::Letters));
        let stream = LetterHome::Group(GroupId(2));
        let from = worker.decide(|it, now| it.send_from(stream, Sequence(1), true, now));
        worker.decide(|it, _| it.sent(stream, from.unwrap(), 300));
        assert_eq!(budget.held_bytes(), 300);
        let queue = QueueId { home: Home::Group(GroupId(1)), index: 7, position: 0 };
        let message = MessageId { level: Level(0), index: LogIndex(3), position: 0 };
        let wanted = MessageRef { queue, message };
        let body = || Some(Bytes::from_static(b"body"));
        worker.fetched(Term(2), wanted, body());
        assert_eq!(budget.held_bytes(), 300, "another leadership's");
        worker.fetched(Term(1), wanted, body());
        assert_eq!((budget.held_bytes(), worker.body_fetched(wanted)), (304, body()));
        worker.decide(|it, _| it.send_again(stream, Sequence(1)));
        assert_eq!(budget.held_bytes(), 4);
    }
}
