//! The unacked deliveries of a channel (ACK-01 to ACK-11), and settlements to be passed to the
//! broker.

use crate::{
    channel::{Effects, machine::Channel},
    codec::hot,
    connection::close::Fault,
};
use quorate_client::{ChannelId, HolderRef, Settle, Settlement};
use quorate_types::{DeliveryNumber, ReplyCode, RequeueCause};
use std::collections::{BTreeMap, VecDeque};

/// Index of a holder in the channel's table, so that a delivery takes 24 bytes instead of 80.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    /// Marks an entry that is settled but not yet at the front.
    const NONE: Slot = Slot(u32::MAX);
}

/// A delivery that its client has not settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    tag: u64,
    number: DeliveryNumber,
    holder: Slot,
}

#[derive(Debug, Default)]
pub(crate) struct Holders {
    table: Vec<Option<(HolderRef, usize)>>,
    free: Vec<u32>,
}

impl Holders {
    fn add(&mut self, holder: HolderRef) -> Slot {
        if let Some(free) = self.free.pop() {
            if let Some(place) = self.at(Slot(free)) {
                *place = Some((holder, 1));
            }
            return Slot(free);
        }
        self.table.push(Some((holder, 1)));
        // A table of 2^32 holders does not fit memory.
        Slot(u32::try_from(self.table.len() - 1).unwrap_or(u32::MAX - 1))
    }

    fn at(&mut self, slot: Slot) -> Option<&mut Option<(HolderRef, usize)>> {
        self.table.get_mut(usize::try_from(slot.0).ok()?)
    }

    fn hold(&mut self, slot: Slot) {
        if let Some(Some((_, users))) = self.at(slot) {
            *users += 1;
        }
    }

    fn release(&mut self, slot: Slot) -> Option<HolderRef> {
        let place = self.at(slot)?;
        let (holder, users) = place.as_mut()?;
        let holder = *holder;
        *users -= 1;
        if *users == 0 {
            *place = None;
            self.free.push(slot.0);
        }
        Some(holder)
    }
}

/// The tag is not unacked on this channel (ACK-04, ACK-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnknownTag(pub(crate) u64);

/// The deliveries of one channel that its client has not settled, in order of their tags.
#[derive(Debug, Default)]
pub(crate) struct Unacked {
    entries: VecDeque<Entry>,
    /// Entries that are settled already.
    settled: usize,
    holders: Holders,
}

impl Unacked {
    /// A holder that deliveries will name; it stays until [`Unacked::release`].
    pub(crate) fn hold(&mut self, holder: HolderRef) -> Slot {
        self.holders.add(holder)
    }

    /// No later delivery will refer to the holder.
    pub(crate) fn release(&mut self, slot: Slot) {
        self.holders.release(slot);
    }

    /// Deliveries not settled.
    pub(crate) fn outstanding(&self) -> u64 {
        u64::try_from(self.entries.len() - self.settled).unwrap_or(u64::MAX)
    }

    /// Number of entries, including settled ones that are still stored.
    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.entries.len()
    }

    /// Adds a delivery with a new, higher tag.
    pub(crate) fn push(&mut self, tag: u64, holder: Slot, number: DeliveryNumber) {
        self.holders.hold(holder);
        self.entries.push_back(Entry { tag, number, holder });
    }

    /// Settles one delivery, or all up to `tag`, or all there are (ACK-02 to ACK-05). `settle` is
    /// called in ascending order of tags (ACK-07).
    pub(crate) fn settle(
        &mut self,
        tag: u64,
        multiple: bool,
        mut settle: impl FnMut(HolderRef, DeliveryNumber),
    ) -> Result<(), UnknownTag> {
        self.take(tag, multiple, &mut |holders, entry| {
            if let Some(holder) = holders.release(entry.holder) {
                settle(holder, entry.number);
            }
        })
    }

    /// Removes deliveries as [`Unacked::settle`] does, for [`Unacked::settle_aside`] or
    /// [`Unacked::put_back`].
    pub(crate) fn set_aside(
        &mut self,
        tag: u64,
        multiple: bool,
        aside: &mut Vec<Entry>,
    ) -> Result<(), UnknownTag> {
        self.take(tag, multiple, &mut |_, entry| aside.push(entry))
    }

    /// Settles a delivery that was set aside.
    pub(crate) fn settle_aside(&mut self, entry: Entry) -> Option<(HolderRef, DeliveryNumber)> {
        Some((self.holders.release(entry.holder)?, entry.number))
    }

    /// Makes deliveries that were set aside unacked again (TX-08). Most still have their entries,
    /// or precede all others, so the cost of a rollback is proportional to its deliveries.
    pub(crate) fn put_back(&mut self, aside: impl Iterator<Item = Entry>) {
        let mut gone = Vec::new();
        for entry in aside {
            let at = self.entries.binary_search_by_key(&entry.tag, |entry| entry.tag);
            if let Ok(at) = at
                && let Some(place) = self.entries.get_mut(at)
            {
                *place = entry;
                self.settled -= 1;
            } else {
                gone.push(entry);
            }
        }
        gone.sort_unstable_by_key(|entry| entry.tag);
        let front = self.entries.front().map_or(u64::MAX, |entry| entry.tag);
        if gone.last().is_none_or(|last| last.tag < front) {
            gone.into_iter().rev().for_each(|entry| self.entries.push_front(entry));
        } else {
            self.entries.extend(gone);
            self.entries.make_contiguous().sort_unstable_by_key(|entry| entry.tag);
        }
    }

    fn take(
        &mut self,
        tag: u64,
        multiple: bool,
        take: &mut impl FnMut(&mut Holders, Entry),
    ) -> Result<(), UnknownTag> {
        if multiple && tag == 0 {
            self.take_to(u64::MAX, take);
            return Ok(());
        }
        let at = self.find(tag).ok_or(UnknownTag(tag))?;
        if multiple {
            self.take_to(tag, take);
        } else if let Some(entry) = self.entries.get_mut(at) {
            let taken = *entry;
            entry.holder = Slot::NONE;
            self.settled += 1;
            take(&mut self.holders, taken);
            self.tidy();
        }
        Ok(())
    }

    fn find(&self, tag: u64) -> Option<usize> {
        let at = match self.entries.front() {
            Some(front) if front.tag == tag => 0,
            Some(_) | None => self.entries.binary_search_by_key(&tag, |entry| entry.tag).ok()?,
        };
        self.entries.get(at).filter(|entry| entry.holder != Slot::NONE).map(|_| at)
    }

    fn take_to(&mut self, tag: u64, take: &mut impl FnMut(&mut Holders, Entry)) {
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.tag <= tag) {
            if entry.holder == Slot::NONE {
                self.settled -= 1;
            } else {
                take(&mut self.holders, entry);
            }
        }
        self.tidy();
    }

    /// Drops settled entries from the front, and all of them if they are the majority: one delivery
    /// that is never settled must not keep an entry for each later one.
    fn tidy(&mut self) {
        while self.entries.pop_front_if(|entry| entry.holder == Slot::NONE).is_some() {
            self.settled -= 1;
        }
        if self.settled > 64 && self.settled > self.entries.len() / 2 {
            self.entries.retain(|entry| entry.holder != Slot::NONE);
            self.settled = 0;
        }
        if self.entries.is_empty() && self.entries.capacity() > 1024 {
            self.entries = VecDeque::new();
        }
    }
}

/// The key under which settlements are merged.
type Key = (HolderRef, u8);

fn key(holder: HolderRef, settlement: Settlement) -> Key {
    let kind = match settlement {
        Settlement::Ack => 0,
        Settlement::Discard => 1,
        Settlement::Requeue(RequeueCause::Reject) => 2,
        Settlement::Requeue(RequeueCause::Nack) => 3,
        Settlement::Requeue(RequeueCause::Recover) => 4,
        Settlement::Requeue(RequeueCause::ChannelEnd) => 5,
        Settlement::Release => 6,
    };
    (holder, kind)
}

/// Settlements of one read of the socket, merged into ranges for each holder.
#[derive(Debug, Default)]
pub(crate) struct Settles {
    list: Vec<Settle>,
    /// Ranges to which numbers may still be added.
    open: BTreeMap<Key, usize>,
    last: Option<(Key, usize)>,
}

impl Settles {
    pub(crate) fn add(
        &mut self,
        holder: HolderRef,
        number: DeliveryNumber,
        settlement: Settlement,
    ) {
        let key = key(holder, settlement);
        let at = match self.last {
            Some((last, at)) if last == key => Some(at),
            Some(_) | None => self.open.get(&key).copied(),
        };
        let ordered = settlement != Settlement::Ack;
        if let Some(at) = at
            && let Some(settle) = self.list.get_mut(at)
            && join(&mut settle.numbers, number, ordered)
        {
            self.last = Some((key, at));
            return;
        }
        self.open.insert(key, self.list.len());
        self.last = Some((key, self.list.len()));
        self.list.push(Settle { holder, numbers: vec![(number, number)], settlement });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes all settlements, in the order in which the client settled, except that acks, whose
    /// order has no meaning, are merged.
    pub(crate) fn take(&mut self) -> Vec<Settle> {
        self.open.clear();
        self.last = None;
        std::mem::take(&mut self.list)
    }
}

/// A settlement behind publishes of its channel. If one of these is refused, the channel ends with that error,
/// and what the client has sent after it is not carried out (CHN-06).
#[derive(Debug)]
pub(crate) struct Behind {
    channel: ChannelId,
    /// Number of publishes without an outcome that the client has sent before it, of all channels.
    publishes: usize,
    holder: HolderRef,
    number: DeliveryNumber,
    settlement: Settlement,
}

impl Effects {
    /// Takes the settlements that wait for the outcomes of publishes, but for those that follow a refused one;
    /// `refused`: those publishes, each by its channel and its place among all.
    pub(crate) fn take_behind(&mut self, refused: &[(ChannelId, usize)]) -> Vec<Settle> {
        let mut settles = Settles::default();
        for Behind { channel, publishes, holder, number, settlement } in self.behind.drain(..) {
            let follows =
                |refused: &(ChannelId, usize)| refused.0 == channel && refused.1 < publishes;
            if !refused.iter().any(follows) {
                settles.add(holder, number, settlement);
            }
        }
        settles.take()
    }
}

/// Adds a number to ranges in ascending order. False if it would have to go before others of which
/// the order has a meaning (dead letters, ACK-07).
fn join(
    ranges: &mut Vec<(DeliveryNumber, DeliveryNumber)>,
    number: DeliveryNumber,
    ordered: bool,
) -> bool {
    match ranges.last_mut() {
        Some((_, last)) if last.0 + 1 == number.0 => {
            *last = number;
            true
        }
        Some((_, last)) if *last < number => {
            ranges.push((number, number));
            true
        }
        Some(_) if ordered => false,
        Some(_) | None => {
            let at = ranges.partition_point(|&(first, _)| first < number);
            ranges.insert(at, (number, number));
            merge_at(ranges, at + 1);
            merge_at(ranges, at);
            true
        }
    }
}

/// Joins the range at `at` to the previous one, if they are adjacent.
fn merge_at(ranges: &mut Vec<(DeliveryNumber, DeliveryNumber)>, at: usize) {
    let (Some(before), Some(&(first, last))) = (at.checked_sub(1), ranges.get(at)) else { return };
    if let Some(range) = ranges.get_mut(before)
        && range.1.0 + 1 == first.0
    {
        range.1 = last;
        ranges.remove(at);
    }
}

impl Channel {
    /// Settles for the client: at once, or with its transaction's commit (TX-04).
    fn settle(
        &mut self,
        tag: u64,
        multiple: bool,
        settlement: Settlement,
        effects: &mut Effects,
    ) -> Result<(), UnknownTag> {
        match &mut self.transaction {
            None => {
                let before = self.unacked.outstanding();
                let (channel, publishes) = (self.id, effects.pending.len());
                let is_behind = self.publishing > 0;
                let settled = self.unacked.settle(tag, multiple, |holder, number| {
                    if is_behind {
                        let behind = Behind { channel, publishes, holder, number, settlement };
                        effects.behind.push(behind);
                    } else {
                        effects.settles.add(holder, number, settlement);
                    }
                });
                if settlement == Settlement::Ack {
                    self.traffic.acknowledged += before - self.unacked.outstanding();
                }
                settled
            }
            Some(transaction) => transaction.settle(&mut self.unacked, tag, multiple, settlement),
        }
    }

    /// Handles `basic.ack`.
    pub(crate) fn ack(&mut self, ack: hot::Ack, effects: &mut Effects) -> Result<(), Fault> {
        self.settle(ack.delivery_tag, ack.multiple, Settlement::Ack, effects)
            .map_err(|UnknownTag(tag)| unknown(tag, hot::Ack::ID))
    }

    /// Handles `basic.nack` (ACK-06).
    pub(crate) fn nack(&mut self, nack: hot::Nack, effects: &mut Effects) -> Result<(), Fault> {
        let settlement = settlement(nack.requeue, RequeueCause::Nack);
        self.settle(nack.delivery_tag, nack.multiple, settlement, effects)
            .map_err(|UnknownTag(tag)| unknown(tag, hot::Nack::ID))
    }

    /// Handles `basic.reject` (ACK-06).
    pub(crate) fn reject(
        &mut self,
        reject: hot::Reject,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let settlement = settlement(reject.requeue, RequeueCause::Reject);
        self.settle(reject.delivery_tag, false, settlement, effects)
            .map_err(|UnknownTag(tag)| unknown(tag, hot::Reject::ID))
    }
}

impl Unacked {
    /// `basic.recover`: all unacked deliveries are requeued (ACK-09).
    pub(crate) fn recover(&mut self, effects: &mut Effects) {
        let settlement = Settlement::Requeue(RequeueCause::Recover);
        self.take_to(u64::MAX, &mut |holders, entry| {
            if let Some(holder) = holders.release(entry.holder) {
                effects.settles.add(holder, entry.number, settlement);
            }
        });
    }
}

fn settlement(requeue: bool, cause: RequeueCause) -> Settlement {
    if requeue { Settlement::Requeue(cause) } else { Settlement::Discard }
}

fn unknown(tag: u64, id: crate::codec::method::MethodId) -> Fault {
    Fault::new(ReplyCode::PreconditionFailed, format!("unknown delivery tag {tag}"), id)
}
