//! How much of tracing is in flight; its steps are in `trace`.

use crate::{base::Base, front::connection_state::ConnectionState, once_per_minute::OncePerMinute};
use parking_lot::Mutex;
use std::sync::Arc;

/// What this node traces.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) base: Base,
    /// What is in flight. One lasts as long as a session: what was in flight in the one before is
    /// never answered (SES 6).
    pub(crate) account: Mutex<Option<Arc<ConnectionState>>>,
    /// When it was last told that traces are dropped.
    pub(crate) warned: Mutex<OncePerMinute<()>>,
}

impl Tracer {
    /// Nothing is in flight.
    pub(crate) fn new(base: &Base) -> Self {
        Self { base: base.clone(), account: Mutex::default(), warned: Mutex::default() }
    }
}
