//! Looks for messages of a task: the next ready ones of the queue, and their bodies, a bounded
//! number of messages and bytes at a time. Run heads and bodies are read without the machine.
//!
//! What is read here may be outdated when the step is applied; apply takes only what is ready then.

use super::Tasks;
use bytes::Bytes;
use quorate_queue::{
    Machine, MessageStore as _, QueuedMessage, Standing, StoreError, TaskProgress, merge,
};
use quorate_storage::{MessageRef, ReplicaStore, StoredMessage};
use quorate_types::{Home, Level, LogIndex, MessageId, QueueId, Term};

/// Messages that one step looks at, at most.
const LOOK_MAX: usize = 1_024;
/// Messages that one step looks at, at least: not all of them may match, or be there.
const LOOK_MIN: usize = 64;
/// Run heads in the first and the largest read of the disk: a run may have thousands of messages.
const RUNS_AT_ONCE: [usize; 2] = [2, 16];
/// Bytes of messages in one step; at least one message is read.
const LOOK_BYTES_MAX: usize = 1 << 20;

/// Ready messages, and the place behind them; `None`: these were the last ones.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) messages: Vec<QueuedMessage>,
    pub(super) next: Option<MessageId>,
}

/// A message with what was stored of it; `None`: it is not there any more.
pub(super) type WithBody = (QueuedMessage, Option<Bytes>);

/// Number of messages that are looked at for a step that takes at most `most` messages.
pub(super) fn limit(most: u64) -> usize {
    let most = usize::try_from(most).unwrap_or(LOOK_MAX);
    most.clamp(LOOK_MIN, LOOK_MAX)
}

impl Tasks {
    /// The next ready messages from a place on, of entries below `until`, at most `limit` or one run
    /// more; `None` if this node cannot tell, which must not look like the queue's end.
    pub(super) fn look(
        &self,
        queue: QueueId,
        from: MessageId,
        until: LogIndex,
        limit: usize,
    ) -> Result<Option<Looked>, StoreError> {
        let Home::Group(group) = queue.home else { return Ok(None) };
        let Some(group) = self.context.group(group) else { return Ok(None) };
        // Read before the machine, which then has that entry.
        let Some(applied) = group.applied() else { return Ok(None) };
        let through = applied.min(LogIndex(until.0.saturating_sub(1)));
        let look = |it: &Machine| it.has_queue(queue).then(|| it.look(queue, from, limit));
        let look = match self.led.with_machine(queue.home, look).flatten() {
            Some(Some(look)) => look,
            // There is no level below.
            Some(None) => return Ok(Some(Looked::default())),
            None => return Ok(None),
        };
        let store = ReplicaStore::new(group.store().clone());
        let (mut fresh, mut fresh_to) = (Vec::new(), None);
        let mut from = look.fresh_from.map(|(index, _)| index);
        let [mut at_once, at_once_max] = RUNS_AT_ONCE;
        while let Some(index) = from.filter(|index| *index <= through) {
            let runs = store.runs(queue, look.level, index, through, at_once)?;
            fresh.extend(runs.iter().flat_map(|run| look.fresh(run)));
            let last = runs.last().filter(|_| runs.len() == at_once).map(|run| run.index);
            from = last.map(LogIndex::next);
            at_once = (2 * at_once).min(at_once_max);
            if fresh.len() >= limit {
                fresh_to = last.map(|last| (last, u32::MAX));
                break;
            }
        }
        let part = merge(&look, (&[], None), (&fresh, fresh_to), limit);
        let ready = part.messages.into_iter().filter(|it| it.standing == Standing::Ready);
        let messages = ready.map(|it| it.queued).filter(|it| it.message.index < until).collect();
        let next = match part.next.filter(|(index, _)| *index < until) {
            Some((index, position)) => Some(MessageId { level: look.level, index, position }),
            None => {
                let below = look.level.0.checked_sub(1);
                below.map(|level| MessageId { level: Level(level), ..TaskProgress::START })
            }
        };
        Ok(Some(Looked { messages, next }))
    }

    /// Reads the stored messages of the first ones that were looked at; `next` moves to the first
    /// one that was not read.
    pub(super) async fn read_bodies(
        &self,
        queue: QueueId,
        looked: Looked,
        term: Term,
    ) -> (Vec<WithBody>, Option<MessageId>) {
        let Looked { messages, mut next } = looked;
        let wanted: Vec<_> =
            messages.iter().map(|it| MessageRef { queue, message: it.message }).collect();
        let mut read = self.bodies.read_messages(queue, &wanted, Some(term), LOOK_BYTES_MAX);
        if let Some(unread) = read.iter().position(|it| *it == StoredMessage::Unknown) {
            read.truncate(unread);
        }
        if let Some(first) = wanted.first().filter(|_| read.is_empty()) {
            // This node cannot read it, perhaps because its disk is damaged: another one has it.
            let leads = || self.led.leading(queue.home) == Some(term);
            read.push(self.bodies.find_message(*first, Some(term), leads).await);
        }
        if let Some(unread) = messages.get(read.len()) {
            next = Some(unread.message);
        }
        let body = |found| match found {
            StoredMessage::Here(bytes) => Some(bytes),
            StoredMessage::Absent | StoredMessage::Unknown => None,
        };
        (messages.into_iter().zip(read.into_iter().map(body)).collect(), next)
    }
}
