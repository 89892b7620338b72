//! How much of tracing is under way.

use crate::{connection_state::ConnectionState, once_per_minute::OncePerMinute};
use parking_lot::Mutex;
use std::sync::Arc;

/// What this node traces.
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    /// What is on its way. One lasts as long as a session: what was on its way in the one before is
    /// never answered (SES 6).
    pub(crate) account: Mutex<Option<Arc<ConnectionState>>>,
    /// When it was last told that traces are dropped.
    pub(crate) warned: Mutex<OncePerMinute<()>>,
}
