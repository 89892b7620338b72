//! A simple model of a queue group: it carries out the commands of an entry one after the other,
//! without bounds and caches.

use crate::model_queue::{Consumer, Message, Queue, Tally};
use quorate_queue::{
    Answer, Command, Counts, DeadLetterFact, DeathReason, Detach, Effect, Entry, Got, Origin,
    QueueReport, Reply, RequeueCause, RoutedLetters, Routes,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, LogIndex, MessageId, NodeId, QueueId,
    Sequence, SessionId, StartNumber,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub struct Session {
    pub last: u64,
    pub mark: u64,
    pub answers: BTreeMap<u64, Reply>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub queues: BTreeMap<QueueId, Queue>,
    /// Queues that have ended with letters.
    pub ended_queues: BTreeMap<QueueId, Queue>,
    pub sessions: BTreeMap<SessionId, Session>,
    pub fences: BTreeMap<NodeId, u64>,
    pub suspected: BTreeSet<NodeId>,
    pub life: u64,
    now: u64,
    index: LogIndex,
    position: u32,
    pub effects: Vec<Effect>,
    /// Counts of queues that have ended.
    tally: Tally,
}

impl Model {
    /// Applies an entry. Returns its answers; its effects are in `effects`.
    pub fn apply(&mut self, index: LogIndex, entry: &Entry) -> Vec<Answer> {
        (self.index, self.position) = (index, 0);
        self.now = self.now.max(entry.stamp.time.0);
        self.queues.values_mut().for_each(|queue| queue.entry = index);
        self.effects.clear();
        let mut answers = Vec::new();
        for batch in &entry.batches {
            match batch.origin {
                Origin::Leader => {
                    for command in &batch.commands {
                        self.command(entry, command, None);
                    }
                }
                Origin::Letters { .. } => panic!("letters have a model of their own"),
                Origin::Session { session, first, mark } => {
                    answers.push(self.batch(entry, session, first.0, mark.0, &batch.commands));
                }
            }
        }
        let mut tally = std::mem::take(&mut self.tally);
        let queues = self.queues.values_mut().chain(self.ended_queues.values_mut());
        queues.for_each(|queue| add(&mut tally, std::mem::take(&mut queue.tally)));
        for ((queue_type, strategy, fact), count) in tally {
            self.effects.push(Effect::DeadLettersCounted { queue_type, strategy, fact, count });
        }
        answers
    }

    fn fenced(&self, session: SessionId) -> bool {
        session.start.0 <= self.fences.get(&session.node).copied().unwrap_or(0)
    }

    fn batch(
        &mut self,
        entry: &Entry,
        session: SessionId,
        first: u64,
        mark: u64,
        commands: &[Command],
    ) -> Answer {
        let count = commands.len() as u64;
        if self.fenced(session) {
            self.position += commands.len() as u32;
            return Answer::Fenced { session };
        }
        self.fence(session.node, session.start.0 - 1);
        let want = self.sessions.get(&session).map_or(0, |it| it.last) + 1;
        if first > want {
            self.position += commands.len() as u32;
            return Answer::Want { session, want: Sequence(want) };
        }
        let mut other = Vec::new();
        for (number, command) in (first..).zip(commands) {
            let reply = if number < want {
                self.position += 1;
                self.sessions[&session].answers.get(&number).cloned().unwrap_or(Reply::Taken)
            } else {
                let reply = self.command(entry, command, Some((session, Sequence(number))));
                self.sessions.entry(session).or_default().answers.insert(number, reply.clone());
                reply
            };
            if reply != Reply::Taken {
                other.push((Sequence(number), reply));
            }
        }
        let record = self.sessions.entry(session).or_default();
        record.last = record.last.max(first + count - 1);
        record.mark = record.mark.max(mark);
        let mark = record.mark;
        record.answers.retain(|number, _| *number >= mark);
        let (first, last) = (Sequence(first), Sequence(first + count - 1));
        Answer::Answered { session, first, last, other }
    }

    fn command(
        &mut self,
        entry: &Entry,
        command: &Command,
        caller: Option<(SessionId, Sequence)>,
    ) -> Reply {
        let reply = self.carry_out(entry, command, caller).unwrap_or(Reply::Gone);
        self.stabilize();
        self.position += 1;
        reply
    }

    /// Carries out a command; `None` is `Gone`.
    #[expect(clippy::too_many_lines, reason = "one arm a command")]
    fn carry_out(
        &mut self,
        entry: &Entry,
        command: &Command,
        caller: Option<(SessionId, Sequence)>,
    ) -> Option<Reply> {
        match command {
            Command::Transfer { .. }
            | Command::DeadLettered { .. }
            | Command::Retry { .. }
            | Command::TaskStep(_)
            | Command::ForgetTask { .. } => {
                panic!("letters have a model of their own")
            }
            Command::CreateQueue { name, config, .. } => {
                let home = Home::Group(GroupId(1));
                let id = QueueId { home, index: self.index.0, position: u64::from(self.position) };
                let queue = Queue {
                    name: name.clone(),
                    config: config.clone(),
                    life: self.life,
                    entry: self.index,
                    had_consumer: false,
                    used_at: self.now,
                    was_used: false,
                    arrivals: 0,
                    active: None,
                    ready: Vec::new(),
                    consumers: BTreeMap::new(),
                    gets: BTreeMap::new(),
                    get_timeouts: BTreeMap::new(),
                    service_queue: Vec::new(),
                    letters: BTreeMap::new(),
                    last_letter: 0,
                    tally: Tally::new(),
                };
                self.queues.insert(id, queue);
                return Some(Reply::Created(id));
            }
            Command::EndQueue { queue: id, if_unused, if_empty } => {
                let queue = self.queues.get(id)?;
                let ready = queue.ready.len() as u64;
                if *if_unused && queue.attached() > 0 {
                    return Some(Reply::InUse);
                }
                if *if_empty && ready > 0 {
                    return Some(Reply::NotEmpty);
                }
                self.end(*id);
                return Some(Reply::Ended { ready });
            }
            Command::Configure { queue, config } => {
                let queue = self.queues.get_mut(queue)?;
                if config.resolved_at >= queue.config.resolved_at {
                    queue.config = config.clone();
                }
            }
            Command::Inspect { queue, renew } => {
                let queue = self.queues.get_mut(queue)?;
                queue.used_at = if *renew { self.now } else { queue.used_at };
                return Some(Reply::Alive(QueueReport {
                    ready: queue.ready.len() as u64,
                    consumers: queue.attached(),
                    configured_at: queue.config.resolved_at,
                }));
            }
            Command::Enqueue { run, first, count } => {
                let run = &entry.runs[*run as usize];
                let (level, index) = (run.level, self.index);
                let message = |position: u32| Message {
                    id: MessageId { level, index, position },
                    counts: Counts::default(),
                    bytes: run.messages[position as usize].body_bytes,
                    expiration: run.messages[position as usize].expiration_ms,
                    enqueued_at: entry.stamp.time.0,
                    unacked_since: 0,
                };
                let messages = (*first..first + count).map(message).collect();
                let (now, suspected) = (self.now, &self.suspected);
                let queue = self.queues.get_mut(&run.queue)?;
                let refused = queue.enqueue(messages, now, suspected);
                if !refused.is_empty() {
                    return Some(Reply::Refused(refused));
                }
            }
            Command::Attach { queue, consumer, terms } => {
                let queue = self.queues.get_mut(queue)?;
                let mut exclusive = queue.consumers.values().filter(|it| !it.cancelled);
                let exclusive = exclusive.any(|it| it.terms.exclusive);
                let alone = queue.attached() == 0 && !queue.config.single_active_consumer;
                if (terms.exclusive && !alone) || exclusive {
                    return Some(Reply::ExclusiveInUse);
                }
                (queue.used_at, queue.arrivals) = (self.now, queue.arrivals + 1);
                let new = Consumer {
                    terms: terms.clone(),
                    next: 1,
                    up_to: terms.up_to.0,
                    cancelled: false,
                    timed_out: BTreeSet::new(),
                    arrival: queue.arrivals,
                    paused: false,
                    unacked: BTreeMap::new(),
                };
                queue.consumers.insert(*consumer, new);
                queue.had_consumer = true;
            }
            Command::Detach { consumer, shown, how } => {
                let Some(queue) = self.queue_of(Holder::Consumer(*consumer)) else {
                    return Some(Reply::Taken);
                };
                let holder = Holder::Consumer(*consumer);
                let (low, next) = (DeliveryNumber(0), DeliveryNumber(shown.0 + 1));
                let unseen = queue.take(holder, &[(next, DeliveryNumber(u64::MAX))]);
                queue.requeue(unseen, 0, 0);
                if *how == Detach::ChannelEnd {
                    let seen = queue.take(holder, &[(low, *shown)]);
                    queue.requeue(seen, 1, 1);
                }
                let state = queue.consumers.get_mut(consumer).unwrap();
                if !std::mem::replace(&mut state.cancelled, true) {
                    self.used_until_now(*consumer);
                }
            }
            Command::Ack { holder, numbers } => {
                if let Some(queue) = self.queue_of(*holder) {
                    queue.take(*holder, numbers);
                }
            }
            Command::Discard { holder, numbers } => {
                if let Some(queue) = self.queue_of(*holder) {
                    for message in queue.take(*holder, numbers) {
                        queue.die(message, DeathReason::Rejected);
                    }
                }
            }
            Command::Requeue { holder, numbers, cause } => {
                if let Some(queue) = self.queue_of(*holder) {
                    let back = queue.take(*holder, numbers);
                    let nack = matches!(cause, RequeueCause::Nack | RequeueCause::Recover);
                    let free = nack && queue.config.delivery_count_failures;
                    queue.requeue(back, 1, u32::from(!free));
                }
            }
            Command::Release { holder, numbers } => {
                if let Some(queue) = self.queue_of(*holder) {
                    let back = queue.take(*holder, numbers);
                    queue.requeue(back, 0, 0);
                    if let Holder::Consumer(id) = holder {
                        queue.consumers.get_mut(id).unwrap().paused = true;
                    }
                }
            }
            Command::Credit { consumer, up_to } => {
                if let Some(queue) = self.queue_of(Holder::Consumer(*consumer)) {
                    let consumer = queue.consumers.get_mut(consumer).unwrap();
                    (consumer.up_to, consumer.paused) = (up_to.0, false);
                }
            }
            Command::Get { queue: id, timeout_default_ms } => {
                let (session, number) = caller?;
                let now = self.now;
                let queue = self.queues.get_mut(id)?;
                queue.used_at = now;
                queue.expire_first(now);
                if queue.ready.is_empty() {
                    return Some(Reply::Empty);
                }
                let message = Message { unacked_since: now, ..queue.ready.remove(0) };
                queue.gets.insert((session, number), message);
                queue.get_timeouts.insert(session, *timeout_default_ms);
                return Some(Reply::Got(Got {
                    queue: *id,
                    message: message.id,
                    counts: message.counts,
                    ready: queue.ready.len() as u64,
                }));
            }
            Command::Purge { queue } => {
                let queue = self.queues.get_mut(queue)?;
                let ready = std::mem::take(&mut queue.ready).len();
                let kept = queue.letters.extract_if(.., |_, letter| letter.kept).count();
                return Some(Reply::Purged { messages: (ready + kept) as u64 });
            }
            Command::Routed { queue, letters, .. } => self.routed(*queue, letters),
            Command::SessionEnded { session } => self.fence(session.node, session.start.0),
            Command::NodeDown { node, start } => self.fence(*node, start.0),
            Command::NodeSuspected { node } => {
                self.suspected.insert(*node);
            }
            Command::NodeBack { node } => {
                self.suspected.remove(node);
            }
            Command::NodeTimedOut { node } => {
                if self.suspected.contains(node) {
                    self.lose(|session| session.node == *node, 0);
                }
            }
            Command::ExpireHead { .. } | Command::Continue | Command::LastResort => {}
            Command::NewLife { life } => {
                self.life = self.life.max(*life);
                let life = self.life;
                let ends = |queue: &&QueueId| {
                    let queue = &self.queues[queue];
                    !queue.config.durable && queue.life < life
                };
                for id in self.queues.keys().filter(ends).copied().collect::<Vec<_>>() {
                    self.end(id);
                }
                for queue in self.queues.values_mut() {
                    queue.used_at =
                        if queue.config.expires_ms.is_some() { self.now } else { queue.used_at };
                }
            }
        }
        Some(Reply::Taken)
    }

    /// Letters that were routed before stay as they are; an ended queue is removed with its last
    /// letter.
    fn routed(&mut self, id: QueueId, routed: &[RoutedLetters]) {
        let queue = self.queues.get_mut(&id).or_else(|| self.ended_queues.get_mut(&id));
        let Some(queue) = queue else { return };
        for RoutedLetters { first, last, routes } in routed {
            let these = queue.letters.range_mut(first.0..=last.0);
            match routes {
                Routes::Keep => these.for_each(|(_, letter)| letter.kept = true),
                Routes::Drop => {
                    let dropped = queue.letters.extract_if(first.0..=last.0, |_, _| true).count();
                    queue.count(DeadLetterFact::Unroutable, dropped as u64);
                }
                Routes::To(_) | Routes::Cycle => panic!("transfers have a model of their own"),
            }
        }
        for (_, queue) in self.ended_queues.extract_if(.., |_, queue| queue.letters.is_empty()) {
            add(&mut self.tally, queue.tally);
        }
    }

    fn queue_of(&mut self, holder: Holder) -> Option<&mut Queue> {
        self.queues.values_mut().find(|queue| match holder {
            Holder::Consumer(id) => queue.consumers.contains_key(&id),
            Holder::Get(session, number) => queue.gets.contains_key(&(session, number)),
        })
    }

    fn fence(&mut self, node: NodeId, start: u64) {
        if self.fenced(SessionId { node, start: StartNumber(start) }) {
            return;
        }
        self.fences.insert(node, start);
        self.suspected.remove(&node);
        self.lose(|session| session.node == node && session.start.0 <= start, 1);
        self.sessions.retain(|session, _| session.node != node || session.start.0 > start);
        self.stabilize();
    }

    /// Requeues the messages of these sessions, and removes their consumers.
    fn lose(&mut self, lost: impl Fn(SessionId) -> bool, counted: u32) {
        for queue in self.queues.values_mut() {
            let attached = queue.attached();
            let consumers = queue.consumers.extract_if(.., |id, _| lost(id.session));
            let consumers: Vec<_> = consumers.flat_map(|it| it.1.unacked.into_values()).collect();
            if attached > 0 && queue.attached() == 0 {
                queue.used_at = self.now;
                // The queue ends before any message is requeued (EXQ-05).
                if queue.config.auto_delete {
                    continue;
                }
            }
            queue.requeue(consumers, 1, counted);
            let gets: Vec<_> = queue.gets.extract_if(.., |it, _| lost(it.0)).collect();
            queue.requeue(gets.into_iter().map(|it| it.1).collect(), 1, counted);
        }
    }

    /// If the consumer was the last one, its queue was used until now.
    fn used_until_now(&mut self, consumer: ConsumerId) {
        let now = self.now;
        let queue = self.queue_of(Holder::Consumer(consumer)).unwrap();
        if queue.attached() == 0 {
            queue.used_at = now;
        }
    }

    fn end(&mut self, id: QueueId) {
        let mut queue = self.queues.remove(&id).unwrap();
        add(&mut self.tally, std::mem::take(&mut queue.tally));
        for (consumer, state) in &queue.consumers {
            if !state.cancelled {
                self.effects.push(Effect::CancelConsumer { consumer: *consumer });
            }
        }
        self.effects.push(Effect::QueueEnded { queue: id });
        if !queue.letters.is_empty() {
            self.ended_queues.insert(id, queue);
        }
    }

    fn stabilize(&mut self) {
        let abandoned =
            |queue: &Queue| queue.config.auto_delete && queue.had_consumer && queue.attached() == 0;
        let ends = self.queues.iter().filter(|(_, queue)| abandoned(queue));
        for id in ends.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
        let now = self.now;
        for queue in self.queues.values_mut() {
            queue.consumers.retain(|_, it| !it.cancelled || !it.unacked.is_empty());
            queue.note_use(now, &self.suspected);
        }
        let ends = self.queues.iter().filter(|(_, queue)| queue.lease_is_over(now));
        for id in ends.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
        for (id, queue) in &mut self.queues {
            queue.time_out(now, &mut self.effects);
            queue.expire(now, false);
            queue.choose_active(&self.suspected);
            queue.hand_out(*id, now, &self.suspected, &mut self.effects);
            queue.expire(now, true);
            queue.drop_head();
            queue.expire(now, true);
            queue.consumers.retain(|_, it| !it.cancelled || !it.unacked.is_empty());
            queue.note_use(now, &self.suspected);
        }
    }
}

fn add(sum: &mut Tally, more: Tally) {
    for (what, count) in more.into_iter().filter(|(_, count)| *count > 0) {
        *sum.entry(what).or_default() += count;
    }
}
