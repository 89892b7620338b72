//! The division of a node's memory: fixed shares first, then the memory for clients.

use super::settings::{ByteCount, Settings};

/// Memory of the process before it serves clients: program, threads, catalog.
const BASE_BYTES: u64 = 64 << 20;
const MIB: u64 = 1 << 20;

/// Bytes of every use of memory that has its own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Memory of the machine or cgroup.
    pub(crate) machine: u64,
    /// Memory use at which publishers are blocked.
    pub(crate) watermark: u64,
    /// Cache of the messages that were written last.
    pub(crate) run_cache: u64,
    /// Bytes for RocksDB's memtables.
    pub(crate) write_buffers: u64,
    /// Bytes for RocksDB's block cache.
    pub(crate) block_cache: u64,
    /// Bodies of connection-bound queues.
    pub(crate) exclusive: u64,
    /// Messages that wait to be sent to one other node in bulk; another quarter of it for urgent
    /// ones.
    pub(crate) lane: u64,
    /// Bodies that clients make the node hold.
    pub(crate) clients: u64,
    /// Publishes of one connection in flight.
    pub(crate) connection_in_flight: u64,
    /// Publishes to one group in flight.
    pub(crate) group_in_flight: u64,
    /// Deliveries read ahead for one connection.
    pub(crate) delivery_ahead: u64,
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
            machine,
            watermark: settings.memory_high_watermark.bytes_of(machine),
            run_cache: size(settings.run_cache_bytes, 64 * MIB, 32),
            write_buffers: size(settings.write_buffer_bytes, 64 * MIB, 16),
            block_cache: size(settings.block_cache_bytes, 32 * MIB, 32),
            exclusive: size(settings.exclusive_memory_bytes, 64 * MIB, 32),
            lane: size(settings.lane_bytes, 64 * MIB, 32),
            clients: 0,
            connection_in_flight: 0,
            group_in_flight: 0,
            delivery_ahead: 0,
        };
        let peers = settings.cluster.len().saturating_sub(1) as u64;
        let clients = match settings.client_memory {
            Some(limit) => limit.bytes_of(machine),
            // A message in flight is held twice, as received and as written. A leader also holds
            // what all other nodes have in flight, a quarter of their budgets.
            None => {
                let rest = division.watermark.saturating_sub(division.fixed(peers));
                (rest / (8 + peers) * 4).max(machine / 16)
            }
        };
        division.clients = clients;
        // A quarter of the budget is for publishes in flight, another for deliveries.
        let of_clients = |set: Option<ByteCount>, usual: u64, part: u64| {
            set.map_or(usual.min(clients / part).max(MIB), |bytes| bytes.0)
        };
        let set = settings.connection_in_flight_bytes;
        division.connection_in_flight = of_clients(set, 16 * MIB, 8);
        division.group_in_flight = of_clients(settings.group_in_flight_bytes, 64 * MIB, 4);
        division.delivery_ahead = of_clients(settings.delivery_ahead_bytes, 4 * MIB, 32);
        division
    }

    /// Memory that is not part of the clients' budget, with this number of other nodes.
    fn fixed(&self, peers: u64) -> u64 {
        let lanes = peers * (self.lane + self.lane / 4);
        // Memtables that are being flushed are held in addition to those that are being filled.
        let storage = self.run_cache + 2 * self.write_buffers + self.block_cache;
        BASE_BYTES + storage + self.exclusive + lanes
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
        let all = small.fixed(2) + 2 * small.clients + 2 * small.clients / 4;
        assert!(all <= small.watermark, "{} MiB: {small:?}", all / MIB);
        // `small` in cluster-tests' attacks.rs assumes the same value.
        assert_eq!(small.clients / MIB, 36);
        assert_eq!((small.run_cache, small.write_buffers), (16 * MIB, 32 * MIB));
        assert_eq!(
            (small.block_cache, small.exclusive, small.lane),
            (16 * MIB, 16 * MIB, 16 * MIB)
        );
        assert_eq!(small.delivery_ahead / 1024, 1167);
    }

    #[test]
    fn a_large_machine_has_the_usual_sizes() {
        let large = division(&[], 24 << 30);
        let usual = [large.run_cache, large.write_buffers, large.exclusive, large.lane];
        assert_eq!(usual, [64 * MIB; 4]);
        assert_eq!((large.block_cache, large.delivery_ahead), (32 * MIB, 4 * MIB));
        assert_eq!((large.connection_in_flight, large.group_in_flight), (16 * MIB, 64 * MIB));
        assert!(large.clients > 4 << 30, "{large:?}");
        let all = large.fixed(2) + 2 * large.clients + 2 * large.clients / 4;
        assert!(all <= large.watermark, "{large:?}");
    }

    #[test]
    fn what_is_set_counts() {
        let set = [("client_memory", "0.25"), ("run_cache_bytes", "1GiB"), ("lane_bytes", "7MiB")];
        let set = division(&set, 1 << 30);
        assert_eq!((set.clients, set.run_cache, set.lane), (256 * MIB, 1 << 30, 7 * MIB));
    }

    #[test]
    fn an_unknown_machine_does_not_overflow() {
        let unknown = division(&[], u64::MAX);
        assert_eq!(unknown.run_cache, 64 * MIB);
    }
}
