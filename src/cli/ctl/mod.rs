//! `quorate ctl`: rabbitmqctl's verbs, flags, output and exit codes (CTL) over the admin service.

mod access;
mod alarms;
mod audit;
mod browse;
mod certificates;
mod columns;
mod command;
mod connect;
mod definitions;
mod dry_run;
mod exit;
mod explain;
mod format;
mod lists;
mod members;
mod names;
mod node;
mod options;
mod policies;
mod queues;
mod report;
mod rows;
#[cfg(test)]
mod tests;
mod value;

use super::settings::RABBITMQ_VERSION;
use audit::Audit;
use command::Verb;
use connect::{Connected, Target, call_failure};
use exit::{Exit, Failure};
use names::Names;
use options::{Formatter, Invocation};
use quorate_management::wire;
use quorate_rpc::Connector;
use std::future::Future;
use std::io::Write;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time limit of a command without `--timeout`.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Time limit for awaiting a start.
const AWAIT_DEFAULT: Duration = Duration::from_secs(300);
/// Pause between attempts to reach a node that is starting.
const AWAIT_PAUSE: Duration = Duration::from_millis(200);
/// Pause between rounds of an audit under load.
const AUDIT_PAUSE: Duration = Duration::from_millis(200);
/// Number of rounds after which an audit accepts an index that is not the newest.
const AUDIT_ROUNDS: u32 = 5;
/// Time limit for finding indexes to compare in an audit.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(10);

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
    match manual.verb {
        Verb::Help => return help(&invocation, program, console),
        Verb::Version => {
            console.say(&format!("{}\n", version(std::env::var("QUORATE_IDENTIFY_AS").ok())));
            return Ok(());
        }
        Verb::GenerateCertificates => return certificates::generate(&invocation, console),
        Verb::AwaitStartup
        | Verb::ClusterStatus
        | Verb::Status
        | Verb::Audit
        | Verb::List(_)
        | Verb::DeleteQueue
        | Verb::PurgeQueue
        | Verb::Policies(_)
        | Verb::ExportDefinitions
        | Verb::ImportDefinitions
        | Verb::Access(_)
        | Verb::SetAlarm(_)
        | Verb::Node(_)
        | Verb::Member(_)
        | Verb::Browse(_) => {}
    }
    // An invalid column is refused before any request.
    let columns = if let Verb::List(listing) = manual.verb {
        columns::choose(listing, &invocation, line, program)?
    } else {
        Vec::new()
    };
    let connector = connect::connector(&invocation.options)?;
    let target = Target::read(invocation.options.node.as_deref());
    let limit = invocation.options.timeout;
    if manual.verb == Verb::AwaitStartup {
        return await_startup(&target, &connector, limit.unwrap_or(AWAIT_DEFAULT)).await;
    }
    let limit = limit.unwrap_or(TIMEOUT_DEFAULT);
    if let Verb::SetAlarm(resource) = manual.verb {
        let begins_at = alarms::read(resource, &invocation, line, program)?;
        let set = alarms::set(resource, begins_at, &invocation, (&target, &connector), console);
        return within(limit, manual.name, &target, set).await;
    }
    if let Verb::Node(verb) = manual.verb {
        let run = node::run(verb, limit, &invocation, (&target, &connector), console);
        return within(limit + node::MARGIN, manual.name, &target, run).await;
    }
    if let Verb::Member(verb) = manual.verb {
        let wait = members::read(verb, &invocation, line, program)?;
        let run = members::run(verb, wait, &invocation, (&target, &connector), console);
        let limit = wait.map_or(limit, |wait| wait + node::MARGIN);
        return within(limit, manual.name, &target, run).await;
    }
    let ask = ask(&invocation, &columns, &target, &connector, console);
    within(limit, manual.name, &target, ask).await
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
        Some(name) => match command::find(name) {
            Some(manual) => console.say(&command::help(manual, program)),
            None => return Err(Failure::new(Exit::Usage, command::unknown(name))),
        },
    }
    Ok(())
}

async fn ask(
    invocation: &Invocation,
    columns: &[&'static str],
    target: &Target,
    connector: &Connector,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    match invocation.manual.verb {
        Verb::List(listing) => {
            if invocation.options.banners() {
                console.say(&lists::banner(listing, &invocation.options));
            }
            let mut connected = connect::connect(target, connector).await?;
            lists::list(listing, columns, &invocation.options, &mut connected, console).await
        }
        Verb::DeleteQueue | Verb::PurgeQueue => {
            if invocation.options.banners() {
                console.say(&queues::banner(invocation));
            }
            let mut connected = connect::connect(target, connector).await?;
            queues::change(invocation, &mut connected, console).await
        }
        Verb::Policies(verb) if invocation.options.has("dry-run") => {
            let mut connected = connect::connect(target, connector).await?;
            dry_run::policy(verb, invocation, &mut connected.messages, console).await
        }
        Verb::ImportDefinitions if invocation.options.has("dry-run") => {
            let mut connected = connect::connect(target, connector).await?;
            dry_run::definitions(invocation, &mut connected.messages, console).await
        }
        Verb::Browse(verb) => {
            let mut connected = connect::connect(target, connector).await?;
            browse::run(verb, invocation, &mut connected, console).await
        }
        Verb::Policies(verb) => {
            if invocation.options.banners() {
                console.say(&policies::banner(verb, invocation));
            }
            let mut connected = connect::connect(target, connector).await?;
            policies::obey(verb, invocation, &mut connected.policies, console).await
        }
        Verb::ExportDefinitions => {
            if invocation.options.banners() {
                console.say(&definitions::export_banner(invocation));
            }
            let mut connected = connect::connect(target, connector).await?;
            definitions::export(invocation, &mut connected.policies, console).await
        }
        Verb::ImportDefinitions => {
            if invocation.options.banners() {
                console.say(&definitions::import_banner(invocation));
            }
            let mut connected = connect::connect(target, connector).await?;
            definitions::import(invocation, &mut connected.policies, console).await
        }
        Verb::ClusterStatus | Verb::Status => {
            let connected = connect::connect(target, connector).await?;
            show_status(invocation, &connected, console)
        }
        Verb::Audit => {
            let mut connected = connect::connect(target, connector).await?;
            audit_groups(invocation, &mut connected, console).await
        }
        Verb::Access(verb) => access::run(verb, invocation, target, connector, console).await,
        Verb::Help
        | Verb::Version
        | Verb::AwaitStartup
        | Verb::GenerateCertificates
        | Verb::SetAlarm(_)
        | Verb::Node(_)
        | Verb::Member(_) => Ok(()),
    }
}

fn show_status(
    invocation: &Invocation,
    connected: &Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let cluster = &connected.cluster;
    let asked = connected.asked().and_then(|member| member.status.as_ref());
    let Some(node) = asked else {
        return Err(Failure::new(
            Exit::Software,
            "Error:\nthe node did not report its own status\n",
        ));
    };
    let whole = invocation.manual.verb == Verb::ClusterStatus;
    let json = match invocation.options.formatter() {
        Formatter::Json => true,
        Formatter::Table | Formatter::Pretty | Formatter::Csv | Formatter::Erlang => false,
    };
    if json {
        let value =
            if whole { report::cluster_status_json(cluster) } else { report::status_json(node) };
        console.say(&format!("{value}\n"));
        return Ok(());
    }
    if invocation.options.banners() {
        let subject = if whole { "Cluster status" } else { "Status" };
        console.say(&format!("{subject} of node {} ...\n", node.name));
    }
    console.say(&if whole { report::cluster_status(cluster) } else { report::status(node) });
    Ok(())
}

/// Requests digests until every group can be compared, or until `AUDIT_TIMEOUT`. A few more rounds
/// are made if replicas are about to reach the same last index, so that all that they have applied
/// is compared.
async fn audit_groups(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if invocation.options.banners() {
        console.say("Comparing the replicas of every group ...\n");
    }
    let mut audit = Audit::default();
    let until = Instant::now() + AUDIT_TIMEOUT;
    for round in 1.. {
        let request =
            wire::AuditRequest { caller: wire::caller(), scope: wire::Scope::Cluster.into() };
        let answer = connected.client.get_audit(request).await;
        audit.add(&answer.map_err(|status| call_failure(&status))?.into_inner().digests);
        let is_enough = audit.is_settled() || (audit.is_complete() && round >= AUDIT_ROUNDS);
        if is_enough || Instant::now() > until {
            break;
        }
        sleep(AUDIT_PAUSE).await;
    }
    let names = Names::of(&connected.cluster);
    let replicas = |group| audit::replicas(&connected.cluster, group);
    let (lines, agree) = audit::report(&audit.findings(), replicas, &names);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    console.say(&text);
    if agree {
        return Ok(());
    }
    Err(Failure::new(Exit::Software, "Error:\nnot all replicas are known to be identical\n"))
}

/// Waits until a node serves; the node may not be running yet.
async fn await_startup(
    target: &Target,
    connector: &Connector,
    limit: Duration,
) -> Result<(), Failure> {
    let until = Instant::now() + limit;
    let mut last = None;
    while Instant::now() < until {
        let left = until.saturating_duration_since(Instant::now());
        let attempt = async {
            let mut connected = connect::connect(target, connector).await?;
            let timeout_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = wire::AwaitRequest { caller: wire::caller(), timeout_ms };
            let answer = connected.client.await_startup(request).await;
            answer.map(|_| ()).map_err(|status| call_failure(&status))
        };
        match timeout(left + AWAIT_PAUSE, attempt).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => last = Some(failure),
            Err(_) => {}
        }
        sleep(AWAIT_PAUSE).await;
    }
    Err(last.unwrap_or_else(|| {
        Failure::new(Exit::TimedOut, format!("Error:\n{} did not answer in time\n", target.text))
    }))
}
