//! `stop`, `shutdown` and `set_log_level`: a node's process.

use super::Console;
use super::command::{Manual, Verb, plain};
use super::connect::{self, call_failure};
use super::exit::{Exit, Failure};
use super::job::Job;
use super::progress::Progress;
use quorate_management::wire;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A verb about a node's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessVerb {
    Stop,
    Shutdown,
    SetLogLevel,
}

/// Pause between checks whether a process has ended.
const PAUSE: Duration = Duration::from_millis(100);

/// RabbitMQ's log levels, and those of a node's log.
const LEVELS: [(&str, &str); 9] = [
    ("debug", "debug"),
    ("info", "info"),
    ("notice", "info"),
    ("warning", "warn"),
    ("error", "error"),
    ("critical", "error"),
    ("alert", "error"),
    ("emergency", "error"),
    ("none", "off"),
];

pub(crate) const MANUALS: &[Manual] = &[
    plain(
        Verb::Process(ProcessVerb::Stop),
        "stop",
        "Nodes",
        "[--idempotent] [<pidfile>]",
        "Stops the node's process; with a pid file, waits until the process has ended",
        (0, 1),
        &["idempotent"],
    ),
    plain(
        Verb::Process(ProcessVerb::Shutdown),
        "shutdown",
        "Nodes",
        "[--wait | --no-wait]",
        "Stops the node's process, and waits until it has ended if it runs on this machine",
        (0, 0),
        &["wait-for-end", "no-wait"],
    ),
    plain(
        Verb::Process(ProcessVerb::SetLogLevel),
        "set_log_level",
        "Configuration and Environment",
        "<log_level>",
        "Sets the level of the node's log until its process ends",
        (1, 1),
        &[],
    ),
];

/// Carries out a verb.
pub(super) async fn run(
    verb: ProcessVerb,
    job: &Job<'_>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match verb {
        ProcessVerb::SetLogLevel => set_log_level(job, console).await,
        ProcessVerb::Stop => stop(job, console).await,
        ProcessVerb::Shutdown => shutdown(job, console).await,
    }
}

async fn set_log_level(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let given = job.word(0);
    let Some((_, level)) = LEVELS.iter().find(|(name, _)| *name == given) else {
        let text = format!(
            "Error:\nlevel {given} is not supported. Try one of debug, info, warning, error, critical, none\n"
        );
        return Err(Failure::new(Exit::Usage, text));
    };
    job.banner(console, format!("Setting log level to \"{given}\" ..."));
    let mut process = job.connect().await?.process;
    let request = wire::LogLevelRequest { caller: wire::caller(), level: (*level).to_owned() };
    process.set_log_level(request).await.map(drop).map_err(|status| call_failure(&status))
}

/// Stops the node that the command is connected to; returns its process id and name.
async fn order_stop(job: &Job<'_>) -> Result<(u32, String), Failure> {
    // Asked about itself only, since the others may be stopped already.
    let (_, node) = connect::connect_to_node(job.target, job.connector()?).await?;
    let mut process = job.connect().await?.process;
    let request = wire::StopRequest { caller: wire::caller() };
    process.stop(request).await.map_err(|status| call_failure(&status))?;
    Ok((node.os_pid, node.name))
}

async fn stop(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let (file, node) = (job.word(0), &job.target.text);
    let monitored =
        if file.is_empty() { String::new() } else { format!(" (will monitor pid file {file})") };
    job.banner(console, format!("Stopping and halting node {node}{monitored} ..."));
    let pid = if file.is_empty() { None } else { Some(pid_in(file)?) };
    match order_stop(job).await {
        Ok(_) => {}
        Err(failure)
            if job.invocation.options.has("idempotent") && failure.exit == Exit::Unavailable =>
        {
            console.say(&format!("Node {node} is no longer running\n"));
            return Ok(());
        }
        Err(failure) => return Err(failure),
    }
    let Some(pid) = pid else { return Ok(()) };
    until_ended(pid, job, console).await?;
    console.say(&format!("process {pid} (take from pid file {file}) is no longer running\n"));
    Ok(())
}

/// Like RabbitMQ's, it waits unless that is declined; a process of another machine cannot be seen.
async fn shutdown(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let options = &job.invocation.options;
    let before = Instant::now();
    let (pid, name) = order_stop(job).await?;
    job.banner(console, format!("Shutting down RabbitMQ node {name} running at PID {pid}"));
    if options.has("no-wait") || !is_quorate(pid) {
        return Ok(());
    }
    job.banner(console, format!("Waiting for PID {pid} to terminate"));
    until_ended(pid, job, console).await?;
    let seconds = before.elapsed().as_secs();
    let done = format!("RabbitMQ node {name} running at PID {pid} successfully shut down");
    job.banner(console, format!("{done} in {seconds} s"));
    Ok(())
}

/// Whether a process of that id on this machine is a node. The id is one of the node's machine.
fn is_quorate(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim() == "quorate"
}

fn pid_in(file: &str) -> Result<u32, Failure> {
    let refuse = |why: String| {
        let text = format!("Error:\ncould not read pid from file {file}. {why}\n");
        Failure::new(Exit::Unavailable, text)
    };
    let text = std::fs::read_to_string(file).map_err(|error| refuse(format!("Error: {error}")))?;
    text.trim().parse().map_err(|_| refuse(format!("File contents: {}", text.trim())))
}

/// Waits until a process of this machine has ended; the command's time limit ends that.
async fn until_ended(pid: u32, job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let ended = async {
        // A process that has ended and is not reaped yet has no files any more.
        while is_running(Path::new(&format!("/proc/{pid}"))) {
            sleep(PAUSE).await;
        }
    };
    let mut progress = Progress::of(&job.invocation.options);
    let text = |elapsed: Duration| format!("{} s: PID {pid} is still there", elapsed.as_secs());
    progress.during(console, ended, text).await;
    Ok(())
}

fn is_running(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_that_of_a_high_id_does_not() {
        assert!(is_running(Path::new("/proc/self")));
        assert!(!is_running(Path::new("/proc/4194999")));
        assert!(!is_quorate(4_194_999));
    }
}
