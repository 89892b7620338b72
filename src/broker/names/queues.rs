//! Queues by name: how they are made, deleted and given their settings. The steps are in `queues`,
//! `make_in_turn`, `delete`, `delayed`, `policies` and `definitions`.

use crate::{
    base::Base,
    names::{configure::Configurer, making::Making},
};
use std::sync::Arc;

/// The queues of the cluster, by name.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) base: Base,
    pub(crate) configurer: Arc<Configurer>,
    pub(crate) making: Arc<Making>,
}

impl Queues {
    /// No queue is being made here.
    pub(crate) fn new(base: &Base, configurer: &Arc<Configurer>) -> Self {
        Self { base: base.clone(), configurer: Arc::clone(configurer), making: Arc::default() }
    }
}
