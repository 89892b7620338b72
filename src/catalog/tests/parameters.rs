//! Global parameters that queue settings depend on.

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{CatalogCommand as C, CatalogEvent, ParameterName, ParameterRecord};

#[test]
fn q_45_the_bound_of_letters_is_a_parameter_that_settings_follow() {
    let mut world = World::new();
    let bound = |world: &World| world.catalog.config_of(&queue("q", id(1))).letters_max;
    assert_eq!(bound(&world), 1_000_000);
    let name = ParameterName::Global(short("dead_letters_max"));
    let record = ParameterRecord::parse(name.clone(), "12").unwrap();
    world.done(C::SetParameter(record.clone()));
    assert_eq!(world.events(), [CatalogEvent::PoliciesChanged]);
    assert_eq!(bound(&world), 12);
    assert_eq!(bound(&World { catalog: world.reloaded(), ..World::new() }), 12);
    world.done(C::SetParameter(record));
    assert_eq!(world.events(), [], "nothing has changed");
    for wrong in ["0", "-1", "1.5", "\"12\"", "[]"] {
        let told = ParameterRecord::parse(name.clone(), wrong).unwrap_err().to_string();
        let expected =
            format!("parameter 'dead_letters_max' must be an integer above 0, not {wrong}");
        assert_eq!(told, expected);
    }
    world.done(C::ClearParameter(name));
    assert_eq!(world.events(), [CatalogEvent::PoliciesChanged]);
    assert_eq!(bound(&world), 1_000_000);
}
