//! `quorate perf`: a load generator modelled on RabbitMQ PerfTest, with little overhead of its own.

mod client;
mod consumer;
mod inbox;
mod message;
mod options;
mod process;
mod publisher;
mod run;
mod scan;
mod shared;
mod summary;
mod template;
#[cfg(test)]
mod tests;
mod uri;
mod verify;
mod window;

pub(crate) use options::Options;

use crate::cli::dev;
use std::io::Write;
use std::process::ExitCode;

/// Runs, and prints the result. The exit code is 2 for invalid flags, 1 for an error or a broken
/// guarantee.
pub(crate) fn main(mut options: Options) -> ExitCode {
    if let Err(why) = options.check() {
        complain(&why);
        return ExitCode::from(2);
    }
    let runtime = match options.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        threads => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).enable_all().build()
        }
    };
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let mut pids = std::mem::take(&mut options.pids);
    if pids.is_empty() {
        let all = options.all_uris().map(|uri| &uri.authority);
        let local = all.filter(|at| is_local(&at.host));
        pids = dev::registry::pids_at(&local.map(|at| at.port).collect::<Vec<_>>());
    }
    let json = options.json;
    let say = |line: &str| if json { complain(line) } else { print(line) };
    match runtime.block_on(run::run(options, pids, say)) {
        Ok(summary) => {
            if json {
                print(&serde_json::to_string(&summary).unwrap_or_default());
            } else {
                print(summary.words().trim_end());
            }
            if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn is_local(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A closed reader is not an error.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
