//! Dead letters of the homes that this node leads: routed once, sent until they are answered, the
//! answers committed (LET). One task looks at all of them whenever there is something to do. What it
//! decides is in `quorate_queue::LetterWorker`; here it is given what it decides by, and obeyed.
//!
//! By LET 3 a target's group owes a notice of the target's end, which would have to outlive the
//! target. Instead the worker of the source finds that a target for which letters wait is no longer
//! in the catalog. It gives these letters numbers, and the target's home answers "gone".

mod annotate;
mod bodies;
mod route;
mod send;
mod state;

use crate::{
    Share,
    base::Base,
    context::Context,
    front::proposers::Proposers,
    leader::{bodies::Bodies, led_homes::LedHomes},
    names::{CatalogClient, CatalogCopy, RoutingLease},
    once_per_minute::OncePerMinute,
    peers::PeerMessage,
};
use annotate::Death;
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_catalog::Catalog;
use quorate_queue::{
    Answer, Command, Destination, Effect, LetterWorker, LiveLetters, Routes, Unrouted,
};
use quorate_types::{CatalogIndex, Home, LetterHome, LetterNumber, QueueId, WallTime};
use state::Worker;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::Instant;
use tokio::time::MissedTickBehavior;

/// At the latest after so long the worker looks again, whatever it has been told.
const TICK: Duration = Duration::from_millis(250);

/// Bytes of messages that are read for one routing.
const ROUTE_BYTES_MAX: usize = 24 << 20;

/// The workers of all homes.
#[derive(Debug)]
pub(crate) struct DeadLetters {
    this: Weak<DeadLetters>,
    context: Arc<Context>,
    catalog: Arc<CatalogCopy>,
    catalog_client: Arc<CatalogClient>,
    lease: Arc<RoutingLease>,
    led: Arc<LedHomes>,
    proposers: Arc<Proposers>,
    bodies: Arc<Bodies>,
    state: State,
}

/// What changes of them.
#[derive(Debug, Default)]
struct State {
    wake: tokio::sync::Notify,
    workers: Mutex<BTreeMap<Home, Worker>>,
    /// When which queue's cycles were logged.
    cycles: Mutex<OncePerMinute<QueueId>>,
}

impl DeadLetters {
    /// No home is led yet.
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        let Base { context, catalog, lease, catalog_client, led, proposers, bodies } = base.clone();
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            context,
            catalog,
            catalog_client,
            lease,
            led,
            proposers,
            bodies,
            state: State::default(),
        })
    }

    /// Something is to be done.
    pub(crate) fn wake(&self) {
        self.state.wake.notify_one();
    }

    fn with<T>(&self, home: Home, act: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        self.state.workers.lock().get_mut(&home).map(act)
    }

    /// Asks or tells the worker of a home something, if this node leads that home.
    fn decide<T>(
        &self,
        home: Home,
        act: impl FnOnce(&mut LetterWorker, Duration) -> T,
    ) -> Option<T> {
        self.with(home, |worker| worker.decide(act))
    }

    /// Forgets homes that are led no more, begins with those that are led again.
    fn follow(&self) -> Vec<Home> {
        // Asked before: who performs effects holds the leadership, and may come to the workers.
        let terms: Vec<_> =
            self.proposers.homes().map(|home| (home, self.led.leading(home))).collect();
        let mut workers = self.state.workers.lock();
        let mut led = Vec::new();
        for (home, term) in terms {
            match term {
                Some(term) if workers.get(&home).is_some_and(|worker| worker.term == term) => {
                    led.push(home);
                }
                Some(term) => {
                    workers.insert(
                        home,
                        Worker::new(term, self.context.memory.account(Share::Letters)),
                    );
                    led.push(home);
                }
                None => drop(workers.remove(&home)),
            }
        }
        led
    }

    /// Looks after the letters of all homes that this node leads, forever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // What looks at all queues is not for every answer that comes in.
            let all = tokio::select! {
                () = self.state.wake.notified() => false,
                _ = versions.changed() => true,
                _ = ticks.tick() => true,
            };
            let homes = self.follow();
            for home in homes {
                self.route_letters(home).await;
                if all {
                    self.forget_done_letters(home);
                    self.route_kept_letters(home).await;
                    self.send_owed_room(home);
                }
                self.send_letters(home);
                self.retry_letters(home);
            }
        }
    }

    /// Forgets what the worker remembers of queues whose letters have ended.
    fn forget_done_letters(&self, home: Home) {
        if let Some(live) = self.led.with_machine(home, LiveLetters::of) {
            self.decide(home, |worker, _| worker.forget_done(&live));
        }
    }

    /// Routes what waits (LET 1, 5).
    async fn route_letters(&self, home: Home) {
        if !self.lease.is_held() {
            return;
        }
        let mut left = Vec::new();
        for mut unrouted in self.letters_to_route(home) {
            let bodies = self.bodies_of(home, &mut unrouted);
            left.extend(self.route_by_copy(home, &unrouted, bodies, false));
            // What was read for it may have come from the disk.
            tokio::task::yield_now().await;
        }
        // Before anything is dropped or kept, the copy is as new as the catalog itself (LET 5).
        if !left.is_empty() && self.catalog_client.read().await {
            for mut unrouted in left {
                let bodies = self.bodies_of(home, &mut unrouted);
                self.route_by_copy(home, &unrouted, bodies, true);
            }
        }
    }

    fn letters_to_route(&self, home: Home) -> Vec<Unrouted> {
        let first = LetterNumber(0);
        let found = self.led.with_machine(home, |machine| {
            let queues = machine.queues_with_letters();
            queues.filter_map(|queue| Unrouted::of(machine, queue, false, first)).collect()
        });
        let mut found: Vec<Unrouted> = found.unwrap_or_default();
        self.decide(home, |worker, now| found.retain(|it| worker.may_route(it, now)));
        found
    }

    /// Looks whether letters kept as unroutable have got a route, when something has changed that
    /// may have given them one; without a DLX in force they go.
    async fn route_kept_letters(&self, home: Home) {
        let version = self.catalog.read().version();
        let kept = self.led.with_machine(home, |machine| {
            let settings = |queue| Some((queue, machine.letter_settings(queue)?.1));
            machine.queues_with_kept().filter_map(settings).collect::<Vec<_>>()
        });
        for (queue, settings) in kept.unwrap_or_default() {
            let from = self.decide(home, |worker, _| worker.look_from(queue, version, &settings));
            let Some(from) = from else { continue };
            let gone = settings.is_none();
            if gone && !self.catalog_client.read().await {
                continue;
            }
            let next = self.route_kept_letters_of(home, queue, gone, from).await;
            self.decide(home, |worker, _| worker.looked(queue, version, settings, next));
        }
    }

    /// Looks at a queue's kept letters from one on. Gives the number to go on from: where a message is
    /// not at hand, so that two such letters do not take the one place for what is fetched from each
    /// other; or behind the last.
    async fn route_kept_letters_of(
        &self,
        home: Home,
        queue: QueueId,
        gone: bool,
        mut from: LetterNumber,
    ) -> LetterNumber {
        let next =
            |from| self.led.with_machine(home, |it| Unrouted::of(it, queue, true, from)).flatten();
        while let Some(mut some) = next(from) {
            let bodies = self.bodies_of(home, &mut some);
            let Some(last) = some.letters.last() else { return from };
            from = LetterNumber(last.number.0 + 1);
            self.route_by_copy(home, &some, bodies, gone);
            tokio::task::yield_now().await;
        }
        from
    }

    /// Messages of the first letters, as many as are read at once. The others are left to the next
    /// turn. Without settings the letters are dropped, whatever they are.
    fn bodies_of(&self, home: Home, unrouted: &mut Unrouted) -> Vec<Bytes> {
        if unrouted.settings.is_none() {
            return Vec::new();
        }
        let wanted: Vec<_> = unrouted.letters.iter().map(|it| it.message).collect();
        let bodies = self.letter_bodies(home, unrouted.queue, &wanted, ROUTE_BYTES_MAX);
        unrouted.letters.truncate(bodies.len());
        bodies
    }

    /// Routes letters of one queue by this node's copy. Those that nothing takes are handed back,
    /// unless the copy is known to be `fresh`: then they are kept or dropped.
    fn route_by_copy(
        &self,
        home: Home,
        unrouted: &Unrouted,
        bodies: Vec<Bytes>,
        fresh: bool,
    ) -> Option<Unrouted> {
        // The lock is taken for each letter again, so that others have their turn. One that a later
        // copy routes counts as routed by this one, and at worst is routed once more.
        let version = self.catalog.read().version();
        let mut bodies = bodies.into_iter();
        let (routed, left) = unrouted.route(version, fresh, |letter, via| {
            let Some(bytes) = bodies.next() else { return Destination::NotYet };
            // Where it goes does not depend on when it died.
            let death = Death { queue: &unrouted.name, reason: letter.reason, at: WallTime(0) };
            let catalog = self.catalog.read();
            let found = route::route(&catalog, &self.led.leaderships, &bytes, death, via);
            let is_again = letter.after > CatalogIndex(0);
            if is_again { route::again(found, &catalog) } else { found }
        });
        if routed.is_some() {
            self.decide(home, |worker, now| worker.routing_proposed(unrouted, now));
            self.log_cycle(unrouted, routed.as_ref());
        }
        propose(&self.led, home, routed);
        left
    }

    /// The log says when letters go round in a circle.
    fn log_cycle(&self, unrouted: &Unrouted, routed: Option<&Command>) {
        if let Some(Command::Routed { letters, .. }) = routed
            && letters.iter().any(|routed| routed.routes == Routes::Cycle)
            && self.state.cycles.lock().is_due(unrouted.queue, Instant::now())
        {
            let name = &unrouted.name;
            tracing::warn!(queue = %name, "dropping dead letters: their routes form a cycle");
        }
    }

    /// Full targets that have told of room, or have ended, or were not refused (LET 3, 4).
    fn retry_letters(&self, home: Home) {
        let targets = self.led.with_machine(home, |machine| machine.targets().collect::<Vec<_>>());
        for target in targets.into_iter().flatten() {
            let ended = has_ended(&self.catalog.read(), target.target);
            let retry = self.decide(home, |worker, now| worker.retry(&target, ended, now));
            propose(&self.led, home, retry.flatten());
        }
    }

    /// What a notice that was lost has left owed (LET 3).
    fn send_owed_room(&self, home: Home) {
        let mut owed = Vec::new();
        self.led.with_machine(home, |machine| machine.owed_room(&mut owed));
        for effect in &owed {
            if let Effect::Room { queue, to, messages } = effect {
                self.send_room(*queue, *to, *messages);
            }
        }
    }

    /// Tells a source that one of its targets has room.
    pub(crate) fn send_room(&self, queue: QueueId, to: LetterHome, messages: u32) {
        let Some(leader) = self.proposers.leader_of(to) else { return };
        // A notice that is lost is given again ([`DeadLetters::send_owed_room`]).
        self.context.peers.send(leader, PeerMessage::Room { home: to.home(), queue, messages });
    }

    /// A target of this home's letters has room.
    pub(crate) fn room_received(&self, home: Home, queue: QueueId, messages: u32) {
        self.decide(home, |worker, _| worker.told_of_room(queue, messages));
        self.wake();
    }

    /// Answers to this node's transfers (LET 2).
    pub(crate) fn answered(&self, answer: Answer) {
        let (Answer::Transferred { from, .. } | Answer::TransfersWanted { from, .. }) = answer
        else {
            return;
        };
        let home = from.home();
        self.decide(home, |worker, _| worker.heard(&answer));
        self.wake();
        if self.led.leading(home).is_some() {
            propose(&self.led, home, LetterWorker::commit(answer));
        }
    }

    /// A leader has announced itself: what it has not answered is sent again (SES 5).
    pub(crate) fn send_again(&self, home: Home) {
        for worker in self.state.workers.lock().values_mut() {
            worker.decide(|it, _| it.send_all_again(home));
        }
        self.wake();
    }
}

fn propose(led: &LedHomes, home: Home, command: Option<Command>) {
    if let Some(command) = command {
        led.propose_to(home, vec![command]);
    }
}

fn has_ended(catalog: &Catalog, queue: QueueId) -> bool {
    match queue.home {
        Home::Group(_) => catalog.queue_by_id(queue).is_none(),
        Home::Node(_) => catalog.is_over(queue),
    }
}
