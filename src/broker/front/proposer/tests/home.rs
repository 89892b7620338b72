//! A model of the session state of a home, and of its answers.

use super::*;
use std::collections::BTreeMap;

/// The effect of a command, as far as its order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// Ordered with all but settles.
    Inspect(u64),
    /// A message to a queue, ordered with the others to that queue.
    Message { queue: u64, number: u64 },
    /// Overtakes publishes; ordered with other settles.
    Settle(u64),
}

impl Item {
    /// Whether it must keep its order among inspections and commands to that queue.
    pub(super) fn is_for(&self, queue: u64) -> bool {
        match self {
            Self::Inspect(_) => true,
            Self::Message { queue: to, .. } => *to == queue,
            Self::Settle(_) => false,
        }
    }
}

/// The outcome of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Taken,
    Refused,
    RoutedAgain,
}

pub(super) const QUEUES: u64 = 3;

pub(super) fn queue(index: u64) -> QueueId {
    QueueId { home: HOME, index, position: 0 }
}

pub(super) fn number_of(message: &[u8]) -> u64 {
    u64::from_be_bytes(message.try_into().unwrap())
}

pub(super) fn reply_to_inspect(number: u64) -> Reply {
    match number % 3 {
        0 => Reply::Taken,
        1 => Reply::Gone,
        _ => Reply::Ended { ready: number },
    }
}

/// A home's half of one session (SES 3).
#[derive(Debug, Default)]
pub(super) struct Session {
    last: u64,
    kept: BTreeMap<u64, Reply>,
    pub(super) applied: Vec<Item>,
    pub(super) fates: BTreeMap<u64, Fate>,
}

impl Session {
    pub(super) fn take(&mut self, session: SessionId, batch: &ProposedBatch) -> Answer {
        if batch.first.0 > self.last + 1 {
            return Answer::Want { session, want: Sequence(self.last + 1) };
        }
        let mut other = Vec::new();
        for (number, command) in (batch.first.0..).zip(&batch.commands) {
            if number > self.last {
                let reply = self.apply(batch, command);
                self.last = number;
                self.kept.insert(number, reply);
            }
            // Answers below the mark have reached the sender.
            let reply = self.kept.get(&number).cloned().unwrap_or(Reply::InUse);
            (reply != Reply::Taken).then(|| other.push((Sequence(number), reply)));
        }
        self.kept = self.kept.split_off(&batch.mark.0);
        let last = Sequence(batch.first.0 + batch.commands.len() as u64 - 1);
        Answer::Answered { session, first: batch.first, last, other }
    }

    fn apply(&mut self, batch: &ProposedBatch, command: &Command) -> Reply {
        if let Command::Inspect { queue, .. } = command {
            self.applied.push(Item::Inspect(queue.index));
            return reply_to_inspect(queue.index);
        }
        if let Command::Ack { numbers, .. } = command {
            self.applied.extend(numbers.iter().map(|(first, _)| Item::Settle(first.0)));
            return Reply::Taken;
        }
        let Command::Enqueue { run, first, count } = command else { unreachable!("{command:?}") };
        let run = batch.runs.get(*run as usize).unwrap();
        let messages = run.messages.get(*first as usize..(*first + *count) as usize);
        let numbers: Vec<_> = messages.unwrap().iter().map(|it| number_of(it)).collect();
        self.enqueue(run.queue.index, &numbers)
    }

    /// The first number says how the queue answers.
    fn enqueue(&mut self, queue: u64, numbers: &[u64]) -> Reply {
        self.applied.extend(numbers.iter().map(|&number| Item::Message { queue, number }));
        let (first, rest, reply) = match numbers.first().unwrap() % 4 {
            0 => (Fate::Refused, Fate::Taken, Reply::Refused(vec![(0, 0)])),
            1 => (Fate::RoutedAgain, Fate::RoutedAgain, Reply::Gone),
            2 => (Fate::Refused, Fate::Refused, Reply::Full),
            _ => (Fate::Taken, Fate::Taken, Reply::Taken),
        };
        let fates = std::iter::once(first).chain(std::iter::repeat(rest));
        self.fates.extend(numbers.iter().copied().zip(fates));
        reply
    }
}
