//! Maps by name: look-up by a hash of the bytes without allocation, and listing in the order of the
//! names.

use quorate_types::ShortString;
use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
};

/// The hash for all look-ups. Its seed is random for each process, since clients choose the names;
/// nothing depends on it except the speed of a look-up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameHash;

static SEEDED: OnceLock<ahash::RandomState> = OnceLock::new();

impl BuildHasher for NameHash {
    type Hasher = ahash::AHasher;

    fn build_hasher(&self) -> ahash::AHasher {
        SEEDED.get_or_init(seeded).build_hasher()
    }
}

fn seeded() -> ahash::RandomState {
    let chance = RandomState::new();
    let [a, b, c, d] = [1u8, 2, 3, 4].map(|word| chance.hash_one(word));
    ahash::RandomState::with_seeds(a, b, c, d)
}

/// A map by name. `HashMap` with this hasher is used for look-ups only.
pub(crate) type ByName<T> = HashMap<ShortString, T, NameHash>;

/// A [`ByName`] that can also be listed.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    by_name: ByName<T>,
    names: BTreeSet<ShortString>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { by_name: ByName::default(), names: BTreeSet::new() }
    }
}

impl<T: PartialEq> PartialEq for Named<T> {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names && self.by_name == other.by_name
    }
}

impl<T> Named<T> {
    pub(crate) fn get(&self, name: &ShortString) -> Option<&T> {
        self.by_name.get(name)
    }

    pub(crate) fn get_mut(&mut self, name: &ShortString) -> Option<&mut T> {
        self.by_name.get_mut(name)
    }

    /// The name as the map stores it, which shares no bytes with a log entry.
    pub(crate) fn kept_name(&self, name: &ShortString) -> Option<&ShortString> {
        self.by_name.get_key_value(name).map(|(name, _)| name)
    }

    pub(crate) fn insert(&mut self, name: ShortString, value: T) -> Option<T> {
        self.names.insert(name.clone());
        self.by_name.insert(name, value)
    }

    pub(crate) fn remove(&mut self, name: &ShortString) -> Option<T> {
        self.names.remove(name);
        self.by_name.remove(name)
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// All items, sorted by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ShortString, &T)> {
        self.names.iter().filter_map(|name| self.by_name.get_key_value(name))
    }
}
