//! `log_tail` and `log_tail_stream`: the newest lines of a node's log, which it keeps.

use super::super::Console;
use super::super::connect::{Connected, call_failure};
use super::super::exit::{Exit, Failure};
use super::super::job::Job;
use super::super::value::visible;
use super::AboutVerb;
use quorate_management::wire;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Lines without `--number`.
const LINES: u32 = 50;
/// Longest stream, without `--duration`.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// The number of lines of `--number`.
pub(super) fn lines(job: &Job<'_>) -> Result<u32, Failure> {
    match job.invocation.options.value("number").map(str::parse) {
        None => Ok(LINES),
        Some(Ok(number)) if number > 0 => Ok(number),
        Some(_) => {
            let text = "Error:\n--number is not a number of lines above 0\n";
            Err(Failure::new(Exit::Data, text))
        }
    }
}

/// How long a stream goes on: `--duration`, in seconds, or the time limit of the command.
pub(super) fn duration(job: &Job<'_>) -> Result<Duration, Failure> {
    let options = &job.invocation.options;
    let given = options.value("duration").filter(|text| *text != "infinity");
    let Some(text) = given else { return Ok(options.timeout.unwrap_or(FOREVER)) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| {
        let text = format!("Error:\n--duration is no number of seconds: {text}\n");
        Failure::new(Exit::Data, text)
    })
}

/// Prints lines of the log.
pub(super) async fn tail(
    verb: AboutVerb,
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let follow = verb == AboutVerb::LogTailStream;
    let lines = if follow { 0 } else { lines(job)? };
    let until = Instant::now() + if follow { duration(job)? } else { job.limit };
    let request = wire::LogRequest { caller: wire::caller(), lines, follow };
    let batches = connected.process.tail_log(request).await;
    let mut batches = batches.map_err(|status| call_failure(&status))?.into_inner();
    // The end of the time is the end of the stream.
    while let Ok(batch) = timeout_at(until, batches.message()).await {
        let Some(batch) = batch.map_err(|status| call_failure(&status))? else { break };
        if batch.skipped > 0 {
            console.complain(&format!("Warning: {} lines were left out\n", batch.skipped));
        }
        for line in &batch.lines {
            console.say(&format!("{}\n", visible(line)));
        }
    }
    Ok(())
}
