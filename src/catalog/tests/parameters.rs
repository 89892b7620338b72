//! Parameters that something follows: queue settings (Q-45), the limits of a virtual host (VLM-01).

#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::*;
use quorate_catalog::{
    CatalogCommand as C, CatalogEvent, CatalogReply, Denial, ParameterName, ParameterRecord,
    VhostLimits,
};

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

#[test]
fn vlm_01_the_limits_of_a_virtual_host_are_a_parameter() {
    let mut world = World::new();
    let of = |vhost, name| ParameterName::Vhost {
        vhost: short(vhost),
        component: short("vhost-limits"),
        name: short(name),
    };
    let set = |vhost, value: &str| ParameterRecord::parse(of(vhost, "limits"), value).unwrap();
    let record = set("/", r#"{"max-queues":5}"#);
    world.done(record.clone().set());
    let limits = world.catalog.vhost_limits(&short("/"));
    assert_eq!(limits, VhostLimits { queues_max: Some(5), connections_max: None });
    assert_eq!(world.catalog.parameter(&record.name), Some(record.clone()));
    assert_eq!(world.catalog.shown_parameters().collect::<Vec<_>>(), std::slice::from_ref(&record));
    world.done(set("/", r#"{"max-connections":-1}"#).set());
    let limits = world.catalog.vhost_limits(&short("/"));
    assert_eq!(limits, VhostLimits { queues_max: None, connections_max: Some(-1) }, "replaced");
    let missing = CatalogReply::Denied(Denial::NoSuchVhost(short("v")));
    assert_eq!(world.one(set("v", "{}").set()), missing);
    world.done(record.name.clone().clear());
    assert_eq!(world.catalog.parameter(&record.name), None);
    assert_eq!(world.catalog.shown_parameters().count(), 0);
    let wrong = |name, value| ParameterRecord::parse(of("/", name), value).unwrap_err().to_string();
    assert_eq!(wrong("limits", "[]"), "limits of a virtual host must be an object, not []");
    assert_eq!(wrong("limits", r#"{"fun":1}"#), "limits of a virtual host have no 'fun'");
    let text = "limits of a virtual host have an integer 'max-queues', not 0.5";
    assert_eq!(wrong("limits", r#"{"max-queues":0.5}"#), text);
    let text = "limits of a virtual host are the parameter 'limits', not 'other'";
    assert_eq!(wrong("other", "{}"), text);
}
