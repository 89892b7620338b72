//! A small, obviously right queue group: sorted lists, searched from the front, nothing bounded and
//! nothing cached.

use quorate_queue::{
    Answer, Command, ConsumerTerms, Counts, Delivery, Detach, Effect, Entry, Got, Origin,
    QueueConfig, QueueReport, Reply, ReturnCause,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, LogIndex, MessageId, NodeId, QueueId,
    ResourceName, Sequence, SessionId, StartNumber,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub counts: Counts,
    pub octets: u32,
}

#[derive(Debug)]
pub struct Consumer {
    pub terms: ConsumerTerms,
    pub next: u64,
    pub up_to: u64,
    pub cancelled: bool,
    pub paused: bool,
    pub held: BTreeMap<u64, Message>,
}

#[derive(Debug)]
pub struct Queue {
    pub name: ResourceName,
    pub config: QueueConfig,
    pub life: u64,
    pub had_consumer: bool,
    pub ready: Vec<Message>,
    pub consumers: BTreeMap<ConsumerId, Consumer>,
    pub gets: BTreeMap<(SessionId, Sequence), Message>,
    pub turns: Vec<ConsumerId>,
}

#[derive(Debug, Default)]
pub struct Session {
    pub last: u64,
    pub mark: u64,
    pub answers: BTreeMap<u64, Reply>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub queues: BTreeMap<QueueId, Queue>,
    pub sessions: BTreeMap<SessionId, Session>,
    pub fences: BTreeMap<NodeId, u64>,
    pub suspected: BTreeSet<NodeId>,
    pub life: u64,
    index: LogIndex,
    position: u32,
    pub effects: Vec<Effect>,
}

impl Queue {
    pub fn attached(&self) -> u32 {
        self.consumers.values().filter(|consumer| !consumer.cancelled).count() as u32
    }

    /// Puts messages among the ready ones: highest level first, then by index and position.
    fn add(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.ready.extend(messages);
        let order = |it: &Message| (Reverse(it.id.level), it.id.index, it.id.position);
        self.ready.sort_by_key(order);
    }

    fn take(
        &mut self,
        holder: Holder,
        numbers: &[(DeliveryNumber, DeliveryNumber)],
    ) -> Vec<Message> {
        let mut taken = Vec::new();
        for (first, last) in numbers {
            match holder {
                Holder::Consumer(id) => {
                    let Some(consumer) = self.consumers.get_mut(&id) else { continue };
                    let inside = |number: &u64| first.0 <= *number && *number <= last.0;
                    taken.extend(consumer.held.extract_if(.., |n, _| inside(n)).map(|it| it.1));
                }
                Holder::Get(session, number) if first.0 <= 1 && last.0 >= 1 => {
                    taken.extend(self.gets.remove(&(session, number)));
                }
                Holder::Get(..) => {}
            }
        }
        taken
    }

    fn give_back(&mut self, messages: Vec<Message>, acquired: u32, returned: u32) {
        let marked = messages.into_iter().map(|mut message| {
            message.counts.acquired += acquired;
            message.counts.returned += returned;
            message
        });
        self.add(marked);
    }
}

impl Model {
    /// Applies an entry. Returns its answers; its effects are in `effects`.
    pub fn apply(&mut self, index: LogIndex, entry: &Entry) -> Vec<Answer> {
        (self.index, self.position) = (index, 0);
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
        self.settle_down();
        self.position += 1;
        reply
    }

    /// `None` is `Gone`.
    #[expect(clippy::too_many_lines, reason = "one arm a command")]
    fn carry_out(
        &mut self,
        entry: &Entry,
        command: &Command,
        caller: Option<(SessionId, Sequence)>,
    ) -> Option<Reply> {
        match command {
            Command::Routed { .. }
            | Command::Transfer { .. }
            | Command::DeadLettered { .. }
            | Command::Retry { .. } => panic!("letters have a model of their own"),
            Command::CreateQueue { name, config } => {
                let home = Home::Group(GroupId(1));
                let id = QueueId { home, index: self.index.0, position: self.position };
                let queue = Queue {
                    name: name.clone(),
                    config: config.clone(),
                    life: self.life,
                    had_consumer: false,
                    ready: Vec::new(),
                    consumers: BTreeMap::new(),
                    gets: BTreeMap::new(),
                    turns: Vec::new(),
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
            Command::Look { queue, .. } => {
                let queue = self.queues.get(queue)?;
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
                    octets: run.messages[position as usize].body_bytes,
                };
                self.queues.get_mut(&run.queue)?.add((*first..first + count).map(message));
            }
            Command::Attach { queue, consumer, terms } => {
                let queue = self.queues.get_mut(queue)?;
                let mut exclusive = queue.consumers.values().filter(|it| !it.cancelled);
                let exclusive = exclusive.any(|it| it.terms.exclusive);
                if queue.attached() > 0 && (terms.exclusive || exclusive) {
                    return Some(Reply::ExclusiveInUse);
                }
                let new = Consumer {
                    terms: terms.clone(),
                    next: 1,
                    up_to: terms.up_to.0,
                    cancelled: false,
                    paused: false,
                    held: BTreeMap::new(),
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
                queue.give_back(unseen, 0, 0);
                if *how == Detach::ChannelEnd {
                    let seen = queue.take(holder, &[(low, *shown)]);
                    queue.give_back(seen, 1, 1);
                }
                queue.consumers.get_mut(consumer).unwrap().cancelled = true;
            }
            Command::Settle { holder, numbers } | Command::Discard { holder, numbers } => {
                if let Some(queue) = self.queue_of(*holder) {
                    queue.take(*holder, numbers);
                }
            }
            Command::Return { holder, numbers, cause } => {
                if let Some(queue) = self.queue_of(*holder) {
                    let back = queue.take(*holder, numbers);
                    let nack = matches!(cause, ReturnCause::Nack | ReturnCause::Recover);
                    let free = nack && queue.config.delivery_count_failures;
                    queue.give_back(back, 1, u32::from(!free));
                }
            }
            Command::Release { holder, numbers } => {
                if let Some(queue) = self.queue_of(*holder) {
                    let back = queue.take(*holder, numbers);
                    queue.give_back(back, 0, 0);
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
            Command::Get { queue: id } => {
                let (session, number) = caller?;
                let queue = self.queues.get_mut(id)?;
                if queue.ready.is_empty() {
                    return Some(Reply::Empty);
                }
                let message = queue.ready.remove(0);
                queue.gets.insert((session, number), message);
                return Some(Reply::Got(Got {
                    queue: *id,
                    message: message.id,
                    counts: message.counts,
                    ready: queue.ready.len() as u64,
                }));
            }
            Command::Purge { queue } => {
                let queue = self.queues.get_mut(queue)?;
                let messages = std::mem::take(&mut queue.ready).len() as u64;
                return Some(Reply::Purged { messages });
            }
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
            Command::Continue => {}
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
            }
        }
        Some(Reply::Taken)
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
        self.settle_down();
    }

    /// What these sessions hold returns, and their consumers go.
    fn lose(&mut self, lost: impl Fn(SessionId) -> bool, counted: u32) {
        for queue in self.queues.values_mut() {
            let holders: Vec<_> = queue.consumers.keys().filter(|it| lost(it.session)).collect();
            for id in holders.into_iter().copied().collect::<Vec<_>>() {
                let consumer = queue.consumers.remove(&id).unwrap();
                queue.give_back(consumer.held.into_values().collect(), 1, counted);
            }
            let gets: Vec<_> = queue.gets.extract_if(.., |it, _| lost(it.0)).collect();
            queue.give_back(gets.into_iter().map(|it| it.1).collect(), 1, counted);
        }
    }

    fn end(&mut self, id: QueueId) {
        let queue = self.queues.remove(&id).unwrap();
        for (consumer, state) in queue.consumers {
            if !state.cancelled {
                self.effects.push(Effect::CancelConsumer { consumer });
            }
        }
        self.effects.push(Effect::QueueEnded { queue: id, name: queue.name });
    }

    fn settle_down(&mut self) {
        let abandoned =
            |queue: &Queue| queue.config.auto_delete && queue.had_consumer && queue.attached() == 0;
        let ends = self.queues.iter().filter(|(_, queue)| abandoned(queue));
        for id in ends.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
        for (id, queue) in &mut self.queues {
            queue.consumers.retain(|_, it| !it.cancelled || !it.held.is_empty());
            queue.hand_out(*id, &self.suspected, &mut self.effects);
        }
    }
}

impl Queue {
    fn has_room(&self, id: ConsumerId, suspected: &BTreeSet<NodeId>) -> bool {
        self.consumers.get(&id).is_some_and(|it| {
            let prefetch = it.terms.prefetch.is_none_or(|n| (it.held.len() as u32) < n);
            let idle = it.cancelled || it.paused || suspected.contains(&id.session.node);
            prefetch && !idle && it.next <= it.up_to
        })
    }

    /// One message after the other to the consumer whose turn it is.
    fn hand_out(&mut self, queue: QueueId, suspected: &BTreeSet<NodeId>, out: &mut Vec<Effect>) {
        let mut turns = std::mem::take(&mut self.turns);
        turns.retain(|id| self.has_room(*id, suspected));
        for id in self.consumers.keys() {
            if !turns.contains(id) && self.has_room(*id, suspected) {
                turns.push(*id);
            }
        }
        while !self.ready.is_empty() && !turns.is_empty() {
            let priority = |id: &ConsumerId| self.consumers[id].terms.priority;
            let best = turns.iter().map(priority).max().unwrap();
            let at = turns.iter().position(|id| priority(id) == best).unwrap();
            let consumer = turns.remove(at);
            let message = self.ready.remove(0);
            let state = self.consumers.get_mut(&consumer).unwrap();
            let number = DeliveryNumber(state.next);
            state.held.insert(state.next, message);
            state.next += 1;
            let Message { id: message, counts, .. } = message;
            out.push(Effect::Deliver(Delivery { consumer, number, queue, message, counts }));
            if self.has_room(consumer, suspected) {
                turns.push(consumer);
            }
        }
        self.turns = turns;
    }
}
