//! The pure half of a proposer: collects commands into batches, numbers them, keeps them until
//! they are answered, and says what to send again (SES 2, 3, 5).

use crate::front::{confirm::PublishTicket, get_answer::GetAnswer};
use bytes::Bytes;
use quorate_queue::{Command, MessageHead, Reply};
use quorate_storage::codec::batch::{ProposedBatch, ProposedRun, Sender};
use quorate_types::{Level, QueueId, Sequence, SessionId};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tokio::sync::oneshot;

/// Bytes of messages of one queue that make a batch full. Queues that share a home also share its
/// batches: with one bound for all of them together, each would get only its part of the rate of a
/// queue that has a home to itself.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// All queues of a batch together may have this many times as much.
const BATCH_RUNS_MAX: usize = 4;
/// After so many batches without a settle, the home has no consumers that settle by this proposer.
const WITHOUT_SETTLES: usize = 16;
/// Memory for a command or message beside a message's bytes: its head, its place, who waits for it.
pub(crate) const MESSAGE_COST_BYTES: usize = 128;
/// Most commands and messages in one batch.
const BATCH_COUNT_MAX: usize = 4_096;

/// Who waits for the reply to a command.
#[derive(Debug)]
pub(crate) enum Ticket {
    /// Nobody.
    None,
    /// Publishes, in the order of the enqueue's messages.
    Publishes(Vec<PublishTicket>),
    /// A caller, who may have gone.
    Reply(oneshot::Sender<Reply>),
    /// A `basic.get`; should its caller have gone, its message is released (SES 7).
    Get(oneshot::Sender<GetAnswer>),
}

/// One message in flight to one queue.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// Target.
    pub(crate) queue: QueueId,
    /// Level in the target.
    pub(crate) level: Level,
    /// Head.
    pub(crate) head: MessageHead,
    /// Encoded message.
    pub(crate) message: Bytes,
    /// Who waits.
    pub(crate) ticket: PublishTicket,
}

/// A batch in flight: kept as it was cut, since it is never re-cut under its numbers (SES 2).
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// Shared with the messages that carry it.
    batch: Arc<ProposedBatch>,
    tickets: Vec<Ticket>,
    load: Load,
    /// It has only commands that overtake publishes.
    ahead: bool,
    answered: bool,
}

/// What batches carry together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Commands and messages.
    count: usize,
    /// Bytes of the messages.
    bytes: usize,
    /// Messages for other queues than the one with most of its batch.
    others_count: usize,
}

impl Load {
    /// What both carry.
    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            bytes: self.bytes + other.bytes,
            others_count: self.others_count + other.others_count,
        }
    }

    /// Commands and messages.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Fewer than `count` commands and messages, or no more than `bytes` of memory for them.
    pub(crate) fn is_below(self, count: usize, bytes: usize) -> bool {
        self.count < count || self.bytes + self.count * MESSAGE_COST_BYTES < bytes
    }

    /// The part of the queue with most messages, with the commands; the bytes in proportion.
    pub(crate) fn of_largest_queue(self) -> Self {
        let count = self.count - self.others_count;
        Self { count, bytes: self.bytes * count / self.count.max(1), others_count: 0 }
    }
}

/// Messages of the runs for other queues than the one with most.
fn others_count(runs: &[ProposedRun]) -> usize {
    let mut counts: HashMap<QueueId, usize> = HashMap::new();
    for run in runs {
        *counts.entry(run.queue).or_default() += run.messages.len();
    }
    counts.values().sum::<usize>() - counts.values().max().unwrap_or(&0)
}

/// What an answered command was, for the driver to act on.
#[derive(Debug)]
pub(crate) struct Answered {
    /// Number of the command.
    pub(crate) sequence: Sequence,
    /// Who waits.
    pub(crate) ticket: Ticket,
    /// The reply.
    pub(crate) reply: Reply,
    /// Of an enqueue not simply taken: its messages.
    pub(crate) messages: Vec<Bytes>,
}

/// A batch being filled.
#[derive(Debug, Default)]
struct Filling {
    commands: Vec<Command>,
    tickets: Vec<Ticket>,
    runs: Vec<ProposedRun>,
    /// Where enqueues to a queue and level can still be added to: (command, run).
    open: HashMap<(QueueId, Level), (usize, usize)>,
    runs_of: HashMap<(QueueId, Level), usize>,
    /// Bytes of each run, and the most of them.
    run_bytes: Vec<usize>,
    largest_run_bytes: usize,
    bytes: usize,
    count: usize,
}

/// A proposer's state.
#[derive(Debug)]
pub(crate) struct Batches {
    session: SessionId,
    next: Sequence,
    waiting: VecDeque<Filling>,
    /// Settles and credits that go with the next batch, before the publishes that wait.
    ahead: Vec<Command>,
    under_way: VecDeque<UnderWay>,
    /// Unanswered batches with this number or a higher one are to be sent.
    unsent: Sequence,
    bytes: usize,
    /// Commands and messages that wait or are in flight.
    count: usize,
    /// Batches cut since a consumer last settled something or asked for more.
    cut_without_settles: usize,
}

impl Batches {
    /// Nothing in flight, the next command is number 1.
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

    /// Whether consumers settle messages of the home by this proposer. What is in flight delays them.
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

    /// Bytes of memory for all that waits or is in flight, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes + self.count * MESSAGE_COST_BYTES
    }

    /// Batches in flight, and those of them that have only commands that overtake publishes.
    pub(crate) fn under_way(&self) -> (usize, usize) {
        (self.under_way.len(), self.under_way.iter().filter(|batch| batch.ahead).count())
    }

    /// What the batches in flight carry.
    pub(crate) fn under_way_load(&self) -> Load {
        let unanswered = self.under_way.iter().filter(|batch| !batch.answered);
        unanswered.fold(Load::default(), |all, it| all.plus(it.load))
    }

    /// Batches that wait to be cut, without those of [`Batches::push_ahead`].
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a command that overtakes the publishes that wait: consumers get their share of a queue
    /// whose publishers keep the proposer full. Only for commands that have an effect alone, whatever
    /// was submitted before them: a settle of what was delivered, a credit for what was shown.
    pub(crate) fn push_ahead(&mut self, command: Command) {
        self.cut_without_settles = 0;
        self.ahead.push(command);
    }

    /// Adds a command.
    pub(crate) fn push(&mut self, command: Command, ticket: Ticket) {
        let orders = !matches!(command, Command::Ack { .. } | Command::Credit { .. });
        let settles = matches!(
            command,
            Command::Requeue { .. } | Command::Discard { .. } | Command::Release { .. }
        );
        let filling = self.filling();
        if orders {
            // An enqueue after this command must not be moved before it.
            filling.open.clear();
        }
        filling.commands.push(command);
        filling.tickets.push(ticket);
        filling.count += 1;
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
        let full = |filling: &Filling| {
            filling.largest_run_bytes >= BATCH_BYTES_MAX
                || filling.bytes >= BATCH_RUNS_MAX * BATCH_BYTES_MAX
                || filling.count >= BATCH_COUNT_MAX
        };
        let open = self.waiting.pop_back();
        let open = match open {
            Some(last) if full(&last) => {
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

    /// As [`Batches::cut`], with nothing but the commands that overtake.
    pub(crate) fn cut_ahead(&mut self) -> Option<&Arc<ProposedBatch>> {
        self.number(Filling::default(), true)
    }

    fn number(&mut self, filling: Filling, ahead: bool) -> Option<&Arc<ProposedBatch>> {
        let filling = filling.after(std::mem::take(&mut self.ahead));
        if filling.commands.is_empty() {
            return None;
        }
        self.cut_without_settles = self.cut_without_settles.saturating_add(1);
        let mark = self.mark();
        let first = self.next;
        if let Some(before) = self.under_way.back().map(UnderWay::last) {
            assert!(before.0 + 1 == first.0, "SES 2: numbers have no gap: {before}, then {first}");
        }
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

    /// The lowest number whose answer has not yet been had (SES 3).
    fn mark(&self) -> Sequence {
        self.under_way.front().map_or(self.next, |under_way| under_way.batch.first)
    }

    /// The next batch to be sent: batches are sent in their order, so that one that is refused is
    /// never followed by another, which its home would take for a gap (SES 3).
    pub(crate) fn to_send(&self) -> Option<&Arc<ProposedBatch>> {
        self.unanswered(self.unsent).map(|under_way| &under_way.batch)
    }

    /// What [`Batches::to_send`] gave has been sent.
    pub(crate) fn sent(&mut self) {
        if let Some(sent) = self.unanswered(self.unsent) {
            let next = Sequence(sent.last().0 + 1);
            assert!(next <= self.next, "SES 2: only what has been cut is sent: {next}");
            self.unsent = next;
        }
    }

    /// Everything unanswered from number `from` on is to be sent again, as it was cut (SES 3, 5).
    pub(crate) fn send_again(&mut self, from: Sequence) {
        self.unsent = self.unsent.min(from);
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

    /// Takes answers, `Taken` but for those in `other` (SES 4). Numbers answered before are
    /// ignored.
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

    /// Gives everything up that waits or is in flight, as the session is over (SES 6).
    pub(crate) fn abandon(&mut self, session: SessionId) {
        *self = Self::new(session);
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

impl Filling {
    /// The same, with commands that nobody waits for in front.
    fn after(mut self, mut ahead: Vec<Command>) -> Self {
        if ahead.is_empty() {
            return self;
        }
        let mut tickets = Vec::with_capacity(ahead.len() + self.tickets.len());
        tickets.resize_with(ahead.len(), || Ticket::None);
        tickets.append(&mut self.tickets);
        ahead.append(&mut self.commands);
        Self { commands: ahead, tickets, ..self }
    }

    fn push_message(
        &mut self,
        queue: QueueId,
        level: Level,
        head: MessageHead,
        message: Bytes,
        ticket: PublishTicket,
    ) {
        let bytes = message.len();
        self.bytes += bytes;
        self.count += 1;
        let (command, run) = match self.open.get(&(queue, level)) {
            Some(&place) => place,
            None => self.open_enqueue(queue, level),
        };
        if let Some(run) = self.runs.get_mut(run) {
            run.heads.push(head);
            run.messages.push(message);
        }
        if let Some(run_bytes) = self.run_bytes.get_mut(run) {
            *run_bytes += bytes;
            self.largest_run_bytes = self.largest_run_bytes.max(*run_bytes);
        }
        if let Some(Command::Enqueue { count, .. }) = self.commands.get_mut(command) {
            *count += 1;
        }
        if let Some(Ticket::Publishes(tickets)) = self.tickets.get_mut(command) {
            match tickets.last_mut() {
                Some(last) if last.joins(&ticket) => {
                    last.count += ticket.count;
                    last.bytes += ticket.bytes;
                }
                Some(_) | None => tickets.push(ticket),
            }
        }
    }

    fn open_enqueue(&mut self, queue: QueueId, level: Level) -> (usize, usize) {
        let next_run = self.runs.len();
        let run = *self.runs_of.entry((queue, level)).or_insert(next_run);
        if run == next_run {
            self.runs.push(ProposedRun { queue, level, heads: Vec::new(), messages: Vec::new() });
            self.run_bytes.push(0);
        }
        // Counts within a batch stay far below 2^32.
        let first = self.runs.get(run).map_or(0, |run| run.heads.len()) as u32;
        self.commands.push(Command::Enqueue { run: run as u32, first, count: 0 });
        self.tickets.push(Ticket::Publishes(Vec::new()));
        let place = (self.commands.len() - 1, run);
        self.open.insert((queue, level), place);
        place
    }
}

#[cfg(test)]
mod tests;
