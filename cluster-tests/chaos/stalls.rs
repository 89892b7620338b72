//! Times in which the machine itself stood still: a virtual machine whose disk does not sync for 400 ms stops
//! the confirms of every broker on it. The short bounds of pauses leave these times out; nothing else does.

use crate::history::History;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(20);
/// A sync and the pause before it that take longer than this together are a stall.
const ORDINARY: Duration = Duration::from_millis(70);
/// What is written before each sync.
const BLOCK: [u8; 4096] = [1; 4096];

/// A span of the history's time.
pub type Span = [Duration; 2];

/// A thread that writes and syncs a small file again and again, and records when that took long.
#[derive(Debug)]
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<Span>>>,
}

impl Probe {
    /// Starts it, with a file in the folder of temporary files, where the nodes' data is.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn start(history: Arc<History>) -> io::Result<Self> {
        let file = tempfile::tempfile()?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut stalls = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let from = history.now();
                look(&file)?;
                let to = history.now();
                if to.saturating_sub(from) > ORDINARY {
                    stalls.push([from, to]);
                }
            }
            Ok(stalls)
        });
        Ok(Self { stop, thread })
    }

    /// Ends it, and returns what it found: nothing, if its file could not be written.
    ///
    /// # Panics
    /// When the thread panicked.
    #[must_use]
    pub fn finish(self) -> Vec<Span> {
        self.stop.store(true, Ordering::Relaxed);
        let stalls = self.thread.join().expect("the probe of the machine's disk");
        stalls.unwrap_or_else(|error| {
            eprintln!("no stalls of the machine are known, since its probe failed: {error}");
            Vec::new()
        })
    }
}

fn look(file: &File) -> io::Result<()> {
    thread::sleep(INTERVAL);
    file.write_all_at(&BLOCK, 0)?;
    file.sync_data()
}

/// Time in all stalls.
#[must_use]
pub fn total(stalls: &[Span]) -> Duration {
    stalls.iter().map(|[from, to]| to.saturating_sub(*from)).sum()
}

/// How much of a span is in none of the stalls, which do not overlap.
#[must_use]
pub fn without(stalls: &[Span], span: Span) -> Duration {
    let [from, to] = span;
    let shared = stalls.iter().map(|stall| {
        let (since, until) = (stall[0].max(from), stall[1].min(to));
        until.saturating_sub(since)
    });
    to.saturating_sub(from).saturating_sub(shared.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_of_a_stall_inside_the_span_is_left_out() {
        let ms = Duration::from_millis;
        let stalls = [[ms(100), ms(200)], [ms(350), ms(900)]];
        assert_eq!(without(&stalls, [ms(0), ms(50)]), ms(50));
        assert_eq!(without(&stalls, [ms(50), ms(250)]), ms(100));
        assert_eq!(without(&stalls, [ms(150), ms(400)]), ms(150));
        assert_eq!(without(&stalls, [ms(400), ms(800)]), ms(0));
    }
}
