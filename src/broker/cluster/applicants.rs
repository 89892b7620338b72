//! Directories that ask for a node id that belongs to another directory (MEM 10).
//!
//! Who replaces a node by name knows the node, and not the identity of the directory that is to take
//! its place. So each node remembers, in memory only, who has asked it. An applicant asks several
//! times a second as long as it waits.

use parking_lot::Mutex;
use quorate_catalog::Newcomer;
use quorate_types::NodeId;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::Instant;

/// Applicants that are remembered; the one that has been silent for the longest time makes room.
const APPLICANTS_MAX: usize = 64;
/// An applicant that has been silent for this long waits no more.
const SILENT_MAX: Duration = Duration::from_secs(10);

/// Those that wait, the newest one of each node.
#[derive(Debug, Default)]
pub(crate) struct Applicants(Mutex<BTreeMap<NodeId, (Newcomer, Instant)>>);

impl Applicants {
    /// A directory has asked.
    pub(crate) fn note(&self, newcomer: &Newcomer, now: Instant) {
        let mut applicants = self.0.lock();
        applicants.insert(newcomer.node, (newcomer.clone(), now));
        if applicants.len() > APPLICANTS_MAX {
            let silent = applicants.iter().min_by_key(|(_, (_, asked))| *asked);
            if let Some(node) = silent.map(|(node, _)| *node) {
                applicants.remove(&node);
            }
        }
    }

    /// The directory that waits for a node's id.
    pub(crate) fn of(&self, node: NodeId, now: Instant) -> Option<Newcomer> {
        let applicants = self.0.lock();
        let (newcomer, asked) = applicants.get(&node)?;
        (now.duration_since(*asked) <= SILENT_MAX).then(|| newcomer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Incarnation;

    fn newcomer(node: u16, incarnation: u64) -> Newcomer {
        Newcomer {
            node: NodeId(node),
            incarnation: Incarnation(incarnation),
            address: format!("host{node}:7672"),
            zone: String::new(),
        }
    }

    #[test]
    fn mem_10_the_newest_applicant_of_a_node_is_remembered_while_it_asks() {
        let (applicants, began) = (Applicants::default(), Instant::now());
        assert_eq!(applicants.of(NodeId(3), began), None);
        applicants.note(&newcomer(3, 30), began);
        applicants.note(&newcomer(3, 31), began + Duration::from_secs(1));
        let of = |seconds| applicants.of(NodeId(3), began + Duration::from_secs(seconds));
        assert_eq!(of(1), Some(newcomer(3, 31)));
        assert_eq!(of(11), Some(newcomer(3, 31)));
        assert_eq!(of(12), None);
    }

    #[test]
    fn mem_10_the_most_silent_applicant_makes_room() {
        let (applicants, began) = (Applicants::default(), Instant::now());
        let most = u16::try_from(APPLICANTS_MAX).unwrap_or(u16::MAX);
        for node in 1..=most {
            applicants.note(&newcomer(node, 1), began + Duration::from_millis(node.into()));
        }
        let now = began + Duration::from_secs(1);
        applicants.note(&newcomer(1, 1), now);
        applicants.note(&newcomer(most + 1, 1), now);
        let is_known = |node| applicants.of(NodeId(node), now).is_some();
        assert!(is_known(1) && !is_known(2) && is_known(3) && is_known(most + 1));
    }
}
