//! Nodes, starts and fences (SES 1, SES 6), and records (new, load).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    Catalog, CatalogCommand as C, CatalogEvent, CatalogKey, CatalogRecord, CatalogReply,
};
use quorate_types::{BootNumber, CatalogIndex, Incarnation, MachineVersion, NodeId, StartNumber};

fn start(number: u64) -> CatalogReply {
    CatalogReply::Started(StartNumber(number))
}

#[test]
fn ses_01_the_start_number_is_the_index_of_the_entry() {
    let mut world = World::new();
    world.apply(vec![]);
    assert_eq!(world.started(1, 11), start(2));
    assert_eq!(world.started(2, 21), start(3));
    assert_eq!(world.started(1, 11), start(2), "a repeat gets the same");
    assert_eq!(world.events(), []);
    assert_eq!(world.started(1, 12), start(5));
    assert_eq!(
        world.events(),
        [CatalogEvent::NodeStarted { node: NodeId(1), start: StartNumber(5), data_lost: false }]
    );
    assert_eq!(world.catalog.live_session(NodeId(1)), Some(session(1, 5)));
    assert_eq!(world.catalog.session_of(NodeId(1), BootNumber(12)), Some(session(1, 5)));
    assert_eq!(world.catalog.session_of(NodeId(1), BootNumber(11)), None);
    let entry = world.catalog.node(NodeId(1)).unwrap();
    assert_eq!(entry.amqp_address, "host1:5672");
    assert_eq!(world.catalog.nodes().map(|(node, _)| node.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn mem_15_the_machine_version_is_raised_one_by_one_and_never_lowered() {
    let mut world = World::formed(1, 0);
    assert_eq!(world.catalog.machine(), MachineVersion::FIRST);
    world.done(C::RaiseMachine(MachineVersion(3)));
    assert_eq!(world.events(), [], "not the next one");
    assert_eq!(world.catalog.machine(), MachineVersion::FIRST);
    world.done(C::RaiseMachine(MachineVersion(2)));
    assert_eq!(world.events().first(), Some(&CatalogEvent::MachineRaised(MachineVersion(2))));
    world.done(C::RaiseMachine(MachineVersion(2)));
    world.done(C::RaiseMachine(MachineVersion(1)));
    assert_eq!(world.events(), [], "repeats have no effect");
    assert_eq!(world.catalog.machine(), MachineVersion(2));
    let state = world.catalog.record(&CatalogKey::State);
    let names =
        |record| matches!(record, CatalogRecord::State(it) if it.machine == MachineVersion(2));
    assert!(state.is_some_and(names));
}

#[test]
fn ses_06_a_higher_start_fences_the_lower_ones_of_its_node() {
    let mut world = World::new();
    world.started(1, 11);
    world.started(2, 21);
    assert!(!world.catalog.is_fenced(session(1, 1)));
    world.started(1, 12);
    assert!(world.catalog.is_fenced(session(1, 1)));
    assert!(world.catalog.is_fenced(session(1, 0)));
    assert!(!world.catalog.is_fenced(session(1, 3)));
    assert!(!world.catalog.is_fenced(session(2, 2)));
    assert!(!world.catalog.is_fenced(session(9, 1)), "nothing is known of it");
}

#[test]
fn ses_06_node_down_fences_and_the_same_process_may_announce_a_new_start() {
    let mut world = World::new();
    world.started(1, 11);
    world.done(C::NodeDown { node: NodeId(1), start: StartNumber(1) });
    assert_eq!(world.catalog.live_session(NodeId(1)), None);
    assert!(world.catalog.is_fenced(session(1, 1)));
    world.done(C::NodeDown { node: NodeId(1), start: StartNumber(1) });
    assert_eq!(world.events(), []);
    assert_eq!(world.started(1, 11), start(4));
    assert!(!world.catalog.is_fenced(session(1, 4)));
    // Late commands about the earlier start, or about a start that was never given, have no effect.
    world.done(C::NodeDown { node: NodeId(1), start: StartNumber(1) });
    assert_eq!(world.catalog.live_session(NodeId(1)), Some(session(1, 4)));
    world.done(C::NodeDown { node: NodeId(7), start: StartNumber(1) });
    assert_eq!(world.started(7, 71), start(7));
    world.done(C::NodeDown { node: NodeId(7), start: StartNumber(99) });
    assert_eq!(world.catalog.node(NodeId(7)).unwrap().fenced, StartNumber(7));
}

#[test]
fn ses_01_at_most_one_announcement_of_a_node_counts_in_an_entry() {
    let mut world = World::new();
    let replies = world.apply(vec![started(1, 11), started(1, 12), started(2, 21), started(1, 11)]);
    assert_eq!(replies, [start(1), CatalogReply::Fenced, start(1), start(1)]);
    assert_eq!(world.started(1, 12), start(2), "announced anew");
    let down = C::NodeDown { node: NodeId(2), start: StartNumber(1) };
    let replies = world.apply(vec![down, started(2, 22), started(1, 11)]);
    assert_eq!(replies, [CatalogReply::Done, start(3), CatalogReply::Fenced]);
}

#[test]
fn ses_01_an_announcement_of_a_former_process_that_comes_late_starts_nothing() {
    let mut world = World::new();
    world.started(1, 11);
    world.started(1, 12);
    assert_eq!(world.started(1, 11), CatalogReply::Fenced);
    assert_eq!(world.catalog.live_session(NodeId(1)), Some(session(1, 2)));
    for boot in 13..40 {
        world.started(1, boot);
    }
    let entry = world.catalog.node(NodeId(1)).unwrap();
    assert_eq!(entry.former_boots.len(), quorate_catalog::FORMER_BOOTS_MAX);
    assert_eq!(entry.former_boots.last(), Some(&BootNumber(38)));
}

#[test]
fn a_node_that_comes_back_with_another_incarnation_has_lost_its_data() {
    let mut world = World::new();
    world.started(1, 11);
    let again = C::NodeStarted {
        node: NodeId(1),
        incarnation: Incarnation(99),
        boot: BootNumber(12),
        rpc_address: String::new(),
        amqp_address: String::new(),
    };
    world.one(again);
    assert_eq!(
        world.events(),
        [CatalogEvent::NodeStarted { node: NodeId(1), start: StartNumber(2), data_lost: true }]
    );
}

#[test]
fn the_first_entry_hands_out_what_a_new_catalog_holds() {
    let mut world = World::new();
    let mut expected = world.catalog.keys();
    world.apply(vec![]);
    expected.push(CatalogKey::State);
    assert_eq!(world.out.changes, expected);
    world.apply(vec![]);
    assert_eq!(world.out.changes, [CatalogKey::State]);
    assert_eq!(world.catalog, world.reloaded());
}

#[test]
fn no_records_make_a_new_catalog_and_some_without_its_own_make_none() {
    assert_eq!(Catalog::load([]), Ok(Catalog::new()));
    let mut world = World::new();
    world.apply(vec![]);
    let key = CatalogKey::Vhost(short("/"));
    let record = world.catalog.record(&key).unwrap();
    assert!(Catalog::load([(key.clone(), record.clone())]).is_err());
    assert!(Catalog::load([(CatalogKey::State, record)]).is_err());
    let state = world.catalog.record(&CatalogKey::State).unwrap();
    let stray = CatalogRecord::Binding(to_queue("amq.direct", "k", "q", id(1)));
    let records =
        [(CatalogKey::State, state), (CatalogKey::Binding(quorate_catalog::BindingId(1)), stray)];
    let refused = Catalog::load(records).unwrap_err().to_string();
    assert_eq!(refused, "stored catalog: binding 1: no destination");
}

#[test]
fn the_version_follows_the_log_and_guest_is_known() {
    let mut world = World::new();
    world.catalog.advance(CatalogIndex(4));
    assert_eq!(world.catalog.version(), CatalogIndex(4));
    world.index = 4;
    world.apply(vec![]);
    world.catalog.advance(CatalogIndex(4));
    assert_eq!(world.catalog.version(), CatalogIndex(5));
    let guest = world.catalog.user(&short("guest")).unwrap();
    assert_eq!(
        (guest.password.bytes.len(), guest.tags.clone()),
        (36, vec![short("administrator")])
    );
    assert!(world.catalog.has_vhost(&short("/")));
    assert_eq!(world.catalog.vhosts().count(), 1);
    assert_eq!(world.catalog.users().count(), 1);
}
