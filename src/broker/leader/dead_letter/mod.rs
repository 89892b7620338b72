//! Dead letters of the homes that this node leads: each is routed once and sent until it is
//! answered, and the answers are committed (LET). One task handles all of them.
//! `quorate_queue::LetterWorker` makes the decisions; this module gives it its inputs and performs
//! what it decides.
//!
//! By LET 3 a target's group owes a notice of the target's end, which would have to outlive the
//! target. Instead the worker of the source finds that a target for which letters wait is no longer
//! in the catalog. It gives these letters numbers, and the target's home answers "gone".

pub(crate) mod annotate;
mod bodies;
pub(super) mod route;
mod send;
mod state;

use crate::{
    Share,
    base::Base,
    context::Context,
    front::proposers::Proposers,
    leader::{
        bodies::Bodies,
        led_homes::{LedHomes, walk},
    },
    names::{CatalogClient, CatalogCopy, RoutingLease},
    once_per_minute::OncePerMinute,
    peers::PeerMessage,
};
use annotate::Death;
use bytes::Bytes;
use parking_lot::Mutex;
use quorate_catalog::Catalog;
use quorate_queue::{
    Answer, Command, DeadLetter, DeathReason, Destination, Effect, LetterWorker, LiveLetters,
    Machine, Routes, TargetState, Unrouted, Via,
};
use quorate_types::{
    CatalogIndex, Home, LetterHome, LetterNumber, QueueId, ResourceName, WallTime,
};
use state::Worker;
use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::Instant;
use tokio::time::MissedTickBehavior;

/// Longest time between two rounds of the worker.
const TICK: Duration = Duration::from_millis(250);

/// Bytes of messages that are read for one round of routing.
const ROUTE_BYTES_MAX: usize = 24 << 20;

/// The dead-letter workers of all homes.
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

/// The mutable state of the workers.
#[derive(Debug, Default)]
struct State {
    wake: tokio::sync::Notify,
    workers: Mutex<BTreeMap<Home, Worker>>,
    /// When a cycle of each queue was last logged.
    cycles: Mutex<OncePerMinute<QueueId>>,
}

impl DeadLetters {
    /// State of a node that leads no home.
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

    /// Wakes the task: a letter can be routed, sent or ended.
    pub(crate) fn wake(&self) {
        self.state.wake.notify_one();
    }

    fn with<T>(&self, home: Home, act: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        self.state.workers.lock().get_mut(&home).map(act)
    }

    /// Calls the worker of a home, if this node leads that home.
    fn decide<T>(
        &self,
        home: Home,
        act: impl FnOnce(&mut LetterWorker, Duration) -> T,
    ) -> Option<T> {
        self.with(home, |worker| worker.decide(act))
    }

    /// Drops the workers of homes that are no longer led, and creates those of new leaderships.
    fn follow(&self) -> Vec<Home> {
        // Read before the lock: the task that performs effects locks a leadership first and then
        // the workers.
        let terms: Vec<_> =
            self.proposers.homes().into_iter().map(|home| (home, self.led.leading(home))).collect();
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

    /// Routes and sends the letters of all homes that this node leads; runs until the node stops.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut versions = self.catalog.versions();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Passes over all queues are too expensive for every answer that arrives.
            let all = tokio::select! {
                () = self.state.wake.notified() => false,
                _ = versions.changed() => true,
                _ = ticks.tick() => true,
            };
            let homes = self.follow();
            for home in homes {
                self.route_letters(home).await;
                if all {
                    let kept = walk(&self.led, home, Machine::queues_with_kept);
                    self.forget_done_letters(home, &kept);
                    self.route_kept_letters(home, kept).await;
                    self.send_owed_room(home);
                }
                self.send_letters(home);
                self.retry_letters(home);
            }
        }
    }

    /// Drops the worker's state of queues whose letters have ended.
    fn forget_done_letters(&self, home: Home, kept: &[(QueueId, Option<DeadLetter>)]) {
        let kept = kept.iter().map(|(queue, _)| *queue);
        if let Some(live) = self.led.with_machine(home, |machine| LiveLetters::of(machine, kept)) {
            self.decide(home, |worker, _| worker.forget_done(&live));
        }
    }

    /// Routes letters that have no route yet (LET 1, 5).
    async fn route_letters(&self, home: Home) {
        if !self.lease.is_held() {
            return;
        }
        let mut left = Vec::new();
        for mut unrouted in self.letters_to_route(home) {
            let bodies = self.bodies_of(home, &mut unrouted);
            left.extend(self.route_by_copy(home, &unrouted, bodies, false));
            // The bodies may have been read from the disk, so other tasks get a turn.
            tokio::task::yield_now().await;
        }
        // Before a letter is dropped or kept, the catalog copy is brought up to date (LET 5).
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

    /// Routes letters again that are kept as unroutable, if the catalog or the settings have
    /// changed. Without a DLX in force they are dropped.
    async fn route_kept_letters(&self, home: Home, kept: Vec<(QueueId, Option<DeadLetter>)>) {
        let version = self.catalog.read().routing_version();
        for (queue, settings) in kept {
            let from = self.decide(home, |worker, _| worker.check_from(queue, version, &settings));
            let Some(from) = from else { continue };
            let gone = settings.is_none();
            if gone && !self.catalog_client.read().await {
                continue;
            }
            let next = self.route_kept_letters_of(home, queue, gone, from).await;
            self.decide(home, |worker, _| worker.checked(queue, version, settings, next));
        }
    }

    /// Routes a queue's kept letters again from number `from` on. Returns the number to continue
    /// with: that of the first message that is not available here, so that two such letters do not
    /// compete for the one fetched body; or the number after the last letter.
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

    /// Messages of the first letters, as many as are read at once. The others wait for the next
    /// turn. Without dead-letter settings the letters are dropped, and no body is needed.
    fn bodies_of(&self, home: Home, unrouted: &mut Unrouted) -> Vec<Bytes> {
        if unrouted.settings.is_none() {
            return Vec::new();
        }
        let wanted: Vec<_> = unrouted.letters.iter().map(|it| it.message).collect();
        let bodies = self.letter_bodies(home, unrouted.queue, &wanted, ROUTE_BYTES_MAX);
        unrouted.letters.truncate(bodies.len());
        bodies
    }

    /// Routes letters of one queue by this node's catalog copy. Letters without a route are
    /// returned, unless the copy is known to be `fresh`: then they are kept or dropped.
    fn route_by_copy(
        &self,
        home: Home,
        unrouted: &Unrouted,
        bodies: Vec<Bytes>,
        fresh: bool,
    ) -> Option<Unrouted> {
        // The lock is taken again for each letter, so that other tasks get it in between. A letter
        // that a later copy has routed counts as routed by this one, and at worst is routed twice.
        let version = self.catalog.read().version();
        let mut bodies = bodies.into_iter();
        let (routed, left) = unrouted.route(version, fresh, |letter, via| {
            let Some(bytes) = bodies.next() else { return Destination::NotYet };
            // The route does not depend on the time of death.
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

    /// Where a message would go if it died in its queue now, by this node's catalog copy. `bytes` is the
    /// message as it is stored.
    pub(crate) fn would_go(
        &self,
        (queue, reason): (&ResourceName, DeathReason),
        bytes: &Bytes,
        via: &Via,
    ) -> Destination {
        // The route does not depend on the time of death.
        let death = Death { queue, reason, at: WallTime(0) };
        route::route(&self.catalog.read(), &self.led.leaderships, bytes, death, via)
    }

    /// Logs a cycle of dead letters.
    fn log_cycle(&self, unrouted: &Unrouted, routed: Option<&Command>) {
        if let Some(Command::Routed { letters, .. }) = routed
            && letters.iter().any(|routed| routed.routes == Routes::Cycle)
            && self.state.cycles.lock().is_due(unrouted.queue, Instant::now())
        {
            let name = &unrouted.name;
            tracing::warn!(queue = %name, "dropping dead letters: their routes form a cycle");
        }
    }

    /// Sends again to full targets that have reported room, have ended, or were not refused
    /// (LET 3, 4).
    fn retry_letters(&self, home: Home) {
        let targets = self.led.with_machine(home, |machine| machine.targets().collect::<Vec<_>>());
        for target in targets.into_iter().flatten() {
            let state = target_state(&self.catalog.read(), target.target);
            let retry = self.decide(home, |worker, now| worker.retry(&target, state, now));
            propose(&self.led, home, retry.flatten());
        }
    }

    /// Repeats notices of room that may have been lost (LET 3).
    fn send_owed_room(&self, home: Home) {
        for effect in &walk(&self.led, home, Machine::owed_room) {
            if let Effect::Room { queue, to, messages } = effect {
                self.send_room(*queue, *to, *messages);
            }
        }
    }

    /// Notifies the source of dead letters that one of its targets has room.
    pub(crate) fn send_room(&self, queue: QueueId, to: LetterHome, messages: u32) {
        let Some(leader) = self.proposers.leader_of(to) else { return };
        // A lost notice is sent again by [`DeadLetters::send_owed_room`].
        self.context.peers.send(leader, PeerMessage::Room { home: to.home(), queue, messages });
    }

    /// Handles a notice that a target of this home's letters has room.
    pub(crate) fn room_received(&self, home: Home, queue: QueueId, messages: u32) {
        self.decide(home, |worker, _| worker.room_reported(queue, messages));
        self.wake();
    }

    /// Handles an answer to this node's transfers (LET 2).
    pub(crate) fn answered(&self, answer: Answer) {
        let (Answer::Transferred { from, .. } | Answer::TransfersWanted { from, .. }) = answer
        else {
            return;
        };
        let home = from.home();
        // The letters of a former start of this node have ended with it (SES 6), and those of the present
        // one have the same numbers.
        if self.led.with_machine(home, Machine::letter_home) != Some(from) {
            return;
        }
        self.decide(home, |worker, _| worker.answered(&answer));
        self.wake();
        if self.led.leading(home).is_none() {
            return;
        }
        match (from, LetterWorker::commit(answer)) {
            (LetterHome::Start(session), Some(command)) => {
                self.led.local.command_of(session.start, command);
                self.context.peers.wake();
            }
            (LetterHome::Group(_), command) => propose(&self.led, home, command),
            (LetterHome::Start(_), None) => {}
        }
    }

    /// Sends unanswered transfers again to a leader that has announced itself (SES 5).
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

fn target_state(catalog: &Catalog, queue: QueueId) -> TargetState {
    match queue.letter_home() {
        _ if catalog.queue_by_id(queue).is_some() => TargetState::Lives,
        LetterHome::Start(session) if !catalog.has_ended(session) => TargetState::Unknown,
        LetterHome::Group(_) | LetterHome::Start(_) => TargetState::Ended,
    }
}
