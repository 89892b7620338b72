//! One publisher: fills its window, writes, reads confirms.

use super::client::{CHANNEL, Client, ClientError, blocked, unexpected};
use super::message::Head;
use super::scan::{self, Hot, METHOD};
use super::shared::{Latencies, Phase, Shared, latencies, record};
use super::template::{Shape, Template};
use super::window::Window;
use amq_protocol::protocol::{AMQPClass, basic};
use amq_protocol::types::ShortString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::sleep;

/// Bytes of frames written at once.
const WRITE_BYTES: usize = 256 * 1024;

/// The task of a publisher.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Number of the publisher, from 0.
    pub(crate) at: u16,
    pub(crate) queues: Vec<ShortString>,
    pub(crate) shape: Shape,
    /// 0: no confirms.
    pub(crate) window: usize,
    /// Messages a second; 0 for no limit.
    pub(crate) rate: f64,
    pub(crate) messages: Option<u64>,
}

/// The result of a publisher.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) at: u16,
    pub(crate) published: u64,
    pub(crate) confirms: bool,
    /// Numbers of publishes without ack or nack.
    pub(crate) unconfirmed: Vec<u64>,
    /// Numbers of refused publishes (basic.nack), ascending.
    pub(crate) refused: Vec<u64>,
    pub(crate) latencies: Latencies,
    pub(crate) error: Option<String>,
}

struct Publisher {
    plan: Plan,
    shared: Arc<Shared>,
    templates: Vec<Template>,
    window: Window,
    published: u64,
    refused: Vec<u64>,
    latencies: Latencies,
    out: Vec<u8>,
    written: usize,
    blocked: bool,
    began_ns: u64,
}

/// Publishes until the phase changes, then awaits the confirms until the phase is `Stop`.
pub(crate) async fn publish(
    client: Client,
    plan: Plan,
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
) -> Published {
    let templates = plan
        .queues
        .iter()
        .map(|queue| Template::new(queue, CHANNEL, &plan.shape, client.frame_max))
        .collect();
    let mut publisher = Publisher {
        began_ns: shared.now_ns(),
        templates,
        window: Window::new(),
        published: 0,
        refused: Vec::new(),
        latencies: latencies(),
        out: Vec::with_capacity(2 * WRITE_BYTES),
        written: 0,
        blocked: false,
        plan,
        shared,
    };
    let error = publisher.run(client, phase).await.err();
    publisher.refused.sort_unstable();
    Published {
        at: publisher.plan.at,
        published: publisher.published,
        confirms: publisher.plan.window > 0,
        unconfirmed: publisher.window.unconfirmed(),
        refused: publisher.refused,
        latencies: publisher.latencies,
        error: error.map(|error| format!("publisher {}: {error}", publisher.plan.at + 1)),
    }
}

impl Publisher {
    async fn run(
        &mut self,
        mut client: Client,
        mut phase: watch::Receiver<Phase>,
    ) -> Result<(), ClientError> {
        loop {
            let now = *phase.borrow_and_update();
            if now == Phase::Run {
                self.fill();
            }
            let finished = now > Phase::Run || self.is_last();
            if now == Phase::Stop || (finished && self.window.waiting() == 0 && self.is_written()) {
                break;
            }
            let congested = self.write(&client)?;
            let pause = if finished || congested { None } else { self.pause() };
            let (mut reader, writer) = client.stream.split();
            tokio::select! {
                read = reader.read(client.inbox.room()) => {
                    let bytes = read?;
                    if bytes == 0 {
                        return Err(ClientError::Ended);
                    }
                    client.inbox.filled(bytes);
                }
                ready = writer.writable(), if congested => ready?,
                () = wait(pause), if pause.is_some() => {}
                changed = phase.changed() => if changed.is_err() { break },
            }
            self.confirms(&mut client)?;
        }
        client.close().await
    }

    fn is_last(&self) -> bool {
        self.plan.messages.is_some_and(|messages| self.published >= messages)
    }

    fn is_written(&self) -> bool {
        self.written == self.out.len()
    }

    /// Number of publishes that may be sent now: by window, rate, and the messages left.
    fn allowance(&self, now_ns: u64) -> u64 {
        let most = u64::MAX;
        let window = match self.plan.window {
            0 => most,
            window => window.saturating_sub(self.window.waiting()) as u64,
        };
        let left = self.plan.messages.map_or(most, |all| all.saturating_sub(self.published));
        let due = if self.plan.rate > 0.0 {
            due(self.plan.rate, now_ns.saturating_sub(self.began_ns)).saturating_sub(self.published)
        } else {
            most
        };
        window.min(left).min(due)
    }

    /// Appends frames, as long as less than `WRITE_BYTES` are unwritten.
    fn fill(&mut self) {
        if self.is_written() {
            self.out.clear();
            self.written = 0;
        } else if self.out.len() - self.written >= WRITE_BYTES {
            return;
        }
        let now_ns = self.shared.now_ns();
        let allowed = self.allowance(now_ns);
        let mut count = 0;
        while count < allowed && self.out.len() - self.written < WRITE_BYTES {
            let number = self.published + 1;
            let head =
                Head { sent_ns: now_ns, run: self.shared.run, publisher: self.plan.at, number };
            let turn = usize::try_from(self.published).unwrap_or(0) % self.templates.len().max(1);
            let Some(template) = self.templates.get(turn) else { break };
            template.append(&mut self.out, &head.bytes());
            if self.plan.window > 0 {
                self.window.sent(now_ns);
            }
            self.published = number;
            count += 1;
        }
        self.shared.published.fetch_add(count, Relaxed);
    }

    /// Writes as much as possible; true if more is left.
    fn write(&mut self, client: &Client) -> Result<bool, ClientError> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match client.stream.try_write(rest) {
                Ok(bytes) => self.written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// How long until more may be sent, unless a confirm is needed for that.
    fn pause(&self) -> Option<Duration> {
        let now_ns = self.shared.now_ns();
        if self.allowance(now_ns) > 0 {
            return Some(Duration::ZERO);
        }
        let full = self.plan.window > 0 && self.window.waiting() >= self.plan.window;
        if full || self.plan.rate <= 0.0 {
            return None;
        }
        // The timer's resolution is 1 ms; messages due within it are sent together.
        Some(Duration::from_millis(1))
    }

    /// Handles the frames that were read.
    fn confirms(&mut self, client: &mut Client) -> Result<(), ClientError> {
        let measuring = self.shared.is_measuring();
        let now_ns = self.shared.now_ns();
        let (mut confirmed, mut refused) = (0, 0);
        let (window, latencies) = (&mut self.window, &mut self.latencies);
        while let Some(frame) = client.inbox.next()? {
            if frame.kind != METHOD {
                continue;
            }
            match scan::method(frame.payload)? {
                Hot::Ack { number, multiple } => window.settle(number, multiple, |_, sent_ns| {
                    confirmed += 1;
                    if measuring {
                        record(latencies, sent_ns, now_ns);
                    }
                }),
                Hot::Nack { number, multiple } => window.settle(number, multiple, |number, _| {
                    refused += 1;
                    self.refused.push(number);
                }),
                Hot::Deliver { .. } => return Err(scan::ScanError::Unexpected("delivery").into()),
                Hot::Other(method) => rare(*method, &self.shared, &mut self.blocked)?,
            }
        }
        self.shared.confirmed.fetch_add(confirmed, Relaxed);
        self.shared.refused.fetch_add(refused, Relaxed);
        Ok(())
    }
}

/// Handles a method that is not a confirm.
fn rare(method: AMQPClass, shared: &Shared, is_blocked: &mut bool) -> Result<(), ClientError> {
    if let AMQPClass::Basic(basic::AMQPMethod::Return(_)) = method {
        shared.returned.fetch_add(1, Relaxed);
        return Ok(());
    }
    match blocked(&method) {
        None => return Err(unexpected(method).into()),
        Some(true) if !std::mem::replace(is_blocked, true) => {
            shared.blocked.fetch_add(1, Relaxed);
        }
        Some(false) if std::mem::take(is_blocked) => {
            shared.blocked.fetch_sub(1, Relaxed);
        }
        Some(_) => {}
    }
    Ok(())
}

/// Number of messages due after a time, at a rate in messages a second.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate need not be exact to the message"
)]
fn due(rate: f64, elapsed_ns: u64) -> u64 {
    (rate * (elapsed_ns as f64) / 1e9) as u64 + 1
}

async fn wait(pause: Option<Duration>) {
    match pause {
        None => std::future::pending().await,
        Some(Duration::ZERO) => yield_now().await,
        Some(pause) => sleep(pause).await,
    }
}

#[cfg(test)]
mod tests {
    use super::due;

    #[test]
    fn the_first_message_is_due_at_once_and_the_others_by_the_rate() {
        assert_eq!(due(10.0, 0), 1);
        assert_eq!(due(10.0, 99_000_000), 1);
        assert_eq!(due(10.0, 100_000_000), 2);
        assert_eq!(due(1000.0, 2_000_000_000), 2001);
    }
}
