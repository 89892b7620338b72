//! Dead letters of the homes that this node leads: routed once, sent until they are answered, the
//! answers committed (LET). One task looks at all of them whenever there is something to do.
//!
//! By LET 3 a target's group owes a notice of the target's end, which would have to outlive the
//! target. Instead the worker of the source finds that a target for which letters wait is no longer
//! in the catalog. It gives these letters numbers, and the target's home answers "gone".

mod annotate;
mod bodies;
mod route;
mod send;
mod state;

use crate::{Share, node::Node, once_per_minute::OncePerMinute, peers::PeerMessage};
use annotate::Death;
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_catalog::Catalog;
use quorate_queue::{Answer, Command, DeadLetter, Effect, Machine, RoutedLetters, Routes, Via};
use quorate_types::{CatalogIndex, Home, LetterHome, LetterNumber, NodeId, QueueId};
use route::Found;
use state::{Waiting, Worker};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::MissedTickBehavior;

/// At the latest after so long the worker looks again, whatever it has been told.
const TICK: Duration = Duration::from_millis(250);

/// Letters of one queue routed by one command, and bytes of messages that are read for it.
const ROUTE_MAX: usize = 512;
const ROUTE_BYTES_MAX: usize = 24 << 20;

/// The workers of all homes.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    wake: tokio::sync::Notify,
    workers: Mutex<BTreeMap<Home, Worker>>,
    /// When which queue's cycles were logged.
    cycles: Mutex<OncePerMinute<QueueId>>,
}

impl DeadLetters {
    /// Something is to be done.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn with<T>(&self, home: Home, act: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        self.workers.lock().get_mut(&home).map(act)
    }

    /// Forgets homes that are led no more, begins with those that are led anew.
    fn follow(&self, node: &Node) -> Vec<Home> {
        // Asked before: who performs effects holds the leadership, and may come to the workers.
        let terms: Vec<_> =
            node.proposers.keys().map(|home| (*home, node.executor.leading(*home))).collect();
        let mut workers = self.workers.lock();
        let mut led = Vec::new();
        for (home, term) in terms {
            match term {
                Some(term) if workers.get(&home).is_some_and(|worker| worker.term == term) => {
                    led.push(home);
                }
                Some(term) => {
                    workers.insert(
                        home,
                        Worker::new(term, node.context.memory.account(Share::Letters)),
                    );
                    led.push(home);
                }
                None => drop(workers.remove(&home)),
            }
        }
        led
    }
}

impl Node {
    /// Looks after the letters of all homes that this node leads, for ever.
    pub(crate) async fn look_after_letters(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // What looks at all queues is not for every answer that comes in.
            let all = tokio::select! {
                () = self.letters.wake.notified() => false,
                _ = versions.changed() => true,
                _ = ticks.tick() => true,
            };
            let homes = self.letters.follow(&self);
            for home in homes {
                self.route_letters(home).await;
                if all {
                    self.forget_done_letters(home);
                    self.route_kept_letters(home).await;
                    self.tell_of_room_again(home);
                }
                self.send_letters(home);
                self.retry_letters(home);
            }
        }
    }

    /// Forgets what the worker remembers of queues whose letters have ended.
    fn forget_done_letters(&self, home: Home) {
        let alive = self.with_machine(home, |machine| {
            let queues = machine.queues_with_letters().chain(machine.queues_with_kept());
            let targets = machine.targets().map(|target| target.target);
            (queues.collect::<BTreeSet<_>>(), targets.collect::<BTreeSet<_>>())
        });
        let Some((queues, targets)) = alive else { return };
        self.letters.with(home, |worker| {
            worker.forget_others(|it| queues.contains(it), |it| targets.contains(it));
        });
    }

    /// Routes what waits (LET 1, 5).
    async fn route_letters(self: &Arc<Self>, home: Home) {
        if !self.lease.is_held() {
            return;
        }
        let waiting = self.letters_to_route(home);
        let mut unrouted = Vec::new();
        for mut waiting in waiting {
            let bodies = self.bodies_of(home, &mut waiting);
            if let Some(left) = self.route_by_copy(home, waiting, bodies, false) {
                unrouted.push(left);
            }
            // What was read for it may have come from the disk.
            tokio::task::yield_now().await;
        }
        // Before anything is dropped or kept, the copy is as new as the catalog itself (LET 5).
        if !unrouted.is_empty() && self.catalog_client.read().await {
            for mut waiting in unrouted {
                let bodies = self.bodies_of(home, &mut waiting);
                self.route_by_copy(home, waiting, bodies, true);
            }
        }
    }

    fn letters_to_route(&self, home: Home) -> Vec<Waiting> {
        let now = Instant::now();
        let found = self.with_machine(home, |machine| {
            let queues = machine.queues_with_letters();
            queues.filter_map(|queue| waiting(machine, queue, false, LetterNumber(0))).collect()
        });
        let mut found: Vec<Waiting> = found.unwrap_or_default();
        self.letters.with(home, |worker| {
            found.retain(|it| {
                it.letters.first().is_some_and(|first| worker.may_route(it.queue, first, now))
            });
        });
        found
    }

    /// Looks whether letters kept as unroutable have got a route, when something has changed that
    /// may have given them one; without a DLX in force they go.
    async fn route_kept_letters(self: &Arc<Self>, home: Home) {
        let version = self.catalog.read().version();
        let kept = self.with_machine(home, |machine| {
            let settings = |queue| Some((queue, machine.letter_settings(queue)?.1));
            machine.queues_with_kept().filter_map(settings).collect::<Vec<_>>()
        });
        for (queue, settings) in kept.unwrap_or_default() {
            let look = |worker: &mut Worker| worker.look_from(queue, version, &settings);
            let Some(from) = self.letters.with(home, look) else { continue };
            let gone = settings.is_none();
            if gone && !self.catalog_client.read().await {
                continue;
            }
            let next = self.route_kept_letters_of(home, queue, gone, from).await;
            self.letters.with(home, |worker| worker.looked(queue, version, settings, next));
        }
    }

    /// Looks at a queue's kept letters from one on. Gives the number to go on from: where a message is
    /// not at hand, so that two such letters do not take the one place for what is fetched from each
    /// other; or behind the last.
    async fn route_kept_letters_of(
        self: &Arc<Self>,
        home: Home,
        queue: QueueId,
        gone: bool,
        mut from: LetterNumber,
    ) -> LetterNumber {
        let next = |from| self.with_machine(home, |it| waiting(it, queue, true, from)).flatten();
        while let Some(mut some) = next(from).filter(|some| !some.letters.is_empty()) {
            let bodies = self.bodies_of(home, &mut some);
            let Some(last) = some.letters.last() else { return from };
            from = LetterNumber(last.number.0 + 1);
            self.route_by_copy(home, some, bodies, gone);
            tokio::task::yield_now().await;
        }
        from
    }

    /// Messages of the first letters, as many as are read at once. The others are left to the next
    /// turn.
    fn bodies_of(self: &Arc<Self>, home: Home, waiting: &mut Waiting) -> Vec<Bytes> {
        let bodies = match &waiting.settings {
            Some(_) => {
                let wanted: Vec<_> = waiting.letters.iter().map(|it| it.message).collect();
                self.letter_bodies(home, waiting.queue, &wanted, ROUTE_BYTES_MAX)
            }
            // They are dropped whatever they are.
            None => vec![Bytes::new(); waiting.letters.len()],
        };
        waiting.letters.truncate(bodies.len());
        bodies
    }

    /// Routes letters of one queue by this node's copy. Those that nothing takes are handed back,
    /// unless the copy is known to be `fresh`: then they are kept or dropped.
    fn route_by_copy(
        &self,
        home: Home,
        mut waiting: Waiting,
        bodies: Vec<Bytes>,
        fresh: bool,
    ) -> Option<Waiting> {
        let queue = waiting.queue;
        let via = match &waiting.settings {
            Some(DeadLetter { exchange, routing_key, .. }) => {
                Via { exchange: exchange.clone(), routing_key: routing_key.clone() }
            }
            None if !fresh => return Some(waiting),
            None => Via { exchange: Default::default(), routing_key: None },
        };
        // The lock is taken for each letter anew, so that others have their turn. One that a later
        // copy routes counts as routed by this one, and at worst is routed once more.
        let version = self.catalog.read().version();
        let mut routed: Vec<RoutedLetters> = Vec::new();
        let mut left = Vec::new();
        for (letter, octets) in waiting.letters.iter().zip(bodies) {
            if letter.after >= version {
                // Its targets had ended, and the copy does not know yet (LET 4).
                break;
            }
            let found = match &waiting.settings {
                Some(_) => {
                    let at = quorate_types::WallTime(0);
                    let death = Death { queue: &waiting.name, reason: letter.reason, at };
                    let catalog = self.catalog.read();
                    let found = route::route(&catalog, &self.executor, &octets, death, &via);
                    let again = letter.after > CatalogIndex(0);
                    if again { found.again(&catalog) } else { found }
                }
                None => Found::Nothing,
            };
            match fate(found, &waiting, fresh) {
                Some(routes) => add(&mut routed, letter.number, routes),
                None if waiting.kept => left.push(*letter),
                None => {
                    // Order is kept: those behind it wait for the fresh copy too.
                    left.extend(
                        waiting.letters.iter().filter(|it| it.number >= letter.number).copied(),
                    );
                    break;
                }
            }
        }
        if !routed.is_empty() {
            self.tell_of_routing(home, &waiting, &routed);
            let letters = routed;
            self.propose_to(home, vec![Command::Routed { queue, at: version, via, letters }]);
        }
        waiting.letters = left;
        (!waiting.kept && !fresh && !waiting.letters.is_empty()).then_some(waiting)
    }

    /// Notes what is about to be proposed; the log says when letters go round in a circle.
    fn tell_of_routing(&self, home: Home, waiting: &Waiting, routed: &[RoutedLetters]) {
        let (queue, now) = (waiting.queue, Instant::now());
        if let Some(first) = waiting.letters.first().filter(|_| !waiting.kept) {
            self.letters.with(home, |worker| worker.routing_proposed(queue, first, now));
        }
        if routed.iter().any(|routed| routed.routes == Routes::Cycle)
            && self.letters.cycles.lock().is_due(queue, now)
        {
            let name = &waiting.name;
            tracing::warn!(queue = %name, "dropping dead letters: their routes form a cycle");
        }
    }

    /// Full targets that have told of room, or have ended, or were not refused (LET 3, 4).
    fn retry_letters(&self, home: Home) {
        let targets = self.with_machine(home, |machine| machine.targets().collect::<Vec<_>>());
        for target in targets.into_iter().flatten() {
            let ended = has_ended(&self.catalog.read(), target.target);
            let now = Instant::now();
            let count = self.letters.with(home, |worker| worker.retry(&target, ended, now));
            if let Some(count) = count.flatten() {
                let target = target.target;
                self.propose_to(home, vec![Command::Retry { target, count }]);
            }
        }
    }

    /// What a notice that was lost has left owed (LET 3).
    fn tell_of_room_again(&self, home: Home) {
        let mut owed = Vec::new();
        self.with_machine(home, |machine| machine.owed_room(&mut owed));
        for effect in &owed {
            if let Effect::Room { queue, to, messages } = effect {
                self.tell_room(*queue, *to, *messages);
            }
        }
    }

    /// Tells a source that one of its targets has room.
    pub(crate) fn tell_room(&self, queue: QueueId, to: LetterHome, messages: u32) {
        let Some(leader) = self.leader_of(to) else { return };
        // A notice that is lost is given again ([`Node::tell_of_room_again`]).
        self.context.peers.send(leader, PeerMessage::Room { home: to.home(), queue, messages });
    }

    /// A target of this home's letters has room.
    pub(crate) fn room_told(&self, home: Home, queue: QueueId, messages: u32) {
        self.letters.with(home, |worker| worker.told(queue, messages));
        self.letters.wake();
    }

    /// Who leads that home, as far as this node knows.
    pub(crate) fn leader_of(&self, home: LetterHome) -> Option<NodeId> {
        match home {
            LetterHome::Run(session) => Some(session.node),
            LetterHome::Group(_) => Some(self.proposers.get(&home.home())?.leader()?.0),
        }
    }

    /// Answers to this node's transfers (LET 2).
    pub(crate) fn letters_answered(&self, answer: Answer) {
        if let Answer::Transferred { from, by, first, last, other } = answer {
            self.letters.with(from.home(), |worker| worker.answered(by, last));
            self.letters.wake();
            if self.executor.leading(from.home()).is_some() {
                let answered = Command::DeadLettered { line: by, first, last, other };
                self.propose_to(from.home(), vec![answered]);
            }
        } else if let Answer::TransfersWanted { from, by, want } = answer {
            self.letters.with(from.home(), |worker| worker.send_again(by, want));
            self.letters.wake();
        }
    }

    /// A leader has announced itself: what it has not answered is sent again (SES 5).
    pub(crate) fn send_letters_again(&self, home: Home) {
        self.letters.workers.lock().values_mut().for_each(|worker| worker.send_all_again(home));
        self.letters.wake();
    }
}

/// Letters of one queue, from a number on.
fn waiting(machine: &Machine, queue: QueueId, kept: bool, from: LetterNumber) -> Option<Waiting> {
    let (name, settings) = machine.letter_settings(queue)?;
    let letters = machine.unrouted(queue, kept, from, ROUTE_MAX);
    Some(Waiting { queue, name, settings, letters, kept })
}

/// What becomes of a letter; `None`: it needs a fresh copy to be decided, or is kept on.
fn fate(found: Found, waiting: &Waiting, fresh: bool) -> Option<Routes> {
    let keeps = waiting.settings.as_ref().is_some_and(|settings| settings.at_least_once);
    match found {
        Found::Targets(targets) => Some(Routes::To(targets)),
        Found::NotYet => None,
        Found::Nothing | Found::Cycle if !fresh => None,
        Found::Cycle => Some(Routes::Cycle),
        Found::Nothing if keeps => Some(Routes::Keep),
        Found::Nothing => Some(Routes::Drop),
    }
}

/// Joins letters that are routed alike.
fn add(routed: &mut Vec<RoutedLetters>, number: LetterNumber, routes: Routes) {
    match routed.last_mut() {
        Some(last) if last.last.0 + 1 == number.0 && last.routes == routes => last.last = number,
        Some(_) | None => routed.push(RoutedLetters { first: number, last: number, routes }),
    }
}

fn has_ended(catalog: &Catalog, queue: QueueId) -> bool {
    match queue.home {
        Home::Group(_) => catalog.queue_by_id(queue).is_none(),
        Home::Node(_) => catalog.is_over(queue),
    }
}
