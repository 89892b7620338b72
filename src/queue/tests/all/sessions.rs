//! SES: batches that arrive twice, with gaps, or from fenced starts. However often and with
//! whatever overlaps a session's batches are sent, the state is that of sending each command once.

use crate::world::{EntryBuilder, Step, World, heads, name, session};
use proptest::prelude::*;
use quorate_queue::{
    Answer, Command, ConsumerTerms, Detach, Got, Numbers, Origin, QueueConfig, Record, RecordKey,
    Reply, RequeueCause,
};
use quorate_types::{
    ConsumerId, DeliveryNumber, GroupId, Holder, Home, Level, NodeId, QueueId, QueueType, Sequence,
    SessionId, ShortString, StartNumber,
};
use std::collections::BTreeMap;

fn origin(session: SessionId, first: u64, mark: u64) -> Origin {
    Origin::Session { session, first: Sequence(first), mark: Sequence(mark) }
}

fn create() -> Step {
    let config = QueueConfig::plain(QueueType::Quorum);
    Step::Other(Command::CreateQueue { name: name("q"), config, bound: None })
}

fn enqueue(queue: QueueId, sizes: &[u32]) -> Step {
    Step::Enqueue { queue, level: Level(0), messages: heads(sizes) }
}

fn get(queue: QueueId) -> Step {
    Step::Other(Command::Get { queue, timeout_default_ms: None })
}

fn answered(session: SessionId, first: u64, last: u64, other: &[(u64, Reply)]) -> Answer {
    let other = other.iter().map(|(number, reply)| (Sequence(*number), reply.clone())).collect();
    Answer::Answered { session, first: Sequence(first), last: Sequence(last), other }
}

fn ready(world: &World, queue: QueueId) -> u64 {
    world.machine.queue(queue).unwrap().ready
}

/// A world with one queue, created by node 9.
fn with_queue() -> (World, QueueId) {
    let mut world = World::new();
    let replies = world.run(session(9, 1), &[create()]);
    let [Reply::Created(queue)] = replies[..] else { panic!("not created: {replies:?}") };
    (world, queue)
}

#[test]
fn ses_3_a_repeat_has_no_effect_and_gets_its_first_answer() {
    let mut world = World::new();
    let a = session(1, 1);
    let first = world.send(origin(a, 1, 1), &[create()]);
    let [Answer::Answered { other, .. }] = &first[..] else { panic!("{first:?}") };
    let [(Sequence(1), Reply::Created(queue))] = other[..] else { panic!("{other:?}") };
    assert_eq!(world.send(origin(a, 1, 1), &[create()]), first);
    assert_eq!(world.machine.queues().count(), 1);

    let batch = [enqueue(queue, &[1, 2, 3]), get(queue), get(queue)];
    let first = world.send(origin(a, 2, 2), &batch);
    assert_eq!(world.cuts(), []);
    let again = world.send(origin(a, 2, 2), &batch);
    assert_eq!(first, again, "a repeated get has the same message");
    assert_eq!(world.cuts(), [(0, 2)]);
    assert_eq!(ready(&world, queue), 1);
}

#[test]
fn ses_3_a_gap_is_refused_and_answers_nothing() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    let want = |number| [Answer::Want { session: a, want: Sequence(number) }];
    assert_eq!(world.send(origin(a, 2, 1), &[enqueue(queue, &[1, 2])]), want(1));
    assert_eq!(world.cuts(), [(0, 1)]);
    world.send(origin(a, 1, 1), &[enqueue(queue, &[3]), get(queue)]);
    assert_eq!(world.send(origin(a, 4, 4), &[enqueue(queue, &[4])]), want(3));
    assert_eq!(ready(&world, queue), 0);
    let Some(Record::Session(record)) = world.machine.record(RecordKey::Session(a)) else {
        panic!("no session")
    };
    assert_eq!((record.last, record.mark), (Sequence(2), Sequence(1)), "the gap changed nothing");
}

#[test]
fn ses_3_a_batch_may_be_partly_a_repeat() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    let steps: Vec<Step> = (1..=6).map(|size| enqueue(queue, &[size])).collect();
    world.send(origin(a, 1, 1), &steps[..4]);
    let answers = world.send(origin(a, 3, 1), &steps[2..]);
    assert_eq!(answers, [answered(a, 3, 6, &[])]);
    assert_eq!(world.cuts(), [(0, 1)], "the repeats, as one cut");
    let sizes: Vec<u32> =
        world.store.fresh(&world.machine, queue).into_iter().map(|it| it.3).collect();
    assert_eq!(sizes, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn ses_3_answers_are_kept_until_the_mark_has_passed_them() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    let kept = |world: &World| match world.machine.record(RecordKey::Session(a)) {
        Some(Record::Session(record)) => record.answers.keys().map(|it| it.0).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    world.send(origin(a, 1, 1), &[get(queue), enqueue(queue, &[1]), get(queue)]);
    assert_eq!(kept(&world), [1, 3], "`Taken` is not kept");
    world.send(origin(a, 4, 3), &[get(queue)]);
    assert_eq!(kept(&world), [3, 4]);
    world.send(origin(a, 5, 5), &[get(queue)]);
    assert_eq!(kept(&world), [5]);
    world.send(origin(a, 6, 2), &[get(queue)]);
    assert_eq!(kept(&world), [5, 6], "a mark does not go back");
}

#[test]
fn ses_3_a_refused_command_stays_refused() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    let batch = [enqueue(QueueId { index: 77, ..queue }, &[1, 2])];
    let gone = [answered(a, 1, 1, &[(1, Reply::Gone)])];
    assert_eq!(world.send(origin(a, 1, 1), &batch), gone);
    assert_eq!(world.cuts(), [(0, 1)]);
    assert_eq!(world.send(origin(a, 1, 1), &batch), gone);
}

#[test]
fn ses_6_a_fenced_start_is_refused_for_ever() {
    let (mut world, queue) = with_queue();
    let a = session(1, 5);
    world.send(origin(a, 1, 1), &[enqueue(queue, &[1])]);
    world.leader(Command::NodeDown { node: NodeId(1), start: StartNumber(5) });
    let fenced = |session| [Answer::Fenced { session }];
    for (start, first) in [(5, 2), (5, 1), (4, 1)] {
        let old = session(1, start);
        assert_eq!(world.send(origin(old, first, 1), &[enqueue(queue, &[9])]), fenced(old));
        assert_eq!(world.cuts(), [(0, 0)]);
    }
    assert_eq!(world.machine.fenced(NodeId(1)), StartNumber(5));
    let new = session(1, 6);
    assert_eq!(world.send(origin(new, 1, 1), &[get(queue)]).len(), 1);
    world.leader(Command::SessionEnded { session: new });
    assert_eq!(world.machine.record(RecordKey::Session(new)), None, "answers are forgotten");
    assert_eq!(world.send(origin(new, 1, 1), &[get(queue)]), fenced(new), "the fence is not");
}

#[test]
fn ses_6_a_higher_start_ends_the_lower_ones_even_by_a_gap() {
    let (mut world, queue) = with_queue();
    let old = session(1, 3);
    world.send(origin(old, 1, 1), &[enqueue(queue, &[1]), get(queue)]);
    assert_eq!(ready(&world, queue), 0);
    let new = session(1, 8);
    let want = [Answer::Want { session: new, want: Sequence(1) }];
    assert_eq!(world.send(origin(new, 5, 1), &[get(queue)]), want);
    assert_eq!(ready(&world, queue), 1, "what the old start held is back");
    assert_eq!(world.send(origin(old, 3, 1), &[get(queue)]), [Answer::Fenced { session: old }]);
}

#[test]
fn ses_6_what_a_higher_start_frees_goes_to_others_at_once() {
    let (mut world, queue) = with_queue();
    world.send(origin(session(1, 3), 1, 1), &[enqueue(queue, &[7]), get(queue)]);
    let other = session(2, 1);
    let consumer = ConsumerId { session: other, number: 1 };
    let attach = Command::Attach { queue, consumer, terms: terms(9) };
    world.send(origin(other, 1, 1), &[Step::Other(attach)]);
    world.send(origin(session(1, 4), 9, 1), &[get(queue)]);
    assert_eq!(world.deliveries(), [(1, 1, 7)]);
}

#[test]
fn a_batch_may_end_its_own_session() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    let ended = Step::Other(Command::SessionEnded { session: a });
    let batch = [enqueue(queue, &[1]), ended, enqueue(queue, &[2]), get(queue)];
    let answers = world.send(origin(a, 1, 1), &batch);
    assert_eq!(answers, [answered(a, 1, 2, &[]), Answer::Fenced { session: a }]);
    assert_eq!(world.cuts(), [(1, 1)]);
    assert_eq!(ready(&world, queue), 1);
}

#[test]
fn nam_1_an_id_is_the_place_of_its_command_counted_over_all_batches() {
    let mut world = World::new();
    world.leader(Command::NodeDown { node: NodeId(3), start: StartNumber(1) });
    let mut builder = EntryBuilder::default();
    builder.batch(origin(session(1, 1), 7, 1), &[create(), create()]);
    builder.batch(origin(session(3, 1), 1, 1), &[create()]);
    builder.batch(origin(session(1, 1), 1, 1), &[create(), create()]);
    builder.batch(origin(session(1, 1), 2, 1), &[create(), create()]);
    world.apply(&builder.build(0));
    let id = |position| QueueId { home: Home::Group(GroupId(1)), index: 2, position };
    assert!(world.machine.queues().eq([3, 4, 6].map(id)), "refused and repeated ones count too");
}

#[test]
fn an_empty_batch_moves_the_mark_and_is_not_answered() {
    let (mut world, queue) = with_queue();
    let a = session(1, 1);
    world.send(origin(a, 1, 1), &[get(queue), get(queue)]);
    assert_eq!(world.send(origin(a, 3, 3), &[]), []);
    let Some(Record::Session(record)) = world.machine.record(RecordKey::Session(a)) else {
        panic!("no session")
    };
    assert_eq!((record.last, record.mark, record.answers.len()), (Sequence(2), Sequence(3), 0));
}

#[test]
fn a_get_and_an_attach_need_a_session_of_their_own() {
    let (mut world, queue) = with_queue();
    world.run(session(9, 1), &[enqueue(queue, &[1])]);
    world.leader(Command::Get { queue, timeout_default_ms: None });
    let consumer = ConsumerId { session: session(2, 1), number: 1 };
    let attach = Command::Attach { queue, consumer, terms: terms(9) };
    world.leader(attach.clone());
    assert_eq!(world.one(session(9, 1), attach), Reply::Gone);
    let view = world.machine.queue(queue).unwrap();
    assert_eq!((view.ready, view.consumers, view.creator), (1, 0, Some(session(9, 1))));
}

fn terms(prefetch: u32) -> ConsumerTerms {
    ConsumerTerms {
        prefetch: Some(prefetch),
        up_to: DeliveryNumber(u64::MAX),
        exclusive: false,
        priority: 0,
        tag: ShortString::EMPTY,
        no_ack: false,
        timeout_ms: None,
        timeout_default_ms: None,
    }
}

/// A command of the random session, before its queue is known.
#[derive(Clone, Debug)]
enum Line {
    Enqueue(u32),
    Get,
    Attach(u32),
    Detach(u64, u64, Detach),
    End(u64, u64, u64, bool),
    EndGet(u64, bool),
    Purge,
}

fn line() -> impl Strategy<Value = Line> {
    let detach = prop_oneof![Just(Detach::Cancel), Just(Detach::ChannelEnd)];
    prop_oneof![
        6 => (1u32..5).prop_map(Line::Enqueue),
        3 => Just(Line::Get),
        3 => (1u32..6).prop_map(Line::Attach),
        1 => (1u64..5, 0u64..9, detach).prop_map(|(a, b, how)| Line::Detach(a, b, how)),
        6 => (1u64..5, 0u64..12, 0u64..6, any::<bool>())
            .prop_map(|(a, b, c, dies)| Line::End(a, b, b + c, dies)),
        2 => (1u64..40, any::<bool>()).prop_map(|(get, dies)| Line::EndGet(get, dies)),
        1 => Just(Line::Purge),
    ]
}

fn end(holder: Holder, numbers: Numbers, dies: bool) -> Command {
    let cause = RequeueCause::Nack;
    if dies {
        Command::Ack { holder, numbers }
    } else {
        Command::Requeue { holder, numbers, cause }
    }
}

fn steps(lines: &[Line], session: SessionId, queue: QueueId) -> Vec<Step> {
    let mut bytes = 0;
    let mut consumers = 0;
    let id = |number| ConsumerId { session, number };
    let one = DeliveryNumber(1);
    let step = |line: &Line| match line.clone() {
        Line::Enqueue(count) => {
            let sizes: Vec<u32> = (bytes + 1..=bytes + count).collect();
            bytes += count;
            enqueue(queue, &sizes)
        }
        Line::Get => get(queue),
        Line::Attach(prefetch) => {
            consumers += 1;
            let consumer = id(consumers);
            Step::Other(Command::Attach { queue, consumer, terms: terms(prefetch) })
        }
        Line::Detach(consumer, shown, how) => {
            let (consumer, shown) = (id(consumer), DeliveryNumber(shown));
            Step::Other(Command::Detach { consumer, shown, how })
        }
        Line::End(consumer, first, last, dies) => {
            let numbers = vec![(DeliveryNumber(first), DeliveryNumber(last))];
            Step::Other(end(Holder::Consumer(id(consumer)), numbers, dies))
        }
        Line::EndGet(number, dies) => {
            let holder = Holder::Get(session, Sequence(number));
            Step::Other(end(holder, vec![(one, one)], dies))
        }
        Line::Purge => Step::Other(Command::Purge { queue }),
    };
    lines.iter().map(step).collect()
}

/// The whole state, with messages named by their bytes, since their positions in the log depend on
/// how often a batch was sent.
fn normalised(world: &World, queue: QueueId) -> Vec<String> {
    let mut state = Vec::new();
    let fresh = world.store.fresh(&world.machine, queue);
    state.push(format!("fresh {:?}", fresh.iter().map(|it| it.3).collect::<Vec<_>>()));
    for key in world.machine.keys() {
        let queued = |it: &quorate_queue::QueuedMessage| (it.head.body_bytes, it.counts);
        let text = match world.machine.record(key).unwrap() {
            Record::Consumer(it) => {
                let all: Vec<_> = it.unacked.iter().map(|(n, h)| (*n, queued(h))).collect();
                format!("{:?} {} {} {} {all:?}", it.terms, it.next, it.up_to, it.cancelled)
            }
            Record::Gets(it) => {
                format!("{:?}", it.unacked.iter().map(|(n, h)| (*n, queued(h))).collect::<Vec<_>>())
            }
            Record::Requeued(it) => {
                format!("{:?}", it.messages.values().map(queued).collect::<Vec<_>>())
            }
            Record::Delayed(it) => {
                format!("{:?}", it.messages.values().map(|(_, it)| queued(it)).collect::<Vec<_>>())
            }
            Record::Queue(it) => format!("{:?} {}", it.service_queue, it.had_consumer),
            Record::Session(it) => format!("{}", it.last),
            Record::Group(_) | Record::Node(_) | Record::Letters(_) | Record::Source(_) => continue,
        };
        state.push(format!("{key:?}: {text}"));
    }
    state
}

/// Replies with messages named by their bytes.
fn note(world: &World, answers: &[Answer], said: &mut BTreeMap<u64, String>) {
    for answer in answers {
        let Answer::Answered { first, last, other, .. } = answer else { continue };
        for number in first.0..=last.0 {
            let reply = other.iter().find(|(at, _)| at.0 == number).map(|(_, reply)| reply);
            let text = match reply {
                Some(Reply::Got(Got { queue, message: id, counts, ready })) => {
                    let head = world.store.ever(*queue, id.level, id.index, id.position);
                    format!("got {} {counts:?} {ready}", head.unwrap().body_bytes)
                }
                other => format!("{other:?}"),
            };
            let earlier = said.entry(number).or_insert_with(|| text.clone());
            assert_eq!(*earlier, text, "command {number} was answered otherwise before");
        }
    }
}

fn sent_again(lines: &[Line], sends: &[(usize, usize)]) {
    let a = session(1, 1);
    let (mut once, queue) = with_queue();
    let steps = steps(lines, a, queue);
    let mut said_once = BTreeMap::new();
    for (number, step) in (1..).zip(&steps) {
        let answers = once.send(origin(a, number, 1), std::slice::from_ref(step));
        note(&once, &answers, &mut said_once);
    }
    let (mut often, _) = with_queue();
    let mut said_often = BTreeMap::new();
    let mut done = 0;
    let all = [(0, steps.len())];
    for (from, length) in sends.iter().chain(&all) {
        let from = *from % (done + 3).min(steps.len());
        let to = (from + length).min(steps.len());
        let answers = often.send(origin(a, from as u64 + 1, 1), &steps[from..to]);
        if from > done {
            let want = Sequence(done as u64 + 1);
            assert_eq!(answers, [Answer::Want { session: a, want }]);
        } else {
            done = done.max(to);
        }
        note(&often, &answers, &mut said_often);
    }
    assert_eq!(said_once, said_often);
    assert_eq!(normalised(&once, queue), normalised(&often, queue));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn ses_3_sending_often_is_sending_once(
        lines in prop::collection::vec(line(), 1..60),
        sends in prop::collection::vec((0usize..1_000, 1usize..12), 0..40),
    ) {
        sent_again(&lines, &sends);
    }
}
