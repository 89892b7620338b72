//! What the process asks of the system before anything else: that its files are its own, and that
//! there are descriptors enough.

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, umask};

/// Descriptors without which a node does not start.
const LEAST: u64 = 4_096;
/// Descriptors below which the log says that there should be more.
const ENOUGH: u64 = 65_536;
/// Descriptors kept for everything but AMQP clients: RocksDB's files (512), the rpc port (512), HTTP
/// (256), and what the process has open beside them.
const RESERVE: u64 = 1_536;
/// Clients served at once, however many descriptors there are.
const CLIENTS_MAX: u64 = 65_536;

/// Files and folders that the process makes are nobody else's: they hold messages and password
/// hashes.
pub(crate) fn keep_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Raises the limit of open files as far as it goes. Gives how many AMQP clients that leaves room
/// for.
///
/// # Errors
/// There would be too few, in one line.
pub(crate) fn raise_descriptors() -> Result<usize, String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // None stands for no limit.
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

    /// Clients never take the descriptors that the log and the other nodes need.
    #[test]
    fn clients_leave_descriptors_for_everything_else() {
        assert!(clients_max(1_024).is_err_and(|why| why.contains("1024")));
        assert_eq!(clients_max(4_096), Ok(2_560));
        assert_eq!(clients_max(65_536), Ok(64_000));
        assert_eq!(clients_max(u64::MAX), Ok(65_536));
    }
}
