//! Arbitrary records of queues.

use super::arbitrary::{config, consumer, name, number, number32, session};
use super::arbitrary_letters::{letter_home, tasks};
use proptest::{collection::vec, option, prelude::*};
use quorate_queue::{LevelRecord, QueueRecord, Record};
use quorate_types::{LetterNumber, Level, LogIndex, Timestamp};

pub(super) fn queue_record() -> impl Strategy<Value = Record> {
    let fresh = (number(), number(), number());
    let level = (any::<u8>(), number(), number32(), fresh, number()).prop_map(
        |(level, head, head_position, (fresh, fresh_bytes, fresh_expiring), removed)| {
            let record = LevelRecord {
                head_index: LogIndex(head),
                head_position,
                fresh,
                fresh_bytes,
                fresh_expiring,
                removed_below: LogIndex(removed),
            };
            (Level(level), record)
        },
    );
    let rest = (option::of(session()), number(), number(), any::<bool>(), vec(consumer(), 0..4));
    let moment = || option::of(number().prop_map(Timestamp));
    let refusals = prop::collection::btree_map(letter_home(), number32(), 0..3);
    let letters = (number(), refusals, any::<bool>(), tasks());
    let rules = (moment(), moment(), option::of(consumer()), number(), letters);
    (name(), config(), rest, vec(level, 0..4), rules).prop_map(
        |(name, config, rest, levels, rules)| {
            let (creator, life, used_at, had_consumer, service_queue) = rest;
            let (wake_at, timeout_at, active, arrivals, letters) = rules;
            let (last_letter, refusals, ended, tasks) = letters;
            Record::Queue(Box::new(QueueRecord {
                name,
                config,
                creator,
                life,
                used_at: Timestamp(used_at),
                wake_at,
                timeout_at,
                active,
                arrivals,
                had_consumer,
                levels: levels.into_iter().collect(),
                service_queue: service_queue.into(),
                last_letter: LetterNumber(last_letter),
                refusals,
                ended,
                tasks,
            }))
        },
    )
}
