//! Connections and consumers by number.

use parking_lot::RwLock;
use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

/// Values of one kind by number. Numbers begin at 1 and are never used again.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    next: AtomicU64,
    by_number: RwLock<HashMap<u64, T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), by_number: RwLock::default() }
    }
}

impl<T: Clone> Registry<T> {
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, number: u64, thing: T) {
        self.by_number.write().insert(number, thing);
    }

    pub(crate) fn get(&self, number: u64) -> Option<T> {
        self.by_number.read().get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) -> Option<T> {
        self.by_number.write().remove(&number)
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.by_number.read().values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.read().len()
    }
}
