//! Requests to the operating system at the start: files that only their owner can read, and enough
//! file descriptors.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// Minimum of descriptors for a node to start.
const LEAST: u64 = 4_096;
/// Number of descriptors below which the log recommends more.
const ENOUGH: u64 = 65_536;
/// Descriptors reserved for everything except AMQP clients: RocksDB's files (512), the rpc port
/// (512), HTTP (256), and the other files of the process.
const RESERVE: u64 = 1_536;
/// Maximum of clients served at once, however many descriptors there are.
const CLIENTS_MAX: u64 = 65_536;

/// Makes files and folders of the process private to their owner: they contain messages and
/// password hashes.
pub(crate) fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Raises the limit of open files as far as possible. Returns the number of AMQP clients that the
/// limit leaves room for.
///
/// # Errors
/// The limit is too low; the error is one line.
pub(crate) fn raise_descriptors() -> Result<usize, String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // `None` means no limit.
    let limit = if raised.is_ok() { maximum } else { current }.unwrap_or(u64::MAX);
    let clients = clients_max(limit)?;
    if limit < ENOUGH {
        tracing::info!(
            limit,
            clients,
            "the limit of open files bounds the number of clients; {ENOUGH} or more are recommended"
        );
    }
    Ok(clients)
}

fn clients_max(descriptors: u64) -> Result<usize, String> {
    if descriptors < LEAST {
        return Err(format!(
            "the limit of open files is {descriptors}, but at least {LEAST} are needed: raise the \
             hard limit (ulimit -Hn)"
        ));
    }
    let clients = (descriptors - RESERVE).min(CLIENTS_MAX);
    Ok(usize::try_from(clients).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients never use the descriptors that the log and the other nodes need.
    #[test]
    fn clients_leave_descriptors_for_everything_else() {
        assert!(clients_max(1_024).is_err_and(|why| why.contains("1024")));
        assert_eq!(clients_max(4_096), Ok(2_560));
        assert_eq!(clients_max(65_536), Ok(64_000));
        assert_eq!(clients_max(u64::MAX), Ok(65_536));
    }
}
