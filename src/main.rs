//! `quorate`: a clustered AMQP 0-9-1 message broker.

mod cli;

use std::process::ExitCode;

/// Of RocksDB too. Buffers here are filled by one thread and freed by another; glibc's allocator
/// keeps what is freed so in the arena of each thread, three times what is in use.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Names on the command line are text; a path that is no UTF-8 is given in the file.
    let line: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    cli::main(&line)
}
