//! Batches against a model of what waits, is in flight and is unsent.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::filling::{BATCH_BYTES_MAX, BATCH_COUNT_MAX, BATCH_RUNS_MAX};
use super::*;
use crate::{
    client::ChannelId,
    front::{confirm::ConfirmTo, connection_state::ConnectionState},
    testing,
};
use proptest::{collection::vec, prelude::*};
use quorate_storage::codec::batch::{decode_batch, encode_batch};
use quorate_types::{ConsumerId, DeliveryNumber, GroupId, Holder, Home, NodeId, StartNumber};

const SESSION: SessionId = SessionId { node: NodeId(1), start: StartNumber(4) };

static ZEROS: [u8; BATCH_BYTES_MAX] = [0; BATCH_BYTES_MAX];

fn queue(index: u64) -> QueueId {
    QueueId { home: Home::Group(GroupId(1)), index, position: 0 }
}

fn settle(number: u64) -> Command {
    let holder = Holder::Consumer(ConsumerId { session: SESSION, number: 1 });
    Command::Ack { holder, numbers: vec![(DeliveryNumber(number), DeliveryNumber(number))] }
}

/// Messages of an enqueue.
fn messages_of(command: &Command) -> usize {
    if let Command::Enqueue { count, .. } = command { *count as usize } else { 0 }
}

/// A batch that was cut, and its expected counts.
#[derive(Debug)]
struct Cut {
    batch: ProposedBatch,
    last: u64,
    count: usize,
    bytes: usize,
    others: usize,
    ahead: bool,
    answered: bool,
}

impl Cut {
    fn of(batch: &ProposedBatch, ahead: bool) -> Self {
        let counts = batch
            .commands
            .iter()
            .filter(|command| !matches!(command, Command::Enqueue { .. } | Command::Ack { .. }));
        let mut queues = HashMap::<_, usize>::new();
        for run in &batch.runs {
            *queues.entry(run.queue).or_default() += run.messages.len();
        }
        let messages: usize = queues.values().sum();
        Self {
            last: batch.first.0 + batch.commands.len() as u64 - 1,
            count: counts.count() + messages,
            bytes: batch.runs.iter().flat_map(|run| &run.messages).map(Bytes::len).sum(),
            others: messages - queues.values().max().unwrap_or(&0),
            ahead,
            answered: false,
            batch: batch.clone(),
        }
    }
}

struct World {
    batches: Batches,
    connection: Arc<ConnectionState>,
    cut: Vec<Cut>,
    waiting: (usize, usize),
    ahead: usize,
    unsent: u64,
    next: u64,
    answered: u64,
}

impl World {
    fn new() -> Self {
        Self {
            batches: Batches::new(SESSION),
            connection: testing::lone_connection(),
            cut: Vec::new(),
            waiting: (0, 0),
            ahead: 0,
            unsent: 1,
            next: 1,
            answered: 0,
        }
    }

    fn push_message(&mut self, to: u64, level: u8, bytes: usize) {
        let ticket = PublishTicket {
            connection: Arc::clone(&self.connection),
            channel: ChannelId { number: 1, opened: 0 },
            confirm_to: ConfirmTo::Nobody,
            mandatory: false,
            count: 1,
            bytes,
            shared: None,
        };
        let message = Bytes::from_static(ZEROS.get(..bytes).unwrap());
        let (queue, level, head) = (queue(to), Level(level), MessageHead::default());
        self.batches.push_message(Outgoing { queue, level, head, message, ticket });
        self.waiting = (self.waiting.0 + 1, self.waiting.1 + bytes);
    }

    fn push(&mut self) {
        self.batches.push(Command::Purge { queue: queue(1) }, Ticket::None);
        self.waiting.0 += 1;
    }

    fn push_ahead(&mut self) {
        self.batches.push_ahead(settle(self.next));
        self.ahead += 1;
    }

    fn cut(&mut self, ahead: bool) {
        let unanswered = |it: &&Cut| !it.answered;
        let mark = self.cut.iter().find(unanswered).map_or(self.next, |it| it.batch.first.0);
        let batch = if ahead { self.batches.cut_ahead() } else { self.batches.cut() };
        let Some(batch) = batch.cloned() else {
            assert_eq!(self.ahead, 0, "what overtakes waits for no other batch");
            return;
        };
        let cut = Cut::of(&batch, ahead);
        assert_eq!((batch.sender, batch.first.0), (Sender::Session(SESSION), self.next), "SES 2");
        assert!(batch.mark.0 <= mark, "SES 3: all below the mark is answered");
        let settles = batch.commands.iter().take_while(|it| matches!(it, Command::Ack { .. }));
        assert_eq!(settles.count(), std::mem::take(&mut self.ahead), "they come first");
        assert!(!ahead || cut.count == 0);
        let last = batch.runs.iter().filter_map(|run| run.messages.last()).map(Bytes::len).max();
        let all_max = BATCH_RUNS_MAX * BATCH_BYTES_MAX;
        assert!(cut.count <= BATCH_COUNT_MAX && cut.bytes < all_max + last.unwrap_or(1));
        for run in &batch.runs {
            let last = run.messages.last().map_or(1, Bytes::len);
            let bytes: usize = run.messages.iter().map(Bytes::len).sum();
            assert!(bytes < BATCH_BYTES_MAX + last, "of one queue and level");
        }
        let encoded: Vec<u8> = encode_batch(&batch).concat();
        assert_eq!(decode_batch(&encoded.into()), Ok(ProposedBatch::clone(&batch)));
        self.waiting = (self.waiting.0 - cut.count, self.waiting.1 - cut.bytes);
        self.next = cut.last + 1;
        self.cut.push(cut);
    }

    fn send(&mut self) {
        if let Some(cut) = self.to_send() {
            self.unsent = cut.last + 1;
            self.batches.sent();
        }
    }

    fn to_send(&self) -> Option<&Cut> {
        self.cut.iter().find(|it| !it.answered && it.last >= self.unsent)
    }

    /// The home answers the batches at these places; their earlier answers are repeated.
    fn answer(&mut self, from: usize, count: usize) {
        if self.cut.is_empty() {
            return;
        }
        let from = from % self.cut.len();
        let through = (from + count).min(self.cut.len() - 1);
        let (first, last) = (self.cut[from].batch.first, Sequence(self.cut[through].last));
        let reply = |number: u64| Reply::Ended { ready: number };
        let other = (first.0..=last.0).filter(|number| number % 3 == 0);
        let other = other.map(|number| (Sequence(number), reply(number))).collect();
        let mut answered = Vec::new();
        self.batches.answered(first, last, other, &mut answered);
        let mut answered = answered.into_iter();
        for cut in self.cut.iter_mut().skip(from).take(through + 1 - from) {
            if std::mem::replace(&mut cut.answered, true) {
                continue;
            }
            for (number, command) in (cut.batch.first.0..).zip(&cut.batch.commands) {
                let one = answered.next().unwrap();
                let expected = if number % 3 == 0 { reply(number) } else { Reply::Taken };
                assert_eq!((one.sequence.0, &one.reply), (number, &expected), "SES 4");
                let is_publish = matches!(one.ticket, Ticket::Publishes(_));
                assert_eq!(is_publish, matches!(command, Command::Enqueue { .. }));
                let refused = (expected != Reply::Taken).then_some(command);
                let sent = refused.map_or(0, messages_of);
                assert_eq!(one.messages.len(), sent, "what was not taken comes back");
                self.answered += 1;
            }
        }
        assert!(answered.next().is_none(), "each number is answered once");
    }

    /// All figures of the batches.
    fn check(&self) {
        let under_way = || self.cut.iter().filter(|it| !it.answered);
        let counted = |what: fn(&Cut) -> usize| under_way().map(what).sum::<usize>();
        let (count, bytes) = (counted(|it| it.count), counted(|it| it.bytes));
        assert_eq!(self.batches.bytes(), self.waiting.1 + bytes);
        let memory = self.waiting.1 + bytes + (self.waiting.0 + count) * MESSAGE_COST_BYTES;
        assert_eq!(self.batches.memory_bytes(), memory);
        let load = self.batches.under_way_load();
        assert_eq!((load.count, load.bytes), (count, bytes));
        assert_eq!(load.of_largest_queue().count, count - counted(|it| it.others));
        let kept: Vec<_> = self.cut.iter().skip_while(|it| it.answered).collect();
        let ahead = kept.iter().filter(|it| it.ahead).count();
        assert_eq!(self.batches.under_way(), (kept.len(), ahead));
        let to_send = self.batches.to_send().map(|batch| ProposedBatch::clone(batch));
        assert_eq!(to_send.as_ref(), self.to_send().map(|cut| &cut.batch), "SES 2, 3");
        let oldest = under_way().next().filter(|it| it.batch.first.0 < self.unsent);
        let oldest_sent = self.batches.oldest_sent().map(|batch| batch.first);
        assert_eq!(oldest_sent, oldest.map(|cut| cut.batch.first));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Message(u64, u8, usize),
    /// Many small messages to one queue.
    Many(usize),
    Push,
    PushAhead,
    Cut(bool),
    Send,
    SendAgain(u64),
    Answer(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![10 => 0..2_000_usize, 1 => 100_000..=BATCH_BYTES_MAX];
    prop_oneof![
        12 => (1..4_u64, 0..2_u8, bytes).prop_map(|(to, level, bytes)| Step::Message(to, level, bytes)),
        1 => (1_000..6_000_usize).prop_map(Step::Many),
        4 => Just(Step::Push),
        2 => Just(Step::PushAhead),
        4 => prop::bool::weighted(0.2).prop_map(Step::Cut),
        4 => Just(Step::Send),
        1 => (0..60_u64).prop_map(Step::SendAgain),
        3 => (any::<usize>(), 0..3_usize).prop_map(|(from, count)| Step::Answer(from, count)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Batches are numbered without gaps, kept unchanged until they are answered, sent in order,
    /// and answered by number. What waits and is in flight is counted, and nothing remains of it.
    #[test]
    fn ses_2_to_4_batches_are_numbered_kept_and_answered(steps in vec(step(), 1..150)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Message(to, level, bytes) => world.push_message(to, level, bytes),
                Step::Many(count) => (0..count).for_each(|_| world.push_message(1, 0, 1)),
                Step::Push => world.push(),
                Step::PushAhead => world.push_ahead(),
                Step::Cut(ahead) => world.cut(ahead),
                Step::Send => world.send(),
                Step::SendAgain(from) => {
                    world.unsent = world.unsent.min(from);
                    world.batches.send_again(Sequence(from));
                }
                Step::Answer(from, count) => world.answer(from, count),
            }
            world.check();
        }
        while world.batches.waiting() > 0 || world.ahead > 0 {
            world.cut(false);
        }
        world.answer(0, usize::MAX / 2);
        prop_assert_eq!(world.answered, world.next - 1);
        prop_assert_eq!((world.batches.memory_bytes(), world.waiting), (0, (0, 0)));
    }
}
