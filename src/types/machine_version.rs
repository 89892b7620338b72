//! The version of the replicated machine (MEM 15).

use std::fmt;

/// Which commands of the replicated log exist, which records it leads to, and by which rules entries
/// are applied. The catalog holds the present version, from [`MachineVersion::FIRST`] on. It is
/// raised, one version at a time, when all members know the next one, and never lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineVersion(pub u32);

impl MachineVersion {
    /// The version of a cluster that has just been formed, and of all binaries that do not name one.
    pub const FIRST: Self = Self(1);

    /// The first version in which the catalog holds members and placements (MEM 1, MEM 6).
    pub const MEMBERS: Self = Self(2);

    /// The first version in which queues delay returned messages (RQU-07), virtual hosts can be
    /// protected from deletion, and tasks move messages between queues (LET 1).
    pub const RETRIES: Self = Self(3);

    /// The first version in which one node can go on alone when a majority is lost for good (MEM 14).
    ///
    /// The commands of the last resort are in no log before it. They are not proposed: the last resort
    /// writes them into the logs of a directory that no process uses, whatever version the cluster had.
    /// By then the directory's mark names this version, so that binaries which cannot read the commands
    /// refuse the directory, and the entry of the catalog that holds them raises the version first. The
    /// node is alone then, and others join it only if they know the version.
    pub const LAST_RESORT: Self = Self(4);

    /// The newest version that this binary knows. It knows all earlier ones too.
    pub const NEWEST: Self = Self::LAST_RESORT;

    /// True if this binary knows the version.
    #[must_use]
    pub fn is_known(self) -> bool {
        (Self::FIRST..=Self::NEWEST).contains(&self)
    }

    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Versions are numbered from 1 without gaps, no two are the same one, and the newest has a name.
const _: () = {
    assert!(MachineVersion::FIRST.0 == 1);
    assert!(MachineVersion::MEMBERS.0 == 2);
    assert!(MachineVersion::RETRIES.0 == 3);
    assert!(MachineVersion::LAST_RESORT.0 == 4);
    assert!(MachineVersion::NEWEST.0 == 4);
};

impl Default for MachineVersion {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for MachineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
