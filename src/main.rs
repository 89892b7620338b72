//! `quorate`: a clustered AMQP 0-9-1 message broker.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Names on the command line are text; a path that is no UTF-8 is given in the file.
    let line: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    cli::main(&line)
}
