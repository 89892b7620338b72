//! `runtime_thread_stats`: the processor time that a node's threads use within an interval.

use super::super::Console;
use super::super::connect::Connected;
use super::super::exit::{Exit, Failure};
use super::super::format::{Sheet, render};
use super::super::job::Job;
use super::super::progress::Progress;
use super::super::value::Value;
use quorate_management::wire;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Without `--sample-interval`.
const INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_MAX: u64 = 3_600;

/// The interval of `--sample-interval`.
pub(super) fn interval(job: &Job<'_>) -> Result<Duration, Failure> {
    match job.invocation.options.value("sample-interval").map(str::parse::<u64>) {
        None => Ok(INTERVAL),
        Some(Ok(seconds)) if (1..=INTERVAL_MAX).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        Some(_) => {
            let text =
                format!("Error:\n--sample-interval is no number from 1 to {INTERVAL_MAX} (s)\n");
            Err(Failure::new(Exit::Data, text))
        }
    }
}

/// Samples twice, and prints the difference.
pub(super) async fn stats(
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let interval = interval(job)?;
    let (begun, before) = (Instant::now(), super::process(connected).await?.threads);
    let mut progress = Progress::of(&job.invocation.options);
    let text = |elapsed: Duration| {
        format!("sampling for {} of {} s", elapsed.as_secs(), interval.as_secs())
    };
    progress.during(console, sleep(interval), text).await;
    let after = super::process(connected).await?.threads;
    let sheet = sheet(&before, &after, begun.elapsed());
    let options = &job.invocation.options;
    console.say(&render(&sheet, options.formatter(), options.headers()));
    Ok(())
}

/// Shares of one processor, per mille, as percent with one place.
fn percent(ms: u64, of: Duration) -> Value {
    let of = u64::try_from(of.as_millis()).unwrap_or(u64::MAX).max(1);
    let parts = ms.saturating_mul(1_000) / of;
    Value::word(format!("{}.{}%", parts / 10, parts % 10))
}

fn sheet(before: &[wire::Thread], after: &[wire::Thread], time: Duration) -> Sheet {
    let before: BTreeMap<&str, &wire::Thread> =
        before.iter().map(|thread| (thread.name.as_str(), thread)).collect();
    let row = |thread: &wire::Thread| {
        let known = before.get(thread.name.as_str());
        let (user, system) = known.map_or((0, 0), |known| (known.user_ms, known.system_ms));
        vec![
            Value::text(&thread.name),
            percent(thread.user_ms.saturating_sub(user), time),
            percent(thread.system_ms.saturating_sub(system), time),
        ]
    };
    let columns = ["thread", "user", "system"].map(str::to_owned).to_vec();
    Sheet { columns, rows: after.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::super::options::Formatter;
    use super::*;

    #[test]
    fn threads_show_what_they_used_within_the_interval() {
        let thread = |name: &str, user_ms, system_ms| wire::Thread {
            name: name.to_owned(),
            user_ms,
            system_ms,
        };
        let (before, after) =
            ([thread("clients", 100, 10)], [thread("clients", 600, 11), thread("new", 50, 0)]);
        let sheet = sheet(&before, &after, Duration::from_secs(1));
        let text = render(&sheet, Formatter::Table, true);
        assert_eq!(text, "thread\tuser\tsystem\nclients\t50.0%\t0.1%\nnew\t5.0%\t0.0%\n");
    }
}
