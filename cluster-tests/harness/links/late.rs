//! Packets that arrive late: the kernel queues them for this process (NFQUEUE), which lets each go on when
//! its time has come.

use nfq::{Message, Queue, Verdict};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of the next queue. A process that is started while a queue is open inherits its socket, so that
/// the number stays in use for as long as that process lives.
static NEXT: AtomicU16 = AtomicU16::new(1);
/// Packets that wait at most; what comes beyond is lost.
const PACKETS: u32 = 1 << 16;
/// Interval between two looks for packets and for those whose time has come.
const INTERVAL: Duration = Duration::from_micros(500);

/// How late packets arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lateness {
    /// At least.
    pub least: Duration,
    /// By up to how much more.
    pub jitter: Duration,
    /// Whether none overtakes another one.
    pub in_order: bool,
}

/// The thread that holds a namespace's packets; when it is dropped, they all go on.
#[derive(Debug)]
pub(super) struct Late {
    /// Number of its queue.
    pub number: u16,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Late {
    /// Begins in the namespace of this path; counts packets.
    pub fn start(namespace: &Path, lateness: Lateness, count: Arc<AtomicU64>) -> io::Result<Self> {
        let namespace = File::open(namespace)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (stop, stopped) = channel();
        let (started, starts) = channel();
        let thread = std::thread::spawn(move || match open(&namespace, number) {
            Ok(queue) => {
                let _ = started.send(Ok(()));
                let mut held = Held { queue, lateness, packets: BTreeMap::new(), number: 0 };
                held.run(&stopped, &count);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        });
        starts.recv().unwrap_or_else(|_| Err(io::ErrorKind::Interrupted.into()))?;
        Ok(Self { number, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It has said what is wrong, if anything was.
            let _ = thread.join();
        }
    }
}

/// The queue of this number in a namespace, into which the calling thread moves for good.
fn open(namespace: &File, number: u16) -> io::Result<Queue> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    let mut queue = Queue::open()?;
    queue.bind(number)?;
    queue.set_queue_max_len(number, PACKETS)?;
    queue.set_recv_enobufs(false)?;
    queue.set_nonblocking(true);
    Ok(queue)
}

struct Held {
    queue: Queue,
    lateness: Lateness,
    /// By the time when each goes on, and its number.
    packets: BTreeMap<(Instant, u64), Message>,
    number: u64,
}

impl Held {
    fn run(&mut self, stopped: &Receiver<()>, count: &AtomicU64) {
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            while let Ok(packet) = self.queue.recv() {
                count.fetch_add(1, Ordering::Relaxed);
                self.number += 1;
                self.packets.insert((self.due(), self.number), packet);
            }
            self.release(Instant::now());
            std::thread::sleep(INTERVAL);
        }
        let last = self.packets.last_key_value().map(|((due, _), _)| *due);
        self.release(last.unwrap_or_else(Instant::now));
    }

    fn due(&self) -> Instant {
        let Lateness { least, jitter, in_order } = self.lateness;
        let due = Instant::now() + least + jitter.mul_f64(fastrand::f64());
        match self.packets.last_key_value() {
            Some(((last, _), _)) if in_order => due.max(*last),
            Some(_) | None => due,
        }
    }

    fn release(&mut self, now: Instant) {
        while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= now) {
            let mut packet = entry.remove();
            packet.set_verdict(Verdict::Accept);
            // The socket may be full: the packet is lost then, which is no wrong either.
            let _ = self.queue.verdict(packet);
        }
    }
}
