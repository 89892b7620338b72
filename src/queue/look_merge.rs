//! One part of a level as somebody looks at it: the messages that the machine has one by one, and
//! the fresh ones that the store shows, in the order of delivery. What was cut off, because a look
//! is bounded, decides where the next part begins; a message that stays in its queue meanwhile is
//! in exactly one part.

use crate::{
    level::fresh,
    look::{HeldPlace, LevelLook, MessagePlace},
    record::QueuedMessage,
    store::RunHead,
};
use quorate_types::{Holder, MessageId, Timestamp};

/// How a message stands that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It waits to be delivered.
    Ready,
    /// It was returned, and is ready at that time (RQU-08).
    Delayed(Timestamp),
    /// A consumer or a get has it.
    Held(Holder),
}

/// A message that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookedAt {
    /// The message.
    pub queued: QueuedMessage,
    /// How it stands.
    pub standing: Standing,
}

/// Messages of one level, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The messages.
    pub messages: Vec<LookedAt>,
    /// Where the level's next part begins; `None`: this was the last one.
    pub next: Option<MessagePlace>,
}

impl LevelLook {
    /// The fresh messages of a run as stored, ascending.
    pub fn fresh<'a>(&'a self, run: &'a RunHead) -> impl Iterator<Item = QueuedMessage> + 'a {
        let heads = (0u32..).zip(&run.messages);
        heads.filter_map(move |(position, head)| {
            let place = (run.index, position);
            let is_fresh = self.fresh_from.is_some_and(|from| place >= from)
                && self.refused.binary_search(&place).is_err();
            let id = MessageId { level: self.level, index: run.index, position };
            Some(fresh(id, (*head)?, run.time)).filter(|_| is_fresh)
        })
    }
}

/// The first `limit` messages of a level.
///
/// `look`, `held` and `fresh` have those from the same place on, each ascending. `limit` is the one
/// that `look` was made with. `held_to` and `fresh_to` say up to which place they are complete, if
/// they were cut.
#[must_use]
pub fn merge(
    look: &LevelLook,
    (held, held_to): (&[(HeldPlace, QueuedMessage)], Option<MessagePlace>),
    (fresh, fresh_to): (&[QueuedMessage], Option<MessagePlace>),
    limit: usize,
) -> Part {
    let cut = |places: Option<MessagePlace>, length: usize| places.filter(|_| length >= limit);
    let requeued_to = cut(look.requeued.last().map(place), look.requeued.len());
    let refused_to = cut(look.refused.last().copied(), look.refused.len());
    let delayed_to = cut(look.delayed.last().map(|(last, _)| place(last)), look.delayed.len());
    let bounds = [requeued_to, delayed_to, refused_to, held_to, fresh_to];
    let bound = bounds.into_iter().flatten().min();
    let looked_at = |queued: &QueuedMessage, standing| LookedAt { queued: *queued, standing };
    let ready = look.requeued.iter().chain(fresh).map(|it| looked_at(it, Standing::Ready));
    let delayed = look.delayed.iter().map(|(it, until)| looked_at(it, Standing::Delayed(*until)));
    let held = held.iter().map(|(of, it)| looked_at(it, Standing::Held(of.holder())));
    let mut messages: Vec<_> = ready.chain(delayed).chain(held).collect();
    messages.retain(|it| bound.is_none_or(|bound| place(&it.queued) <= bound));
    messages.sort_unstable_by_key(|it| place(&it.queued));
    let is_cut = messages.len() > limit;
    messages.truncate(limit);
    let last = messages.last().map(|it| place(&it.queued)).filter(|_| is_cut);
    Part { messages, next: last.or(bound).map(behind) }
}

fn place(queued: &QueuedMessage) -> MessagePlace {
    (queued.message.index, queued.message.position)
}

/// The place behind a place.
fn behind((index, position): MessagePlace) -> MessagePlace {
    match position.checked_add(1) {
        Some(next) => (index, next),
        None => (index.next(), 0),
    }
}
