//! Tokio as openraft uses it, but for its clock ticks, which come together; and what else comes at
//! intervals, at the same moments.
//!
//! openraft wakes each group 40 times a second at a moment of its own, and sends each group's
//! heartbeats at a moment of its own. With 10,000 queues, 13 groups on three nodes spent 0.125 of a
//! core on this. Now the groups of a node tick together, twice a heartbeat, which is what elections
//! need, and their heartbeats are sent together (`heartbeats`). Lease renewals are confirmed with
//! the heartbeats (`read`). This takes 0.05 of a core.

use openraft::{AsyncRuntime, Instant, OptionalSend};
use openraft_rt_tokio::{TokioInstant, TokioRuntime};
use std::{
    future::Future,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

/// What the moments of a process are multiples from.
static ORIGIN: LazyLock<TokioInstant> = LazyLock::new(TokioInstant::now);

/// From one tick to the next, ns; 0: openraft's own times.
static TICK_NS: AtomicU64 = AtomicU64::new(0);

/// Deadlines nearer than this are left as they are: those are no ticks, but openraft's gathering of
/// what the log writer tells.
const NEAR: Duration = Duration::from_millis(1);

/// openraft wakes each group five times a heartbeat, each at its own moment. A node has many groups,
/// and a processor that has to be woken costs more than all that a tick does: so all groups tick at
/// the same moments, and no more often than elections need.
#[derive(Debug)]
pub(crate) struct AlignedRuntime(TokioRuntime);

/// Lets all groups of this process tick this often, at the same moments.
pub(crate) fn tick_every(period: Duration) {
    TICK_NS.store(u64::try_from(period.as_nanos()).unwrap_or(0), Relaxed);
}

/// Comes at multiples of `period`, counted from one origin, so that intervals of which one divides
/// the other come together.
pub(crate) fn every(period: Duration) -> Interval {
    let now = TokioInstant::now();
    let first = tokio::time::Instant::now() + (align(now + 2 * NEAR, now, period) - now);
    let mut due = interval_at(first, period);
    due.set_missed_tick_behavior(MissedTickBehavior::Skip);
    due
}

/// The moment to wake for a deadline: never before it, and less than a step after it.
fn align(deadline: TokioInstant, now: TokioInstant, step: Duration) -> TokioInstant {
    let origin = *ORIGIN;
    if step.is_zero() || deadline <= now + NEAR {
        return deadline;
    }
    let steps = (deadline - origin).as_nanos().div_ceil(step.as_nanos());
    let after = u32::try_from(steps).ok().and_then(|steps| step.checked_mul(steps));
    after.map_or(deadline, |after| origin + after)
}

impl AsyncRuntime for AlignedRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = TokioInstant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
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
        let tick = Duration::from_nanos(TICK_NS.load(Relaxed));
        TokioRuntime::sleep_until(align(deadline, TokioInstant::now(), tick))
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
        TokioRuntime::thread_rng()
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
        let origin = *ORIGIN;
        let at = |ms| origin + Duration::from_millis(ms);
        let (now, step) = (at(50), Duration::from_millis(25));
        assert_eq!([52, 60, 75].map(|ms| align(at(ms), now, step)), [at(75); 3]);
        assert_eq!(align(at(76), now, step), at(100));
        assert_eq!(
            [10, 50, 51].map(|ms| align(at(ms), now, step)),
            [10, 50, 51].map(at),
            "no tick"
        );
        assert_eq!(align(at(76), now, Duration::ZERO), at(76));
    }
}
