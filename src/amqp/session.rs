//! The life of an open connection: what has come is taken, what the broker answers and delivers is
//! written, all in turns that handle everything that is ready at once.

use crate::{
    accounts::Accounts,
    channel::{Action, Answer, Operation},
    codec::frame::{self, put_heartbeat},
    connection::{
        close::{Ending, Fault},
        heartbeat::{Heartbeat, Octets},
        machine::Machine,
        progress::Progress,
    },
    operation::perform,
    socket::Socket,
};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use quorate_broker::{Broker, ChannelId, Connection, Delivered, Event, Pressure};
use quorate_types::Exception;
use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep},
};

/// Octets of deliveries taken in one turn, so that reading has its turn too.
const DELIVERIES_BYTES_TURN: usize = 512 * 1024;

/// Octets waiting to be written above which the socket is not read: a client that does not read
/// its replies is not asked for more requests.
const OUTBOX_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long lists may be behind, ms.
const REPORT_MS: u64 = 250;

/// How an open connection came to its end.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    /// With a word from one side.
    Ending(Ending),
    /// Without (CONN-32).
    Lost(io::Error),
}

type Done = (ChannelId, Result<Answer, Exception>);
type Performing<'c> = Pin<Box<dyn Future<Output = Done> + Send + 'c>>;

/// An open connection.
pub(crate) struct Session<'c, S> {
    socket: &'c mut Socket<S>,
    broker: &'c Broker,
    connection: &'c Connection,
    machine: Machine,
    frame_max: u32,
    /// Octets of deliveries taken from the broker and not yet written. Above, no more are taken.
    deliveries_bytes_max: usize,
    operations: FuturesUnordered<Performing<'c>>,
    accounts: &'c mut Accounts,
    heartbeat: Heartbeat,
    progress: Progress,
    started: Instant,
    timer: Pin<Box<Sleep>>,
    /// The broker has too much in flight (DESIGN §6).
    waits_for_room: bool,
    deliveries_ready: bool,
    /// When lists are told, if there is something to tell.
    report_at_ms: Option<u64>,
    events: Vec<Event>,
    answers: Vec<Done>,
    deliveries: Vec<Delivered>,
}

impl<'c, S: AsyncRead + AsyncWrite + Unpin> Session<'c, S> {
    pub(crate) fn new(
        socket: &'c mut Socket<S>,
        broker: &'c Broker,
        connection: &'c Connection,
        accounts: &'c mut Accounts,
        machine: Machine,
    ) -> Self {
        let started = Instant::now();
        let info = connection.info();
        let settings = broker.front_settings();
        Self {
            socket,
            broker,
            connection,
            machine,
            frame_max: info.frame_max,
            deliveries_bytes_max: usize::try_from(settings.delivery_ahead_bytes)
                .unwrap_or(usize::MAX),
            operations: FuturesUnordered::new(),
            accounts,
            heartbeat: Heartbeat::new(info.heartbeat_s, 0),
            progress: Progress::new(info.heartbeat_s, settings.write_timeout_ms),
            started,
            timer: Box::pin(tokio::time::sleep_until(started)),
            waits_for_room: false,
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
            if self.socket.is_ended() && self.reads() {
                // All that came has been taken.
                return SessionEnd::Lost(io::ErrorKind::UnexpectedEof.into());
            }
            let more = self.deliver();
            if more {
                // Others have work too.
                tokio::task::yield_now().await;
            }
            self.tell_held();
            if let Err(error) = self.wait(more, stop.as_mut()).await {
                return SessionEnd::Lost(error);
            }
            if let Err(text) = self.look_at_the_clock() {
                return SessionEnd::Lost(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether the socket is read.
    fn reads(&self) -> bool {
        self.takes_frames() && self.socket.outbox.len() <= OUTBOX_BYTES_MAX
    }

    /// Takes everything that has come from both sides.
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
        loop {
            let all = self.frames();
            self.settle_down();
            self.take_room();
            if all || !self.takes_frames() {
                return;
            }
        }
    }

    fn takes_frames(&self) -> bool {
        self.machine.takes_frames() && !self.waits_for_room
    }

    /// Takes what has been read. False if some of it has to wait.
    fn frames(&mut self) -> bool {
        while self.takes_frames() {
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

    /// Large contents are taken only where there is room for all of them.
    fn take_room(&mut self) {
        let Some(bytes) = self.machine.announced_bytes() else { return };
        let is_first = self.machine.large_contents() <= 1;
        if self.accounts.take(bytes, is_first, self.now_ms()) {
            self.machine.grant();
        }
    }

    /// Tells the node what is held until the next turn.
    fn tell_held(&mut self) {
        self.machine.end_turn();
        let held = self.machine.unfinished();
        let octets = (self.socket.input.capacity(), self.output_bytes());
        self.accounts.tell(self.connection, self.now_ms(), held, octets);
        self.socket.limit_reads(self.accounts.read_bytes_max());
    }

    /// Gives the broker what channels want: publishes first, then settles, so that a message is
    /// not settled before what was made of it is published, then the rest.
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
            if !settles.is_empty() {
                self.connection.settle(settles);
            }
            // Before actions: an answer sets frames free that bring further publishes.
            self.machine.published(outcomes, &mut self.socket.outbox);
            for action in actions {
                self.act(action);
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            // Before open-ok is written: lists lag behind no answer.
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
                let (connection, broker) = (self.connection, self.broker);
                self.operations.push(Box::pin(async move {
                    (channel, perform(connection, broker, channel, operation).await)
                }));
            }
            Action::LimitChannel(channel, limit) => self.connection.limit_channel(channel, limit),
            Action::CloseChannel(channel) => self.connection.close_channel(channel),
            Action::UpdateSecret => {
                let updated = self.connection.update_secret();
                self.machine.secret_updated(updated, &mut self.socket.outbox);
            }
        }
    }

    /// Octets of deliveries and answers that the client has yet to take.
    fn output_bytes(&self) -> usize {
        self.socket.outbox.len() + self.machine.early_bytes()
    }

    /// Takes deliveries while the client reads them. True if there may be more to take at once.
    fn deliver(&mut self) -> bool {
        let waiting = self.output_bytes();
        if !self.deliveries_ready || waiting >= self.deliveries_bytes_max {
            return false;
        }
        let bytes_max = (self.deliveries_bytes_max - waiting).min(DELIVERIES_BYTES_TURN);
        self.connection.take_deliveries(bytes_max, &mut self.deliveries);
        self.deliveries_ready = !self.deliveries.is_empty();
        if self.deliveries_ready {
            self.report_soon();
            self.machine.deliver(&mut self.deliveries, &mut self.socket.outbox);
            self.settle_down();
        }
        self.deliveries_ready
    }

    /// Waits until something is to be done; with `more`, only looks.
    async fn wait(
        &mut self,
        more: bool,
        mut stop: Pin<&mut impl Future<Output = Exception>>,
    ) -> io::Result<()> {
        let reads = self.reads();
        self.set_timer();
        // Answers carry bodies: those of one client that does not read stay where they are. They are
        // taken beyond what deliveries fill.
        let answers_bytes_max = self.deliveries_bytes_max.saturating_mul(2);
        let mut answers_bytes_left = answers_bytes_max.saturating_sub(self.output_bytes());
        let announced = self.machine.announced_bytes();
        let Self { socket, connection, operations, timer, events, answers, .. } = self;
        let (machine, waits_for_room) = (&mut self.machine, &mut self.waits_for_room);
        let accounts = &mut *self.accounts;
        let mut granted = pin!(async move {
            match announced {
                Some(bytes) => accounts.granted(bytes).await,
                None => std::future::pending().await,
            }
        });
        let mut told = pin!(connection.events(events));
        let mut room = pin!(connection.room());
        poll_fn(|cx: &mut Context<'_>| {
            let mut ready = more;
            if let Poll::Ready(moved) = socket.poll_move(reads, cx) {
                moved?;
                ready = true;
            }
            ready |= told.as_mut().poll(cx).is_ready();
            if *waits_for_room && room.as_mut().poll(cx).is_ready() {
                *waits_for_room = false;
                ready = true;
            }
            if announced.is_some() && granted.as_mut().poll(cx).is_ready() {
                machine.grant();
                ready = true;
            }
            while answers_bytes_left > 0
                && let Poll::Ready(Some(done)) = operations.poll_next_unpin(cx)
            {
                answers_bytes_left = answers_bytes_left.saturating_sub(answer_bytes(&done));
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
        ];
        let due = due.into_iter().flatten().min();
        // Without anything due, a look once in an hour does no harm.
        let due = self.started + Duration::from_millis(due.unwrap_or(now_ms + 3_600_000));
        if self.timer.deadline() != due || self.timer.is_elapsed() {
            self.timer.as_mut().reset(due);
        }
    }

    /// Why the client is lost: it has been silent for too long (HB-02), or takes nothing of what it
    /// is sent.
    fn look_at_the_clock(&mut self) -> Result<(), &'static str> {
        let now_ms = self.now_ms();
        if self.report_at_ms.is_some_and(|at| now_ms >= at) {
            self.report();
        }
        if let Some(bytes) = self.machine.announced_bytes() {
            self.accounts.relieve(self.connection, bytes, now_ms);
        }
        if self.progress.is_lost(now_ms, self.socket.written(), self.accounts.is_pressed()) {
            self.accounts.note_lost();
            return Err("the client does not read what it is sent");
        }
        if self.heartbeat.deadline_ms().is_none_or(|at| now_ms < at) {
            return Ok(());
        }
        let octets = Octets { written: self.socket.written(), received: self.socket.received() };
        let look = self.heartbeat.look(now_ms, octets, self.reads());
        if look.send && self.socket.outbox.is_empty() {
            put_heartbeat(self.socket.outbox.buffer());
        }
        if look.lost { Err("missed heartbeats from client") } else { Ok(()) }
    }

    /// Something that lists show may have changed.
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
        let (received, written) = (self.socket.received(), self.socket.written());
        self.connection.report_socket(received, written, self.machine.is_blocked());
    }
}

/// Octets of the body that an answer carries, if it does.
fn answer_bytes((_, answer): &Done) -> usize {
    match answer {
        Ok(Answer::Got(Some(got))) => got.message.body.len(),
        Ok(
            Answer::Got(None)
            | Answer::Done
            | Answer::Declared(_)
            | Answer::Removed(_)
            | Answer::Consuming { .. }
            | Answer::ConsumingReplies { .. }
            | Answer::Routed(_),
        )
        | Err(_) => 0,
    }
}
