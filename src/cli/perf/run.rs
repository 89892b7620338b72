//! One run: sets up, starts the workers, measures, ends.

use super::client::{Client, ClientError};
use super::consumer::{Consumed, Settling, consume};
use super::options::Options;
use super::process::{self, Usage};
use super::publisher::{Plan, Published, publish};
use super::shared::{Phase, Shared, latencies};
use super::summary::{Percentiles, Summary, Verdict};
use super::template::Shape;
use amq_protocol::types::ShortString;
use amq_protocol::uri::AMQPUri;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// How often the end of a run is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The ledger is searched for missing messages only after nothing has arrived for this long.
const LULL: Duration = Duration::from_millis(200);

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    progress: u64,
    published: u64,
    confirmed: u64,
    refused: u64,
    received: u64,
    cpu_us: u64,
    own_cpu_us: u64,
}

impl Reading {
    fn take(shared: &Shared, pids: &[u32]) -> (Self, Usage) {
        let usage = process::usage(pids);
        let reading = Self {
            at: Instant::now(),
            progress: shared.progress(),
            published: shared.published.load(Relaxed),
            confirmed: shared.confirmed.load(Relaxed),
            refused: shared.refused.load(Relaxed),
            received: shared.received.load(Relaxed),
            cpu_us: usage.cpu_us,
            own_cpu_us: process::own_cpu_us(),
        };
        (reading, usage)
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are rounded anyway")]
fn ratio(of: u64, by: f64) -> f64 {
    if by > 0.0 { of as f64 / by } else { 0.0 }
}

/// A run in progress.
struct Run {
    options: Options,
    shared: Arc<Shared>,
    pids: Vec<u32>,
    phase: watch::Sender<Phase>,
    publishers: JoinSet<Published>,
    consumers: JoinSet<Consumed>,
    published: Vec<Published>,
    consumed: Vec<Consumed>,
    resident_bytes_max: u64,
    errors: Vec<String>,
}

/// Runs with these options; calls `say` with a line every second.
///
/// # Errors
/// The run could not start.
pub(crate) async fn run(
    options: Options,
    pids: Vec<u32>,
    say: impl Fn(&str),
) -> Result<Summary, ClientError> {
    let names = names(&options)?;
    let declarer = declare(&options, &names).await?;
    let (phase, _) = watch::channel(Phase::Run);
    let mut run = Run {
        shared: Arc::new(Shared::new(rand::random(), options.verify, options.warmup.is_zero())),
        pids,
        phase,
        publishers: JoinSet::new(),
        consumers: JoinSet::new(),
        published: Vec::new(),
        consumed: Vec::new(),
        resident_bytes_max: 0,
        errors: Vec::new(),
        options,
    };
    run.start(&names).await?;
    let (from, to) = run.measure(&say).await;
    let end = run.drain().await;
    if !run.options.keep {
        run.clean_up(declarer, &names).await;
    }
    Ok(run.summary(from, to, end))
}

fn names(options: &Options) -> Result<Vec<ShortString>, ClientError> {
    let name = |number| ShortString::try_new(format!("{}-{number}", options.queue_name));
    Ok((1..=options.queues).map(name).collect::<Result<_, _>>()?)
}

fn declare_uri(options: &Options) -> Option<&AMQPUri> {
    let first = match options.publishers {
        0 => options.consumer_uris().first(),
        _ => options.publisher_uris().first(),
    };
    options.declare_uri.as_ref().or(first)
}

/// Declares the queues; the connection is kept for deleting them.
async fn declare(options: &Options, names: &[ShortString]) -> Result<Option<Client>, ClientError> {
    let Some(uri) = declare_uri(options) else { return Ok(None) };
    let mut client = Client::connect(uri).await?;
    // The options have been checked.
    let arguments = options.queue_arguments().unwrap_or_default();
    client.declare(names, &arguments).await?;
    if !options.no_purge {
        client.purge(names).await?;
    }
    Ok(Some(client))
}

/// The queues of a worker.
fn own(names: &[ShortString], indexes: &[u32]) -> Vec<ShortString> {
    indexes
        .iter()
        .filter_map(|index| usize::try_from(*index).ok())
        .filter_map(|index| names.get(index).cloned())
        .collect()
}

impl Run {
    /// Connects all workers, consumers first, so that every publish finds its consumer attached.
    async fn start(&mut self, names: &[ShortString]) -> Result<(), ClientError> {
        let options = &self.options;
        let uris = options.consumer_uris().iter().cycle();
        for (at, uri) in (0..options.consumers).zip(uris) {
            let mut client = Client::connect(uri).await?;
            client.prefetch(options.prefetch).await?;
            for index in options.queues_of(at, options.consumers) {
                let queue = own(names, &[index]);
                for queue in &queue {
                    client.consume(queue, index, options.ack_every == 0).await?;
                }
            }
            let phase = self.phase.subscribe();
            let settling = Settling { every: options.ack_every, nack: options.nack };
            let shared = Arc::clone(&self.shared);
            self.consumers.spawn(consume(at, client, settling, shared, phase));
        }
        let uris = options.publisher_uris().iter().cycle();
        let mut ready = Vec::new();
        for (at, uri) in (0..options.publishers).zip(uris) {
            let mut client = Client::connect(uri).await?;
            if options.confirm > 0 {
                client.confirm().await?;
            }
            let plan = Plan {
                at,
                queues: own(names, &options.queues_of(at, options.publishers)),
                shape: Shape {
                    body_bytes: options.size,
                    persistent: !options.transient,
                    mandatory: options.mandatory,
                },
                window: options.confirm,
                rate: options.rate / f64::from(options.publishers),
                messages: options.messages_of(at),
            };
            ready.push((client, plan));
        }
        for (client, plan) in ready {
            let phase = self.phase.subscribe();
            self.publishers.spawn(publish(client, plan, Arc::clone(&self.shared), phase));
        }
        Ok(())
    }

    /// Lets the workers work until the run is over; returns the readings at the end of the warm-up
    /// and at the end.
    async fn measure(&mut self, say: &impl Fn(&str)) -> (Reading, Reading) {
        let (mut last, _) = Reading::take(&self.shared, &self.pids);
        let started = last.at;
        let mut from = last;
        let warm_until = started + self.options.warmup;
        let over_at = self.options.duration().map(|duration| warm_until + duration);
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await;
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let mut last_progress = (started, last.progress);
        loop {
            tokio::select! {
                _ = seconds.tick() => {
                    let (reading, usage) = Reading::take(&self.shared, &self.pids);
                    self.resident_bytes_max = self.resident_bytes_max.max(usage.resident_bytes);
                    say(&self.line(started, &last, &reading));
                    last = reading;
                }
                () = sleep(CHECK_INTERVAL) => {}
                _ = &mut interrupted => break,
            }
            self.collect();
            let now = Instant::now();
            if now >= warm_until && !self.shared.measuring.swap(true, Relaxed) {
                from = Reading::take(&self.shared, &self.pids).0;
            }
            let progress = self.shared.progress();
            if progress != last_progress.1 {
                last_progress = (now, progress);
            }
            // Publishes that are unconfirmed for this long will never be confirmed.
            let stuck = self.has_published() && now - last_progress.0 >= self.options.drain;
            if over_at.is_some_and(|over_at| now >= over_at) || self.is_over() || stuck {
                break;
            }
        }
        (from, Reading::take(&self.shared, &self.pids).0)
    }

    /// True if all of `--messages` have been published.
    fn has_published(&self) -> bool {
        let published = self.shared.published.load(Relaxed);
        self.options.publishers > 0
            && self.options.messages.is_some_and(|messages| published >= messages)
    }

    /// True if the workers have finished their tasks, or have failed.
    fn is_over(&self) -> bool {
        let published = self.options.publishers > 0 && self.publishers.is_empty();
        let received = self.options.publishers == 0
            && self.options.messages.is_some_and(|all| self.shared.received.load(Relaxed) >= all);
        !self.errors.is_empty() || published || received
    }

    /// Collects the results of workers that have ended.
    fn collect(&mut self) {
        while let Some(ended) = self.publishers.try_join_next() {
            match ended {
                Ok(published) => {
                    self.errors.extend(published.error.clone());
                    self.published.push(published);
                }
                Err(error) => self.errors.push(error.to_string()),
            }
        }
        while let Some(ended) = self.consumers.try_join_next() {
            match ended {
                Ok(consumed) => {
                    self.errors.extend(consumed.error.clone());
                    self.consumed.push(consumed);
                }
                Err(error) => self.errors.push(error.to_string()),
            }
        }
    }

    fn line(&self, started: Instant, last: &Reading, now: &Reading) -> String {
        let seconds = (now.at - last.at).as_secs_f64();
        let rate = |now: u64, last: u64| ratio(now - last, seconds);
        let mut line = format!(
            "{:5.1} s  published {:.0}/s  confirmed {:.0}/s  received {:.0}/s",
            (now.at - started).as_secs_f64(),
            rate(now.published, last.published),
            rate(now.confirmed, last.confirmed),
            rate(now.received, last.received)
        );
        if !self.pids.is_empty() {
            let cpu = rate(now.cpu_us, last.cpu_us.min(now.cpu_us)) / 10_000.0;
            line.push_str(&format!("  brokers {cpu:.0} % CPU"));
        }
        if now.refused > last.refused {
            line.push_str(&format!("  refused {:.0}/s", rate(now.refused, last.refused)));
        }
        let blocked = self.shared.blocked.load(Relaxed);
        if blocked > 0 {
            line.push_str(&format!("  {blocked} publishers blocked"));
        }
        line
    }

    /// Awaits messages in flight as long as some arrive; then ends all workers. Returns the reading
    /// when the last message had arrived.
    async fn drain(&mut self) -> Reading {
        self.phase.send_replace(Phase::Drain);
        let (mut last, _) = Reading::take(&self.shared, &self.pids);
        let failed = !self.errors.is_empty();
        loop {
            sleep(CHECK_INTERVAL).await;
            self.collect();
            let (now, usage) = Reading::take(&self.shared, &self.pids);
            self.resident_bytes_max = self.resident_bytes_max.max(usage.resident_bytes);
            let lull = now.at - last.at;
            if now.progress != last.progress {
                last = now;
            } else if lull >= self.options.drain || failed && lull >= Duration::from_secs(1) {
                break;
            }
            if self.publishers.is_empty() && self.has_all(&now, lull) {
                last = now;
                break;
            }
        }
        self.phase.send_replace(Phase::Stop);
        while !self.publishers.is_empty() || !self.consumers.is_empty() {
            sleep(CHECK_INTERVAL).await;
            self.collect();
        }
        last
    }

    /// True if every message that was published and not refused has arrived.
    fn has_all(&self, now: &Reading, lull: Duration) -> bool {
        if self.options.publishers == 0 || self.options.consumers == 0 {
            return true;
        }
        if now.received + now.refused < now.published {
            return false;
        }
        self.shared.ledger.is_none() || lull >= LULL && self.verdict().lost == 0
    }

    async fn clean_up(&mut self, declarer: Option<Client>, names: &[ShortString]) {
        let Some(mut client) = declarer else { return };
        let deleted = client.delete(names).await;
        let result = match deleted {
            Ok(()) => client.close().await,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            self.errors.push(format!("cannot delete the queues: {error}"));
        }
    }

    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let Some(ledger) = &self.shared.ledger else { return verdict };
        let ledger = ledger.lock();
        for of in &self.published {
            verdict.published += of.published;
            verdict.unconfirmed += of.unconfirmed.len() as u64;
            verdict.refused += of.refused.len() as u64;
            if !of.confirms {
                verdict.unconfirmed += of.published;
            }
            let mut excused: Vec<u64> = of.unconfirmed.iter().chain(&of.refused).copied().collect();
            excused.sort_unstable();
            let (lost, examples) = ledger.missing(of.at, of.published, &excused);
            verdict.lost += lost;
            let example = |number: &u64| format!("{}:{number} lost", of.at + 1);
            verdict.examples.extend(examples.iter().map(example));
        }
        verdict.confirmed = verdict.published - verdict.unconfirmed - verdict.refused;
        verdict.doubled = ledger.doubled;
        verdict.redelivered = ledger.redelivered;
        let example =
            |(publisher, number): &(u16, u64)| format!("{}:{number} doubled", publisher + 1);
        verdict.examples.extend(ledger.examples.iter().map(example));
        verdict.reordered = self.consumed.iter().map(|of| of.reordered).sum();
        verdict
    }

    fn summary(self, from: Reading, to: Reading, end: Reading) -> Summary {
        let verify = self.shared.ledger.is_some().then(|| self.verdict());
        let (mut confirm, mut end_to_end) = (latencies(), latencies());
        for of in &self.published {
            // Histograms of equal precision that can grow can always be added.
            let _ = confirm.add(&of.latencies);
        }
        for of in &self.consumed {
            let _ = end_to_end.add(&of.latencies);
        }
        let seconds = (to.at - from.at).as_secs_f64();
        // CPU time is counted until the last message has arrived. It is divided by the number of
        // published messages, or, without publishers, of received ones.
        let messages = match self.options.publishers {
            0 => end.received - from.received,
            _ => end.published - from.published,
        };
        #[expect(clippy::cast_precision_loss, reason = "rounded anyway")]
        let per_message = |us: u64| ratio(us, messages as f64);
        let cpu_us = end.cpu_us.saturating_sub(from.cpu_us);
        Summary {
            seconds,
            published: end.published,
            published_per_s: ratio(to.published - from.published, seconds),
            confirmed_per_s: ratio(to.confirmed - from.confirmed, seconds),
            received_per_s: ratio(to.received - from.received, seconds),
            refused: end.refused,
            returned: self.shared.returned.load(Relaxed),
            received: self.shared.received.load(Relaxed),
            confirm_us: Percentiles::of(&confirm),
            end_to_end_us: Percentiles::of(&end_to_end),
            broker_processes: self.pids.len(),
            broker_cpu_us_per_message: (!self.pids.is_empty()).then(|| per_message(cpu_us)),
            broker_resident_bytes_max: self.resident_bytes_max,
            perf_cpu_us_per_message: per_message(end.own_cpu_us - from.own_cpu_us),
            verify,
            errors: self.errors,
        }
    }
}
