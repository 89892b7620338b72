//! Priority levels of a queue, and which of them a message belongs to (PRI, Q-34).

use crate::{Level, QueueType};

/// Level of a message without priority on a quorum queue.
const QUORUM_ABSENT: u8 = 4;
/// Highest level of a quorum queue.
const QUORUM_MAX: u8 = 31;

/// The levels that a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Level of a message without priority.
    absent: u8,
    /// Highest level; larger priorities are as that one.
    max: u8,
}

impl Levels {
    /// Those of a queue of this type, declared with this `x-max-priority` (PRI-05; on both types:
    ///
    #[must_use]
    pub fn new(queue_type: QueueType, priority_max: Option<u8>) -> Self {
        match (priority_max, queue_type) {
            (Some(max), _) => Self { absent: 0, max },
            (None, QueueType::Quorum) => Self { absent: QUORUM_ABSENT, max: QUORUM_MAX },
            (None, QueueType::Classic) => Self { absent: 0, max: 0 },
        }
    }

    /// The level of a message with this property `priority`.
    #[must_use]
    pub fn of(self, priority: Option<u8>) -> Level {
        Level(priority.unwrap_or(self.absent).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::Levels;
    use crate::{Level, QueueType};

    #[test]
    fn q_34_levels_follow_type_and_x_max_priority() {
        let level = |queue_type, max, priority| Levels::new(queue_type, max).of(priority).0;
        let (classic, quorum) = (QueueType::Classic, QueueType::Quorum);
        for (priority, expected) in [(None, 4), (Some(0), 0), (Some(31), 31), (Some(200), 31)] {
            assert_eq!(level(quorum, None, priority), expected);
            assert_eq!(level(classic, None, priority), 0, "PRI-05: one level");
        }
        for queue_type in [classic, quorum] {
            for (priority, expected) in [(None, 0), (Some(3), 3), (Some(10), 10), (Some(11), 10)] {
                assert_eq!(level(queue_type, Some(10), priority), expected);
            }
        }
        assert_eq!(Levels::new(quorum, Some(255)).of(Some(255)), Level(255));
    }
}
