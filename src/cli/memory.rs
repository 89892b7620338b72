//! The division of a node's memory: fixed shares first, then the memory for clients.

use super::settings::{ByteCount, Settings};

/// Memory of the process before it serves clients: program, threads, catalog.
const BASE_BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// Bytes of every use of memory that has its own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Memory of the machine or cgroup.
    pub(crate) machine_memory_bytes: u64,
    /// Memory use at which publishers are blocked.
    pub(crate) memory_high_watermark: u64,
    /// Cache of the messages that were written last.
    pub(crate) run_cache_bytes: u64,
    /// Bytes for RocksDB's memtables.
    pub(crate) write_buffer_bytes: u64,
    /// Bytes for RocksDB's block cache.
    pub(crate) block_cache_bytes: u64,
    /// Bodies of connection-bound queues.
    pub(crate) exclusive_memory_bytes: u64,
    /// Messages that wait to be sent to one other node in bulk; another quarter of it for urgent
    /// ones.
    pub(crate) lane_bytes: u64,
    /// Bodies that clients make the node hold.
    pub(crate) client_memory: u64,
    /// Publishes of one connection in flight.
    pub(crate) connection_in_flight_bytes: u64,
    /// Publishes to one group in flight.
    pub(crate) group_in_flight_bytes: u64,
    /// Deliveries read ahead for one connection.
    pub(crate) delivery_ahead_bytes: u64,
}

impl Division {
    /// The division by the settings, on a machine with this memory. Defaults are smaller on a small
    /// machine.
    pub(crate) fn of(settings: &Settings, machine: u64) -> Self {
        // The setting, or else the usual size, at most the given part of the machine's memory.
        let size = |set: Option<ByteCount>, usual: u64, part: u64| {
            set.map_or(usual.min(machine / part).max(MIB), |bytes| bytes.0)
        };
        let mut division = Self {
            machine_memory_bytes: machine,
            memory_high_watermark: settings.memory_high_watermark.bytes_of(machine),
            run_cache_bytes: size(settings.run_cache_bytes, 64 * MIB, 32),
            write_buffer_bytes: size(settings.write_buffer_bytes, 64 * MIB, 16),
            block_cache_bytes: size(settings.block_cache_bytes, 32 * MIB, 32),
            exclusive_memory_bytes: size(settings.exclusive_memory_bytes, 64 * MIB, 32),
            lane_bytes: size(settings.lane_bytes, 64 * MIB, 32),
            client_memory: 0,
            connection_in_flight_bytes: 0,
            group_in_flight_bytes: 0,
            delivery_ahead_bytes: 0,
        };
        let peers = settings.cluster.len().saturating_sub(1) as u64;
        let clients = match settings.client_memory {
            Some(limit) => limit.bytes_of(machine),
            // A message in flight is held twice, as received and as written. A leader also holds
            // what all other nodes have in flight, a quarter of their budgets.
            None => {
                let rest = division.memory_high_watermark.saturating_sub(division.fixed(peers));
                (rest / (8 + peers) * 4).max(machine / 16)
            }
        };
        division.client_memory = clients;
        // A quarter of the budget is for publishes in flight, another for deliveries.
        let of_clients = |set: Option<ByteCount>, usual: u64, part: u64| {
            set.map_or(usual.min(clients / part).max(MIB), |bytes| bytes.0)
        };
        let set = settings.connection_in_flight_bytes;
        division.connection_in_flight_bytes = of_clients(set, 16 * MIB, 8);
        division.group_in_flight_bytes = of_clients(settings.group_in_flight_bytes, 64 * MIB, 4);
        division.delivery_ahead_bytes = of_clients(settings.delivery_ahead_bytes, 4 * MIB, 32);
        division
    }

    /// Memory that is not part of the clients' budget, with this number of other nodes.
    fn fixed(&self, peers: u64) -> u64 {
        let lanes = peers * (self.lane_bytes + self.lane_bytes / 4);
        // Memtables that are being flushed are held in addition to those that are being filled.
        let storage = self.run_cache_bytes + 2 * self.write_buffer_bytes + self.block_cache_bytes;
        BASE_BYTES + storage + self.exclusive_memory_bytes + lanes
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::cli::settings::settings_of;

    fn division(flags: &[(&str, &str)], machine: u64) -> Division {
        let cluster = ("cluster", "1=a:1,2=b:1,3=c:1");
        let flags: Vec<_> = flags.iter().copied().chain([cluster]).collect();
        Division::of(&settings_of(&flags).unwrap(), machine)
    }

    #[test]
    fn on_512_mib_everything_together_stays_below_the_alarm() {
        let small = division(&[], 512 * MIB);
        let all = small.fixed(2) + 2 * small.client_memory + 2 * small.client_memory / 4;
        assert!(all <= small.memory_high_watermark, "{} MiB: {small:?}", all / MIB);
        // `small` in cluster-tests' attacks.rs assumes the same value.
        assert_eq!(small.client_memory / MIB, 36);
        assert_eq!((small.run_cache_bytes, small.write_buffer_bytes), (16 * MIB, 32 * MIB));
        assert_eq!(
            (small.block_cache_bytes, small.exclusive_memory_bytes, small.lane_bytes),
            (16 * MIB, 16 * MIB, 16 * MIB)
        );
        assert_eq!(small.delivery_ahead_bytes / 1024, 1167);
    }

    #[test]
    fn a_large_machine_has_the_usual_sizes() {
        let large = division(&[], 24 << 30);
        let usual = [
            large.run_cache_bytes,
            large.write_buffer_bytes,
            large.exclusive_memory_bytes,
            large.lane_bytes,
        ];
        assert_eq!(usual, [64 * MIB; 4]);
        assert_eq!((large.block_cache_bytes, large.delivery_ahead_bytes), (32 * MIB, 4 * MIB));
        assert_eq!(
            (large.connection_in_flight_bytes, large.group_in_flight_bytes),
            (16 * MIB, 64 * MIB)
        );
        assert!(large.client_memory > 4 << 30, "{large:?}");
        let all = large.fixed(2) + 2 * large.client_memory + 2 * large.client_memory / 4;
        assert!(all <= large.memory_high_watermark, "{large:?}");
    }

    #[test]
    fn what_is_set_counts() {
        let set = [("client_memory", "0.25"), ("run_cache_bytes", "1GiB"), ("lane_bytes", "7MiB")];
        let set = division(&set, 1 << 30);
        assert_eq!(
            (set.client_memory, set.run_cache_bytes, set.lane_bytes),
            (256 * MIB, 1 << 30, 7 * MIB)
        );
    }

    #[test]
    fn an_unknown_machine_does_not_overflow() {
        let unknown = division(&[], u64::MAX);
        assert_eq!(unknown.run_cache_bytes, 64 * MIB);
    }
}
