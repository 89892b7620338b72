//! Blocks of letters in little memory. A queue may have a million letters, of which each is read
//! only a few times: when it is routed, sent and answered. In between letters are packed, about
//! twelve bytes each, and an entry unpacks only the blocks that it uses.
//!
//! A million waiting letters take 16 to 31 MiB of a node (`queue/tests/letters_memory`). Stored one
//! by one they took 150 to 900 bytes each. An entry unpacks blocks of 32 letters. `number_set` and
//! `transfer_map` pack the other indexes of letters.

use crate::{
    death_reason::DeathReason,
    letter::{Letter, Routing, Stage, Taken, Transfer, Via},
};
use quorate_types::{
    CatalogIndex, Counts, LetterNumber, Level, LogIndex, MessageId, QueueId, Sequence, TaskId,
    Timestamp, WallTime,
};
use std::collections::BTreeMap;

/// Letters whose numbers differ only in this many lowest bits make one block.
pub(crate) const BLOCK_BITS: u32 = 5;

/// The block of a letter.
pub(crate) fn block_of(number: LetterNumber) -> u64 {
    number.0 >> BLOCK_BITS
}

/// Letters of one block, by number.
pub(crate) type Block = BTreeMap<LetterNumber, Letter>;

/// A packed block.
#[derive(Debug)]
pub(crate) struct PackedBlock {
    /// The numbers of all fields, each as the difference to the previous letter.
    bytes: Box<[u8]>,
    /// Dead-letter settings that routings share, referred to by index.
    vias: Box<[Via]>,
    /// Targets, referred to by index.
    targets: Box<[QueueId]>,
}

impl PackedBlock {
    /// Packs the letters of a block into bytes.
    pub(crate) fn pack(block: &Block) -> Self {
        let mut writer = Writer::default();
        writer.number(block.len() as u64);
        for (number, letter) in block {
            writer.letter(*number, letter);
        }
        Self {
            bytes: writer.bytes.into(),
            vias: writer.vias.into(),
            targets: writer.targets.into(),
        }
    }

    /// The letters of the block, unpacked.
    pub(crate) fn unpack(&self) -> Block {
        let mut reader = Reader { packed: self, bytes: &self.bytes, last: Last::default() };
        let count = reader.number();
        (0..count).map(|_| reader.letter()).collect()
    }
}

/// Fields of the previous letter.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    number: u64,
    index: u64,
    position: u64,
    died_at: u64,
    after: u64,
    order: u64,
    sequence: u64,
    task: u64,
}

/// A number as its difference to the previous one, in a form that is small for both signs.
fn difference(last: &mut u64, value: u64) -> u64 {
    let signed = value.wrapping_sub(*last).cast_signed();
    *last = value;
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

fn sum(last: &mut u64, difference: u64) -> u64 {
    let signed = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
    *last = last.wrapping_add(signed.cast_unsigned());
    *last
}

#[derive(Debug, Default)]
struct Writer {
    bytes: Vec<u8>,
    vias: Vec<Via>,
    targets: Vec<QueueId>,
    last: Last,
}

impl Writer {
    /// Writes seven bits in each byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn change(&mut self, field: impl Fn(&mut Last) -> &mut u64, value: u64) {
        let difference = difference(field(&mut self.last), value);
        self.number(difference);
    }

    fn letter(&mut self, number: LetterNumber, letter: &Letter) {
        let Letter { message, body_bytes, reason, died_at, stage } = letter;
        self.change(|last| &mut last.number, number.0);
        self.bytes.push(message.level.0);
        self.change(|last| &mut last.index, message.index.0);
        self.change(|last| &mut last.position, u64::from(message.position));
        self.number(u64::from(*body_bytes));
        self.bytes.push(*reason as u8);
        self.change(|last| &mut last.died_at, died_at.0);
        match stage {
            Stage::Waiting { after } => {
                self.bytes.push(0);
                self.change(|last| &mut last.after, after.0);
            }
            Stage::Kept => self.bytes.push(1),
            Stage::Delayed { until } => {
                self.bytes.push(2);
                self.change(|last| &mut last.after, until.0);
            }
            Stage::Routed(routing) => {
                let of_task = u8::from(routing.task.is_some());
                self.bytes.push(3 + u8::from(routing.taken) + 2 * of_task);
                self.routing(routing);
            }
        }
    }

    fn routing(&mut self, routing: &Routing) {
        let via = place_of(&mut self.vias, &routing.via);
        self.number(via);
        self.change(|last| &mut last.after, routing.at.0);
        self.change(|last| &mut last.order, routing.order);
        self.number(routing.transfers.len() as u64);
        for (target, transfer) in &routing.transfers {
            let target = place_of(&mut self.targets, target);
            self.number(target);
            match transfer {
                // 0 means waiting, since attempts begin at 1 (LET 3).
                Transfer::Waits => self.number(0),
                Transfer::UnderWay { number, attempt } => {
                    self.number(u64::from(*attempt));
                    self.change(|last| &mut last.sequence, number.0);
                }
            }
        }
        if let Some(Taken { task, counts }) = routing.task {
            self.change(|last| &mut last.task, task.0);
            self.number(u64::from(counts.acquired));
            self.number(u64::from(counts.returned));
        }
    }
}

/// The index of a value in its table; a new value is appended.
fn place_of<T: Clone + PartialEq>(table: &mut Vec<T>, value: &T) -> u64 {
    let found = table.iter().rposition(|one| one == value);
    let place = found.unwrap_or_else(|| {
        table.push(value.clone());
        table.len() - 1
    });
    place as u64
}

/// Reads the output of [`Writer`] in the same process, so every field is present.
struct Reader<'a> {
    packed: &'a PackedBlock,
    bytes: &'a [u8],
    last: Last,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            debug_assert!(false, "a packed block ends early");
            return 0;
        };
        self.bytes = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 || shift > 63 {
                return number;
            }
        }
    }

    fn change(&mut self, field: impl Fn(&mut Last) -> &mut u64) -> u64 {
        let difference = self.number();
        sum(field(&mut self.last), difference)
    }

    fn letter(&mut self) -> (LetterNumber, Letter) {
        let number = LetterNumber(self.change(|last| &mut last.number));
        let level = Level(self.byte());
        let index = LogIndex(self.change(|last| &mut last.index));
        let position = self.change(|last| &mut last.position) as u32;
        let body_bytes = self.number() as u32;
        let reason = reason_of(self.byte());
        let died_at = WallTime(self.change(|last| &mut last.died_at));
        let stage = match self.byte() {
            0 => Stage::Waiting { after: CatalogIndex(self.change(|last| &mut last.after)) },
            1 => Stage::Kept,
            2 => Stage::Delayed { until: Timestamp(self.change(|last| &mut last.after)) },
            kind => {
                let (taken, of_task) = (kind % 2 == 0, kind > 4);
                Stage::Routed(Box::new(self.routing(taken, of_task)))
            }
        };
        let message = MessageId { level, index, position };
        (number, Letter { message, body_bytes, reason, died_at, stage })
    }

    fn routing(&mut self, taken: bool, of_task: bool) -> Routing {
        let via = self.number() as usize;
        let via = self.packed.vias.get(via).cloned();
        let at = CatalogIndex(self.change(|last| &mut last.after));
        let order = self.change(|last| &mut last.order);
        let count = self.number();
        let mut transfers = BTreeMap::new();
        for _ in 0..count {
            let target = self.number() as usize;
            let transfer = match self.number() as u32 {
                0 => Transfer::Waits,
                attempt => {
                    let number = Sequence(self.change(|last| &mut last.sequence));
                    Transfer::UnderWay { number, attempt }
                }
            };
            if let Some(target) = self.packed.targets.get(target) {
                transfers.insert(*target, transfer);
            }
        }
        let via = via.unwrap_or_else(|| Via { exchange: Default::default(), routing_key: None });
        let task = of_task.then(|| self.taken());
        Routing { via, at, order, taken, transfers, task }
    }

    fn taken(&mut self) -> Taken {
        let task = TaskId(self.change(|last| &mut last.task));
        let (acquired, returned) = (self.number() as u32, self.number() as u32);
        Taken { task, counts: Counts { acquired, returned } }
    }
}

fn reason_of(byte: u8) -> DeathReason {
    use DeathReason::{Delayed, DeliveryLimit, Expired, MaxLength, Redriven, Rejected};
    let reasons = [Rejected, Expired, MaxLength, DeliveryLimit, Delayed, Redriven];
    let found = reasons.into_iter().find(|reason| *reason as u8 == byte);
    debug_assert!(found.is_some(), "no reason has the number {byte}");
    found.unwrap_or(Rejected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quorate_types::{GroupId, Home, ShortString};

    fn queue() -> impl Strategy<Value = QueueId> {
        (0..3u16, any::<u64>(), any::<u64>()).prop_map(|(group, index, position)| QueueId {
            home: Home::Group(GroupId(group)),
            index,
            position,
        })
    }

    fn transfer() -> impl Strategy<Value = Transfer> {
        prop_oneof![
            Just(Transfer::Waits),
            (any::<u64>(), 1..=u32::MAX).prop_map(|(number, attempt)| Transfer::UnderWay {
                number: Sequence(number),
                attempt
            }),
        ]
    }

    fn routing() -> impl Strategy<Value = Routing> {
        let via = (0..3u8, any::<bool>()).prop_map(|(exchange, key)| Via {
            exchange: ShortString::try_from(format!("dlx-{exchange}")).unwrap_or_default(),
            routing_key: key.then(|| ShortString::from_static("key")),
        });
        let transfers = proptest::collection::btree_map(queue(), transfer(), 0..4);
        (via, any::<u64>(), any::<u64>(), any::<bool>(), transfers, task()).prop_map(
            |(via, at, order, taken, transfers, task)| Routing {
                via,
                at: CatalogIndex(at),
                order,
                taken,
                transfers,
                task,
            },
        )
    }

    fn task() -> impl Strategy<Value = Option<Taken>> {
        prop::option::of((any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
            |(task, acquired, returned)| Taken {
                task: TaskId(task),
                counts: Counts { acquired, returned },
            },
        ))
    }

    fn stage() -> impl Strategy<Value = Stage> {
        prop_oneof![
            any::<u64>().prop_map(|after| Stage::Waiting { after: CatalogIndex(after) }),
            Just(Stage::Kept),
            any::<u64>().prop_map(|until| Stage::Delayed { until: Timestamp(until) }),
            routing().prop_map(|routing| Stage::Routed(Box::new(routing))),
        ]
    }

    fn letter() -> impl Strategy<Value = Letter> {
        let message =
            (any::<u8>(), any::<u64>(), any::<u32>()).prop_map(|(level, index, place)| MessageId {
                level: Level(level),
                index: LogIndex(index),
                position: place,
            });
        (message, any::<u32>(), 1..=6u8, any::<u64>(), stage()).prop_map(
            |(message, body_bytes, reason, died_at, stage)| Letter {
                message,
                body_bytes,
                reason: reason_of(reason),
                died_at: WallTime(died_at),
                stage,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            letters in proptest::collection::btree_map(any::<u64>(), letter(), 0..32),
        ) {
            let block: Block =
                letters.into_iter().map(|(number, one)| (LetterNumber(number), one)).collect();
            prop_assert_eq!(PackedBlock::pack(&block).unpack(), block);
        }
    }

    #[test]
    fn letters_that_wait_take_little() {
        let letter = |number: u64| Letter {
            message: MessageId {
                level: Level(4),
                index: LogIndex(1_000_000_000 + number / 100),
                position: (number % 100) as u32,
            },
            body_bytes: 1024,
            reason: DeathReason::Expired,
            died_at: WallTime(1_700_000_000_000 + number / 10),
            stage: Stage::Waiting { after: CatalogIndex(0) },
        };
        let block = (0..32).map(|number| (LetterNumber(number), letter(number))).collect();
        let bytes = PackedBlock::pack(&block).bytes.len();
        assert!(bytes <= 32 * 12, "{bytes} bytes");
    }
}
