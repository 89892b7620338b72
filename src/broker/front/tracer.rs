//! The traces in flight; the steps of tracing are in `trace`.

use crate::{base::Base, front::connection_state::ConnectionState, once_per_minute::OncePerMinute};
use parking_lot::Mutex;
use std::sync::Arc;

/// The tracer of this node.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) base: Base,
    /// The account of traces in flight. Each session has its own, since traces of an ended session
    /// are never answered (SES 6).
    pub(crate) account: Mutex<Option<Arc<ConnectionState>>>,
    /// When the log last reported dropped traces.
    pub(crate) warned: Mutex<OncePerMinute<()>>,
}

impl Tracer {
    /// State without traces in flight.
    pub(crate) fn new(base: &Base) -> Self {
        Self { base: base.clone(), account: Mutex::default(), warned: Mutex::default() }
    }
}
