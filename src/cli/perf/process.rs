//! CPU time and memory of processes, from `/proc`.

use std::fs;

/// Duration of a clock tick in `/proc`: 100 ticks a second on every Linux (USER_HZ).
const TICK_US: u64 = 10_000;

/// The resources that processes have used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time, microseconds.
    pub(crate) cpu_us: u64,
    /// Resident memory of the largest one, bytes.
    pub(crate) resident_bytes: u64,
}

/// The resources that these processes have used so far. A process that has ended does not count.
pub(crate) fn usage(pids: &[u32]) -> Usage {
    let mut usage = Usage::default();
    for pid in pids {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        usage.cpu_us += cpu_us(&stat).unwrap_or(0);
        usage.resident_bytes = usage.resident_bytes.max(resident_bytes(&status).unwrap_or(0));
    }
    usage
}

/// The CPU time that this process has used so far.
pub(crate) fn own_cpu_us() -> u64 {
    cpu_us(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or(0)
}

/// The command's name may contain spaces and parentheses, so fields are counted from the last `)`.
fn cpu_us(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_US)
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 500 0 0 0 150 50 0 0 20 0 1 0 90 1 2";
        assert_eq!(cpu_us(stat), Some(2_000_000));
        assert_eq!(cpu_us(""), None);
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  10 kB\n"), Some(10_240));
        assert!(usage(&[std::process::id()]).resident_bytes > 0);
        assert_eq!(usage(&[u32::MAX]), Usage::default());
    }
}
