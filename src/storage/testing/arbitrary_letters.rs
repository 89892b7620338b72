//! Arbitrary letters, and values of related types.

use super::arbitrary::{number, number32, queue_id, session, short};
use proptest::{collection::vec, option, prelude::*, sample::select};
use quorate_queue::{
    Attempt, Command, DeathReason, Letter, LettersRecord, Record, RoutedLetters, Routes, Routing,
    Stage, Transfer, TransferAnswer, Via,
};
use quorate_types::{
    CatalogIndex, GroupId, LetterHome, LetterNumber, Level, LogIndex, MessageId, Sequence,
    Timestamp, WallTime,
};

pub(super) fn letter_home() -> impl Strategy<Value = LetterHome> {
    prop_oneof![
        any::<u16>().prop_map(|group| LetterHome::Group(GroupId(group))),
        session().prop_map(LetterHome::Start),
    ]
}

fn via() -> impl Strategy<Value = Via> {
    (short(), option::of(short())).prop_map(|(exchange, routing_key)| Via { exchange, routing_key })
}

pub(super) fn letter_command() -> impl Strategy<Value = Command> {
    let routes = prop_oneof![
        vec(queue_id(), 0..4).prop_map(Routes::To),
        Just(Routes::Keep),
        Just(Routes::Drop),
        Just(Routes::Cycle),
    ];
    let routed = (number(), number(), routes).prop_map(|(first, last, routes)| RoutedLetters {
        first: LetterNumber(first),
        last: LetterNumber(last),
        routes,
    });
    let answer = select(vec![TransferAnswer::Taken, TransferAnswer::Full, TransferAnswer::Gone]);
    let answer = (number().prop_map(Sequence), answer);
    prop_oneof![
        (queue_id(), number(), via(), vec(routed, 0..4)).prop_map(|(queue, at, via, letters)| {
            Command::Routed { queue, at: CatalogIndex(at), via, letters }
        }),
        (letter_home(), number(), number(), vec(answer, 0..4)).prop_map(
            |(stream, first, last, other)| Command::DeadLettered {
                stream,
                first: Sequence(first),
                last: Sequence(last),
                other
            }
        ),
        (queue_id(), number32()).prop_map(|(target, count)| Command::Retry { target, count }),
        (number32(), number32(), number32()).prop_map(|(run, first, attempt)| Command::Transfer {
            run,
            first,
            attempt
        }),
    ]
}

fn stage() -> impl Strategy<Value = Stage> {
    let transfer = prop_oneof![
        (number(), number32())
            .prop_map(|(number, attempt)| Transfer::UnderWay { number: Sequence(number), attempt }),
        Just(Transfer::Waits),
    ];
    let transfers = prop::collection::btree_map(queue_id(), transfer, 0..3);
    prop_oneof![
        number().prop_map(|after| Stage::Waiting { after: CatalogIndex(after) }),
        Just(Stage::Kept),
        number().prop_map(|until| Stage::Delayed { until: Timestamp(until) }),
        (via(), number(), number(), any::<bool>(), transfers).prop_map(
            |(via, at, order, taken, transfers)| {
                let at = CatalogIndex(at);
                Stage::Routed(Box::new(Routing { via, at, order, taken, transfers }))
            }
        ),
    ]
}

pub(super) fn letters() -> impl Strategy<Value = Record> {
    let message = (any::<u8>(), number(), number32()).prop_map(|(level, index, position)| {
        MessageId { level: Level(level), index: LogIndex(index), position }
    });
    let reason = select(vec![
        DeathReason::Rejected,
        DeathReason::Expired,
        DeathReason::MaxLength,
        DeathReason::DeliveryLimit,
        DeathReason::Delayed,
    ]);
    let letter = (message, number32(), reason, number(), stage()).prop_map(
        |(message, body_bytes, reason, died_at, stage)| Letter {
            message,
            body_bytes,
            reason,
            died_at: WallTime(died_at),
            stage,
        },
    );
    prop::collection::btree_map(number().prop_map(LetterNumber), letter, 0..5)
        .prop_map(Record::Letters)
}

pub(super) fn letters_record() -> impl Strategy<Value = LettersRecord> {
    let streams = prop::collection::btree_map(letter_home(), number().prop_map(Sequence), 0..3);
    let attempt =
        (number32(), any::<bool>()).prop_map(|(number, refused)| Attempt { number, refused });
    let attempts = prop::collection::btree_map(queue_id(), attempt, 0..3);
    (number(), streams, attempts).prop_map(|(routings, streams, attempts)| LettersRecord {
        routings,
        streams,
        attempts,
    })
}
