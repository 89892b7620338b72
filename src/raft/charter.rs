//! What a directory does about the charter of founding (MEM 2): pure decisions of the founder and of
//! those that it names, on what their directories have stored.
//!
//! Two clusters would need two charters that all directories named in them have taken. One founder
//! writes its charters one after the other and forms only the last; a directory takes the charters of
//! one founder only. So the second cluster would need other directories for all nodes.

use quorate_types::{Charter, Founding, Incarnation, NodeId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// What one node says about itself before a cluster is formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundingHello {
    /// Its data directory.
    pub directory: Incarnation,
    /// The nodes with which it would form a cluster, itself among them.
    pub nodes: BTreeSet<NodeId>,
    /// What its directory has of the founding.
    pub founding: Founding,
}

/// Why a directory does not take a charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CharterDenial {
    /// It belongs to a cluster.
    #[error("this data directory belongs to a cluster")]
    Formed,
    /// The charter does not name it, or other nodes than its settings, or is not the lowest node's.
    #[error(
        "the charter names other nodes than this one knows (setting cluster), or another data directory"
    )]
    OtherNodes,
    /// It names a directory twice.
    #[error("the charter names one data directory for two nodes")]
    SameDirectory,
    /// It has taken the charter of another founder.
    #[error("this data directory has taken the charter of another founder")]
    OtherFounder,
    /// It has taken a later charter of the same founder.
    #[error("this data directory has taken a later charter")]
    Late,
}

/// What a directory has after it was asked to take a charter: what is to be stored durably before it
/// answers. `me` is its node and itself, `nodes` are those of its settings.
///
/// # Errors
/// It does not take the charter, and nothing changes.
pub fn take_charter(
    present: &Founding,
    (node, directory): (NodeId, Incarnation),
    nodes: &BTreeSet<NodeId>,
    charter: &Charter,
) -> Result<Founding, CharterDenial> {
    let of_lowest = charter.directories.values().next() == Some(&charter.founder);
    if !of_lowest
        || charter.directories.get(&node) != Some(&directory)
        || !charter.directories.keys().eq(nodes)
    {
        return Err(CharterDenial::OtherNodes);
    }
    if !charter.names_each_directory_once() {
        return Err(CharterDenial::SameDirectory);
    }
    match present {
        Founding::Formed(had) if had.as_ref() == Some(charter) => Ok(present.clone()),
        Founding::Formed(_) => Err(CharterDenial::Formed),
        Founding::Taken(had) if had.founder != charter.founder => Err(CharterDenial::OtherFounder),
        Founding::Taken(had) if had.number > charter.number => Err(CharterDenial::Late),
        Founding::Taken(had) if had.number == charter.number && had != charter => {
            Err(CharterDenial::OtherFounder)
        }
        Founding::Taken(_) | Founding::Empty => Ok(Founding::Taken(charter.clone())),
    }
}

/// How a directory goes on that belongs to no cluster yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundingStep {
    /// Nothing now.
    Wait(FoundingWait),
    /// It stores this durably.
    Store(Founding),
    /// It asks all others to take its charter.
    Ask(Charter),
    /// The cluster is formed, and its replicas may begin.
    Formed,
}

/// What a directory waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundingWait {
    /// This node founds the cluster, and has not yet.
    Founder(NodeId),
    /// These nodes have not said what their directories have.
    Missing(Vec<NodeId>),
    /// These nodes would form a cluster of other nodes.
    OtherNodes(Vec<NodeId>),
    /// These nodes have the data directory of another node too.
    SameDirectory(Vec<NodeId>),
    /// These nodes belong to a cluster.
    Formed(Vec<NodeId>),
    /// These nodes have taken the charter of a founder's directory that is another one now.
    OtherFounder(Vec<NodeId>),
}

impl fmt::Display for FoundingWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Founder(node) => {
                write!(f, "node {node} forms the cluster as soon as all nodes are there")
            }
            Self::Missing(nodes) => write!(
                f,
                "all nodes are needed to form a cluster: nodes {} are missing, or other nodes answer at \
                 their addresses (setting cluster), or they run a release that forms it in another way",
                list(nodes)
            ),
            Self::OtherNodes(nodes) => {
                write!(f, "nodes {} name other nodes in their setting cluster", list(nodes))
            }
            Self::SameDirectory(nodes) => write!(
                f,
                "nodes {} have the same data directory as another node (setting data_dir): one that was \
                 copied is set aside",
                list(nodes)
            ),
            Self::Formed(nodes) => write!(
                f,
                "none is formed beside that of nodes {}, which have not let this data directory in; if \
                 their cluster never begins, since the directories of most nodes that formed it are \
                 lost, set aside the data directories of these nodes too",
                list(nodes)
            ),
            Self::OtherFounder(nodes) => write!(
                f,
                "nodes {} have agreed to form a cluster with another data directory of the lowest \
                 node: bring that back; if it is lost, set aside the data directories of these nodes \
                 too",
                list(nodes)
            ),
        }
    }
}

/// The next step of a directory. `others`: what the other nodes have answered in one round of
/// questions.
#[must_use]
pub fn next_founding_step(
    present: &Founding,
    (node, directory): (NodeId, Incarnation),
    nodes: &BTreeSet<NodeId>,
    others: &BTreeMap<NodeId, FoundingHello>,
) -> FoundingStep {
    let own = match present {
        Founding::Formed(_) => return FoundingStep::Formed,
        Founding::Taken(own) => Some(own),
        Founding::Empty => None,
    };
    let formed = nodes_with(others, |hello| matches!(hello.founding, Founding::Formed(_)));
    if !formed.is_empty() {
        let by_own = |hello: &FoundingHello| matches!(&hello.founding, Founding::Formed(Some(theirs)) if Some(theirs) == own);
        return match own.filter(|_| others.values().any(by_own)) {
            Some(own) => FoundingStep::Store(Founding::Formed(Some(own.clone()))),
            None => FoundingStep::Wait(FoundingWait::Formed(formed)),
        };
    }
    let lowest = nodes.first().copied().unwrap_or(node);
    let is_mine = |charter: &Charter| charter.founder == directory;
    let wait = if node != lowest {
        Some(FoundingWait::Founder(lowest))
    } else if own.is_some_and(|own| !is_mine(own)) {
        Some(FoundingWait::OtherFounder(vec![node]))
    } else {
        obstacle((node, directory), nodes, others)
    };
    if let Some(wait) = wait {
        return FoundingStep::Wait(wait);
    }
    let there = others.iter().map(|(node, hello)| (*node, hello.directory));
    let directories: BTreeMap<NodeId, Incarnation> = there.chain([(node, directory)]).collect();
    match own {
        Some(own) if own.directories == directories => {
            let has_taken = |hello: &FoundingHello| hello.founding == Founding::Taken(own.clone());
            if others.values().all(has_taken) {
                FoundingStep::Store(Founding::Formed(Some(own.clone())))
            } else {
                FoundingStep::Ask(own.clone())
            }
        }
        // A directory that the last charter names is lost.
        own => {
            let number = own.map_or(1, |own| own.number.saturating_add(1));
            let charter = Charter { founder: directory, number, directories };
            FoundingStep::Store(Founding::Taken(charter))
        }
    }
}

/// What keeps the founder from a charter with the directories that have answered.
fn obstacle(
    (me, directory): (NodeId, Incarnation),
    nodes: &BTreeSet<NodeId>,
    others: &BTreeMap<NodeId, FoundingHello>,
) -> Option<FoundingWait> {
    let is_mine = |charter: &Charter| charter.founder == directory;
    let missing: Vec<NodeId> =
        nodes.iter().copied().filter(|node| *node != me && !others.contains_key(node)).collect();
    if !missing.is_empty() {
        return Some(FoundingWait::Missing(missing));
    }
    let differ = nodes_with(others, |hello| hello.nodes != *nodes);
    if !differ.is_empty() {
        return Some(FoundingWait::OtherNodes(differ));
    }
    let is_taken = |hello: &FoundingHello| matches!(&hello.founding, Founding::Taken(theirs) if !is_mine(theirs));
    let taken = nodes_with(others, is_taken);
    if !taken.is_empty() {
        return Some(FoundingWait::OtherFounder(taken));
    }
    let is_shared = |hello: &FoundingHello| {
        let of_others = others.values().filter(|other| other.directory == hello.directory);
        hello.directory == directory || of_others.count() > 1
    };
    let shared = nodes_with(others, is_shared);
    (!shared.is_empty()).then_some(FoundingWait::SameDirectory(shared))
}

/// The nodes with such an answer.
fn nodes_with(
    others: &BTreeMap<NodeId, FoundingHello>,
    which: impl Fn(&FoundingHello) -> bool,
) -> Vec<NodeId> {
    others.iter().filter(|(_, hello)| which(hello)).map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests;
