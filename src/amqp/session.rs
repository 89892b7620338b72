//! The session of an open connection, in turns: each turn handles everything that is ready, from
//! the client and from the broker.

use crate::{
    accounts::Accounts,
    channel::Action,
    codec::frame::{self, put_heartbeat},
    connection::{
        close::{Ending, Fault},
        heartbeat::{Bytes, Heartbeat},
        machine::Machine,
        progress::{PRESENCE_MS, Progress},
    },
    socket::{ClientStream, Socket},
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use quorate_client::{
    Answer, ChannelId, Connection, Delivered, Event, FrontSettings, Operation, Pressure,
};
use quorate_types::Exception;
use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep};

/// Bytes of deliveries taken in one turn, so that reading is not delayed.
const DELIVERIES_BYTES_TURN: usize = 512 * 1024;

/// Unwritten bytes above which the socket is not read: a client that does not read its replies
/// cannot send more requests.
const OUTBOX_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The same bound while the node's memory for unread deliveries is used up.
const OUTBOX_BYTES_PRESSED: usize = 64 * 1024;

/// Longest delay of reports for lists, ms.
const REPORT_MS: u64 = 250;

/// How an open connection ended.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// With a close from one side.
    Ending(Ending),
    /// The socket ended without a close (CONN-32).
    Lost(io::Error),
}

/// Number of frames handled at once: as many as take [`TURN`], so that a client whose frames are
/// expensive does not keep a thread from others.
#[derive(Debug)]
struct Pace {
    frames: u32,
}

/// How long the frames of one connection may use a thread before others have their turn.
const TURN: Duration = Duration::from_millis(2);
const FRAMES_MAX: u32 = 4_096;

impl Default for Pace {
    fn default() -> Self {
        Self { frames: FRAMES_MAX / 4 }
    }
}

impl Pace {
    /// Adjusts the number to the time that the last frames took; true if others have their turn
    /// now.
    fn took(&mut self, time: Duration) -> bool {
        let slow = time > TURN;
        self.frames = match slow {
            true => (self.frames / 4).max(1),
            false => (self.frames * 2).min(FRAMES_MAX),
        };
        slow
    }
}

type Done = (ChannelId, Result<Answer, Exception>);
type Performing<'c> = Pin<Box<dyn Future<Output = Done> + Send + 'c>>;

/// An open connection.
pub(crate) struct Session<'c, S, C> {
    socket: &'c mut Socket<S>,
    connection: &'c C,
    machine: Machine,
    frame_max: u32,
    /// Bytes of deliveries taken from the broker and not yet written. Above this no more are taken.
    delivery_ahead_bytes: usize,
    operations: FuturesUnordered<Performing<'c>>,
    accounts: &'c mut Accounts,
    heartbeat: Heartbeat,
    progress: Progress,
    started: Instant,
    timer: Pin<Box<Sleep>>,
    pace: Pace,
    /// The next turn handles frames that were read already.
    unfinished: bool,
    /// The broker has too many bytes in flight (DESIGN §6).
    waits_for_room: bool,
    /// Deliveries are ready, but the node's memory for them is used up.
    waits_for_budget: bool,
    deliveries_ready: bool,
    /// When the next report for the lists is due, if something has changed.
    report_at_ms: Option<u64>,
    events: Vec<Event>,
    answers: Vec<Done>,
    deliveries: Vec<Delivered>,
}

impl<'c, S: ClientStream, C: Connection> Session<'c, S, C> {
    pub(crate) fn new(
        socket: &'c mut Socket<S>,
        connection: &'c C,
        accounts: &'c mut Accounts,
        machine: Machine,
        settings: &FrontSettings,
    ) -> Self {
        let started = Instant::now();
        let info = connection.info();
        Self {
            socket,
            connection,
            machine,
            frame_max: info.frame_max,
            delivery_ahead_bytes: usize::try_from(settings.delivery_ahead_bytes)
                .unwrap_or(usize::MAX),
            operations: FuturesUnordered::new(),
            accounts,
            heartbeat: Heartbeat::new(info.heartbeat_s, 0),
            progress: Progress::new(info.heartbeat_s, settings.write_timeout_ms),
            started,
            timer: Box::pin(tokio::time::sleep_until(started)),
            pace: Pace::default(),
            unfinished: false,
            waits_for_room: false,
            waits_for_budget: false,
            deliveries_ready: false,
            report_at_ms: None,
            events: Vec::new(),
            answers: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    /// Serves the client until the connection ends. `stop` resolves when the node stops.
    pub(crate) async fn run(mut self, stop: impl Future<Output = Exception>) -> SessionEnd {
        let mut stop = pin!(stop.fuse());
        loop {
            self.turn();
            if let Some(ending) = self.machine.ending() {
                return SessionEnd::Ending(ending.clone());
            }
            if self.socket.is_ended() && self.reads() && !self.unfinished {
                // Everything that was received has been handled.
                return SessionEnd::Lost(io::ErrorKind::UnexpectedEof.into());
            }
            let more = self.deliver() || self.unfinished;
            if more {
                // Other tasks have work too.
                tokio::task::yield_now().await;
            }
            self.report_held();
            if let Err(error) = self.wait(more, stop.as_mut()).await {
                return SessionEnd::Lost(error);
            }
            if let Err(text) = self.check_timers() {
                return SessionEnd::Lost(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// True if the socket is read.
    fn reads(&self) -> bool {
        let pressed = self.connection.is_pressed();
        let bytes_max = if pressed { OUTBOX_BYTES_PRESSED } else { OUTBOX_BYTES_MAX };
        self.takes_frames() && self.socket.outbox.len() <= bytes_max
    }

    /// Handles input from both sides, as much as one turn may.
    fn turn(&mut self) {
        self.machine.begin_turn(self.now_ms());
        if !self.events.is_empty() || !self.answers.is_empty() {
            self.report_soon();
        }
        if self.machine.events(&mut self.events, &mut self.socket.outbox) {
            self.deliveries_ready = true;
        }
        for (channel, answer) in std::mem::take(&mut self.answers) {
            self.machine.answer(channel, answer, &mut self.socket.outbox);
        }
        self.settle_down();
        let mut began = Instant::now();
        loop {
            let all = self.frames();
            self.settle_down();
            self.take_room();
            self.unfinished = !all && self.takes_frames();
            let now = Instant::now();
            if self.pace.took(now - began) || !self.unfinished {
                return;
            }
            began = now;
        }
    }

    fn takes_frames(&self) -> bool {
        self.machine.takes_frames() && !self.waits_for_room
    }

    /// Handles frames that were read, as many as the pace allows. False if some have to wait.
    fn frames(&mut self) -> bool {
        let mut left = self.pace.frames;
        while self.takes_frames() {
            if left == 0 {
                return false;
            }
            left -= 1;
            match frame::take(&mut self.socket.input, self.frame_max) {
                Ok(Some(frame)) => self.machine.frame(frame, &mut self.socket.outbox),
                Ok(None) => return true,
                Err(error) => {
                    self.machine.end(Ending::frame_error(&error));
                    return true;
                }
            }
            self.report_soon();
        }
        false
    }

    /// Large contents are read only if there is room for all of them.
    fn take_room(&mut self) {
        let Some(bytes) = self.machine.announced_bytes() else { return };
        let is_first = self.machine.large_contents() <= 1;
        if self.accounts.take(bytes, is_first, self.now_ms()) {
            self.machine.grant();
        }
    }

    /// Reports to the node the memory that is held until the next turn.
    fn report_held(&mut self) {
        self.machine.end_turn();
        let held = self.machine.unfinished();
        // Input that waits because the broker does not read the socket does not count for its
        // client.
        let partial_bytes = if self.takes_frames() { self.socket.input.len() } else { 0 };
        let input_bytes = (self.socket.input.capacity(), partial_bytes);
        self.accounts.report(self.connection, self.now_ms(), held, input_bytes);
        self.socket.limit_reads(self.accounts.read_bytes_max());
    }

    /// Passes the channels' requests to the broker: publishes first, then settlements, so that a
    /// message is not settled before messages made from it are published, then the rest.
    fn settle_down(&mut self) {
        loop {
            let publishes = self.machine.take_publishes();
            let settles = self.machine.take_settles();
            let actions = self.machine.take_actions();
            if publishes.is_empty() && settles.is_empty() && actions.is_empty() {
                return;
            }
            let mut outcomes = Vec::with_capacity(publishes.len());
            if !publishes.is_empty()
                && self.connection.publish(publishes, &mut outcomes) == Pressure::Wait
            {
                self.waits_for_room = true;
            }
            // Before actions, since an answer lets further frames continue, which may contain
            // publishes.
            let behind = self.machine.published(outcomes, &mut self.socket.outbox);
            for settles in [settles, behind].into_iter().filter(|settles| !settles.is_empty()) {
                self.connection.settle(settles);
            }
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            // Before open-ok is written, so that lists contain the channel when the client reads
            // it.
            Action::OpenChannel(channel) => {
                let answer = self.connection.open_channel(channel).map(|()| Answer::Done);
                self.machine.answer(channel, answer, &mut self.socket.outbox);
            }
            // Answered at once.
            Action::Start(channel, Operation::Publishable(exchange)) => {
                let answer = self.connection.check_publish(&exchange).map(|()| Answer::Done);
                self.machine.answer(channel, answer, &mut self.socket.outbox);
            }
            Action::Start(channel, operation) => {
                let answer = self.connection.ask(channel, operation);
                self.operations.push(Box::pin(async move { (channel, answer.await) }));
            }
            Action::RollBack(channel) => self.connection.roll_back(channel),
            Action::LimitChannel(channel, limit) => self.connection.limit_channel(channel, limit),
            Action::CloseChannel(channel) => self.connection.close_channel(channel),
            Action::UpdateSecret => {
                let updated = self.connection.update_secret();
                self.machine.secret_updated(updated, &mut self.socket.outbox);
            }
        }
    }

    /// Bytes of deliveries and answers that the client has not read.
    fn output_bytes(&self) -> usize {
        self.socket.outbox.len() + self.machine.early_bytes()
    }

    /// Takes deliveries while the client reads them. True if there may be more to take at once.
    fn deliver(&mut self) -> bool {
        let waiting = self.output_bytes();
        if !self.deliveries_ready || waiting >= self.delivery_ahead_bytes {
            return false;
        }
        self.connection.report_unwritten(waiting);
        let room = self.connection.delivery_room_bytes();
        if room == 0 {
            self.waits_for_budget = true;
            return false;
        }
        let bytes_max = room.min(DELIVERIES_BYTES_TURN);
        self.connection.take_deliveries(bytes_max, &mut self.deliveries);
        self.deliveries_ready = !self.deliveries.is_empty();
        if self.deliveries_ready {
            self.report_soon();
            self.machine.deliver(&mut self.deliveries, &mut self.socket.outbox);
            // Before other connections check for room.
            self.connection.report_given(self.output_bytes());
            self.settle_down();
        }
        self.deliveries_ready
    }

    /// Waits until something is to be done; with `more`, returns at once.
    async fn wait(
        &mut self,
        more: bool,
        mut stop: Pin<&mut impl Future<Output = Exception>>,
    ) -> io::Result<()> {
        let reads = self.reads() && !self.unfinished;
        self.set_timer();
        let announced = self.machine.announced_bytes();
        let Self { socket, connection, operations, timer, events, answers, .. } = self;
        let (machine, waits_for_room) = (&mut self.machine, &mut self.waits_for_room);
        let waits_for_budget = &mut self.waits_for_budget;
        let accounts = &mut *self.accounts;
        let mut granted = pin!(async move {
            match announced {
                Some(bytes) => accounts.granted(bytes).await,
                None => std::future::pending().await,
            }
        });
        let mut told = pin!(connection.events(events));
        let mut room = pin!(connection.room());
        let mut budget_room = pin!(connection.budget_room());
        poll_fn(|cx: &mut Context<'_>| {
            let mut ready = more;
            if let Poll::Ready(moved) = socket.poll_move(reads, cx) {
                moved?;
                ready = true;
            }
            // Before operations continue, since gets wait until earlier ones are written.
            connection.report_unwritten(socket.outbox.len() + machine.early_bytes());
            ready |= told.as_mut().poll(cx).is_ready();
            if *waits_for_room && room.as_mut().poll(cx).is_ready() {
                *waits_for_room = false;
                ready = true;
            }
            if *waits_for_budget && budget_room.as_mut().poll(cx).is_ready() {
                *waits_for_budget = false;
                ready = true;
            }
            if announced.is_some() && granted.as_mut().poll(cx).is_ready() {
                machine.grant();
                ready = true;
            }
            while let Poll::Ready(Some(done)) = operations.poll_next_unpin(cx) {
                answers.push(done);
                ready = true;
            }
            if let Poll::Ready(exception) = stop.as_mut().poll(cx) {
                let fault = Fault::of(exception, crate::codec::method::MethodId::NONE);
                machine.end(Ending::fault(&fault));
                ready = true;
            }
            ready |= timer.as_mut().poll(cx).is_ready();
            if ready { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    fn set_timer(&mut self) {
        let (now_ms, written) = (self.now_ms(), self.socket.written());
        let waits = !self.socket.outbox.is_empty();
        let due = [
            self.heartbeat.deadline_ms(),
            self.report_at_ms,
            self.progress.deadline_ms(now_ms, written, waits),
            self.accounts.relief_at_ms(),
            self.may_hold_publishes().then_some(now_ms + PRESENCE_MS),
        ];
        let due = due.into_iter().flatten().min();
        // Without anything due, a check once in an hour does no harm.
        let due = self.started + Duration::from_millis(due.unwrap_or(now_ms + 3_600_000));
        if self.timer.deadline() != due || self.timer.is_elapsed() {
            self.timer.as_mut().reset(due);
        }
    }

    /// Whether the socket is not read until publishes are routed or requests answered: long, without a lease (NAM 5).
    fn may_hold_publishes(&self) -> bool {
        self.waits_for_room || self.machine.is_full()
    }

    /// Why the client is disconnected: it was silent for too long (HB-02), or does not read.
    fn check_timers(&mut self) -> Result<(), &'static str> {
        let now_ms = self.now_ms();
        if self.report_at_ms.is_some_and(|at| now_ms >= at) {
            self.report();
        }
        if let Some(bytes) = self.machine.announced_bytes() {
            self.accounts.relieve(self.connection, bytes, now_ms);
        }
        let pressed = self.connection.is_pressed();
        if self.connection.is_given_up()
            || self.progress.is_lost(now_ms, self.socket.written(), pressed)
        {
            self.accounts.note_lost();
            return Err("the client does not read from the connection");
        }
        if self.may_hold_publishes() && !self.connection.may_route() && self.socket.is_hung_up() {
            return Err("the client has gone, and its last publishes could not be routed");
        }
        if self.heartbeat.deadline_ms().is_none_or(|at| now_ms < at) {
            return Ok(());
        }
        let bytes = Bytes { written: self.socket.written(), received: self.socket.received() };
        let due = self.heartbeat.check(now_ms, bytes, self.reads());
        if due.send && self.socket.outbox.is_empty() {
            put_heartbeat(self.socket.outbox.buffer());
        }
        if due.lost { Err("missed heartbeats from client") } else { Ok(()) }
    }

    /// The state that lists show may have changed.
    fn report_soon(&mut self) {
        if self.report_at_ms.is_none() {
            self.report_at_ms = Some(self.now_ms() + REPORT_MS);
        }
    }

    fn report(&mut self) {
        self.report_at_ms = None;
        self.socket.trim();
        for (channel, report) in self.machine.reports() {
            self.connection.report_channel(channel, report);
        }
        let socket = self.socket.report();
        self.connection.report_socket(socket, self.machine.is_blocked());
        if socket.pending_bytes > 0 {
            // Until it is written.
            self.report_soon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After expensive frames the number falls, so that they use a thread for little more than a
    /// turn; after cheap frames it rises again.
    #[test]
    fn the_pace_follows_what_frames_cost() {
        let (frame, turns) = (Duration::from_millis(1), 32);
        let mut pace = Pace::default();
        for _ in 0..turns {
            pace.took(frame * pace.frames);
        }
        assert!(frame * pace.frames <= TURN * 4, "{pace:?}");
        for _ in 0..turns {
            assert!(!pace.took(Duration::ZERO));
        }
        assert_eq!(pace.frames, FRAMES_MAX);
        for _ in 0..turns {
            assert!(pace.took(Duration::from_secs(1)));
        }
        assert_eq!(pace.frames, 1, "one at a time, and never none");
    }
}
