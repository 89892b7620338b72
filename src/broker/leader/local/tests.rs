//! Connection-bound queues, from the commands of a front end to the bodies that they return,
//! against a model of two queues.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use quorate_queue::{MessageHead, QueueConfig, RequeueCause};
use quorate_storage::codec::batch::{ProposedRun, Sender};
use quorate_types::{
    DeliveryNumber, Holder, Overflow, QueueType, Sequence, SessionId, ShortString, WallTime,
};
use std::collections::BTreeSet;

/// Most ready messages: one queue refuses further ones, the other drops its head.
const LENGTH_MAX: u64 = 4;
const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(1) };

/// The expected content of a queue.
#[derive(Debug, Default)]
struct Model {
    /// Numbers of the ready messages, in order.
    ready: BTreeSet<u64>,
    /// Messages that gets hold.
    held: BTreeMap<u64, Sequence>,
}

struct World {
    queues: LocalQueues,
    ids: Vec<QueueId>,
    models: Vec<Model>,
    /// Every message, with its place.
    messages: Vec<(Bytes, Option<MessageRef>)>,
    next: u64,
    _folder: tempfile::TempDir,
}

impl World {
    /// Two queues, which keep few of their bodies in memory.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spill = SpillSettings { exclusive_memory_bytes: 3_000, data_dir: folder.path().into() };
        let queues = LocalQueues::new(spill, WallClock(|| WallTime(1)));
        queues.begin(SESSION.node, SESSION.start);
        let (models, ids) = ([Model::default(), Model::default()].into(), Vec::new());
        let mut world =
            Self { queues, ids, models, messages: Vec::new(), next: 1, _folder: folder };
        for (name, overflow) in [("one", Overflow::RejectPublish), ("other", Overflow::DropHead)] {
            let name = ShortString::from_static(name);
            let name = ResourceName { vhost: ShortString::from_static("/"), name };
            let plain = QueueConfig::plain(QueueType::Classic);
            let config = QueueConfig { length_max: Some(LENGTH_MAX), overflow, ..plain };
            let bound = Some(world.next);
            let reply = world.ask(Command::CreateQueue { name, config, bound }, Vec::new()).1;
            let Reply::Created(id) = reply else { panic!("{reply:?}") };
            world.ids.push(id);
        }
        world
    }

    /// Has a command applied.
    fn ask(&mut self, command: Command, runs: Vec<ProposedRun>) -> (Sequence, Reply) {
        let first = Sequence(self.next);
        self.next += 1;
        let sender = Sender::Session(SESSION);
        self.queues.push(ProposedBatch {
            sender,
            first,
            mark: first,
            runs,
            commands: vec![command],
        });
        let mut reply = None;
        self.queues.run_one(|output| {
            for answer in &output.answers {
                let Answer::Answered { other, .. } = answer else { panic!("{answer:?}") };
                reply = other.first().map(|(_, reply)| reply.clone());
            }
        });
        assert!(!self.queues.has_work());
        (first, reply.unwrap_or(Reply::Taken))
    }

    fn enqueue(&mut self, queue: usize, sizes: &[usize]) {
        let first = self.messages.len() as u64;
        let bodies = (first..).zip(sizes).map(|(number, size)| {
            let body: Vec<u8> = number.to_be_bytes().into_iter().cycle().take(8 + size).collect();
            Bytes::from(body)
        });
        let bodies: Vec<_> = bodies.collect();
        let heads = vec![MessageHead::default(); bodies.len()];
        let (id, count) = (*self.ids.get(queue).unwrap(), u32::try_from(bodies.len()).unwrap());
        let run = ProposedRun { queue: id, level: Level(0), heads, messages: bodies.clone() };
        let reply = self.ask(Command::Enqueue { run: 0, first: 0, count }, vec![run]).1;
        let refused = if let Reply::Refused(ranges) = reply {
            ranges
        } else {
            assert_eq!(reply, Reply::Taken);
            Vec::new()
        };
        let model = self.models.get_mut(queue).unwrap();
        let is_refused = |place| refused.iter().any(|&(from, to)| (from..=to).contains(&place));
        let taken = (first..).zip(0..count).filter(|(_, place)| !is_refused(*place));
        model.ready.extend(taken.map(|(number, _)| number));
        assert!(refused.is_empty() || model.ready.len() as u64 >= LENGTH_MAX);
        self.drop_head(queue);
        self.messages.extend(bodies.into_iter().map(|body| (body, None)));
    }

    fn get(&mut self, queue: usize) {
        let get = Command::Get { queue: *self.ids.get(queue).unwrap(), timeout_default_ms: None };
        let (sequence, reply) = self.ask(get, Vec::new());
        let model = self.models.get_mut(queue).unwrap();
        let Some(number) = model.ready.pop_first() else {
            assert_eq!(reply, Reply::Empty);
            return;
        };
        let Reply::Got(got) = reply else { panic!("{reply:?}") };
        model.held.insert(number, sequence);
        let place = MessageRef { queue: got.queue, message: got.message };
        let (_, known) = self.messages.get_mut(usize::try_from(number).unwrap()).unwrap();
        assert!(known.is_none_or(|known| known == place), "a message keeps its place");
        *known = Some(place);
    }

    fn drop_head(&mut self, queue: usize) {
        let model = self.models.get_mut(queue).unwrap();
        while queue == 1 && model.ready.len() as u64 > LENGTH_MAX {
            model.ready.pop_first();
        }
    }

    /// A message that a get holds is settled, or returns to its place.
    fn settle(&mut self, queue: usize, at: usize, how: How) {
        let model = self.models.get_mut(queue).unwrap();
        let count = model.held.len().max(1);
        let Some((&number, &sequence)) = model.held.iter().nth(at % count) else { return };
        model.held.remove(&number);
        if matches!(how, How::Requeue | How::Release) {
            model.ready.insert(number);
            self.drop_head(queue);
        }
        let holder = Holder::Get(SESSION, sequence);
        let numbers = vec![(DeliveryNumber(1), DeliveryNumber(1))];
        let command = match how {
            How::Ack => Command::Ack { holder, numbers },
            How::Discard => Command::Discard { holder, numbers },
            How::Requeue => Command::Requeue { holder, numbers, cause: RequeueCause::Nack },
            How::Release => Command::Release { holder, numbers },
        };
        assert_eq!(self.ask(command, Vec::new()).1, Reply::Taken);
    }

    fn purge(&mut self, queue: usize) {
        let reply = self.ask(Command::Purge { queue: *self.ids.get(queue).unwrap() }, Vec::new()).1;
        let ready = std::mem::take(&mut self.models.get_mut(queue).unwrap().ready);
        assert_eq!(reply, Reply::Purged { messages: ready.len() as u64 });
    }

    /// Bodies of unsettled messages can be read; an answer is bounded in bytes.
    fn check(&self, bytes_max: usize) {
        let queues = self.models.iter();
        let alive: BTreeSet<u64> =
            queues.flat_map(|it| it.ready.iter().chain(it.held.keys()).copied()).collect();
        let named = (0..).zip(&self.messages);
        let named: Vec<_> =
            named.filter_map(|(number, (body, it))| Some((number, body, (*it)?))).collect();
        let wanted: Vec<_> = named.iter().map(|(.., place)| *place).collect();
        let all = self.queues.messages(&wanted, usize::MAX);
        assert_eq!(all.len(), wanted.len());
        for ((number, body, _), found) in named.iter().zip(&all) {
            // A run is removed when the last of its messages is settled.
            let may_be_gone = *found == StoredMessage::Absent && !alive.contains(number);
            assert!(may_be_gone || *found == StoredMessage::Here(Bytes::clone(body)), "{number}");
        }
        let some = self.queues.messages(&wanted, bytes_max);
        assert!(all.starts_with(&some) && some.is_empty() == wanted.is_empty());
        let taken: usize = some.iter().map(bytes).sum();
        assert!(taken <= bytes_max || some.iter().skip(1).all(|it| bytes(it) == 0), "{taken}");
        let next = all.get(some.len()).map(bytes);
        assert!(next.is_none_or(|next| taken + next > bytes_max), "as many as there is room for");
    }

    /// Nothing remains of settled messages.
    fn finish(mut self) {
        for queue in 0..self.ids.len() {
            self.purge(queue);
            while !self.models.get(queue).unwrap().held.is_empty() {
                self.settle(queue, 0, How::Ack);
            }
        }
        self.check(0);
        let state = self.queues.state.lock();
        let store = &state.as_ref().unwrap().store;
        assert!(store.runs.is_empty(), "{:?}", store.runs);
        assert!(store.bodies.is_empty(), "{:?}", store.bodies);
    }
}

fn bytes(found: &StoredMessage) -> usize {
    match found {
        StoredMessage::Here(body) => body.len(),
        StoredMessage::Absent | StoredMessage::Unknown => 0,
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Ack,
    Discard,
    Requeue,
    Release,
}

#[derive(Clone, Debug)]
enum Step {
    Enqueue(usize, Vec<usize>),
    Get(usize),
    Settle(usize, usize, How),
    Purge(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop::sample::select(vec![How::Ack, How::Discard, How::Requeue, How::Release]);
    prop_oneof![
        3 => (0..2_usize, vec(0..900_usize, 1..4)).prop_map(|(to, sizes)| Step::Enqueue(to, sizes)),
        4 => (0..2_usize).prop_map(Step::Get),
        4 => (0..2_usize, any::<usize>(), how).prop_map(|(of, at, how)| Step::Settle(of, at, how)),
        1 => prop::bool::weighted(0.3).prop_map(|it| if it { Step::Purge(0) } else { Step::Get(0) }),
    ]
}

proptest! {
    /// NAM 8: a connection-bound queue delivers its messages in order with their bodies, which are
    /// kept in memory or in files until they are settled. In the end nothing of them remains.
    #[test]
    fn nam_8_bodies_are_kept_as_long_as_their_messages(
        steps in vec(step(), 1..60),
        bytes_max in 0..3_000_usize,
    ) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Enqueue(queue, sizes) => world.enqueue(queue, &sizes),
                Step::Get(queue) => world.get(queue),
                Step::Settle(queue, at, how) => world.settle(queue, at, how),
                Step::Purge(queue) => world.purge(queue),
            }
            world.check(bytes_max);
        }
        world.finish();
    }
}

/// NAM 8: a new start of the node ends its connection-bound queues, and commands that were sent to
/// them before are not applied.
#[test]
fn nam_8_a_new_run_begins_without_queues() {
    let mut world = World::new();
    world.enqueue(0, &[10]);
    let inspect = |queue| Command::Inspect { queue, renew: false };
    let old = *world.ids.first().unwrap();
    world.queues.command(inspect(old));
    world.queues.begin(SESSION.node, StartNumber(2));
    assert!(!world.queues.has_work());
    assert_eq!(world.queues.read(|machine| machine.queues().count()), Some(0));
}
