//! `quorate ctl`: rabbitmqctl's verbs, flags, output and exit codes (CTL) over the admin service.

mod about;
mod access;
mod alarms;
mod audit;
mod auditing;
mod awaiting;
mod browse;
mod certificates;
mod checks;
mod columns;
mod command;
mod connect;
mod definitions;
mod dry_run;
mod exit;
mod expiry;
mod explain;
mod features;
mod format;
mod idle;
mod job;
mod lists;
mod members;
mod names;
mod node;
mod options;
mod plugins;
mod policies;
mod process;
mod progress;
mod queues;
mod replicas;
mod report;
mod rows;
mod status;
mod tasks;
#[cfg(test)]
mod tests;
mod value;

use super::settings::RABBITMQ_VERSION;
use command::Verb;
use connect::Target;
use exit::{Exit, Failure};
use job::Job;
use options::Invocation;
use quorate_management::wire::alarm_request::BeginsAt;
use std::future::Future;
use std::io::Write;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of a command without `--timeout`.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// The output streams of a command.
pub(crate) struct Console<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) err: &'a mut dyn Write,
}

impl Console<'_> {
    /// Writes to standard output. A closed reader is not an error.
    fn say(&mut self, text: &str) {
        let _ = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
    }

    fn complain(&mut self, text: &str) {
        let _ = self.err.write_all(text.as_bytes()).and_then(|()| self.err.flush());
    }
}

/// Runs one command line (without the program's name) and returns the exit code.
pub(crate) fn run(line: &[String], program: &str, console: &mut Console<'_>) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(obey(line, program, console)),
        Err(error) => Err(Failure::new(Exit::Software, format!("Error: {error}\n"))),
    };
    finish(result, console)
}

fn finish(result: Result<(), Failure>, console: &mut Console<'_>) -> u8 {
    match result {
        Ok(()) => Exit::Done.code(),
        Err(failure) if failure.exit == Exit::Done => {
            console.say(&failure.text);
            Exit::Done.code()
        }
        Err(failure) => {
            console.complain(&failure.text);
            failure.exit.code()
        }
    }
}

async fn obey(line: &[String], program: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    let invocation = options::parse(line, program)?;
    let manual = invocation.manual;
    if invocation.options.help {
        console.say(&command::help(manual, program));
        return Ok(());
    }
    if manual.verb == Verb::Help {
        return help(&invocation, program, console);
    }
    if manual.verb == Verb::Version {
        console.say(&format!("{}\n", version(std::env::var("QUORATE_IDENTIFY_AS").ok())));
        return Ok(());
    }
    if manual.verb == Verb::GenerateCertificates {
        return certificates::generate(&invocation, console);
    }
    if invocation.options.cookie {
        console.complain("Notice: --erlang-cookie has no effect: nodes have a cluster secret\n");
    }
    // An invalid column is refused before any request.
    let columns = if let Verb::List(listing) = manual.verb {
        columns::choose(listing, &invocation, line, program)?
    } else {
        Vec::new()
    };
    let begins_at = if let Verb::SetAlarm(resource) = manual.verb {
        Some(alarms::read(resource, &invocation, line, program)?)
    } else {
        None
    };
    let wait = if let Verb::Member(verb) = manual.verb {
        members::read(verb, &invocation, line, program)?
    } else {
        None
    };
    if invocation.options.dry_run && !manual.verb.has_dry_run() {
        return Ok(());
    }
    let connector = match connect::connector(&invocation.options) {
        Ok(connector) => Some(connector),
        // They work where no node is, such as when an image is built.
        Err(_) if matches!(manual.verb, Verb::Plugins(_) | Verb::Idle(_)) => None,
        Err(failure) => return Err(failure),
    };
    let target = Target::read(invocation.options.node.as_deref());
    let limit = invocation.options.timeout;
    let limit = limit.unwrap_or_else(|| time_limit(manual.verb));
    let connector = connector.as_ref();
    let job = Job { invocation: &invocation, target: &target, connector, limit };
    let outer = limit.saturating_add(margin(manual.verb, wait, &job)?);
    within(outer, manual.name, &target, carry_out(&job, &columns, begins_at, wait, console)).await
}

/// How long a verb may take without `--timeout`.
fn time_limit(verb: Verb) -> Duration {
    if let Verb::Await(verb) = verb { awaiting::limit(verb) } else { TIMEOUT_DEFAULT }
}

/// The time that a verb has beyond its limit: some keep to the limit themselves, or take the time that
/// they are told.
fn margin(verb: Verb, wait: Option<Duration>, job: &Job<'_>) -> Result<Duration, Failure> {
    Ok(match verb {
        Verb::Node(_) | Verb::Await(_) => node::MARGIN,
        Verb::Member(_) => wait.map_or(Duration::ZERO, |wait| wait + node::MARGIN),
        Verb::About(verb) => about::duration(verb, job)?,
        Verb::Help
        | Verb::Version
        | Verb::ClusterStatus
        | Verb::Status
        | Verb::Report
        | Verb::Audit
        | Verb::List(_)
        | Verb::DeleteQueue
        | Verb::PurgeQueue
        | Verb::Policies(_)
        | Verb::ExportDefinitions
        | Verb::ImportDefinitions
        | Verb::Access(_)
        | Verb::GenerateCertificates
        | Verb::SetAlarm(_)
        | Verb::Check(_)
        | Verb::Replicas(_)
        | Verb::Process(_)
        | Verb::Feature(_)
        | Verb::Plugins(_)
        | Verb::Browse(_)
        | Verb::Task(_)
        | Verb::Idle(_) => Duration::ZERO,
    })
}

/// The version that nodes report, unless the environment selects Quorate's own.
fn version(identify_as: Option<String>) -> &'static str {
    match identify_as.as_deref() {
        Some("quorate") => env!("CARGO_PKG_VERSION"),
        Some(_) | None => RABBITMQ_VERSION,
    }
}

/// Runs a command; after the time limit it fails with rabbitmqctl's text.
async fn within(
    limit: Duration,
    operation: &str,
    target: &Target,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => {
            let text = format!(
                "Error: operation {operation} on node {} timed out. Timeout value used: {}\n",
                target.text,
                limit.as_secs_f64()
            );
            Err(Failure::new(Exit::TimedOut, text))
        }
    }
}

/// The first argument; empty if the command has none.
fn word(invocation: &Invocation) -> &str {
    invocation.arguments.first().map_or("", String::as_str)
}

fn help(invocation: &Invocation, program: &str, console: &mut Console<'_>) -> Result<(), Failure> {
    match invocation.arguments.first() {
        None => console.say(&command::overview(program)),
        Some(name) => match command::find(name, program) {
            Some(manual) => console.say(&command::help(manual, program)),
            None => {
                let unknown = || Failure::new(Exit::Usage, command::unknown(name, program));
                return Err(idle::lacking(name).unwrap_or_else(unknown));
            }
        },
    }
    Ok(())
}

/// Carries out a verb that asks a node.
async fn carry_out(
    job: &Job<'_>,
    columns: &[&'static str],
    begins_at: Option<BeginsAt>,
    wait: Option<Duration>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let Job { invocation, target, limit, .. } = *job;
    let door = || job.connector().map(|connector| (target, connector));
    match invocation.manual.verb {
        Verb::List(listing) => {
            if invocation.options.banners() {
                console.say(&lists::banner(listing, &invocation.options));
            }
            let mut connected = job.connect().await?;
            lists::list(listing, columns, &invocation.options, &mut connected, console).await
        }
        Verb::DeleteQueue | Verb::PurgeQueue => queues::change(job, console).await,
        Verb::Policies(verb) if invocation.options.dry_run => {
            dry_run::policy(verb, invocation, &mut job.connect().await?.messages, console).await
        }
        Verb::ImportDefinitions if invocation.options.dry_run => {
            dry_run::definitions(invocation, &mut job.connect().await?.messages, console).await
        }
        Verb::Policies(verb) => policies::run(verb, job, console).await,
        Verb::ExportDefinitions => definitions::export(job, console).await,
        Verb::ImportDefinitions => definitions::import(job, console).await,
        Verb::ClusterStatus | Verb::Status => status::show(job, console).await,
        Verb::Report => status::report(job, console).await,
        Verb::Audit => auditing::run(job, console).await,
        Verb::Access(verb) => access::run(verb, invocation, door()?, console).await,
        Verb::SetAlarm(resource) => {
            alarms::set(resource, begins_at, invocation, door()?, console).await
        }
        Verb::Node(verb) => node::run(verb, limit, invocation, door()?, console).await,
        Verb::Member(verb) => members::run(verb, wait, invocation, door()?, console).await,
        Verb::Check(verb) => checks::run(verb, job, console).await,
        Verb::About(verb) => about::run(verb, job, console).await,
        Verb::Replicas(verb) => replicas::run(verb, job, console).await,
        Verb::Await(verb) => awaiting::run(verb, job, console).await,
        Verb::Process(verb) => process::run(verb, job, console).await,
        Verb::Feature(verb) => features::run(verb, job, console).await,
        Verb::Plugins(verb) => plugins::run(verb, job, console).await,
        Verb::Idle(verb) => idle::run(verb, job, console).await,
        Verb::Browse(verb) => {
            browse::run(verb, invocation, &mut job.connect().await?, console).await
        }
        Verb::Task(verb) => tasks::run(verb, job, console).await,
        // They ask no node.
        Verb::Help | Verb::Version | Verb::GenerateCertificates => Ok(()),
    }
}
