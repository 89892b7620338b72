//! An openraft runtime on Tokio whose timers fire at common moments; and intervals that tick at the
//! same moments.
//!
//! openraft wakes each group 40 times a second at a moment of its own, and sends each group's
//! heartbeats at a moment of its own. With 10,000 queues, 13 groups on three nodes used 0.125 of a
//! core for this. Now the groups of a node tick together, twice a heartbeat, which is what
//! elections need, and their heartbeats are sent together (`heartbeats`). Lease renewals are
//! confirmed with the heartbeats (`read`). This uses 0.05 of a core.

use crate::openraft_rng::OpenraftRng;
use openraft::{AsyncRuntime, Instant, OptionalSend};
use openraft_rt_tokio::{TokioInstant, TokioRuntime};
use parking_lot::RwLock;
use std::{future::Future, time::Duration};
use tokio::{
    runtime::{Handle, Id},
    time::{Interval, MissedTickBehavior, interval_at},
};

/// The ticks of the runtimes on which groups were started. A process has one; a simulation has one
/// for each node, each with its own clock.
static TICKS: RwLock<Vec<(Id, Ticks)>> = RwLock::new(Vec::new());

/// The moments at which a node's groups tick.
#[derive(Clone, Copy)]
struct Ticks {
    /// Ticks are multiples of the period from this moment on.
    origin: TokioInstant,
    period: Duration,
}

impl Ticks {
    /// The ticks of the calling runtime; if it has no groups, like that of the AMQP clients, those
    /// of the process. `None` before any groups are started.
    fn here() -> Option<Self> {
        let id = Handle::current().id();
        let ticks = TICKS.read();
        let own = ticks.iter().find(|(runtime, _)| *runtime == id);
        own.or_else(|| ticks.first()).map(|(_, ticks)| *ticks)
    }

    /// The moment to wake for a deadline: never before it, and less than a step after it.
    fn align(self, deadline: TokioInstant, now: TokioInstant, step: Duration) -> TokioInstant {
        if step.is_zero() || deadline <= now + NEAR {
            return deadline;
        }
        let steps = (deadline - self.origin).as_nanos().div_ceil(step.as_nanos());
        let after = u32::try_from(steps).ok().and_then(|steps| step.checked_mul(steps));
        after.map_or(deadline, |after| self.origin + after)
    }
}

/// Deadlines nearer than this are not aligned: they are not ticks, but openraft's batching of the
/// log writer's reports.
const NEAR: Duration = Duration::from_millis(1);

/// A runtime with common ticks. openraft wakes each group five times a heartbeat, each at its own
/// moment. A node has many groups, and waking a processor costs more than the work of a tick. So
/// all groups tick at the same moments, and no more often than elections need.
#[derive(Debug)]
pub(crate) struct AlignedRuntime(TokioRuntime);

/// Lets all groups of this runtime tick this often, at the same moments.
pub(crate) fn tick_every(period: Duration) {
    let id = Handle::current().id();
    let mut ticks = TICKS.write();
    match ticks.iter_mut().find(|(runtime, _)| *runtime == id) {
        Some((_, ticks)) => ticks.period = period,
        None => ticks.push((id, Ticks { origin: TokioInstant::now(), period })),
    }
}

/// An interval that ticks at multiples of `period`, counted from one origin, so that intervals of
/// which one divides the other tick together.
pub(crate) fn every(period: Duration) -> Interval {
    let now = TokioInstant::now();
    let soon = now + 2 * NEAR;
    let first = Ticks::here().map_or(soon, |ticks| ticks.align(soon, now, period));
    let mut due = interval_at(tokio::time::Instant::now() + (first - now), period);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    due
}

impl AsyncRuntime for AlignedRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = OpenraftRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = <TokioRuntime as AsyncRuntime>::Watch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        let ticks = Ticks::here();
        let aligned = ticks.map(|t| t.align(deadline, TokioInstant::now(), t.period));
        TokioRuntime::sleep_until(aligned.unwrap_or(deadline))
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        OpenraftRng
    }

    fn new(threads: usize) -> Self {
        Self(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_within_a_step_are_one_moment() {
        let (origin, step) = (TokioInstant::now(), Duration::from_millis(25));
        let at = |ms| origin + Duration::from_millis(ms);
        let align = |at, now| Ticks { origin, period: step }.align(at, now, step);
        let now = at(50);
        assert_eq!([52, 60, 75].map(|ms| align(at(ms), now)), [at(75); 3]);
        assert_eq!(align(at(76), now), at(100));
        assert_eq!([10, 50, 51].map(|ms| align(at(ms), now)), [10, 50, 51].map(at), "no tick");
    }
}
