//! A machine with its store, to which tests apply entries; the store's checks follow every entry.

use crate::store::TestStore;
use quorate_queue::{
    Answer, Batch, Change, Command, Effect, Entry, Machine, MessageHead, Origin, Output, Reply, Run,
};
use quorate_types::{
    GroupId, Home, Level, LogIndex, NodeId, QueueId, ResourceName, Sequence, SessionId,
    ShortString, Stamp, StartNumber, Timestamp, WallTime,
};
use std::collections::BTreeMap;

pub fn session(node: u16, start: u64) -> SessionId {
    SessionId { node: NodeId(node), start: StartNumber(start) }
}

pub fn name(name: &str) -> ResourceName {
    ResourceName {
        vhost: ShortString::from_static("/"),
        name: ShortString::try_from(name).unwrap(),
    }
}

/// Messages to enqueue, or another command.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a few at a time, in tests")]
pub enum Step {
    Enqueue { queue: QueueId, level: Level, messages: Vec<MessageHead> },
    Other(Command),
}

/// Messages of these sizes.
pub fn heads(sizes: &[u32]) -> Vec<MessageHead> {
    sizes.iter().map(|size| MessageHead { body_bytes: *size, expiration_ms: None }).collect()
}

/// Builds one entry.
#[derive(Clone, Debug, Default)]
pub struct EntryBuilder {
    entry: Entry,
}

impl EntryBuilder {
    pub fn batch(&mut self, origin: Origin, steps: &[Step]) {
        let commands = steps.iter().map(|step| self.command(step)).collect();
        self.entry.batches.push(Batch { origin, commands });
    }

    fn command(&mut self, step: &Step) -> Command {
        match step {
            Step::Other(command) => command.clone(),
            Step::Enqueue { queue, level, messages } => {
                let runs = &mut self.entry.runs;
                let at = runs.iter().position(|run| (run.queue, run.level) == (*queue, *level));
                let at = at.unwrap_or_else(|| {
                    runs.push(Run { queue: *queue, level: *level, messages: Vec::new() });
                    runs.len() - 1
                });
                let first = runs[at].messages.len() as u32;
                runs[at].messages.extend(messages);
                Command::Enqueue { run: at as u32, first, count: messages.len() as u32 }
            }
        }
    }

    pub fn build(self, time: u64) -> Entry {
        let stamp = Stamp { time: Timestamp(time), wall: WallTime(time) };
        Entry { stamp, ..self.entry }
    }
}

/// A machine with its store.
#[derive(Debug)]
pub struct World {
    pub machine: Machine,
    pub store: TestStore,
    pub index: LogIndex,
    pub time: u64,
    pub next: BTreeMap<SessionId, u64>,
    pub out: Output,
}

impl World {
    pub fn new() -> Self {
        Self::with(Machine::new(Home::Group(GroupId(1))))
    }

    pub fn with(machine: Machine) -> Self {
        let store = TestStore::default();
        let (next, out) = (BTreeMap::new(), Output::default());
        Self { machine, store, index: LogIndex(0), time: 0, next, out }
    }

    /// Applies an entry and checks the store's invariant.
    pub fn apply(&mut self, entry: &Entry) {
        self.apply_unchecked(entry);
        self.store.check(&self.machine);
    }

    pub fn apply_unchecked(&mut self, entry: &Entry) {
        self.index = self.index.next();
        self.store.append(self.index, entry);
        self.out.clear();
        self.machine.apply(self.index, entry, &self.store, &mut self.out).unwrap();
        self.store.change(self.index, &self.out.changes);
    }

    /// One entry with one batch, exactly as given.
    pub fn send(&mut self, origin: Origin, steps: &[Step]) -> Vec<Answer> {
        let mut builder = EntryBuilder::default();
        builder.batch(origin, steps);
        self.apply(&builder.build(self.time));
        self.out.answers.clone()
    }

    /// The next commands of a session, as one entry. Returns one reply for each command.
    pub fn run(&mut self, session: SessionId, steps: &[Step]) -> Vec<Reply> {
        let first = self.number(session, steps.len());
        let origin = Origin::Session { session, first, mark: first };
        let answers = self.send(origin, steps);
        replies(&answers, first, steps.len())
    }

    /// One command of a session.
    pub fn one(&mut self, session: SessionId, command: Command) -> Reply {
        self.run(session, &[Step::Other(command)]).pop().unwrap()
    }

    pub fn leader(&mut self, command: Command) {
        let answers = self.send(Origin::Leader, &[Step::Other(command)]);
        assert_eq!(answers, []);
    }

    pub fn number(&mut self, session: SessionId, count: usize) -> Sequence {
        let next = self.next.entry(session).or_insert(1);
        *next += count as u64;
        Sequence(*next - count as u64)
    }

    /// Deliveries of the last entry: (consumer's number, delivery number, bytes of the body).
    pub fn deliveries(&self) -> Vec<(u64, u64, u32)> {
        let deliver = |effect: &Effect| match effect {
            Effect::Deliver(it) => {
                let id = it.message;
                let head = self.store.message(it.queue, id.level, id.index, id.position).unwrap();
                Some((it.consumer.number, it.number.0, head.body_bytes))
            }
            _ => None,
        };
        self.out.effects.iter().filter_map(deliver).collect()
    }

    pub fn cuts(&self) -> Vec<(u32, u32)> {
        let cut = |change: &Change| match change {
            Change::Cut { first, last, .. } => Some((*first, *last)),
            _ => None,
        };
        self.out.changes.iter().filter_map(cut).collect()
    }
}

/// One reply for each command of a batch that was answered.
pub fn replies(answers: &[Answer], first: Sequence, count: usize) -> Vec<Reply> {
    let mut replies = vec![Reply::Taken; count];
    match answers {
        [Answer::Answered { first: from, last, other, .. }] => {
            assert_eq!((*from, last.0), (first, first.0 + count as u64 - 1));
            for (number, reply) in other {
                assert_ne!(*reply, Reply::Taken, "`Taken` is not listed");
                replies[(number.0 - first.0) as usize] = reply.clone();
            }
        }
        other => panic!("not answered: {other:?}"),
    }
    replies
}
