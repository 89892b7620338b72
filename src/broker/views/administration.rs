//! What the management floor sees and changes of a node: `Views`, `Operator`, `DryRuns` and
//! `MessageTasks`.

use crate::{Broker, node::Node};
use std::sync::Arc;

/// What lists, metrics and audits show of this node.
#[derive(Clone, Copy, Debug)]
pub struct Views<'a>(pub(crate) &'a Arc<Node>);

/// What operators change. Nobody is asked whether they may.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a>(pub(crate) &'a Arc<Node>);

/// What changes would do.
#[derive(Clone, Copy, Debug)]
pub struct DryRuns<'a>(pub(crate) &'a Arc<Node>);

/// The tasks that move messages (LET 1). Nobody is asked whether they may, but by `check`.
#[derive(Clone, Copy, Debug)]
pub struct MessageTasks<'a>(pub(crate) &'a Arc<Node>);

impl Broker {
    /// What is to be seen of this node.
    #[must_use]
    pub fn views(&self) -> Views<'_> {
        Views(&self.0)
    }

    /// What can be changed through this node.
    #[must_use]
    pub fn operator(&self) -> Operator<'_> {
        Operator(&self.0)
    }

    /// The tasks that move messages.
    #[must_use]
    pub fn tasks(&self) -> MessageTasks<'_> {
        MessageTasks(&self.0)
    }

    /// What changes through this node would do.
    #[must_use]
    pub fn dry_runs(&self) -> DryRuns<'_> {
        DryRuns(&self.0)
    }
}
