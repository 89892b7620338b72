//! Entries of random commands: the small numbers of an [`Op`] are resolved to existing objects.

use crate::{
    letter_model::{via, with_dlx},
    ops::{How, Op, Rules},
    world::{EntryBuilder, Step, heads, name, session},
};
use quorate_queue::{
    Command, ConsumerTerms, Entry, LETTERS_MAX, Machine, Numbers, Origin, QueueConfig,
    RoutedLetters, Routes,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, GroupId, Holder, Home, LetterNumber, Level, LogIndex,
    NodeId, QueueId, QueueType, Sequence, SessionId, ShortString, StartNumber,
};
use std::collections::BTreeMap;

/// The objects that a sender of commands knows.
#[derive(Debug)]
pub struct Known {
    pub queues: Vec<QueueId>,
    /// The settings of a queue that no policy changes (POL-06).
    fixed: BTreeMap<QueueId, (QueueType, bool)>,
    pub consumers: Vec<ConsumerId>,
    pub gets: Vec<(SessionId, Sequence)>,
    pub start: BTreeMap<u16, u64>,
    pub next: BTreeMap<SessionId, u64>,
    pub life: u64,
    pub bytes: u32,
    pub time: u64,
}

/// The default timeout of a session's holders: a setting of its node.
fn timeout_default(session: SessionId) -> Option<u64> {
    (session.node == NodeId(2)).then_some(70)
}

impl Default for Known {
    fn default() -> Self {
        Self {
            queues: Vec::new(),
            fixed: BTreeMap::new(),
            consumers: Vec::new(),
            gets: Vec::new(),
            start: BTreeMap::from([(1, 1), (2, 1)]),
            next: BTreeMap::new(),
            life: 0,
            bytes: 0,
            time: 0,
        }
    }
}

impl Known {
    /// One entry from these commands; those that name no existing object are left out. The entry
    /// begins with `ExpireHead` for the queues that are due.
    pub fn entry(&mut self, machine: &Machine, index: LogIndex, ops: &[Op]) -> Entry {
        let mut builder = EntryBuilder::default();
        let mut position = 0;
        self.time += 3;
        let waits = ops.iter().map(|op| if let Op::Wait(ms) = op { *ms } else { 0 });
        self.time += waits.sum::<u64>();
        let is_due = |queue: &QueueId| machine.wake_at(*queue).is_some_and(|at| at.0 <= self.time);
        for queue in machine.queues().filter(is_due) {
            builder.batch(Origin::Leader, &[Step::Other(Command::ExpireHead { queue })]);
            position += 1;
        }
        for op in ops {
            if let Some((origin, step)) = self.resolve(op, index, position) {
                builder.batch(origin, &[step]);
                position += 1;
            }
        }
        builder.build(self.time)
    }

    fn session(&self, node: u16) -> SessionId {
        session(node, self.start[&node])
    }

    fn queue(&self, at: usize) -> Option<QueueId> {
        // The newest queues are the likeliest to exist.
        self.queues.iter().rev().nth(at).copied()
    }

    fn consumer(&self, at: usize) -> Option<ConsumerId> {
        self.consumers.iter().rev().nth(at).copied()
    }

    fn by(&mut self, session: SessionId, command: Command) -> Option<(Origin, Step)> {
        Some((self.origin(session), Step::Other(command)))
    }

    fn origin(&mut self, session: SessionId) -> Origin {
        let next = self.next.entry(session).or_insert(1);
        let first = Sequence(*next);
        *next += 1;
        Origin::Session { session, first, mark: Sequence(first.0.saturating_sub(2)) }
    }

    pub fn messages(
        &mut self,
        queue: QueueId,
        level: u8,
        count: u32,
        expiration: Option<u64>,
    ) -> Step {
        let sizes: Vec<u32> = (self.bytes + 1..=self.bytes + count).collect();
        self.bytes += count;
        let mut messages = heads(&sizes);
        // The last messages have none, so that some stand behind others that die before them.
        for head in messages.iter_mut().take(count as usize / 2 + 1) {
            head.expiration_ms = expiration.map(|ms| ms + u64::from(head.body_bytes % 3) * 9);
        }
        Step::Enqueue { queue, level: Level(level), messages }
    }

    fn leader(command: Command) -> Option<(Origin, Step)> {
        Some((Origin::Leader, Step::Other(command)))
    }

    #[expect(clippy::too_many_lines, reason = "one arm an operation")]
    fn resolve(&mut self, op: &Op, index: LogIndex, position: u32) -> Option<(Origin, Step)> {
        match op.clone() {
            Op::Create { durable, auto_delete, rules } => {
                let home = Home::Group(GroupId(1));
                let config = QueueConfig { durable, auto_delete, ..rules.config() };
                let id = QueueId { home, index: index.0, position: u64::from(position) };
                self.queues.push(id);
                self.fixed.insert(id, (config.queue_type, config.single_active_consumer));
                let name = name(&format!("q{}", self.queues.len()));
                self.by(self.session(1), Command::CreateQueue { name, config, bound: None })
            }
            Op::End { queue, if_unused, if_empty } => {
                let queue = self.queue(queue)?;
                self.by(self.session(1), Command::EndQueue { queue, if_unused, if_empty })
            }
            Op::Configure { queue, at, rules } => {
                let queue = self.queue(queue)?;
                let (queue_type, single_active_consumer) = self.fixed[&queue];
                let config = QueueConfig {
                    resolved_at: CatalogIndex(at),
                    queue_type,
                    single_active_consumer,
                    ..rules.config()
                };
                Self::leader(Command::Configure { queue, config })
            }
            Op::Inspect { queue, renew } => {
                let queue = self.queue(queue)?;
                self.by(self.session(2), Command::Inspect { queue, renew })
            }
            Op::Enqueue { queue, node, level, count, expiration } => {
                let queue = self.queue(queue)?;
                let step = self.messages(queue, level, count, expiration);
                Some((self.origin(self.session(node)), step))
            }
            Op::Attach { queue, node, prefetch, up_to, exclusive, priority, timeout } => {
                let queue = self.queue(queue)?;
                let session = self.session(node);
                let number = self.consumers.len() as u64 + 1;
                let consumer = ConsumerId { session, number };
                self.consumers.push(consumer);
                let up_to = DeliveryNumber(up_to);
                let tag = ShortString::EMPTY;
                let terms = ConsumerTerms {
                    prefetch,
                    up_to,
                    exclusive,
                    priority,
                    tag,
                    no_ack: false,
                    timeout_ms: timeout,
                    timeout_default_ms: timeout_default(session),
                };
                self.by(session, Command::Attach { queue, consumer, terms })
            }
            Op::Detach { consumer, shown, how } => {
                let consumer = self.consumer(consumer)?;
                let shown = DeliveryNumber(shown);
                self.by(consumer.session, Command::Detach { consumer, shown, how })
            }
            Op::EndDelivery { consumer, numbers, how } => {
                let holder = Holder::Consumer(self.consumer(consumer)?);
                let number = |(a, b)| (DeliveryNumber(a), DeliveryNumber(b));
                self.by(holder.session(), how.of(holder, numbers.into_iter().map(number).collect()))
            }
            Op::EndGet { get, how } => {
                let (session, number) = self.gets.iter().rev().nth(get).copied()?;
                let one = vec![(DeliveryNumber(1), DeliveryNumber(1))];
                self.by(session, how.of(Holder::Get(session, number), one))
            }
            Op::Credit { consumer, up_to } => {
                let consumer = self.consumer(consumer)?;
                let up_to = DeliveryNumber(up_to);
                self.by(consumer.session, Command::Credit { consumer, up_to })
            }
            Op::Get { queue, node } => {
                let queue = self.queue(queue)?;
                let session = self.session(node);
                self.gets.push((session, Sequence(*self.next.get(&session).unwrap_or(&1))));
                let timeout_default_ms = timeout_default(session);
                self.by(session, Command::Get { queue, timeout_default_ms })
            }
            Op::Purge { queue } => {
                let queue = self.queue(queue)?;
                self.by(self.session(2), Command::Purge { queue })
            }
            Op::Route { queue, first, count, keep } => {
                let queue = self.queue(queue)?;
                let routes = if keep { Routes::Keep } else { Routes::Drop };
                let (first, last) = (LetterNumber(first), LetterNumber(first + count));
                let letters = vec![RoutedLetters { first, last, routes }];
                Self::leader(Command::Routed { queue, at: CatalogIndex(1), via: via(), letters })
            }
            Op::Suspect { node } => Self::leader(Command::NodeSuspected { node: NodeId(node) }),
            Op::Back { node } => Self::leader(Command::NodeBack { node: NodeId(node) }),
            Op::TimedOut { node } => Self::leader(Command::NodeTimedOut { node: NodeId(node) }),
            Op::Down { node } => {
                let start = StartNumber(self.start[&node]);
                *self.start.get_mut(&node).unwrap() += 2;
                Self::leader(Command::NodeDown { node: NodeId(node), start })
            }
            Op::NewStart { node } => {
                *self.start.get_mut(&node).unwrap() += 3;
                None
            }
            Op::SessionEnded { node } => {
                let session = self.session(node);
                *self.start.get_mut(&node).unwrap() += 1;
                Self::leader(Command::SessionEnded { session })
            }
            Op::Stale { queue, node } => {
                let start = self.start[&node];
                let session = session(node, start.checked_sub(1).filter(|it| *it > 0)?);
                let step = self.messages(self.queue(queue)?, 0, 2, None);
                Some((self.origin(session), step))
            }
            Op::Repeat { queue, node } => {
                let session = self.session(node);
                let next = *self.next.get(&session)?;
                let step = self.messages(self.queue(queue)?, 0, 2, None);
                let (first, mark) = (Sequence(next - 1), Sequence(next - 1));
                Some((Origin::Session { session, first, mark }, step))
            }
            Op::Gap { queue, node } => {
                let session = self.session(node);
                let first = Sequence(*self.next.get(&session).unwrap_or(&1) + 1);
                let step = self.messages(self.queue(queue)?, 0, 2, None);
                Some((Origin::Session { session, first, mark: first }, step))
            }
            Op::Wait(_) => None,
            Op::Continue => Self::leader(Command::Continue),
            Op::NewLife => {
                self.life += 1;
                Self::leader(Command::NewLife { life: self.life })
            }
        }
    }
}

impl Rules {
    fn config(self) -> QueueConfig {
        let queue_type = if self.quorum { QueueType::Quorum } else { QueueType::Classic };
        QueueConfig {
            message_ttl_ms: self.ttl,
            expires_ms: self.expires,
            length_max: self.length_max,
            length_bytes_max: self.length_bytes_max,
            overflow: self.overflow,
            dead_letter: with_dlx().dead_letter.filter(|_| self.dead_letters),
            letters_max: self.letters_max.unwrap_or(LETTERS_MAX),
            delivery_limit: self.delivery_limit,
            delivery_count_failures: self.failures,
            single_active_consumer: self.single_active,
            consumer_timeout_ms: self.timeout,
            ..QueueConfig::plain(queue_type)
        }
    }
}

impl How {
    fn of(self, holder: Holder, numbers: Numbers) -> Command {
        match self {
            Self::Ack => Command::Ack { holder, numbers },
            Self::Discard => Command::Discard { holder, numbers },
            Self::Release => Command::Release { holder, numbers },
            Self::Requeue(cause) => Command::Requeue { holder, numbers, cause },
        }
    }
}
