//! When the version of the replicated machine is raised (MEM 15). Pure.

use quorate_types::MachineVersion;

/// What the catalog's leader knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberVersion {
    /// The newest version that its process knows; `None`: it is not linked.
    pub(crate) newest: Option<MachineVersion>,
    /// It has a start in the catalog.
    pub(crate) has_start: bool,
}

/// True if all members know the version after the present one. One that is away may come back with a
/// binary that does not.
pub(crate) fn may_raise(
    present: MachineVersion,
    mut members: impl Iterator<Item = MemberVersion>,
) -> bool {
    let next = present.next();
    members.all(|member| member.has_start && member.newest.is_some_and(|newest| newest >= next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A node is stopped, or started with a binary that knows the versions up to this one.
    type Change = (usize, Option<u32>);

    proptest! {
        /// Whatever is started when: the version rises by single steps, no member that runs lacks it,
        /// and a binary that lacks it is not let in, so the last binaries can always be started.
        #[test]
        fn mem_15_no_member_lacks_the_version(
            changes in proptest::collection::vec((0_usize..3, proptest::option::of(1_u32..6)), 0..40),
        ) {
            let mut present = MachineVersion::FIRST;
            let mut running: [Option<MachineVersion>; 3] = [Some(present); 3];
            for (node, binary) in changes as Vec<Change> {
                // The mark of its directory refuses an older binary.
                let started = binary.map(MachineVersion).filter(|newest| *newest >= present);
                if let Some(process) = running.get_mut(node) {
                    *process = started;
                }
                let known = running.map(|newest| MemberVersion { newest, has_start: newest.is_some() });
                if may_raise(present, known.into_iter()) {
                    present = present.next();
                }
                prop_assert!(running.iter().flatten().all(|newest| *newest >= present));
            }
            // When all run a newer one, it is reached.
            running = [Some(MachineVersion(9)); 3];
            let known = running.map(|newest| MemberVersion { newest, has_start: true });
            for _ in present.0..9 {
                prop_assert!(may_raise(present, known.into_iter()));
                present = present.next();
            }
            prop_assert!(!may_raise(present, known.into_iter()));
        }
    }
}
