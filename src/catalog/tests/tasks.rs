//! Tasks in the catalog: created once, changed by operators, reported by leaders, bounded in
//! number, ended with their queue; and nothing of it before machine version 3 (MEM 15).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    CatalogCommand as C, CatalogKey, CatalogReply, Denial, ENDED_TASKS_MAX, QUEUE_TASKS_MAX,
    TASKS_MAX, TaskCommand as T, TaskControl, TaskDenial as D, TaskKind, TaskOrder, TaskState,
    TaskTarget, VHOST_TASKS_MAX,
};
use quorate_queue::TaskCounts;
use quorate_types::{MachineVersion, TaskId, WallTime};

/// A cluster of machine version 3 with queues `q1`, `q2`, ... of these numbers.
fn world(queues: u64) -> World {
    let mut world = World::formed(3, 1);
    for machine in [MachineVersion::MEMBERS, MachineVersion::RETRIES] {
        world.done(C::RaiseMachine(machine));
    }
    (1..=queues).for_each(|queue| world.add(&format!("q{queue}"), queue));
    world
}

fn order(queue: u64) -> TaskOrder {
    TaskOrder {
        kind: TaskKind::Redrive,
        queue: id(queue),
        name: name(&format!("q{queue}")),
        to: TaskTarget::Original,
        filter: vec![(short("reason"), "expired".to_owned())],
        rate: Some(10),
        max: None,
        dry_run: false,
    }
}

fn create(nonce: u64, order: TaskOrder) -> C {
    C::Tasks(T::Create { nonce, order, by: short("ops"), at: WallTime(nonce) })
}

fn control(task: TaskId, control: TaskControl) -> C {
    C::Tasks(T::Control { task, control, at: WallTime(500) })
}

fn report(task: TaskId, moved: u64, done: bool) -> C {
    let counts = TaskCounts { taken: moved, moved, ..TaskCounts::default() };
    C::Tasks(T::Report { task, counts, done: done.then_some(WallTime(900)) })
}

fn denied(denial: D) -> CatalogReply {
    CatalogReply::Denied(Denial::Task(denial))
}

/// Creates a task and returns its id.
fn created(world: &mut World, nonce: u64, queue: u64) -> TaskId {
    world.done(create(nonce, order(queue)));
    world.catalog.task_of_nonce(nonce).unwrap().id
}

fn state(world: &World, task: TaskId) -> Option<TaskState> {
    world.catalog.task(task).map(|task| task.state)
}

#[test]
fn mem_15_before_version_3_there_are_no_tasks() {
    let mut world = World::formed(3, 1);
    world.add("q1", 1);
    let early = D::TooEarly { machine: MachineVersion::FIRST };
    assert_eq!(world.one(create(1, order(1))), denied(early));
    world.done(C::RaiseMachine(MachineVersion::MEMBERS));
    let early = D::TooEarly { machine: MachineVersion::MEMBERS };
    assert_eq!(world.one(create(1, order(1))), denied(early));
    assert_eq!(world.catalog.tasks().count(), 0);
    assert!(early.to_string().contains("machine version is 2"), "{early}");
}

#[test]
fn a_task_is_created_once_paused_resumed_and_cancelled() {
    let mut world = world(1);
    let task = created(&mut world, 7, 1);
    world.done(create(7, order(1)));
    assert_eq!(world.catalog.tasks().count(), 1, "a repeat");
    let both = world.apply(vec![create(8, order(1)), create(9, order(1))]);
    assert_eq!(both, [CatalogReply::Done, CatalogReply::Done]);
    assert_eq!(world.catalog.tasks().count(), 3, "ids of one entry differ");
    for (change, to) in [
        (TaskControl::Pause, TaskState::Paused),
        (TaskControl::Pause, TaskState::Paused),
        (TaskControl::Resume, TaskState::Running),
        (TaskControl::Cancel, TaskState::Cancelled),
        (TaskControl::Cancel, TaskState::Cancelled),
    ] {
        world.done(control(task, change));
        assert_eq!(state(&world, task), Some(to));
    }
    assert_eq!(world.catalog.task(task).unwrap().ended_at, Some(WallTime(500)));
    let ended = D::Ended { task, state: TaskState::Cancelled };
    assert_eq!(world.one(control(task, TaskControl::Resume)), denied(ended));
    // What was under way is still reported.
    world.done(report(task, 3, true));
    assert_eq!(state(&world, task), Some(TaskState::Cancelled));
    assert_eq!(world.catalog.task(task).unwrap().counts.moved, 3);
    let none = D::NoTask { task: TaskId(99) };
    assert_eq!(world.one(control(TaskId(99), TaskControl::Pause)), denied(none));
    assert_eq!(world.reloaded(), world.catalog);
}

#[test]
fn a_late_report_changes_nothing_and_the_last_one_ends_the_task() {
    let mut world = world(1);
    let task = created(&mut world, 1, 1);
    world.done(report(task, 5, false));
    world.done(report(task, 4, false));
    assert!(!world.out.changes.contains(&CatalogKey::Task(task)));
    assert_eq!(world.catalog.task(task).unwrap().counts.moved, 5);
    world.done(report(task, 6, true));
    let record = world.catalog.task(task).unwrap();
    assert_eq!((record.state, record.ended_at), (TaskState::Done, Some(WallTime(900))));
    world.done(report(TaskId(77), 6, true));
}

#[test]
fn a_task_ends_with_its_queue() {
    let mut world = world(2);
    let (of_ended, other) = (created(&mut world, 1, 1), created(&mut world, 2, 2));
    world.done(C::RemoveQueue { queue: id(1) });
    assert_eq!(state(&world, of_ended), Some(TaskState::QueueEnded));
    assert_eq!(state(&world, other), Some(TaskState::Running));
    assert_eq!(world.one(create(3, order(1))), denied(D::NoQueue));
}

#[test]
fn tasks_are_bounded_in_number() {
    let queues = (TASKS_MAX / QUEUE_TASKS_MAX + 2) as u64;
    let mut world = world(queues);
    let most = QUEUE_TASKS_MAX as u64;
    for nonce in 0..most {
        created(&mut world, nonce, 1);
    }
    let of_queue = D::TooManyOfQueue { most: QUEUE_TASKS_MAX as u32 };
    assert_eq!(world.one(create(1_000, order(1))), denied(of_queue));
    for nonce in most..VHOST_TASKS_MAX as u64 {
        created(&mut world, nonce, 1 + nonce / most);
    }
    let of_vhost = D::TooManyOfVhost { most: VHOST_TASKS_MAX as u32 };
    assert_eq!(world.one(create(1_000, order(queues))), denied(of_vhost));
    let of_another = |nonce: u64| {
        let mut order = order(1 + nonce / most);
        order.name.vhost = short(&format!("v{}", nonce / VHOST_TASKS_MAX as u64));
        create(nonce, order)
    };
    (VHOST_TASKS_MAX as u64..TASKS_MAX as u64).for_each(|nonce| world.done(of_another(nonce)));
    let too_many = D::TooMany { most: TASKS_MAX as u32 };
    assert_eq!(world.one(create(1_000, order(queues))), denied(too_many));
    let long = vec![(short("routing_key"), "k".repeat(4_096)); 2];
    let wrong = TaskOrder { filter: long, ..order(queues) };
    let first = world.catalog.tasks().next().unwrap().id;
    world.done(control(first, TaskControl::Cancel));
    assert_eq!(world.one(create(1_000, wrong)), denied(D::Filter));
    // Ended ones are kept for a while: the oldest goes first.
    for nonce in 2_000..2_000 + ENDED_TASKS_MAX as u64 {
        let task = created(&mut world, nonce, queues);
        world.done(control(task, TaskControl::Cancel));
    }
    assert_eq!(state(&world, first), None);
    let ended = world.catalog.tasks().filter(|task| !task.state.is_active());
    assert_eq!(ended.count(), ENDED_TASKS_MAX);
    assert_eq!(world.reloaded(), world.catalog);
}
