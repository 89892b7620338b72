//! The storage crate against crashes: drop the process between any two writes, open again, compare
//! with a model (DESIGN §10.2). Each case is a random history of writes, interrupted after each
//! number of writes to RocksDB in turn, or at each write and sync of a simulated disk, which then
//! loses unsynced data.

use super::{
    GROUP, Place,
    donor::Donor,
    entry,
    model::{LEVELS, Model, QUEUES},
    options, queue,
};
use crate::{
    Database, Done, EntryId, GroupStore, Options, Payload, ReceivedSnapshot, ReplicaStore,
    SnapshotReader, StorageError,
};
use bytes::Bytes;
use crossbeam_channel::bounded;
use parking_lot::Mutex;
use proptest::prelude::*;
use quorate_queue::{Change, NodeRecord, Record, RecordKey};
use quorate_types::{Level, LogIndex, NodeId, StartNumber};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// One step of a history. Numbers are taken modulo the number of existing objects.
#[derive(Clone, Debug)]
enum Step {
    Append { runs: Vec<(u64, u8, u32)>, entries: u8 },
    Vote(u8),
    Committed(u8),
    Truncate(u8),
    Apply(Vec<Settling>),
    Checkpoint,
    Purge(u8),
    Install { above: u8 },
}

/// The effect of an apply on runs.
#[derive(Clone, Debug)]
enum Settling {
    Cut { place: (u64, u8), back: u64, first: u32, last: u32 },
    Settle { place: (u64, u8), up_to: u8 },
    End(u64),
}

fn place() -> impl Strategy<Value = (u64, u8)> {
    (1..=QUEUES, 0..LEVELS)
}

fn settling() -> impl Strategy<Value = Settling> {
    prop_oneof![
        3 => (place(), 0..3u64, 0..3u32, 0..3u32).prop_map(|(place, back, first, more)| {
            Settling::Cut { place, back, first, last: first + more }
        }),
        4 => (place(), any::<u8>()).prop_map(|(place, up_to)| Settling::Settle { place, up_to }),
        1 => (1..=QUEUES).prop_map(Settling::End),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let runs = prop::collection::btree_map(place(), 1..5u32, 0..4);
    let runs = runs.prop_map(|runs| {
        runs.into_iter().map(|((queue, level), count)| (queue, level, count)).collect()
    });
    prop_oneof![
        8 => (runs, 1..3u8).prop_map(|(runs, entries)| Step::Append { runs, entries }),
        1 => any::<u8>().prop_map(Step::Vote),
        1 => any::<u8>().prop_map(Step::Committed),
        2 => any::<u8>().prop_map(Step::Truncate),
        6 => prop::collection::vec(settling(), 0..3).prop_map(Step::Apply),
        4 => Just(Step::Checkpoint),
        2 => any::<u8>().prop_map(Step::Purge),
        1 => (0..4u8).prop_map(|above| Step::Install { above }),
    ]
}

/// A replica that carries out a history, and the expected results.
struct Run {
    database: Arc<Database>,
    store: GroupStore,
    replica: ReplicaStore,
    /// The model with everything that was appended and applied.
    model: Model,
    /// The model with everything that was passed to the writer: cuts and settlements only with
    /// their checkpoint.
    disk: Model,
    applied: u64,
    term: u64,
    counter: u64,
    state: BTreeMap<RecordKey, u64>,
    now: Instant,
    /// The disk after each write passed on, and its reported result.
    history: Vec<(Model, Arc<Mutex<Told>>)>,
    /// True: it waits for each write before the next.
    waits: bool,
    /// Otherwise, if the database is stepped: a bit for each write, whether a step follows it.
    pace: u64,
    crashed: bool,
}

type Told = Option<Result<(), StorageError>>;

/// The records that the tests checkpoint: small, with the time of their writing.
fn record(state: &BTreeMap<RecordKey, u64>) -> impl Fn(RecordKey) -> Option<Record> + '_ {
    |key| {
        let fenced = StartNumber(*state.get(&key)?);
        Some(Record::Node(NodeRecord { fenced, suspected: false }))
    }
}

impl Run {
    fn new(place: &Place, case: &Case, crash: Option<u64>) -> Self {
        let mut options = case.options();
        if let Place::Directory(_) = place {
            options.crash_after = crash;
        }
        let database = place.open(options);
        if let (Place::Simulated(disk), Some(crash)) = (place, crash) {
            disk.crash_after(crash);
        }
        let store = database.group(GROUP).unwrap();
        Self {
            database,
            replica: ReplicaStore::new(store.clone()),
            store,
            model: Model::default(),
            disk: Model::default(),
            applied: 0,
            term: 1,
            counter: 0,
            state: BTreeMap::new(),
            now: Instant::now(),
            history: Vec::new(),
            waits: case.waits,
            pace: case.pace,
            crashed: false,
        }
    }

    fn write(&mut self, write: impl FnOnce(&GroupStore, Done)) {
        self.write_and_wait(self.waits, write);
    }

    fn write_and_wait(&mut self, wait: bool, write: impl FnOnce(&GroupStore, Done)) {
        let (told, (signal, ended)) = (Arc::new(Mutex::new(None)), bounded(1));
        let slot = told.clone();
        let done: Done = Box::new(move |result| {
            *slot.lock() = Some(result);
            // Without a wait the receiver is gone.
            let _ = signal.send(());
        });
        write(&self.store, done);
        self.pace = self.pace.rotate_left(1);
        if wait {
            self.store.drive();
        } else if self.pace & 1 == 1 {
            self.database.step();
        }
        // In a crash no result is reported, and the sender is dropped.
        let unheard = wait && ended.recv().is_err();
        self.crashed |= unheard || matches!(*told.lock(), Some(Err(_)));
        self.crashed |= self.store.engine().is_dead();
        self.history.push((self.disk.clone(), told));
    }

    fn both(&mut self, change: impl Fn(&mut Model)) {
        change(&mut self.model);
        change(&mut self.disk);
    }

    /// Carries out a step.
    fn step(&mut self, step: &Step, donor: &Donor) {
        match step {
            Step::Append { runs, entries } => self.append(runs, *entries),
            Step::Vote(vote) => {
                let vote = Bytes::from(vec![*vote]);
                self.both(|model| model.vote = Some(vote.clone()));
                self.write(|store, done| store.save_vote(vote, done));
            }
            Step::Committed(committed) => {
                self.store.save_committed(Bytes::from(vec![*committed]));
            }
            Step::Truncate(keep) => self.truncate(*keep),
            Step::Apply(settlings) => self.apply(settlings),
            Step::Checkpoint => self.checkpoint(),
            Step::Purge(up_to) => self.purge(*up_to),
            Step::Install { above } => self.install(*above, donor),
        }
    }

    fn append(&mut self, runs: &[(u64, u8, u32)], entries: u8) {
        let mut appended = Vec::new();
        for at in 0..u64::from(entries) {
            let runs: Vec<_> = runs.iter().map(|&(q, l, count)| (q, l, count, 40)).collect();
            appended.push(entry(self.term, self.model.last_index() + 1 + at, &runs));
        }
        for entry in &appended {
            self.both(|model| model.append(entry.clone()));
        }
        self.write(|store, done| store.append(appended, done));
    }

    /// Never below the applied index, since Raft never truncates committed entries.
    fn truncate(&mut self, keep: u8) {
        let tail = self.model.last_index() - self.applied;
        let after = self.applied + u64::from(keep) % (tail + 1);
        self.term += 1;
        self.both(|model| model.truncate(after));
        self.write(|store, done| store.truncate_after(Some(LogIndex(after)), done));
    }

    fn apply(&mut self, settlings: &[Settling]) {
        if self.applied == self.model.last_index() {
            return;
        }
        self.applied += 1;
        self.counter += 1;
        let key = RecordKey::Node(NodeId((self.counter % 4) as u16));
        self.state.insert(key, self.counter);
        let mut changes = vec![Change::Record(key)];
        for settling in settlings {
            self.settle(settling, &mut changes);
        }
        self.replica.take(LogIndex(self.applied), &changes).unwrap();
    }

    fn settle(&mut self, settling: &Settling, changes: &mut Vec<Change>) {
        match *settling {
            Settling::Cut { place: (number, level), back, first, last } => {
                let index = self.applied.saturating_sub(back);
                let run = (number, level, index);
                if self.model.settled.contains(&run) {
                    return;
                }
                let Some(messages) = self.model.runs.get_mut(&run) else { return };
                // A machine never cuts a run again that has no messages left: once the checkpoint
                // of its last cut is written, such a run does not exist (STO 4).
                if messages.iter().all(Option::is_none) {
                    return;
                }
                for position in first..=last {
                    if let Some(message) = messages.get_mut(position as usize) {
                        *message = None;
                    }
                }
                changes.push(Change::Cut {
                    queue: queue(number),
                    level: Level(level),
                    index: LogIndex(index),
                    first,
                    last,
                });
            }
            Settling::Settle { place: (number, level), up_to } => {
                let last = u64::from(up_to) % (self.applied + 1);
                self.model.settle((number, level), last);
                changes.push(Change::Removed {
                    queue: queue(number),
                    level: Level(level),
                    first: LogIndex(0),
                    last: LogIndex(last),
                });
            }
            Settling::End(number) => {
                for level in 0..LEVELS {
                    self.model.settle((number, level), self.applied);
                }
                changes.push(Change::QueueRemoved { queue: queue(number) });
            }
        }
    }

    fn applied_id(&self) -> Option<EntryId> {
        let stored = self.model.log.get(&self.applied).map(|entry| entry.id);
        stored.or(self.model.purged.filter(|purged| purged.index.0 == self.applied))
    }

    fn checkpoint(&mut self) {
        let Some(applied) = self.applied_id() else { return };
        let meta = Bytes::from(format!("meta {}", self.applied));
        self.now += Duration::from_millis(700);
        let (state, now) = (std::mem::take(&mut self.state), self.now);
        let checkpoint = self.replica.checkpoint(applied, meta.clone(), record(&state), now);
        self.model.checkpoint = Some((applied, meta));
        for (key, value) in &checkpoint.records {
            self.model.state.insert(key.clone(), value.clone().unwrap());
        }
        self.disk = self.model.clone();
        self.state = state;
        self.write(|store, done| store.checkpoint(checkpoint, done));
    }

    fn purge(&mut self, up_to: u8) {
        let Some((checkpointed, _)) = self.model.checkpoint else { return };
        let wanted = 1 + u64::from(up_to) % (self.model.last_index() + 1);
        let entry = self.model.log.get(&wanted).map(|entry| entry.id);
        let Some(through) = entry else { return };
        // Clamped to the checkpoint (STO 3).
        let purged = if through.index > checkpointed.index { checkpointed } else { through };
        if self.model.purged.is_none_or(|before| before.index < purged.index) {
            self.both(|model| model.purge(purged));
        }
        self.write(|store, done| store.purge_through(through, done));
    }

    /// Installs the donor's state at an index above the applied one.
    fn install(&mut self, above: u8, donor: &Donor) {
        let Some((index, mut snapshot)) = donor.above(self.applied + u64::from(above)) else {
            return;
        };
        let (applied, meta) = (snapshot.applied(), snapshot.meta().clone());
        // A tail that reaches the index conflicts here (it has other terms): openraft truncates it.
        if self.model.last_index() >= index {
            self.truncate(0);
        }
        let received = match receive(&self.store, applied, &meta, &mut snapshot) {
            Ok(received) => received,
            Err(error) => {
                assert!(self.store.engine().is_dead(), "{error}");
                self.crashed = true;
                return;
            }
        };
        self.model.log.clear();
        self.model.runs = donor.runs.clone();
        self.model.runs.retain(|(_, _, run), _| *run <= index);
        self.model.settled.clear();
        self.model.checkpoint = Some((applied, meta));
        self.model.purged = Some(applied);
        self.model.state = donor.state(index);
        self.disk = self.model.clone();
        self.applied = index;
        self.replica.clear();
        // No reads or applies until it is done.
        self.write_and_wait(true, |store, done| store.install(received, done));
    }
}

fn receive(
    store: &GroupStore,
    applied: EntryId,
    meta: &Bytes,
    snapshot: &mut SnapshotReader,
) -> Result<ReceivedSnapshot, StorageError> {
    let mut download = store.download(applied, 0, meta.clone())?;
    while let Some(chunk) = snapshot.next_chunk().unwrap() {
        download.chunk(&chunk)?;
    }
    download.complete()
}

fn small_caches() -> Options {
    let mut options = options();
    options.run_cache_bytes = 2_000;
    options.tail_cache_bytes = 1_000;
    options
}

/// A history, and how it is carried out.
struct Case {
    steps: Vec<Step>,
    waits: bool,
    small: bool,
    /// Seed of a simulated disk, if one is used.
    seed: Option<u64>,
    pace: u64,
}

impl Case {
    fn options(&self) -> Options {
        if self.small { small_caches() } else { options() }
    }

    /// Interrupts the history at every position, up to its end.
    fn check_all(&self) {
        let donor = Donor::new(self.seed);
        check(self, None, &donor);
        let mut crash = 0;
        while check(self, Some(crash), &donor) {
            crash += 1;
        }
    }
}

/// Loses the power, and again while the database is opened.
fn lose_power(place: &Place, after: u64) {
    let Place::Simulated(disk) = place else { return };
    disk.call_crash_off();
    disk.crash();
    disk.crash_after(after % 8);
    let opened = Database::open_simulated(disk, &options());
    assert!(opened.is_ok() || !disk.is_open(), "{:?}", opened.err());
    drop(opened);
    disk.call_crash_off();
    disk.crash();
}

/// Carries out the history; compares reads during it, and the state after the next start. True if
/// it crashed.
fn check(case: &Case, crash: Option<u64>, donor: &Donor) -> bool {
    let steps = &case.steps;
    let place = Place::new(case.seed);
    let mut run = Run::new(&place, case, crash);
    for step in steps {
        run.step(step, donor);
        if run.crashed {
            break;
        }
        if crash.is_none() {
            let wrong = run.model.difference(&run.store);
            let wrong = wrong.or_else(|| run.model.heads_difference(&run.replica));
            assert_eq!(wrong, None, "after {step:?} of {steps:?}");
        }
    }
    let Run { database, store, replica, history, .. } = run;
    database.close();
    drop((store, replica, database));
    lose_power(&place, case.pace.wrapping_add(crash.unwrap_or_default()));
    let was_told = |told: &Arc<Mutex<Told>>| matches!(*told.lock(), Some(Ok(())));
    let told = history.iter().take_while(|(_, told)| was_told(told)).count();
    assert!(crash.is_some() || told == history.len(), "not all was told: {steps:?}");
    let database = place.open(small_caches());
    let store = database.group(GROUP).unwrap();
    // Reported writes must be there; of the others, a prefix may be.
    let mut wrong = Vec::new();
    for count in told..=history.len() {
        let model = match count.checked_sub(1) {
            None => Model::default(),
            Some(last) => history[last].0.clone(),
        };
        let difference = model
            .difference(&store)
            .or_else(|| model.start_difference(&store))
            .or_else(|| model.heads_difference(&ReplicaStore::new(store.clone())));
        match difference {
            None => return told < history.len(),
            Some(difference) => wrong.push(difference),
        }
    }
    panic!("after a crash at {crash:?}, {told} of {} told, {steps:?}: {wrong:#?}", history.len());
}

proptest! {
    // Each case opens some fifty databases.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_crash_between_any_two_writes_leaves_what_was_told(
        steps in prop::collection::vec(step(), 1..30),
        waits in any::<bool>(),
        small in any::<bool>(),
    ) {
        Case { steps, waits, small, seed: None, pace: 0 }.check_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// STO 1: reported writes are synced. A simulated disk loses unsynced ones.
    #[test]
    fn a_loss_of_power_at_any_write_or_sync_leaves_what_was_told(
        steps in prop::collection::vec(step(), 1..30),
        waits in any::<bool>(),
        small in any::<bool>(),
        seed in any::<u64>(),
        pace in any::<u64>(),
    ) {
        Case { steps, waits, small, seed: Some(seed), pace }.check_all();
    }
}

#[test]
fn the_payloads_that_carry_no_commands_survive_too() {
    let dir = super::scratch();
    let mut blank = entry(1, 1, &[]);
    blank.payload = Payload::Blank;
    let mut membership = entry(1, 2, &[]);
    membership.payload = Payload::Membership(Bytes::from_static(b"1,2,3"));
    {
        let database = super::open(dir.path(), options());
        super::append(&database.group(GROUP).unwrap(), vec![blank.clone(), membership.clone()]);
    }
    let database = super::open(dir.path(), options());
    let store = database.group(GROUP).unwrap();
    let found = store.read(LogIndex(1), LogIndex(3), usize::MAX).unwrap();
    assert_eq!(found, [blank, membership]);
}
