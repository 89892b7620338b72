//! Errors planted on purpose, which prove that the chaos tests and the simulation find such errors.
//!
//! Only builds with the feature `planted-bugs` contain them. There the environment variable
//! `QUORATE_PLANTED_BUG` names the one that takes effect. In all other builds [`PlantedBug::is_in`]
//! is the constant `false`, so that the compiler removes the code.

/// An error that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A publish is confirmed when it is sent to its queue, not when the queue has it (NAM 6).
    ConfirmBeforeCommit,
    /// A write is reported as durable before it is synced (STO 1).
    WalSyncOff,
    /// A repeated command of a session is applied again (SES 2).
    NoProducerSession,
    /// A session's commands are applied although earlier ones are missing (SES 3).
    NoGapRefusal,
    /// A dead letter is removed when it is sent, not when its target has it (LET 2).
    LetterRemovedBeforeTarget,
    /// Delivery counts are not stored, so that a restart forgets them (DLM-04).
    DeliveryCountOutsideState,
    /// Replicas apply an entry with their own clock (DESIGN §4, *Time*).
    WallClockInApply,
    /// Replicas apply an entry in the order of a hash map.
    HashMapOrderInApply,
    /// A node shows deliveries although no majority stands behind their leader (DLV 5).
    StaleLeaderDelivers,
    /// Only a group's first leader expires messages.
    ExpiryIgnoredAfterFailover,
    /// A routing lease does not run out (NAM 5).
    LeaseNeverRunsOut,
    /// A body is read from an entry that may not be committed (STO 7).
    BodyFromUncommitted,
    /// A vote is answered before it is on disk (Raft §5.2).
    VoteNotSynced,
}

impl PlantedBug {
    /// Every error that can be planted.
    pub const ALL: [Self; 13] = [
        Self::ConfirmBeforeCommit,
        Self::WalSyncOff,
        Self::NoProducerSession,
        Self::NoGapRefusal,
        Self::LetterRemovedBeforeTarget,
        Self::DeliveryCountOutsideState,
        Self::WallClockInApply,
        Self::HashMapOrderInApply,
        Self::StaleLeaderDelivers,
        Self::ExpiryIgnoredAfterFailover,
        Self::LeaseNeverRunsOut,
        Self::BodyFromUncommitted,
        Self::VoteNotSynced,
    ];

    /// Whether this error is planted in this process.
    #[cfg(not(feature = "planted-bugs"))]
    #[inline]
    #[must_use]
    pub const fn is_in(self) -> bool {
        false
    }

    /// Whether this error is planted in this process.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn is_in(self) -> bool {
        use std::sync::OnceLock;
        static PLANTED: OnceLock<Option<PlantedBug>> = OnceLock::new();
        let planted = PLANTED.get_or_init(|| {
            let name = std::env::var("QUORATE_PLANTED_BUG").ok()?;
            Self::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
        });
        *planted == Some(self)
    }

    /// Milliseconds that this process has run by the machine's clock, if
    /// [`PlantedBug::WallClockInApply`] is planted; otherwise 0.
    #[must_use]
    pub fn own_clock_ms() -> u64 {
        #[cfg(feature = "planted-bugs")]
        if Self::WallClockInApply.is_in() {
            use std::{sync::OnceLock, time::Instant};
            static START: OnceLock<Instant> = OnceLock::new();
            let passed = START.get_or_init(Instant::now).elapsed();
            return u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        }
        0
    }

    /// The items in the order of a hash map, if [`PlantedBug::HashMapOrderInApply`] is planted;
    /// otherwise as they are.
    #[must_use]
    pub fn in_hash_map_order<T: Copy + Eq + std::hash::Hash>(items: Vec<T>) -> Vec<T> {
        #[cfg(feature = "planted-bugs")]
        if Self::HashMapOrderInApply.is_in() {
            let set: std::collections::HashSet<T> = items.into_iter().collect();
            return set.into_iter().collect();
        }
        items
    }
}
