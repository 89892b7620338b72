//! Random commands. An [`Op`] names things by small numbers, resolved against what there is.

use crate::world::{EntryBuilder, Step, heads, name, session};
use proptest::prelude::*;
use quorate_queue::{
    Command, ConsumerTerms, Detach, Entry, Machine, Numbers, Origin, QueueConfig, ReturnCause,
};
use quorate_types::{
    CatalogIndex, ConsumerId, DeliveryNumber, GroupId, Holder, Home, Level, LogIndex, NodeId,
    Overflow, QueueId, QueueType, Sequence, SessionId, ShortString, StartNumber,
};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub enum Op {
    Create {
        durable: bool,
        auto_delete: bool,
        rules: Rules,
    },
    End {
        queue: usize,
        if_unused: bool,
        if_empty: bool,
    },
    Configure {
        queue: usize,
        at: u64,
        rules: Rules,
    },
    Look {
        queue: usize,
        renew: bool,
    },
    Enqueue {
        queue: usize,
        node: u16,
        level: u8,
        count: u32,
        expiration: Option<u64>,
    },
    Attach {
        queue: usize,
        node: u16,
        prefetch: Option<u32>,
        up_to: u64,
        exclusive: bool,
        priority: i64,
        timeout: Option<u64>,
    },
    Detach {
        consumer: usize,
        shown: u64,
        how: Detach,
    },
    EndDelivery {
        consumer: usize,
        numbers: Vec<(u64, u64)>,
        how: How,
    },
    EndGet {
        get: usize,
        how: How,
    },
    Credit {
        consumer: usize,
        up_to: u64,
    },
    Get {
        queue: usize,
        node: u16,
    },
    Purge {
        queue: usize,
    },
    Suspect {
        node: u16,
    },
    Back {
        node: u16,
    },
    TimedOut {
        node: u16,
    },
    Down {
        node: u16,
    },
    NewStart {
        node: u16,
    },
    SessionEnded {
        node: u16,
    },
    Stale {
        queue: usize,
        node: u16,
    },
    Repeat {
        queue: usize,
        node: u16,
    },
    Gap {
        queue: usize,
        node: u16,
    },
    Continue,
    NewLife,
    Wait(u64),
}

/// The settings that a queue's rules follow; most queues have few of them.
#[derive(Clone, Debug)]
pub struct Rules {
    pub quorum: bool,
    pub ttl: Option<u64>,
    pub expires: Option<u64>,
    pub length_max: Option<u64>,
    pub length_bytes_max: Option<u64>,
    pub overflow: Overflow,
    pub delivery_limit: Option<u32>,
    pub failures: bool,
    pub single_active: bool,
    pub timeout: Option<u64>,
}

fn rarely<T: std::fmt::Debug + Clone>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.2, value)
}

fn rules() -> impl Strategy<Value = Rules> {
    let overflow = prop_oneof![2 => Just(Overflow::DropHead), 1 => Just(Overflow::RejectPublish)];
    let limits = (rarely(0u64..40), rarely(0u64..4_000), overflow, rarely(0u32..3), any::<bool>());
    let times = (rarely(0u64..60), prop::option::weighted(0.1, 60u64..400), rarely(5u64..80));
    (limits, times, any::<bool>(), 0u8..5).prop_map(|(limits, times, quorum, single)| {
        let (length_max, length_bytes_max, overflow, delivery_limit, failures) = limits;
        let (ttl, expires, timeout) = times;
        Rules {
            quorum,
            ttl,
            expires,
            length_max,
            length_bytes_max,
            overflow,
            delivery_limit,
            failures,
            single_active: single == 0,
            timeout,
        }
    })
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
            delivery_limit: self.delivery_limit,
            delivery_count_failures: self.failures,
            single_active_consumer: self.single_active,
            consumer_timeout_ms: self.timeout,
            ..QueueConfig::plain(queue_type)
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum How {
    Settle,
    Discard,
    Release,
    Return(ReturnCause),
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Settle),
        1 => Just(How::Discard),
        1 => Just(How::Release),
        1 => Just(How::Return(ReturnCause::Reject)),
        2 => Just(How::Return(ReturnCause::Nack)),
        1 => Just(How::Return(ReturnCause::Recover)),
        1 => Just(How::Return(ReturnCause::ChannelEnd)),
    ]
}

fn numbers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0u64..30, 0u64..12), 1..3).prop_map(|steps| {
        let mut low = 0;
        let mut ranges = Vec::new();
        for (gap, length) in steps {
            ranges.push((low + gap, low + gap + length));
            low += gap + length + 1;
        }
        ranges
    })
}

fn up_to() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(u64::MAX), 2 => 0u64..40]
}

/// Random commands; `counts` says how many messages an enqueue may have.
#[expect(clippy::too_many_lines, reason = "one line an operation")]
pub fn op(counts: impl Strategy<Value = u32> + 'static) -> impl Strategy<Value = Op> {
    let q = 0usize..4;
    let c = 0usize..8;
    let node = 1u16..3;
    let prefetch = prop_oneof![1 => Just(None), 3 => (1u32..12).prop_map(Some)];
    let detach = prop_oneof![Just(Detach::Cancel), Just(Detach::ChannelEnd)];
    let terms = (prefetch, up_to(), 0u8..8, -1i64..2, rarely(1u64..50));
    let attach = (q.clone(), node.clone(), terms).prop_map(
        |(queue, node, (prefetch, up_to, exclusive, priority, timeout))| Op::Attach {
            queue,
            node,
            prefetch,
            up_to,
            exclusive: exclusive == 0,
            priority,
            timeout,
        },
    );
    let create = (0u8..3, 0u8..4, rules()).prop_map(|(transient, auto_delete, rules)| Op::Create {
        durable: transient > 0,
        auto_delete: auto_delete == 0,
        rules,
    });
    let expiration = rarely(0u64..60);
    let enqueue = (q.clone(), node.clone(), 0u8..5, counts, expiration).prop_map(
        |(queue, node, level, count, expiration)| {
            let level = level.saturating_sub(2);
            Op::Enqueue { queue, node, level, count, expiration }
        },
    );
    let end = (q.clone(), 0u8..3).prop_map(|(queue, mode)| Op::End {
        queue,
        if_unused: mode == 1,
        if_empty: mode == 2,
    });
    prop_oneof![
        4 => create,
        4 => end,
        2 => (q.clone(), 0u64..5, rules())
            .prop_map(|(queue, at, rules)| Op::Configure { queue, at, rules }),
        6 => (q.clone(), any::<bool>()).prop_map(|(queue, renew)| Op::Look { queue, renew }),
        50 => enqueue,
        24 => attach,
        12 => (c.clone(), 0u64..20, detach)
            .prop_map(|(consumer, shown, how)| Op::Detach { consumer, shown, how }),
        80 => (c.clone(), numbers(), how())
            .prop_map(|(consumer, numbers, how)| Op::EndDelivery { consumer, numbers, how }),
        16 => (c.clone(), how()).prop_map(|(get, how)| Op::EndGet { get, how }),
        16 => (c, up_to()).prop_map(|(consumer, up_to)| Op::Credit { consumer, up_to }),
        30 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Get { queue, node }),
        2 => q.clone().prop_map(|queue| Op::Purge { queue }),
        5 => node.clone().prop_map(|node| Op::Suspect { node }),
        8 => node.clone().prop_map(|node| Op::Back { node }),
        2 => node.clone().prop_map(|node| Op::TimedOut { node }),
        1 => node.clone().prop_map(|node| Op::Down { node }),
        1 => node.clone().prop_map(|node| Op::NewStart { node }),
        1 => node.clone().prop_map(|node| Op::SessionEnded { node }),
        3 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Stale { queue, node }),
        6 => (q.clone(), node.clone()).prop_map(|(queue, node)| Op::Repeat { queue, node }),
        3 => (q, node).prop_map(|(queue, node)| Op::Gap { queue, node }),
        6 => Just(Op::Continue),
        1 => Just(Op::NewLife),
        10 => (1u64..80).prop_map(Op::Wait),
    ]
}

/// Entries of a few commands each.
pub fn entries(
    counts: impl Strategy<Value = u32> + 'static,
    most: usize,
) -> impl Strategy<Value = Vec<Vec<Op>>> {
    prop::collection::vec(prop::collection::vec(op(counts), 1..5), 1..most)
}

/// What there is, as far as whoever sends commands knows.
#[derive(Debug)]
pub struct Known {
    pub queues: Vec<QueueId>,
    /// What of a queue's settings no policy changes (POL-06).
    fixed: BTreeMap<QueueId, (QueueType, bool)>,
    pub consumers: Vec<ConsumerId>,
    pub gets: Vec<(SessionId, Sequence)>,
    pub start: BTreeMap<u16, u64>,
    pub next: BTreeMap<SessionId, u64>,
    pub life: u64,
    pub octets: u32,
    pub time: u64,
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
            octets: 0,
            time: 0,
        }
    }
}

impl Known {
    /// One entry from these; those that name nothing are left out. It begins with the queues whose
    /// moment has come.
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
        // The newest are the likeliest to live.
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
        let sizes: Vec<u32> = (self.octets + 1..=self.octets + count).collect();
        self.octets += count;
        let mut messages = heads(&sizes);
        // The last ones have none, so that some stand behind others that die before them.
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
                let id = QueueId { home, index: index.0, position };
                self.queues.push(id);
                self.fixed.insert(id, (config.queue_type, config.single_active_consumer));
                let name = name(&format!("q{}", self.queues.len()));
                self.by(self.session(1), Command::CreateQueue { name, config })
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
            Op::Look { queue, renew } => {
                let queue = self.queue(queue)?;
                self.by(self.session(2), Command::Look { queue, renew })
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
                    timeout_default_ms: timeout.map(|ms| ms * 2),
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
                self.by(session, Command::Get { queue })
            }
            Op::Purge { queue } => {
                let queue = self.queue(queue)?;
                self.by(self.session(2), Command::Purge { queue })
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

impl How {
    fn of(self, holder: Holder, numbers: Numbers) -> Command {
        match self {
            Self::Settle => Command::Settle { holder, numbers },
            Self::Discard => Command::Discard { holder, numbers },
            Self::Release => Command::Release { holder, numbers },
            Self::Return(cause) => Command::Return { holder, numbers, cause },
        }
    }
}
