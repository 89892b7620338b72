//! A catalog and a group's machine, to which tests apply entries.

#![expect(clippy::panic, reason = "tests")]

use quorate_catalog::{Catalog, CatalogCommand, CatalogEntry, CatalogOutput, CatalogReply};
use quorate_queue::{
    Answer, Batch, Command, Entry, Machine, MessageStore, Origin, Output, Reply, RunHead,
    StoreError,
};
use quorate_types::{
    BootNumber, CatalogIndex, GroupId, Home, Incarnation, Level, LogIndex, NodeId, QueueId,
    ResourceName, Sequence, SessionId, ShortString, Stamp, StartNumber,
};
use std::collections::BTreeMap;

/// The group of [`GroupLog`].
pub(crate) const GROUP: Home = Home::Group(GroupId(1));

/// A queue's name in a virtual host.
pub(crate) fn queue_name(vhost: &'static str, name: &'static str) -> ResourceName {
    ResourceName { vhost: ShortString::from_static(vhost), name: ShortString::from_static(name) }
}

/// The catalog, and the index of its last entry.
#[derive(Debug)]
pub(crate) struct CatalogLog {
    pub(crate) catalog: Catalog,
}

impl CatalogLog {
    /// A new catalog, before any entry.
    pub(crate) fn new() -> Self {
        Self { catalog: Catalog::new() }
    }

    /// Applies an entry of these commands, and returns their replies.
    pub(crate) fn apply_all(&mut self, commands: Vec<CatalogCommand>) -> Vec<CatalogReply> {
        let index = CatalogIndex(self.catalog.version().0 + 1);
        let entry = CatalogEntry { stamp: Stamp::default(), commands };
        let mut output = CatalogOutput::default();
        self.catalog.apply(index, &entry, &mut output);
        output.replies
    }

    /// Applies an entry of one command, and returns its reply.
    pub(crate) fn apply(&mut self, command: CatalogCommand) -> CatalogReply {
        self.apply_all(vec![command]).pop().unwrap_or(CatalogReply::Done)
    }

    /// Applies the announcement of a process, and returns the start number that it is given.
    pub(crate) fn start(&mut self, node: NodeId, boot: BootNumber) -> StartNumber {
        let reply = self.apply(started(node, boot));
        let CatalogReply::Started(start) = reply else { panic!("{reply:?}") };
        start
    }
}

/// The announcement of a process.
pub(crate) fn started(node: NodeId, boot: BootNumber) -> CatalogCommand {
    CatalogCommand::NodeStarted {
        node,
        incarnation: Incarnation(u64::from(node.0)),
        boot,
        rpc_address: String::new(),
        amqp_address: String::new(),
    }
}

/// A store without messages.
#[derive(Debug)]
struct NoMessages;

impl MessageStore for NoMessages {
    fn runs(
        &self,
        _: QueueId,
        _: Level,
        _: LogIndex,
        _: LogIndex,
        _: usize,
    ) -> Result<Vec<RunHead>, StoreError> {
        Ok(Vec::new())
    }
}

/// A machine, and the index of its last entry.
#[derive(Debug)]
pub(crate) struct GroupLog {
    pub(crate) machine: Machine,
    index: u64,
    numbers: BTreeMap<SessionId, u64>,
}

impl GroupLog {
    /// A machine of group 1, before any entry.
    pub(crate) fn new() -> Self {
        Self::with(Machine::new(GROUP))
    }

    /// A log for this machine.
    pub(crate) fn with(machine: Machine) -> Self {
        Self { machine, index: 0, numbers: BTreeMap::new() }
    }

    fn apply(&mut self, origin: Origin, commands: Vec<Command>) -> Output {
        self.index += 1;
        let batches = vec![Batch { origin, commands }];
        let entry = Entry { batches, ..Entry::default() };
        let mut output = Output::default();
        let applied = self.machine.apply(LogIndex(self.index), &entry, &NoMessages, &mut output);
        assert!(applied.is_ok(), "there is nothing to read");
        output
    }

    /// Applies an entry of the leader's own commands.
    pub(crate) fn lead(&mut self, commands: Vec<Command>) {
        self.apply(Origin::Leader, commands);
    }

    /// Applies an entry of the session's next command, and returns the reply; `None` if the session
    /// is fenced.
    pub(crate) fn ask(&mut self, session: SessionId, command: Command) -> Option<Reply> {
        let number = self.numbers.entry(session).or_default();
        *number += 1;
        let first = Sequence(*number);
        let origin = Origin::Session { session, first, mark: first };
        let answers = self.apply(origin, vec![command]).answers;
        answers.into_iter().find_map(|answer| match answer {
            Answer::Answered { other, .. } => {
                Some(other.into_iter().next().map_or(Reply::Taken, |(_, reply)| reply))
            }
            Answer::Fenced { .. } => None,
            other @ (Answer::Want { .. }
            | Answer::Transferred { .. }
            | Answer::TransfersWanted { .. }) => panic!("{other:?}"),
        })
    }
}
