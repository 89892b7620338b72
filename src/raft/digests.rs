//! State digests at fixed indexes, so that replicas under load can be compared at one index that
//! all of them have passed (`quorate ctl audit`).
//!
//! Under load, replicas are hardly ever at the same index. So each replica keeps its digests at the
//! multiples of 16 and of 1,024, 64 of each. `ctl audit` compares at the highest index that all
//! replicas have, after a few tries for the newest one. A snapshot discards the kept digests.

use quorate_types::LogIndex;
use std::collections::VecDeque;

/// A digest is kept at each multiple of these: small steps for replicas that are close together and
/// for young logs, large ones for a replica that is far behind.
const STEPS: [u64; 2] = [16, 1_024];

/// Digests kept of each step: the last 1,024 and the last 65,536 entries are covered.
const KEPT: usize = 64;

/// Digests of one replica.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    by_step: [VecDeque<(LogIndex, u64)>; STEPS.len()],
}

impl Digests {
    /// Records that the entry at `index` was applied; `digest` is called only if its result is
    /// kept.
    pub(crate) fn applied(&mut self, index: LogIndex, digest: impl Fn() -> u64) {
        for (step, kept) in STEPS.iter().zip(&mut self.by_step) {
            if index.0.is_multiple_of(*step) {
                if kept.len() == KEPT {
                    kept.pop_front();
                }
                kept.push_back((index, digest()));
            }
        }
    }

    /// The state was replaced: the kept digests do not describe the new one.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The kept digests, in any order; an index may occur twice.
    pub(crate) fn all(&self) -> impl Iterator<Item = (LogIndex, u64)> {
        self.by_step.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A replica that has applied the entries up to an index; digests of equal replicas are equal.
    fn replica(from: u64, through: u64) -> BTreeMap<LogIndex, u64> {
        let mut digests = Digests::default();
        for index in from..=through {
            digests.applied(LogIndex(index), || index.wrapping_mul(0x9E37_79B9));
        }
        assert!(digests.by_step.iter().all(|kept| kept.len() <= KEPT));
        digests.all().collect()
    }

    /// The highest index that all replicas have.
    fn common(replicas: &[BTreeMap<LogIndex, u64>]) -> Option<u64> {
        let (first, others) = replicas.split_first()?;
        let in_all = |index: &&LogIndex| others.iter().all(|other| other.contains_key(index));
        first.keys().rev().find(in_all).map(|index| index.0)
    }

    #[test]
    fn replicas_that_stand_at_different_indexes_have_one_in_common() {
        // Replicas close together, with a young log.
        assert_eq!(common(&[replica(1, 35), replica(1, 40), replica(1, 33)]), Some(32));
        // Replicas with a busy log, asked some hundred entries apart.
        assert_eq!(
            common(&[replica(1, 90_005), replica(1, 90_300), replica(1, 90_900)]),
            Some(90_000)
        );
        // A replica that is far behind.
        assert_eq!(common(&[replica(1, 90_000), replica(1, 40_000)]), Some(39_936));
        // A replica that has just started, from a checkpoint.
        assert_eq!(common(&[replica(1, 90_000), replica(89_970, 89_990)]), Some(89_984));
    }

    #[test]
    fn another_state_begins_anew() {
        let mut digests = Digests::default();
        digests.applied(LogIndex(1_024), || 7);
        assert_eq!(digests.all().collect::<Vec<_>>(), [(LogIndex(1_024), 7); 2]);
        digests.clear();
        assert_eq!(digests.all().count(), 0);
        digests.applied(LogIndex(1_025), || unreachable!("it is not kept"));
    }
}
