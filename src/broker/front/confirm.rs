//! Confirms: the outcome of a publish once its targets have answered (CNF-02 to CNF-06, NAM 6).

use crate::client::{ChannelId, Event};
use crate::front::commit::Commit;
use crate::front::connection_state::ConnectionState;
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_queue::Reply;
use std::sync::Arc;

/// How one target answered a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetAnswer {
    /// The queue has enqueued the message.
    Taken,
    /// The queue has refused the message (`reject-publish`).
    Refused,
    /// The target has ended.
    Gone,
}

impl TargetAnswer {
    /// The answer for the message at that place of an enqueue, from the reply to the enqueue.
    fn of(reply: &Reply, place: u32) -> Self {
        match reply {
            Reply::Taken => Self::Taken,
            Reply::Full => Self::Refused,
            Reply::Refused(ranges) => {
                if ranges.iter().any(|&(first, last)| (first..=last).contains(&place)) {
                    Self::Refused
                } else {
                    Self::Taken
                }
            }
            Reply::Gone
            | Reply::Created(_)
            | Reply::Alive(_)
            | Reply::Ended { .. }
            | Reply::InUse
            | Reply::NotEmpty
            | Reply::ExclusiveInUse
            | Reply::Got(_)
            | Reply::Empty
            | Reply::Purged { .. } => Self::Gone,
        }
    }
}

/// What to do with a publish after a target has answered.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Other targets have not answered yet.
    Open,
    /// The publish has been confirmed or refused.
    Finished,
    /// No target exists any more: read the catalog and route again (NAM 6).
    RouteAgain(Bytes),
}

/// Where the confirms of publishes are sent.
#[derive(Clone, Debug)]
pub(crate) enum ConfirmTo {
    /// Nowhere: the channel is not in confirm mode.
    Nobody,
    /// To the channel's client, as `basic.ack` or `basic.nack`; the first publish has this delivery
    /// tag.
    Client(u64),
    /// To the transaction that the publishes belong to.
    Commit(Arc<Commit>),
}

impl ConfirmTo {
    /// To the client under the delivery tag `confirm`; nowhere if the publish has none.
    pub(crate) fn of(confirm: Option<u64>) -> Self {
        confirm.map_or(Self::Nobody, Self::Client)
    }

    /// The same destination, for the publish that follows `count` publishes later.
    pub(crate) fn after(&self, count: u32) -> Self {
        match self {
            Self::Client(first) => Self::Client(first + u64::from(count)),
            Self::Nobody | Self::Commit(_) => self.clone(),
        }
    }

    /// Whether `next` is the destination of the publish that follows `count` publishes later.
    fn joins(&self, count: u32, next: &Self) -> bool {
        match (self, next) {
            (Self::Nobody, Self::Nobody) => true,
            (Self::Client(first), Self::Client(next)) => first + u64::from(count) == *next,
            (Self::Commit(commit), Self::Commit(next)) => Arc::ptr_eq(commit, next),
            (Self::Nobody | Self::Client(_) | Self::Commit(_), _) => false,
        }
    }

    /// Sends the outcome of `count` publishes: taken (`basic.ack`) or refused (`basic.nack`).
    pub(crate) fn send(
        &self,
        connection: &ConnectionState,
        channel: ChannelId,
        count: u32,
        taken: bool,
    ) {
        match self {
            Self::Nobody => {}
            Self::Client(first) => {
                let (first, last) = (*first, first + u64::from(count) - 1);
                connection.mailbox.put(Event::Confirmed { channel, first, last, taken });
            }
            Self::Commit(commit) => commit.answered(count, taken),
        }
    }
}

/// Publishes of one channel in one enqueue command, with consecutive confirm numbers.
#[derive(Debug)]
pub(crate) struct PublishTicket {
    /// The connection that published.
    pub(crate) connection: Arc<ConnectionState>,
    /// The channel that published.
    pub(crate) channel: ChannelId,
    /// Where their confirms are sent.
    pub(crate) confirm_to: ConfirmTo,
    /// The publishes are `mandatory`: returned if they turn out to be unroutable.
    pub(crate) mandatory: bool,
    /// Number of publishes, at least 1.
    pub(crate) count: u32,
    /// Bytes that the publishes count as in flight; a target of several counts its share.
    pub(crate) bytes: usize,
    /// State that is shared with the other targets of the same publish; `count` is then 1.
    pub(crate) shared: Option<Arc<FanOut>>,
}

/// One publish with several targets.
#[derive(Debug)]
pub(crate) struct FanOut {
    state: Mutex<FanOutState>,
}

#[derive(Debug)]
struct FanOutState {
    open: u32,
    taken: bool,
    refused: bool,
}

impl FanOut {
    /// The state of a publish with that many targets.
    pub(crate) fn new(targets: u32) -> Self {
        Self { state: Mutex::new(FanOutState { open: targets, taken: false, refused: false }) }
    }

    /// Records one target's answer. Once all have answered, returns the combined answer: `Refused`
    /// if any target refused, else `Taken` if any took it (NAM 6).
    fn answered(&self, answer: TargetAnswer) -> Option<TargetAnswer> {
        let mut state = self.state.lock();
        match answer {
            TargetAnswer::Taken => state.taken = true,
            TargetAnswer::Refused => state.refused = true,
            TargetAnswer::Gone => {}
        }
        state.open -= 1;
        if state.open > 0 {
            return None;
        }
        Some(if state.refused {
            TargetAnswer::Refused
        } else if state.taken {
            TargetAnswer::Taken
        } else {
            TargetAnswer::Gone
        })
    }
}

impl PublishTicket {
    /// Whether `next` directly follows, so that both can be one ticket.
    pub(crate) fn joins(&self, next: &PublishTicket) -> bool {
        self.confirm_to.joins(self.count, &next.confirm_to)
            && self.shared.is_none()
            && next.shared.is_none()
            && self.channel == next.channel
            && self.mandatory == next.mandatory
            && Arc::ptr_eq(&self.connection, &next.connection)
    }

    /// Finishes all publishes of the ticket with the same outcome; none is routed again.
    pub(crate) fn finish_all(&self, taken: bool) {
        if self.shared.is_some() {
            let answer = if taken { TargetAnswer::Taken } else { TargetAnswer::Refused };
            self.finish_one(0, answer, &Bytes::new());
            return;
        }
        self.confirm_range(0, self.count, taken);
        self.connection.publishing.in_flight.landed(self.bytes);
    }

    /// Handles the answer to the publish at `place`; `message` is its encoded message.
    pub(crate) fn finish_one(&self, place: u32, answer: TargetAnswer, message: &Bytes) -> Verdict {
        let combined = match &self.shared {
            Some(shared) => shared.answered(answer),
            None => Some(answer),
        };
        self.connection.publishing.in_flight.landed(self.share(place));
        match combined {
            None => Verdict::Open,
            Some(TargetAnswer::Gone) => Verdict::RouteAgain(message.clone()),
            Some(answer) => {
                self.confirm_range(place, 1, answer == TargetAnswer::Taken);
                Verdict::Finished
            }
        }
    }

    /// Bytes in flight of the publish at `place`. The sum of all places is the ticket's number.
    fn share(&self, place: u32) -> usize {
        let each = self.bytes / self.count.max(1) as usize;
        let others = self.count.saturating_sub(1);
        if place == others { self.bytes - each * others as usize } else { each }
    }

    fn confirm_range(&self, place: u32, count: u32, taken: bool) {
        if matches!(self.confirm_to, ConfirmTo::Client(_)) {
            self.connection.counters.answered_publishes(u64::from(count), taken);
        }
        self.confirm_to.after(place).send(&self.connection, self.channel, count, taken);
    }
}

/// Handles the reply to an enqueue: confirms or refuses its publishes. Publishes whose targets are
/// all gone are passed to `route_again`, with their place in their ticket and their message.
/// `messages` are those of the enqueue; they are not needed if the reply is `Taken`.
pub(crate) fn finish(
    tickets: &[PublishTicket],
    reply: &Reply,
    messages: &[Bytes],
    mut route_again: impl FnMut(&PublishTicket, u32, Bytes),
) {
    if *reply == Reply::Taken {
        tickets.iter().for_each(|ticket| ticket.finish_all(true));
        return;
    }
    let mut place = 0;
    for ticket in tickets {
        for offset in 0..ticket.count {
            let message = messages.get(place as usize).cloned().unwrap_or_default();
            let answer = TargetAnswer::of(reply, place);
            if let Verdict::RouteAgain(bytes) = ticket.finish_one(offset, answer, &message) {
                route_again(ticket, offset, bytes);
            }
            place += 1;
        }
    }
}

#[cfg(test)]
mod tests;
