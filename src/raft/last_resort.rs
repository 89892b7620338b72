//! The last resort (MEM 14): makes the node of one data directory the only member of its cluster and
//! the only voter of every group, while no process runs on the directory.
//!
//! It changes nothing of what the directory has. To the log of each replica it appends a membership of
//! that replica alone; what the survivor has behind the last entry that it knows to be committed stays,
//! since the others may have committed it. The catalog's log gets the command that forgets the others,
//! each queue group's log the one that ends the sessions of letters between groups. When the node starts,
//! it elects itself and applies all this.
//!
//! A group is lost, and begins anew, if the directory has no replica of it, or one that holds nothing
//! yet, or one that its placement has gone on without: that one is behind by any number of entries, its
//! name acts no more, and the node would remove it as soon as it starts (MEM 9).
//!
//! The commands are written by this binary into logs that may be of an earlier machine version. Nobody
//! else reads them before it knows version 4: the mark of the directory is raised first, and the
//! catalog's entry raises the version before its command has an effect (MEM 15).
//!
//! Behind the last entry there may have been others, which are lost, and whose indexes have been used:
//! for ids of queues, for starts of nodes. So empty entries take up as many indexes as a survivor lacks
//! at most, if it was linked until the end; and a group of which the directory has nothing begins far
//! above all indexes that it can have had.

use crate::{
    catalog_replica::load_catalog,
    codec::{
        DecodeError, decode_membership, decode_stored_membership, decode_vote, encode_membership,
        encode_stored_membership, encode_vote,
    },
    machine::MachineError,
    replica_name::raft_id,
    type_config::{Membership, StoredMembership, log_id, vote},
    written::written,
};
use quorate_catalog::{
    Catalog, CatalogCommand, CatalogEntry, CatalogOutput, CatalogReply, ClusterShape, MemberCommand,
};
use quorate_queue::{Batch, Command, Entry, Origin, Record, RecordKey};
use quorate_storage::{
    Checkpoint, CommandEntry, Database, EntryId, GroupStore, Loaded, LogEntry, OpenError, Payload,
    StorageError, codec,
};
use quorate_types::{
    CatalogIndex, Epoch, GroupId, Home, LogIndex, MachineVersion, NodeId, QueueId, ReplicaId,
    ReplicaNumber, ResourceName, Stamp, Term, Timestamp, WallTime,
};
use std::{collections::BTreeMap, sync::Arc};

/// Indexes that are given to nothing, behind the last entry of a group.
const PADDING: usize = 1_000;
/// Distance of the first index of a group that begins anew from all that it can have had.
const ANEW: u64 = 1 << 40;
/// How far back the time of the last entry is looked for.
const LOOK_BACK: u64 = 2_000;
/// Bytes of entries that are read at a time.
const READ_BYTES: usize = 2 << 20;

/// Why the last resort cannot be used on a directory. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LastResortError {
    /// The directory has nothing of a cluster.
    #[error(
        "the data directory belongs to no cluster, or to one that has not begun: nothing was confirmed by \
         it, and it can be set aside with those of the other nodes"
    )]
    NoCluster,
    /// The directory's own copy of the catalog does not count it as a member.
    #[error("the data directory is not that of a member of its cluster: {0}")]
    NotMember(String),
    /// A read or write has failed. If it was a write, the last resort must be repeated.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The mark of the directory cannot be written.
    #[error(transparent)]
    Mark(#[from] OpenError),
    /// A replica's data are not valid.
    #[error("group {group}: {source}")]
    Decode {
        /// The group.
        group: GroupId,
        /// Error of the decoder.
        source: DecodeError,
    },
    /// The catalog's data are not valid.
    #[error("the catalog: {0}")]
    Catalog(#[from] MachineError),
}

/// What a directory has of its cluster.
pub struct Survey {
    /// The node that the directory belongs to.
    pub node: NodeId,
    /// Members of the cluster that would be abandoned, with the addresses of their rpc ports.
    pub abandoned: BTreeMap<NodeId, String>,
    /// The present epoch of the directory.
    pub epoch: Epoch,
    /// The replicas that it has, by their groups.
    pub replicas: BTreeMap<GroupId, ReplicaSurvey>,
    /// Groups of which it has none that counts, with the queues that are lost with them.
    pub lost: BTreeMap<GroupId, Vec<ResourceName>>,
    /// Queues that were made in the other groups after the last entry that the directory has.
    pub behind: BTreeMap<GroupId, Vec<ResourceName>>,
    /// A last resort was interrupted, which begins the epoch.
    is_recovering: bool,
    /// The highest number of a replica that the directory has had.
    highest: ReplicaNumber,
    catalog: Catalog,
    database: Arc<Database>,
}

/// One replica of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSurvey {
    /// Its number.
    pub number: ReplicaNumber,
    /// Last entry that its checkpoint contains.
    pub applied: Option<EntryId>,
    /// Last entry of its log.
    pub last: Option<EntryId>,
    /// When the last entry with commands was made, by its leader's clock.
    pub made: Option<WallTime>,
    /// Whether it votes. A replica that does not may lack much.
    pub votes: bool,
    /// Whether nobody else votes.
    is_alone: bool,
}

impl Survey {
    /// Looks at a directory.
    ///
    /// # Errors
    /// The last resort cannot be used on it.
    pub fn of(database: &Arc<Database>) -> Result<Self, LastResortError> {
        let identity = database.identity();
        let catalog = read_catalog(&database.group(GroupId::CATALOG)?)?;
        let shape = catalog.shape().ok_or(LastResortError::NoCluster)?;
        let node = identity.node;
        let mut survey = Self {
            node,
            abandoned: others(&catalog, node),
            epoch: identity.epoch,
            replicas: BTreeMap::new(),
            lost: BTreeMap::new(),
            behind: BTreeMap::new(),
            is_recovering: identity.is_recovering,
            highest: ReplicaNumber(0),
            catalog,
            database: Arc::clone(database),
        };
        for group in all_groups(shape) {
            match survey.replica(group)? {
                Some(replica) => {
                    let last = replica.last.or(replica.applied).map_or(0, |last| last.index.0);
                    let names = survey.queues_behind(group, last);
                    if !names.is_empty() {
                        survey.behind.insert(group, names);
                    }
                    survey.replicas.insert(group, replica);
                }
                None => {
                    let names = survey.queues_behind(group, 0);
                    survey.lost.insert(group, names);
                }
            }
        }
        survey.check()?;
        Ok(survey)
    }

    /// Queues of the catalog that were made in a group after an index.
    fn queues_behind(&self, group: GroupId, index: u64) -> Vec<ResourceName> {
        let queues = self.catalog.queues_of_home(Home::Group(group), None);
        queues.filter(|it| it.id.index > index).map(|it| it.name.clone()).collect()
    }

    /// The directory's replica of a group, if it has one that holds anything and is not over.
    fn replica(&mut self, group: GroupId) -> Result<Option<ReplicaSurvey>, LastResortError> {
        let record = self.database.replica(group)?;
        // Without a record it is that of the founding.
        let number = record.map_or(ReplicaNumber(0), |record| record.number);
        self.highest = self.highest.max(number);
        let name = ReplicaId { node: self.node, number };
        let was_removed = record.is_some_and(|record| !record.is_present);
        if was_removed || self.catalog.is_replica_over(group, name) {
            return Ok(None);
        }
        let replica = survey_replica(&self.database.group(group)?, name)?;
        Ok(Some(replica).filter(|it| it.last.is_some() || it.applied.is_some()))
    }

    /// True if there is nothing to do: the node is the only member, and the only voter of every group.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !self.is_recovering
            && self.abandoned.is_empty()
            && self.lost.is_empty()
            && self.replicas.values().all(|replica| replica.is_alone)
    }

    /// The epoch that the last resort begins: that of an interrupted one, in which nobody has been
    /// served, or a new one. `chance` is random.
    #[must_use]
    pub fn next_epoch(&self, chance: u64) -> Epoch {
        if self.is_recovering { self.epoch } else { Epoch::after(self.epoch, chance) }
    }

    /// Whether the catalog takes the command.
    fn check(&self) -> Result<(), LastResortError> {
        let (mut catalog, mut out) = (self.catalog.clone(), CatalogOutput::default());
        let entry = CatalogEntry { stamp: Stamp::default(), commands: self.commands() };
        catalog.apply(CatalogIndex(catalog.version().0 + 1), &entry, &mut out);
        match out.replies.last() {
            Some(CatalogReply::Denied(denial)) => {
                Err(LastResortError::NotMember(denial.to_string()))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The commands of the entry that the catalog's log gets.
    fn commands(&self) -> Vec<CatalogCommand> {
        let next = self.catalog.machine().next().0..=MachineVersion::LAST_RESORT.0;
        let raise = next.map(|version| CatalogCommand::RaiseMachine(MachineVersion(version)));
        let kept = self.replicas.iter().map(|(group, replica)| (*group, replica.number));
        let replicas = kept.chain(self.anew()).collect();
        let last_resort = MemberCommand::LastResort { node: self.node, replicas };
        raise.chain([CatalogCommand::Members(last_resort)]).collect()
    }

    /// The replicas of groups that begin anew. Their numbers are higher than all that were given.
    fn anew(&self) -> impl Iterator<Item = (GroupId, ReplicaNumber)> {
        let first = self.catalog.next_replica_number().0.max(self.highest.0.saturating_add(1));
        self.lost.keys().copied().zip((first..).map(ReplicaNumber))
    }

    /// Carries the last resort out: durable when this returns. Interrupted, it leaves a directory that
    /// serves nobody until it is repeated. `epoch` is [`Survey::next_epoch`], `now` the time.
    ///
    /// # Errors
    /// A write has failed: the last resort must be repeated.
    pub async fn recover(&self, epoch: Epoch, now: WallTime) -> Result<(), LastResortError> {
        let database = &self.database;
        written(|done| database.set_epoch(epoch, true, done)).await?;
        // Binaries that know no epochs refuse the directory from now on (MEM 15).
        database.machine_mark().raise(MachineVersion::LAST_RESORT.max(self.catalog.machine()))?;
        for (group, number) in self.anew() {
            self.begin_anew(group, number, epoch).await?;
        }
        for (group, replica) in &self.replicas {
            self.go_on_alone(*group, replica, now).await?;
        }
        written(|done| database.set_epoch(epoch, false, done)).await?;
        Ok(())
    }

    /// Gives a group a replica whose state is empty, in the place of one that does not count.
    async fn begin_anew(
        &self,
        group: GroupId,
        number: ReplicaNumber,
        epoch: Epoch,
    ) -> Result<(), LastResortError> {
        let former = self.database.replica(group)?.map_or(ReplicaNumber(0), |it| it.number);
        written(|done| self.database.remove_replica(group, former, done)).await?;
        written(|done| self.database.add_replica(group, number, done)).await?;
        let store = self.database.group(group)?;
        let queues = self.catalog.queues_of_home(Home::Group(group), None);
        let highest = queues.map(|entry| entry.id).map(|QueueId { index, .. }| index).max();
        // A group that begins anew a second time may have had queues that the catalog has no more.
        let distance = ANEW.saturating_mul(u64::from(epoch.number()).max(1));
        let index = LogIndex(highest.unwrap_or(0).saturating_add(distance));
        let at = EntryId { term: Term(1), leader: NodeId(0), index };
        let stored = StoredMembership::new(Some(log_id(at)), self.alone(number));
        let checkpoint = Checkpoint::new(at, encode_stored_membership(&stored), Vec::new());
        written(|done| store.checkpoint(checkpoint, done)).await?;
        self.vote(&store, number, at.term).await
    }

    /// Makes a replica the only voter of its group.
    async fn go_on_alone(
        &self,
        group: GroupId,
        replica: &ReplicaSurvey,
        now: WallTime,
    ) -> Result<(), LastResortError> {
        let store = self.database.group(group)?;
        let voted = store.vote().map(|bytes| decode_vote(&bytes)).transpose();
        let voted = voted.map_err(|source| LastResortError::Decode { group, source })?;
        let voted = voted.map_or(0, |vote| vote.leader_id.term);
        let (last_term, next) =
            replica.last.map_or((0, 0), |last| (last.term.0, last.index.0.saturating_add(1)));
        let term = Term(voted.max(last_term).saturating_add(1));
        self.vote(&store, replica.number, term).await?;
        let alone = Payload::Membership(encode_membership(&self.alone(replica.number)));
        let command = match group {
            GroupId::CATALOG => self.catalog_command(now),
            // Its time goes on from where it was, also while no node runs (DESIGN §4).
            _ => queue_command(replica.made.unwrap_or(now)),
        };
        let padding = std::iter::repeat_with(|| Payload::Blank).take(PADDING);
        let payloads = std::iter::once(alone).chain(padding).chain([command]);
        let id = |index| EntryId { term, leader: NodeId(0), index: LogIndex(index) };
        let entries: Vec<LogEntry> = (next..)
            .zip(payloads)
            .map(|(index, payload)| LogEntry { id: id(index), payload })
            .collect();
        Ok(written(|done| store.append(entries, done)).await?)
    }

    async fn vote(
        &self,
        store: &GroupStore,
        number: ReplicaNumber,
        term: Term,
    ) -> Result<(), LastResortError> {
        let me = raft_id(ReplicaId { node: self.node, number });
        let bytes = encode_vote(&vote(term.0, me, false));
        Ok(written(|done| store.save_vote(bytes, done)).await?)
    }

    fn alone(&self, number: ReplicaNumber) -> Membership {
        let me = raft_id(ReplicaId { node: self.node, number });
        Membership::new_with_defaults(vec![[me].into()], [])
    }

    fn catalog_command(&self, now: WallTime) -> Payload {
        let stamp = Stamp { time: Timestamp(0), wall: now };
        let entry = CatalogEntry { stamp, commands: self.commands() };
        let command = codec::catalog::encode_entry(&entry);
        Payload::Commands(CommandEntry { command, bodies: Vec::new() })
    }
}

/// The command that a queue group's log gets. A group's clock never moves backwards.
fn queue_command(wall: WallTime) -> Payload {
    let batch = Batch { origin: Origin::Leader, commands: vec![Command::LastResort] };
    let stamp = Stamp { time: Timestamp(0), wall };
    let entry = Entry { stamp, runs: Vec::new(), batches: vec![batch] };
    let command = codec::queue::encode_entry(&entry);
    Payload::Commands(CommandEntry { command, bodies: Vec::new() })
}

/// The catalog's group, and all queue groups.
fn all_groups(shape: ClusterShape) -> impl Iterator<Item = GroupId> {
    std::iter::once(GroupId::CATALOG).chain(shape.groups())
}

/// The other members; before there are any, the other nodes (MEM 1).
fn others(catalog: &Catalog, me: NodeId) -> BTreeMap<NodeId, String> {
    let mut others: BTreeMap<NodeId, String> =
        catalog.members().map(|(node, member)| (node, member.address.clone())).collect();
    if others.is_empty() {
        others = catalog.nodes().map(|(node, entry)| (node, entry.rpc_address.clone())).collect();
    }
    others.remove(&me);
    others
}

/// The catalog with all entries that the directory has of it.
fn read_catalog(store: &GroupStore) -> Result<Catalog, LastResortError> {
    let loaded = store.load()?;
    let mut catalog = load_catalog(&loaded)?;
    let from = loaded.applied.map_or(LogIndex(0), |applied| applied.index.next());
    for_each_entry(store, from, |entry| {
        let index = CatalogIndex(entry.id.index.0);
        let Payload::Commands(commands) = &entry.payload else {
            catalog.advance(index);
            return Ok(());
        };
        let entry = codec::catalog::decode_entry(&commands.command);
        let group = GroupId::CATALOG;
        let entry = entry.map_err(|source| LastResortError::Decode { group, source })?;
        catalog.apply(index, &entry, &mut CatalogOutput::default());
        Ok(())
    })?;
    Ok(catalog)
}

/// When the last entry with commands was made that a queue group's checkpoint contains.
fn checkpointed_at(loaded: &Loaded) -> Result<Option<WallTime>, DecodeError> {
    for (key, record) in &loaded.records {
        if codec::queue::decode_key(key)? != RecordKey::Group {
            continue;
        }
        if let Record::Group(record) = codec::queue::decode_record(record)? {
            return Ok(Some(record.wall));
        }
    }
    Ok(None)
}

fn survey_replica(store: &GroupStore, name: ReplicaId) -> Result<ReplicaSurvey, LastResortError> {
    let group = store.group();
    let wrong = |source| LastResortError::Decode { group, source };
    let loaded = store.load()?;
    let mut membership = match loaded.applied {
        Some(_) => decode_stored_membership(&loaded.meta).map_err(wrong)?.membership().clone(),
        None => Membership::default(),
    };
    let applied = loaded.applied.map_or(0, |applied| applied.index.0 + 1);
    let last = store.log_state().last;
    let back = last.map_or(0, |last| last.index.0.saturating_sub(LOOK_BACK));
    let mut made = match group {
        GroupId::CATALOG => None,
        _ => checkpointed_at(&loaded).map_err(wrong)?,
    };
    for_each_entry(store, LogIndex(applied.min(back)), |entry| {
        match &entry.payload {
            Payload::Blank => {}
            Payload::Membership(bytes) if entry.id.index.0 >= applied => {
                membership = decode_membership(bytes).map_err(wrong)?;
            }
            Payload::Membership(_) => {}
            Payload::Commands(commands) if group == GroupId::CATALOG => {
                let entry = codec::catalog::decode_entry(&commands.command).map_err(wrong)?;
                made = Some(entry.stamp.wall);
            }
            Payload::Commands(commands) => {
                made = Some(codec::queue::decode_stamp(&commands.command).map_err(wrong)?.wall);
            }
        }
        Ok(())
    })?;
    let (me, number) = (raft_id(name), name.number);
    let votes = membership.voter_ids().any(|id| id == me);
    let is_alone = votes && membership.voter_ids().all(|id| id == me);
    Ok(ReplicaSurvey { number, applied: loaded.applied, last, made, votes, is_alone })
}

/// Reads the log from an index, or from its beginning, to its end.
fn for_each_entry(
    store: &GroupStore,
    from: LogIndex,
    mut each: impl FnMut(&LogEntry) -> Result<(), LastResortError>,
) -> Result<(), LastResortError> {
    let state = store.log_state();
    let begin = state.last_purged.map_or(LogIndex(0), |purged| purged.index.next());
    let Some(end) = state.last.map(|last| last.index.next()) else { return Ok(()) };
    let mut next = from.max(begin);
    while next < end {
        let entries = store.read_shared(next, end, READ_BYTES)?;
        let Some(last) = entries.last() else { break };
        next = last.id.index.next();
        for entry in &entries {
            each(entry)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
