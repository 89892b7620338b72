//! The last resort on a directory with one replica that votes, one that lags, and none of a third group.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use quorate_catalog::{CatalogKey, QueueEntry};
use quorate_storage::Options;
use quorate_types::{
    BootNumber, FieldTable, Incarnation, QueueType, SessionId, ShortString, StartNumber,
};
use std::path::Path;

const ME: NodeId = NodeId(3);
const SHAPE: ClusterShape = ClusterShape { cluster: quorate_types::ClusterId(7), queue_groups: 2 };

fn open(dir: &Path) -> Arc<Database> {
    Database::open(dir, Options::new(ME, Incarnation(3))).unwrap()
}

fn short(text: &str) -> ShortString {
    ShortString::try_from(text).unwrap()
}

fn started(node: u16) -> CatalogCommand {
    CatalogCommand::NodeStarted {
        node: NodeId(node),
        incarnation: Incarnation(node.into()),
        boot: BootNumber(10),
        rpc_address: format!("host{node}:7672"),
        amqp_address: format!("host{node}:5672"),
    }
}

/// A queue of group 2, of which node 3 has no replica.
fn lost_queue() -> CatalogCommand {
    CatalogCommand::AddQueue(QueueEntry {
        name: ResourceName { vhost: short("/"), name: short("orders") },
        id: QueueId { home: Home::Group(GroupId(2)), index: 40, position: 0 },
        creator: SessionId { node: ME, start: StartNumber(4) },
        queue_type: QueueType::Quorum,
        durable: true,
        auto_delete: false,
        owner: None,
        arguments: FieldTable::default(),
    })
}

fn membership(voters: &[u64]) -> Payload {
    let voters = voters.iter().copied().collect();
    Payload::Membership(encode_membership(&Membership::new_with_defaults(vec![voters], [])))
}

async fn append(store: &GroupStore, payloads: Vec<Payload>) {
    let id = |index| EntryId { term: Term(5), leader: NodeId(0), index: LogIndex(index) };
    let entries: Vec<LogEntry> =
        (0..).zip(payloads).map(|(index, payload)| LogEntry { id: id(index), payload }).collect();
    written(|done| store.append(entries, done)).await.unwrap();
}

/// Appends an entry of one command to the catalog's log.
async fn command(database: &Database, index: u64, command: CatalogCommand) {
    let entry = CatalogEntry { stamp: Stamp::default(), commands: vec![command] };
    let command = codec::catalog::encode_entry(&entry);
    let payload = Payload::Commands(CommandEntry { command, bodies: Vec::new() });
    let id = EntryId { term: Term(9), leader: NodeId(0), index: LogIndex(index) };
    let catalog = database.group(GroupId::CATALOG).unwrap();
    written(|done| catalog.append(vec![LogEntry { id, payload }], done)).await.unwrap();
}

/// A cluster of nodes 1 to 3. `members`: machine version 2.
async fn survivor(dir: &Path, members: bool) -> Arc<Database> {
    let database = open(dir);
    let raise = members.then_some(CatalogCommand::RaiseMachine(MachineVersion::MEMBERS));
    let commands = [CatalogCommand::Form(SHAPE)].into_iter().chain((1..=3).map(started));
    let commands = commands.chain(raise).chain([lost_queue()]);
    let entry = |commands| {
        let stamp = Stamp { time: Timestamp(0), wall: WallTime(70) };
        let command = codec::catalog::encode_entry(&CatalogEntry { stamp, commands });
        Payload::Commands(CommandEntry { command, bodies: Vec::new() })
    };
    let entries = commands.map(|command| entry(vec![command]));
    let catalog = database.group(GroupId::CATALOG).unwrap();
    append(&catalog, [membership(&[1, 2, 3])].into_iter().chain(entries).collect()).await;
    written(|done| catalog.save_vote(encode_vote(&vote(9, 1, true)), done)).await.unwrap();
    let lags = database.group(GroupId(1)).unwrap();
    append(&lags, vec![membership(&[1, 2]), Payload::Blank]).await;
    written(|done| database.add_replica(GroupId(2), ReplicaNumber(0), done)).await.unwrap();
    written(|done| database.remove_replica(GroupId(2), ReplicaNumber(0), done)).await.unwrap();
    database
}

#[tokio::test]
async fn mem_14_a_look_says_what_the_directory_has_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let database = survivor(dir.path(), true).await;
    let survey = Survey::of(&database).unwrap();
    assert_eq!((survey.node, survey.epoch), (ME, Epoch(0)));
    let abandoned = [(NodeId(1), "host1:7672".to_owned()), (NodeId(2), "host2:7672".to_owned())];
    assert_eq!(survey.abandoned, abandoned.into());
    let catalog = survey.replicas.get(&GroupId::CATALOG).unwrap();
    assert_eq!((catalog.votes, catalog.made), (true, Some(WallTime(70))));
    assert_eq!(catalog.last.unwrap().term, Term(5));
    let lags = survey.replicas.get(&GroupId(1)).unwrap();
    assert_eq!((lags.votes, lags.made, lags.last.unwrap().index), (false, None, LogIndex(1)));
    let lost: Vec<String> =
        survey.lost.get(&GroupId(2)).unwrap().iter().map(|it| it.name.to_string()).collect();
    assert_eq!(lost, ["orders"]);
    assert_eq!(database.group(GroupId(1)).unwrap().log_state().last, lags.last);
    assert_eq!(database.identity().epoch, Epoch(0));
}

#[tokio::test]
async fn mem_14_afterwards_the_node_is_the_only_member_and_voter_and_a_repeat_completes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut survived = survivor(dir.path(), false).await;
    for round in 1..=2_u64 {
        let survey = Survey::of(&survived).unwrap();
        assert!(!survey.is_done(), "round {round}");
        let before = survey.replicas.clone();
        let epoch = survey.next_epoch(1 << 40);
        survey.recover(epoch, WallTime(99)).await.unwrap();
        drop(survey);
        survived.close();
        drop(survived);

        let database = open(dir.path());
        let identity = database.identity();
        assert_eq!((identity.epoch, identity.is_recovering), (epoch, false));
        assert_eq!(epoch, Epoch::after(Epoch(0), 1 << 40), "of round 1, which may be interrupted");
        let survey = Survey::of(&database).unwrap();
        assert!(survey.is_done());
        assert_eq!((survey.abandoned.len(), survey.lost.len()), (0, 0));
        for (group, replica) in &survey.replicas {
            assert!(replica.votes, "{group}");
            let store = database.group(*group).unwrap();
            let voted = decode_vote(&store.vote().unwrap()).unwrap();
            let raft = raft_id(ReplicaId { node: ME, number: replica.number });
            assert_eq!((voted.leader_id.voted_for, voted.committed), (raft, false));
            assert!(voted.leader_id.term >= replica.last.unwrap().term.0);
            if let Some(before) = before.get(group) {
                let (last, then) = (replica.last.unwrap(), before.last.unwrap());
                assert!(last.term > then.term && last.index.0 > then.index.0 + 1_000);
                assert_eq!(replica.number, before.number);
            } else {
                assert!(replica.last.unwrap().index.0 >= ANEW + 40, "no index comes again");
            }
        }
        let catalog = &survey.catalog;
        assert_eq!(catalog.machine(), MachineVersion::LAST_RESORT);
        assert_eq!(catalog.members().map(|(node, _)| node).collect::<Vec<_>>(), [ME]);
        assert!(catalog.is_forgotten(Incarnation(1)) && catalog.is_forgotten(Incarnation(2)));
        assert!(catalog.keys().contains(&CatalogKey::Placement(GroupId(2))));
        let anew = catalog.placement(GroupId(2)).unwrap().replicas.clone();
        let number = survey.replicas.get(&GroupId(2)).unwrap().number;
        assert_eq!(anew, [ReplicaId { node: ME, number }].into());
        assert!(number > ReplicaNumber(0) && number < catalog.next_replica_number());
        drop(survey);
        assert_eq!(last_command(&database, GroupId(1)), [Command::LastResort]);
        written(|done| database.set_epoch(epoch, true, done)).await.unwrap();
        survived = database;
    }
}

/// The commands of the last entry of a queue group's log.
fn last_command(database: &Database, group: GroupId) -> Vec<Command> {
    let store = database.group(group).unwrap();
    let last = store.log_state().last.unwrap().index;
    let entries = store.read_shared(last, last.next(), READ_BYTES).unwrap();
    let Payload::Commands(commands) = &entries.first().unwrap().payload else { return Vec::new() };
    let entry = codec::queue::decode_entry(&commands.command).unwrap();
    entry.batches.into_iter().flat_map(|batch| batch.commands).collect()
}

#[tokio::test]
async fn mem_14_a_replica_that_is_empty_or_over_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let database = survivor(dir.path(), true).await;
    let (group, number) = (GroupId(1), 2);
    let nodes = [NodeId(1), NodeId(2)].into();
    let place = MemberCommand::Place { group, number, nodes };
    command(&database, 7, CatalogCommand::Members(place)).await;
    let reached = MemberCommand::Reached { group, number };
    command(&database, 8, CatalogCommand::Members(reached)).await;
    // It has voted, and has got nothing.
    written(|done| database.add_replica(GroupId(2), ReplicaNumber(6), done)).await.unwrap();
    let empty = database.group(GroupId(2)).unwrap();
    written(|done| empty.save_vote(encode_vote(&vote(9, 1, true)), done)).await.unwrap();
    drop(empty);
    let survey = Survey::of(&database).unwrap();
    assert_eq!(survey.replicas.keys().collect::<Vec<_>>(), [&GroupId::CATALOG]);
    assert_eq!(survey.lost.keys().collect::<Vec<_>>(), [&GroupId(1), &GroupId(2)]);
    survey.recover(survey.next_epoch(1), WallTime(99)).await.unwrap();
    drop(survey);
    database.close();
    drop(database);

    let database = open(dir.path());
    let survey = Survey::of(&database).unwrap();
    assert!(survey.is_done());
    for (group, number) in [(1, 7), (2, 8)] {
        let replica = survey.replicas.get(&GroupId(group)).unwrap();
        assert_eq!((replica.number, replica.votes), (ReplicaNumber(number), true), "a new name");
        let name = ReplicaId { node: ME, number: replica.number };
        assert!(!survey.catalog.is_replica_over(GroupId(group), name), "it would be removed");
        let first = database.group(GroupId(group)).unwrap().log_state().last.unwrap();
        assert!(first.index.0 >= ANEW && first.term == Term(1), "nothing of the former one");
    }
}

#[tokio::test]
async fn mem_14_a_directory_that_is_no_members_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let refused = Survey::of(&database).err().unwrap();
    assert!(matches!(refused, LastResortError::NoCluster), "{refused}");
    database.close();
    drop(database);

    let dir = tempfile::tempdir().unwrap();
    let database = survivor(dir.path(), true).await;
    let (node, incarnation) = (ME, Incarnation(3));
    let forget = CatalogCommand::Members(MemberCommand::Forget { node, incarnation });
    command(&database, 7, forget).await;
    let refused = Survey::of(&database).err().unwrap();
    assert!(refused.to_string().contains("node 3 was forgotten"), "{refused}");
}
