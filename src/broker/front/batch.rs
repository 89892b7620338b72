//! The pure half of a proposer: collects commands into batches, numbers them, keeps them until they
//! are answered, and decides what to send again (SES 2, 3, 5).

mod filling;

use crate::front::{batch::filling::Filling, confirm::PublishTicket, get_answer::GetAnswer};
use bytes::Bytes;
use quorate_queue::{Command, MessageHead, Reply};
use quorate_storage::codec::batch::{ProposedBatch, ProposedRun, Sender};
use quorate_types::{Level, QueueId, Sequence, SessionId, StartNumber};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

/// After this many batches without a settle, no consumers of the home are assumed to settle by this
/// proposer.
const WITHOUT_SETTLES: usize = 16;
/// Memory for a command or message besides a message's bytes: its head, its place and its ticket.
pub(crate) const MESSAGE_COST_BYTES: usize = 128;

/// What waits for the reply to a command.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// No caller waits.
    None,
    /// Publishes, in the order of the enqueue's messages.
    Publishes(Vec<PublishTicket>),
    /// A caller, which may have given up.
    Reply(oneshot::Sender<Reply>),
    /// A `basic.get`. If its caller has given up, its message is released (SES 7).
    Get(oneshot::Sender<GetAnswer>),
}

/// One copy of a message, for one queue.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The target queue.
    pub(crate) queue: QueueId,
    /// Level (priority) in the target.
    pub(crate) level: Level,
    /// Body size and expiration, as the queue needs them.
    pub(crate) head: MessageHead,
    /// The encoded message, as it is stored.
    pub(crate) message: Bytes,
    /// Where the confirm goes.
    pub(crate) ticket: PublishTicket,
}

/// A batch in flight. It is kept as it was cut, since it is never cut again under its numbers
/// (SES 2).
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// Shared with the messages that carry it to the leader.
    batch: Arc<ProposedBatch>,
    tickets: Vec<Ticket>,
    load: Load,
    /// It has only commands that overtake publishes (see [`Batches::push_ahead`]).
    ahead: bool,
    answered: bool,
}

/// Content of one batch or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Number of commands and messages.
    count: usize,
    /// Bytes of the messages.
    bytes: usize,
    /// Number of messages for other queues than the one with most messages of its batch.
    others_count: usize,
}

impl Load {
    /// The sum of both.
    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            others_count: self.others_count + other.others_count,
        }
    }

    /// Number of commands and messages.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Whether there are fewer than `count` commands and messages, or their memory is below
    /// `bytes`.
    pub(crate) fn is_below(self, count: usize, bytes: usize) -> bool {
        self.count < count || self.bytes + self.count * MESSAGE_COST_BYTES < bytes
    }

    /// The part of the queue with most messages, together with the commands. The bytes are in
    /// proportion.
    pub(crate) fn of_largest_queue(self) -> Self {
        let count = self.count - self.others_count;
        Self { count, bytes: self.bytes * count / self.count.max(1), others_count: 0 }
    }
}

/// Number of messages of the runs for other queues than the one with most messages.
fn others_count(runs: &[ProposedRun]) -> usize {
    let mut counts: HashMap<QueueId, usize> = HashMap::new();
    for run in runs {
        *counts.entry(run.queue).or_default() += run.messages.len();
    }
    counts.values().sum::<usize>() - counts.values().max().unwrap_or(&0)
}

/// An answered command, for the driver to act on.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Sequence number of the command.
    pub(crate) sequence: Sequence,
    /// What waits for the reply.
    pub(crate) ticket: Ticket,
    /// The home's reply to the command.
    pub(crate) reply: Reply,
    /// The messages of an enqueue whose reply is not `Taken`; else empty.
    pub(crate) messages: Vec<Bytes>,
}

/// The state of a proposer: batches that wait, and batches in flight.
#[derive(Debug)]
pub(crate) struct Batches {
    session: SessionId,
    next: Sequence,
    waiting: VecDeque<Filling>,
    /// Settles and credits that go with the next batch, before the publishes that wait.
    ahead: Vec<Command>,
    under_way: VecDeque<UnderWay>,
    /// Unanswered batches with this number or a higher one have not been sent.
    unsent: Sequence,
    bytes: usize,
    /// Commands and messages that wait or are in flight.
    count: usize,
    /// Batches cut since a consumer last settled something or got more credit.
    cut_without_settles: usize,
}

impl Batches {
    /// State of a session without commands; the first command is number 1.
    pub(crate) fn new(session: SessionId) -> Self {
        Self {
            session,
            next: Sequence(1),
            waiting: VecDeque::new(),
            ahead: Vec::new(),
            under_way: VecDeque::new(),
            unsent: Sequence(1),
            bytes: 0,
            count: 0,
            cut_without_settles: WITHOUT_SETTLES,
        }
    }

    /// Whether consumers settle messages of the home by this proposer. Batches in flight delay
    /// them.
    pub(crate) fn has_settles(&self) -> bool {
        self.cut_without_settles < WITHOUT_SETTLES
    }

    /// Session that the commands are numbered in.
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// Bytes of messages that wait or are in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Approximate memory for all that waits or is in flight, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.count * MESSAGE_COST_BYTES
    }

    /// Number of batches in flight, and of those among them with only commands that overtake
    /// publishes.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        (self.under_way.len(), self.under_way.iter().filter(|batch| batch.ahead).count())
    }

    /// Content of the unanswered batches in flight.
    pub(crate) fn under_way_load(&self) -> Load {
        let unanswered = self.under_way.iter().filter(|batch| !batch.answered);
        unanswered.fold(Load::default(), |all, it| all.plus(it.load))
    }

    /// Number of batches that wait to be cut, without the commands of [`Batches::push_ahead`].
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a command that overtakes the waiting publishes: consumers get their share of a queue
    /// whose publishers keep the proposer full. Only for commands whose effect does not depend on
    /// commands submitted before: a settle of a delivery, a credit.
    pub(crate) fn push_ahead(&mut self, command: Command) {
        self.cut_without_settles = 0;
        self.ahead.push(command);
    }

    /// Adds a command after those that wait.
    pub(crate) fn push(&mut self, command: Command, ticket: Ticket) {
        let orders = !matches!(command, Command::Ack { .. } | Command::Credit { .. });
        let settles = matches!(
            command,
            Command::Requeue { .. } | Command::Discard { .. } | Command::Release { .. }
        );
        self.filling().push(command, ticket, orders);
        self.count += 1;
        if !orders || settles {
            self.cut_without_settles = 0;
        }
    }

    /// Adds a message to the enqueue of its queue and level.
    pub(crate) fn push_message(&mut self, outgoing: Outgoing) {
        let Outgoing { queue, level, head, message, ticket } = outgoing;
        self.bytes += message.len();
        self.count += 1;
        self.filling().push_message(queue, level, head, message, ticket);
    }

    fn filling(&mut self) -> &mut Filling {
        let open = self.waiting.pop_back();
        let open = match open {
            Some(last) if last.is_full() => {
                self.waiting.push_back(last);
                Filling::default()
            }
            Some(last) => last,
            None => Filling::default(),
        };
        self.waiting.push_back_mut(open)
    }

    /// Cuts the next batch, numbers it, and keeps it until it is answered. It begins with the
    /// commands that overtake.
    pub(crate) fn cut(&mut self) -> Option<&Arc<ProposedBatch>> {
        let filling = self.waiting.pop_front().unwrap_or_default();
        self.number(filling, false)
    }

    /// As [`Batches::cut`], with only the commands that overtake.
    pub(crate) fn cut_ahead(&mut self) -> Option<&Arc<ProposedBatch>> {
        self.number(Filling::default(), true)
    }

    fn number(&mut self, filling: Filling, ahead: bool) -> Option<&Arc<ProposedBatch>> {
        let filling = filling.after(std::mem::take(&mut self.ahead));
        if filling.commands.is_empty() {
            return None;
        }
        self.cut_without_settles = self.cut_without_settles.saturating_add(1);
        let (mark, first) = (self.mark(), self.next);
        assert!(mark <= first, "SES 3: the mark is at most the next number: {mark}, {first}");
        if let Some(before) = self.under_way.back() {
            let (last, marked) = (before.last(), before.batch.mark);
            assert!(last.0 + 1 == first.0, "SES 2: numbers have no gap: {last}, then {first}");
            assert!(marked <= mark, "SES 3: the mark does not go back: {marked}, then {mark}");
        }
        let (commands, tickets) = (filling.commands.len(), filling.tickets.len());
        assert!(
            commands == tickets,
            "SES 4, 7: each number has its ticket: {commands} commands, {tickets} tickets"
        );
        self.next = Sequence(first.0 + filling.commands.len() as u64);
        let batch = Arc::new(ProposedBatch {
            sender: Sender::Session(self.session),
            first,
            mark,
            commands: filling.commands,
            runs: filling.runs,
        });
        let Filling { tickets, count, bytes, .. } = filling;
        let load = Load { count, bytes, others_count: others_count(&batch.runs) };
        let under_way = UnderWay { batch, tickets, load, ahead, answered: false };
        self.under_way.push_back(under_way);
        self.under_way.back().map(|under_way| &under_way.batch)
    }

    /// The lowest number whose answer has not arrived yet (SES 3).
    fn mark(&self) -> Sequence {
        self.under_way.front().map_or(self.next, |under_way| under_way.batch.first)
    }

    /// The next batch to be sent. Batches are sent in order: a home would treat a batch after a
    /// refused one as a gap (SES 3).
    pub(crate) fn to_send(&self) -> Option<&Arc<ProposedBatch>> {
        self.unanswered(self.unsent).map(|under_way| &under_way.batch)
    }

    /// Records that the batch of [`Batches::to_send`] has been sent.
    pub(crate) fn sent(&mut self) {
        if let Some(sent) = self.unanswered(self.unsent) {
            let next = Sequence(sent.last().0 + 1);
            assert!(next <= self.next, "SES 2: only what has been cut is sent: {next}");
            self.unsent = next;
        }
    }

    /// Marks everything unanswered from number `from` on to be sent again, as it was cut
    /// (SES 3, 5).
    pub(crate) fn send_again(&mut self, from: Sequence) {
        self.unsent = self.unsent.min(from);
    }

    /// Puts the present mark into the batches in flight: it tells a home that does not know the session
    /// which number comes next.
    pub(crate) fn renew_marks(&mut self) {
        let mark = self.mark();
        for under_way in &mut self.under_way {
            Arc::make_mut(&mut under_way.batch).mark = mark;
        }
    }

    /// Prepares everything from number `want` on to be sent to a home that may have lost the session:
    /// with the present mark, and with what was answered behind a batch whose answer was lost, since
    /// numbers have no gap.
    pub(crate) fn begin_again(&mut self, want: Sequence) {
        self.renew_marks();
        for under_way in &mut self.under_way {
            if under_way.answered && under_way.last() >= want {
                // Its tickets are gone, and its content is no longer counted.
                (under_way.answered, under_way.load) = (false, Load::default());
            }
        }
        self.send_again(want);
    }

    /// Answers every command with `Gone`, since the queues of the node's starts up to this one have
    /// ended; nothing, and false, if a message is for a queue of a later start.
    pub(crate) fn end_all(&mut self, start: StartNumber, into: &mut Vec<Answered>) -> bool {
        let under_way = self.under_way.iter().flat_map(|under_way| &under_way.batch.runs);
        let waiting = self.waiting.iter().flat_map(|filling| &filling.runs);
        if under_way.chain(waiting).any(|run| run.queue.index > start.0) {
            return false;
        }
        while self.cut().is_some() {}
        let gone = (self.mark().0..self.next.0).map(|number| (Sequence(number), Reply::Gone));
        self.answered(Sequence(0), self.next, gone.collect(), into);
        true
    }

    /// The oldest unanswered batch that has been sent.
    pub(crate) fn oldest_sent(&self) -> Option<&Arc<ProposedBatch>> {
        let oldest = self.unanswered(Sequence(0))?;
        (oldest.batch.first < self.unsent).then_some(&oldest.batch)
    }

    /// The first unanswered batch that has a number from `from` on.
    fn unanswered(&self, from: Sequence) -> Option<&UnderWay> {
        self.under_way.iter().find(|it| !it.answered && it.last() >= from)
    }

    /// Handles answers: `Taken` except for those in `other` (SES 4). Repeated answers are ignored.
    pub(crate) fn answered(
        &mut self,
        first: Sequence,
        last: Sequence,
        other: Vec<(Sequence, Reply)>,
        into: &mut Vec<Answered>,
    ) {
        let mut other = other.into_iter().peekable();
        for under_way in &mut self.under_way {
            let covered = first <= under_way.batch.first && under_way.last() <= last;
            if under_way.answered || !covered {
                continue;
            }
            under_way.answered = true;
            self.bytes -= under_way.load.bytes;
            self.count -= under_way.load.count;
            let mut sequence = under_way.batch.first;
            for (place, ticket) in std::mem::take(&mut under_way.tickets).into_iter().enumerate() {
                while other.peek().is_some_and(|(number, _)| *number < sequence) {
                    other.next();
                }
                let reply = other
                    .next_if(|(number, _)| *number == sequence)
                    .map_or(Reply::Taken, |(_, reply)| reply);
                let taken = reply == Reply::Taken;
                let messages = if taken { Vec::new() } else { under_way.messages_of(place) };
                into.push(Answered { sequence, ticket, reply, messages });
                sequence = Sequence(sequence.0 + 1);
            }
        }
        while self.under_way.front().is_some_and(|under_way| under_way.answered) {
            self.under_way.pop_front();
        }
    }
}

impl UnderWay {
    fn last(&self) -> Sequence {
        Sequence(self.batch.first.0 + self.batch.commands.len() as u64 - 1)
    }

    /// Messages of the enqueue at that place of the batch.
    fn messages_of(&self, place: usize) -> Vec<Bytes> {
        let Some(Command::Enqueue { run, first, count }) = self.batch.commands.get(place) else {
            return Vec::new();
        };
        let range = *first as usize..(*first + *count) as usize;
        self.batch
            .runs
            .get(*run as usize)
            .and_then(|run| run.messages.get(range))
            .map(<[Bytes]>::to_vec)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
