//! Tasks: decoding gives the encoded value, truncated bytes are refused, and others are refused or
//! decoded without a panic; a queue without tasks is written as before machine version 3 (MEM 15).

use super::{
    arbitrary::{number, number32, queue_id, record, short},
    arbitrary_letters::counts,
    members::check,
};
use crate::codec::{
    catalog::{
        can_be_read_again, decode_command, decode_key, decode_record, encode_command, encode_key,
        encode_record,
    },
    catalog_reply::{decode_replies, encode_replies},
    queue,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use quorate_catalog::{
    CatalogCommand, CatalogKey, CatalogRecord, CatalogReply, Denial, TaskCommand as T, TaskControl,
    TaskDenial as D, TaskKind, TaskOrder, TaskRecord, TaskState, TaskTarget,
};
use quorate_queue::Record;
use quorate_types::{MachineVersion, ResourceName, TaskId, WallTime};

fn id() -> impl Strategy<Value = TaskId> {
    number().prop_map(TaskId)
}

fn at() -> impl Strategy<Value = WallTime> {
    number().prop_map(WallTime)
}

fn order() -> impl Strategy<Value = TaskOrder> {
    let to = prop_oneof![
        Just(TaskTarget::Nowhere),
        Just(TaskTarget::Original),
        short().prop_map(TaskTarget::Queue),
        short().prop_map(TaskTarget::Exchange),
    ];
    let name = (short(), short()).prop_map(|(vhost, name)| ResourceName { vhost, name });
    let filter = vec((short(), ".{0,9}"), 0..4);
    let limits = (option::of(number32()), option::of(number()), any::<bool>());
    (select(TaskKind::ALL.to_vec()), queue_id(), name, to, filter, limits).prop_map(
        |(kind, queue, name, to, filter, (rate, max, dry_run))| TaskOrder {
            kind,
            queue,
            name,
            to,
            filter,
            rate,
            max,
            dry_run,
        },
    )
}

fn state() -> impl Strategy<Value = TaskState> {
    select(TaskState::ALL.to_vec())
}

fn command() -> impl Strategy<Value = T> {
    prop_oneof![
        (number(), order(), short(), at()).prop_map(|(nonce, order, by, at)| T::Create {
            nonce,
            order,
            by,
            at
        }),
        (id(), select(TaskControl::ALL.to_vec()), at())
            .prop_map(|(task, control, at)| T::Control { task, control, at }),
        (id(), counts(), option::of(at())).prop_map(|(task, counts, done)| T::Report {
            task,
            counts,
            done
        }),
    ]
}

fn task() -> impl Strategy<Value = TaskRecord> {
    (id(), number(), order(), state(), short(), at(), option::of(at()), counts()).prop_map(
        |(id, nonce, order, state, created_by, created_at, ended_at, counts)| TaskRecord {
            id,
            nonce,
            order,
            state,
            created_by,
            created_at,
            ended_at,
            counts,
        },
    )
}

fn denial() -> impl Strategy<Value = D> {
    prop_oneof![
        Just(D::TooEarly { machine: MachineVersion::MEMBERS }),
        id().prop_map(|task| D::NoTask { task }),
        (id(), state()).prop_map(|(task, state)| D::Ended { task, state }),
        Just(D::NoQueue),
        number32().prop_map(|most| D::TooMany { most }),
        number32().prop_map(|most| D::TooManyOfQueue { most }),
        number32().prop_map(|most| D::TooManyOfVhost { most }),
        Just(D::Filter),
    ]
}

proptest! {
    #[test]
    fn commands_replies_and_records_of_tasks_round_trip(
        command in command(),
        denials in vec(denial(), 1..4),
        task in task(),
        change in (any::<prop::sample::Index>(), 1..=255u8),
    ) {
        let command = CatalogCommand::Tasks(command);
        prop_assert!(can_be_read_again(&command));
        check(&command, &encode_command(&command), change, decode_command);
        let denied = |denial| CatalogReply::Denied(Denial::Task(denial));
        let replies: Vec<_> = denials.into_iter().map(denied).collect();
        check(&replies, &encode_replies(&replies), change, decode_replies);
        let key = CatalogKey::Task(task.id);
        check(&key, &encode_key(&key), change, decode_key);
        let record = CatalogRecord::Task(task);
        check(&record, &encode_record(&record), change, decode_record);
    }

    #[test]
    fn mem_15_a_queue_without_tasks_is_written_as_before(record in record()) {
        if let Record::Queue(with) = record {
            let mut without = with.clone();
            without.tasks.clear();
            let (with, without) = (Record::Queue(with), Record::Queue(without));
            let [with, without] = [&with, &without].map(queue::encode_record);
            // Format, and kind of record: 4 is that of the first version.
            prop_assert_eq!(without[..2].to_vec(), [1, 4]);
            prop_assert_eq!(&with[2..without.len()], &without[2..]);
        }
    }
}
