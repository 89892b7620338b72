//! Whether this process makes progress (`/health/live`, `quorate ctl ping`). That depends on this process
//! and its disk alone, so that no node is restarted because of another one.

use crate::source::Source;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::interval;

/// A sync of the disk that takes this long hangs, and so does a runtime without a sign of life.
pub(crate) const WEDGED_AFTER: Duration = Duration::from_secs(60);
/// How often each runtime gives a sign of life.
const BEAT: Duration = Duration::from_secs(1);

/// The signs of life of a process's runtimes.
#[derive(Clone, Debug, Default)]
pub struct Pulses(Vec<Arc<Pulse>>);

#[derive(Debug)]
struct Pulse {
    runtime: &'static str,
    last: Mutex<Instant>,
}

impl Pulses {
    /// Begins to watch these runtimes, by the names that their threads have.
    #[must_use]
    pub fn watch(runtimes: &[(&'static str, Handle)]) -> Self {
        let watched = |(runtime, handle): &(&'static str, Handle)| {
            let pulse = Arc::new(Pulse { runtime, last: Mutex::new(Instant::now()) });
            // Ends with the runtime.
            handle.spawn(beat(Arc::clone(&pulse)));
            pulse
        };
        Self(runtimes.iter().map(watched).collect())
    }

    /// A runtime that has given no sign of life for the time, and since when.
    fn silent(&self, time: Duration) -> Option<(&'static str, Duration)> {
        let mut pulses = self.0.iter().map(|pulse| (pulse.runtime, pulse.last.lock().elapsed()));
        pulses.find(|(_, since)| *since >= time)
    }
}

async fn beat(pulse: Arc<Pulse>) {
    let mut due = interval(BEAT);
    loop {
        due.tick().await;
        *pulse.last.lock() = Instant::now();
    }
}

/// Why this process makes no progress, as text; `None` if it does.
pub(crate) fn not_live(source: &impl Source, pulses: &Pulses) -> Option<String> {
    wedged(source.sync_under_way(), pulses, WEDGED_AFTER)
}

fn wedged(sync: Duration, pulses: &Pulses, bound: Duration) -> Option<String> {
    if sync >= bound {
        return Some(format!("a disk sync has not finished for {} s", sync.as_secs()));
    }
    let (runtime, since) = pulses.silent(bound)?;
    Some(format!("the threads '{runtime}' have made no progress for {} s", since.as_secs()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use std::sync::mpsc;
    use tokio::runtime::{Builder, Runtime};

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    }

    /// Waits until what is said about the pulses with a bound of two beats is this.
    fn until(pulses: &Pulses, is_said: impl Fn(Option<&str>) -> bool) {
        let begun = Instant::now();
        loop {
            let said = wedged(Duration::ZERO, pulses, 2 * BEAT);
            if is_said(said.as_deref()) {
                return;
            }
            assert!(begun.elapsed() < WEDGED_AFTER, "{said:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_hung_disk_and_a_blocked_runtime_are_noticed() {
        let (free, blocked) = (runtime(), runtime());
        let runtimes = [("free", free.handle().clone()), ("blocked", blocked.handle().clone())];
        let pulses = Pulses::watch(&runtimes);
        let almost = WEDGED_AFTER - Duration::from_millis(1);
        assert_eq!(wedged(almost, &pulses, WEDGED_AFTER), None);
        let hung = wedged(WEDGED_AFTER + BEAT, &pulses, WEDGED_AFTER);
        assert_eq!(hung.as_deref(), Some("a disk sync has not finished for 61 s"));

        let (release, released) = mpsc::channel::<()>();
        blocked.spawn(async move { released.recv() });
        let words = "the threads 'blocked' have made no progress for ";
        until(&pulses, |said| said.is_some_and(|said| said.starts_with(words)));
        release.send(()).unwrap();
        until(&pulses, |said| said.is_none());
    }
}
