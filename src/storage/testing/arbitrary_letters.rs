//! Arbitrary letters, and values of related types.

use super::arbitrary::{number, number32, queue_id, session, short};
use proptest::{collection::vec, option, prelude::*, sample::select};
use quorate_queue::{
    Attempt, Command, DeathReason, Letter, LettersRecord, Record, RoutedLetters, Routes, Routing,
    Stage, Take, TakeTo, Taken, TaskCounts, TaskProgress, TaskStep, Transfer, TransferAnswer, Via,
};
use quorate_types::{
    CatalogIndex, Counts, GroupId, LetterHome, LetterNumber, Level, LogIndex, MessageId, Sequence,
    TaskId, Timestamp, WallTime,
};
use std::collections::BTreeMap;

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
        (via(), number(), number(), any::<bool>(), transfers, taken()).prop_map(
            |(via, at, order, taken, transfers, task)| {
                let at = CatalogIndex(at);
                Stage::Routed(Box::new(Routing { via, at, order, taken, transfers, task }))
            }
        ),
    ]
}

fn message_id() -> impl Strategy<Value = MessageId> {
    (any::<u8>(), number(), number32()).prop_map(|(level, index, position)| MessageId {
        level: Level(level),
        index: LogIndex(index),
        position,
    })
}

pub(super) fn counts() -> impl Strategy<Value = TaskCounts> {
    (number(), number(), number(), number(), number()).prop_map(
        |(taken, moved, skipped, no_target, under_way)| TaskCounts {
            taken,
            moved,
            skipped,
            no_target,
            under_way,
        },
    )
}

pub(super) fn task_command() -> impl Strategy<Value = Command> {
    let to = prop_oneof![
        Just(TakeTo::Nowhere),
        (via(), vec(queue_id(), 0..3)).prop_map(|(via, targets)| TakeTo::Queues { via, targets }),
    ];
    let take = (to, vec(message_id(), 0..4)).prop_map(|(to, messages)| Take { to, messages });
    let places = (message_id(), option::of(message_id()));
    let counted = (number(), number(), number());
    let ids = (queue_id(), number(), number(), number());
    let step = (ids, places, counted, vec(take, 0..3)).prop_map(
        |((queue, task, until, at), (from, next), (skipped, no_target, matched), takes)| TaskStep {
            queue,
            task: TaskId(task),
            until: LogIndex(until),
            at: CatalogIndex(at),
            from,
            next,
            skipped,
            no_target,
            matched,
            takes,
        },
    );
    prop_oneof![
        step.prop_map(|step| Command::TaskStep(Box::new(step))),
        (queue_id(), number())
            .prop_map(|(queue, task)| Command::ForgetTask { queue, task: TaskId(task) }),
    ]
}

pub(super) fn tasks() -> impl Strategy<Value = BTreeMap<TaskId, TaskProgress>> {
    let progress = (number(), option::of(message_id()), counts())
        .prop_map(|(until, next, counts)| TaskProgress { until: LogIndex(until), next, counts });
    prop::collection::btree_map(number().prop_map(TaskId), progress, 0..3)
}

fn taken() -> impl Strategy<Value = Option<Taken>> {
    prop::option::of((number(), number32(), number32()).prop_map(|(task, acquired, returned)| {
        Taken { task: TaskId(task), counts: Counts { acquired, returned } }
    }))
}

pub(super) fn letters() -> impl Strategy<Value = Record> {
    let message = message_id();
    let reason = select(vec![
        DeathReason::Rejected,
        DeathReason::Expired,
        DeathReason::MaxLength,
        DeathReason::DeliveryLimit,
        DeathReason::Delayed,
        DeathReason::Redriven,
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
