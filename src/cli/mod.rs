//! The process: parses the command line of `quorate` and runs the command.

mod allocator;
mod charter;
mod ctl;
mod definitions_file;
mod dev;
mod joining;
mod log_lines;
mod logging;
mod machine;
mod memory;
mod own_process;
mod perf;
mod processor;
mod recover;
mod secret;
mod server;
mod settings;
mod system;
mod tls;
mod wiring;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use log_lines::LogLines;
use server::ExitReason;
use settings::Loaded;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;
use wiring::Clients;

/// Exit code for an invalid command line or setting.
const USAGE: u8 = 64;

/// RabbitMQ's command line tools.
const TOOLS: [&str; 5] = [
    "rabbitmqctl",
    "rabbitmq-diagnostics",
    "rabbitmq-plugins",
    "rabbitmq-queues",
    "rabbitmq-upgrade",
];

/// Runs the command of a command line.
pub(crate) fn main(line: &[String]) -> ExitCode {
    let program = line.first().map_or("quorate", String::as_str);
    let name = Path::new(program).file_name().and_then(|name| name.to_str());
    // Under these names, or with one of them as the command, the binary acts as rabbitmqctl (DESIGN
    // §1), which has the commands of the others too.
    if let Some(program) = name.filter(|name| TOOLS.contains(name)) {
        return ctl(line.get(1..).unwrap_or_default(), program);
    }
    if let Some(program) = line.get(1).filter(|verb| TOOLS.contains(&verb.as_str())) {
        return ctl(line.get(2..).unwrap_or_default(), program);
    }
    if line.get(1).is_some_and(|verb| verb == "ctl") {
        return ctl(line.get(2..).unwrap_or_default(), "quorate ctl");
    }
    let matches = match command().try_get_matches_from(line) {
        Ok(matches) => matches,
        Err(error) => {
            let code = if error.use_stderr() { USAGE } else { 0 };
            // A closed reader is not an error.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match matches.subcommand() {
        Some(("server", matches)) => with_database(|| serve(matches)),
        Some(("dev", matches)) => {
            with_database(|| with_options(matches, |options| dev::main(&options)))
        }
        Some(("perf", matches)) => with_options(matches, perf::main),
        Some(("recover-quorum", matches)) => {
            with_database(|| with_options(matches, |options| recover::main(&options)))
        }
        // `ctl` was handled above; without a command, the help is printed.
        Some(_) | None => ExitCode::from(USAGE),
    }
}

fn command() -> Command {
    Command::new("quorate")
        .about("A clustered AMQP 0-9-1 message broker")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::command())
        .subcommand(dev::Options::augment_args(Command::new("dev")))
        .subcommand(
            Command::new("ctl").about("Administers a node with the commands of rabbitmqctl"),
        )
        .subcommand(perf::Options::augment_args(Command::new("perf")))
        .subcommand(recover::Options::augment_args(Command::new("recover-quorum")))
}

/// Runs a command that opens the database, if this processor can.
fn with_database(run: impl FnOnce() -> ExitCode) -> ExitCode {
    match processor::check() {
        Ok(()) => run(),
        Err(lacks) => {
            eprintln!("quorate: {lacks}");
            ExitCode::FAILURE
        }
    }
}

fn with_options<T: FromArgMatches>(
    matches: &ArgMatches,
    run: impl FnOnce(T) -> ExitCode,
) -> ExitCode {
    match T::from_arg_matches(matches) {
        Ok(options) => run(options),
        Err(error) => {
            let _ = error.print();
            ExitCode::from(USAGE)
        }
    }
}

fn ctl(line: &[String], program: &str) -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let mut console = ctl::Console { out: &mut out, err: &mut err };
    ExitCode::from(ctl::run(line, program, &mut console))
}

fn serve(matches: &ArgMatches) -> ExitCode {
    let loaded = match settings::load(settings::flags_of(matches), std::env::vars()) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("quorate: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let lines = logging::begin(&loaded.settings.log, loaded.settings.log_format);
    match run_node(loaded, lines, matches.get_flag("exit-on-stdin-close")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("quorate: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a node; the error is one line. Clients have separate threads, so that no request of theirs
/// delays elections, leases and heartbeats.
fn run_node(loaded: Loaded, lines: Arc<LogLines>, exit_on_stdin_close: bool) -> Result<(), String> {
    system::keep_files_private();
    let connections_max = system::raise_descriptors()?;
    let threads = loaded.settings.worker_threads;
    let runtime = runtime("quorate", threads)?;
    let clients = self::runtime("clients", threads)?;
    let served = Clients { runtime: clients.handle().clone(), connections_max };
    let ran = runtime.block_on(server::run(loaded, lines, exit_on_stdin_close, served));
    // Drops the clients' unfinished work, as the end of the process would.
    clients.shutdown_background();
    match ran {
        Ok(ExitReason::Asked(_)) => Ok(()),
        Ok(ExitReason::Fatal(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

fn runtime(name: &str, threads: u16) -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if threads > 0 {
        builder.worker_threads(usize::from(threads));
    }
    builder.thread_name(name).enable_all().build().map_err(|error| error.to_string())
}
