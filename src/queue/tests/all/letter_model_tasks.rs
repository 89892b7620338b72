//! Tasks that take messages out of the source, and the last resort, in the model of homes that send
//! letters to each other.

use crate::{
    letter_model::{Cluster, via},
    world::{Step, heads, session},
};
use quorate_queue::{Command, Record, RecordKey, Take, TakeTo, TaskProgress, TaskStep};
use quorate_types::{CatalogIndex, Level, MessageId, TaskId};

impl Cluster {
    /// The homes go on after the last resort (MEM 14).
    pub fn last_resort(&mut self) {
        self.proposals.clear();
        self.sent.clear();
        self.answers.clear();
        for home in self.worlds.keys().copied().collect::<Vec<_>>() {
            self.worlds.get_mut(&home).unwrap().leader(Command::LastResort);
            self.restart(home);
        }
    }

    /// Publishes messages, and lets a task take them to some targets: those of the bits.
    pub fn redrive(&mut self, count: u32, bits: u8) {
        let sizes: Vec<u32> = (1..=count).map(|more| self.published + more).collect();
        self.published += count;
        let (queue, task) = (self.source, TaskId(1));
        let messages = heads(&sizes);
        let goes = |bit: &usize| bits & (1 << bit) != 0;
        let targets: Vec<_> =
            (0..self.targets.len()).filter(goes).map(|bit| self.targets[bit]).collect();
        let world = self.source();
        world.run(session(9, 1), &[Step::Enqueue { queue, level: Level(0), messages }]);
        let id = |position| MessageId { level: Level(0), index: world.index, position };
        let to = TakeTo::Queues { via: via(), targets: targets.clone() };
        let takes = vec![Take { to, messages: (0..count).map(id).collect() }];
        let from = world.machine.task(queue, task).map_or(Some(TaskProgress::START), |it| it.next);
        let step = TaskStep {
            queue,
            task,
            until: world.index.next(),
            at: CatalogIndex(1),
            from: from.unwrap(),
            next: Some(MessageId { index: world.index.next(), ..id(0) }),
            skipped: 0,
            no_target: 0,
            matched: 0,
            takes,
        };
        // Twice, like the proposal of an old leader.
        for _ in 0..2 {
            world.leader(Command::TaskStep(Box::new(step.clone())));
        }
        let routed = sizes.into_iter().filter(|_| !targets.is_empty());
        let routed: Vec<_> = routed.map(|size| (size, targets.clone())).collect();
        self.routed.extend(routed);
    }

    /// Messages that the source has ready.
    pub fn ready_sizes(&self) -> Vec<u32> {
        let world = &self.worlds[&1];
        let mut ready: Vec<u32> = world
            .store
            .fresh(&world.machine, self.source)
            .into_iter()
            .map(|(_, _, _, bytes)| bytes)
            .collect();
        let key = RecordKey::Requeued(self.source, Level(0));
        if let Some(Record::Requeued(record)) = world.machine.record(key) {
            ready.extend(record.messages.values().map(|it| it.head.body_bytes));
        }
        ready
    }
}
