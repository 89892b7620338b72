//! A batch that waits to be cut: commands, and the messages of each queue in one run.

use crate::front::{batch::Ticket, confirm::PublishTicket};
use bytes::Bytes;
use quorate_queue::{Command, MessageHead};
use quorate_storage::codec::batch::ProposedRun;
use quorate_types::{Level, QueueId};
use std::collections::HashMap;

/// Bytes of messages of one queue that make a batch full. Queues of one home share its batches:
/// with one bound for all of them together, each would get only its part of the rate of a queue
/// that is alone in its home.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 20;
/// All queues of a batch together may have this many times [`BATCH_BYTES_MAX`].
pub(super) const BATCH_RUNS_MAX: usize = 4;
/// Most commands and messages in one batch.
pub(super) const BATCH_COUNT_MAX: usize = 4_096;

/// A batch that still accepts commands.
#[derive(Debug, Default)]
pub(super) struct Filling {
    pub(super) commands: Vec<Command>,
    pub(super) tickets: Vec<Ticket>,
    pub(super) runs: Vec<ProposedRun>,
    /// Enqueues that can still be extended, by queue and level: (command, run).
    open: HashMap<(QueueId, Level), (usize, usize)>,
    runs_of: HashMap<(QueueId, Level), usize>,
    /// Bytes of each run, and those of the largest run.
    run_bytes: Vec<usize>,
    largest_run_bytes: usize,
    pub(super) bytes: usize,
    pub(super) count: usize,
}

impl Filling {
    /// Whether no more commands may be added.
    pub(super) fn is_full(&self) -> bool {
        self.largest_run_bytes >= BATCH_BYTES_MAX
            || self.bytes >= BATCH_RUNS_MAX * BATCH_BYTES_MAX
            || self.count >= BATCH_COUNT_MAX
    }

    /// Adds a command after those that it has. If it `orders`, an enqueue after it must not be merged
    /// into one before it.
    pub(super) fn push(&mut self, command: Command, ticket: Ticket, orders: bool) {
        if orders {
            self.open.clear();
        }
        self.commands.push(command);
        self.tickets.push(ticket);
        self.count += 1;
    }

    /// The same batch with commands without tickets in front.
    pub(super) fn after(mut self, mut ahead: Vec<Command>) -> Self {
        if ahead.is_empty() {
            return self;
        }
        let mut tickets = Vec::with_capacity(ahead.len() + self.tickets.len());
        tickets.resize_with(ahead.len(), || Ticket::None);
        tickets.append(&mut self.tickets);
        ahead.append(&mut self.commands);
        Self { commands: ahead, tickets, ..self }
    }

    /// Adds a message to the enqueue of its queue and level.
    pub(super) fn push_message(
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
