//! The charter by which a cluster is founded (MEM 2).

use crate::{Incarnation, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// Names the data directories that found a cluster together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charter {
    /// The directory of the node that has written it.
    pub founder: Incarnation,
    /// 1 for the founder's first charter, then one more with each: a later one takes the place of the
    /// earlier ones, which form nothing any more.
    pub number: u32,
    /// The directory of each node on the initial list, the founder's own among them.
    pub directories: BTreeMap<NodeId, Incarnation>,
}

impl Charter {
    /// True if it names each directory once: a directory serves one node (MEM 1).
    #[must_use]
    pub fn names_each_directory_once(&self) -> bool {
        self.directories.values().collect::<BTreeSet<_>>().len() == self.directories.len()
    }
}

/// What a data directory has of the founding of a cluster (MEM 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Founding {
    /// Nothing.
    Empty,
    /// It has taken a charter. Whether a cluster was formed by it, it does not know.
    Taken(Charter),
    /// It belongs to a cluster: all have taken this charter, or it has belonged to one before it
    /// knew of any charter. It never takes one again.
    Formed(Option<Charter>),
}
