//! The node's database.

use crate::{Done, GroupStore, LogWriter, OpenError, Options, StorageError};
use quorate_types::{ClusterId, GroupId, Incarnation, NodeId};
use std::{path::Path, sync::Arc};

/// Whose directory this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Node.
    pub node: NodeId,
    /// Drawn when the directory was made.
    pub incarnation: Incarnation,
    /// Cluster that the node belongs to, once it does.
    pub cluster: Option<ClusterId>,
}

/// The node's database.
pub struct Database {}

impl Database {
    /// Opens or makes the directory; redoes installs that a crash left unfinished (STO 6).
    ///
    /// # Errors
    /// What [`OpenError`] names.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        let _ = (dir, options);
        todo!()
    }
    /// Whose directory it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        todo!()
    }
    /// Notes the cluster that the node belongs to.
    pub fn set_cluster(&self, cluster: ClusterId, done: Done) {
        let _ = (cluster, done);
        todo!()
    }
    /// The store of one group; the same one for each call.
    ///
    /// # Errors
    /// A failed read.
    pub fn group(&self, group: GroupId) -> Result<GroupStore, StorageError> {
        let _ = group;
        todo!()
    }
    /// The one writer.
    #[must_use]
    pub fn writer(&self) -> &LogWriter {
        todo!()
    }
    /// Writes what waits and ends the writer's thread; later writes are refused. To be called
    /// before the process exits.
    pub fn close(&self) {
        todo!()
    }
}
