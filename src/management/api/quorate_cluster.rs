//! The cluster as only Quorate has it: members, groups, their leaders and replicas, and how far each
//! replica is behind: `/api/quorate/cluster`. And maintenance: `/api/quorate/nodes/{node}/drain` and
//! `/revive` (MEM 13).

use crate::api::call::{Answer, Api, Call};
use crate::api::names::Names;
use crate::api::nodes;
use crate::api::refusal::Refusal;
use crate::convert;
use crate::wire;
use quorate_broker::view::MemberView;
use quorate_types::NodeId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the nodes have said of themselves, by their ids.
type Answers = BTreeMap<u32, wire::Node>;

/// A member, and what it says of itself if it has answered.
fn member(view: &MemberView, names: &Names, status: Option<&wire::Node>) -> Value {
    let id = u32::from(view.id.0);
    let shown = convert::member_state(view.state);
    let mut member = json!({
        "id": id,
        "name": names.name(id),
        "state": shown,
        "zone": view.zone,
        "rpc_address": view.rpc_address,
        "amqp_address": view.amqp_address,
        "running": status.is_some(),
        "replicas": view.replicas,
        "leads": view.leads,
    });
    let of_process = status.map(|status| {
        json!({
            "version": status.version,
            "uptime_s": status.uptime_s,
            "ready": status.ready,
            "not_ready": status.not_ready,
            "not_live": status.not_live,
            "drained": status.drained,
            "alarms": status.alarms,
            "connections": status.connections,
            "memory_bytes": status.memory_bytes,
            "memory_limit_bytes": status.memory_limit_bytes,
            "disk_free_bytes": status.disk_free_bytes,
            "disk_free_limit_bytes": status.disk_free_limit_bytes,
            "machine_newest": status.machine_newest,
        })
    });
    if let (Some(fields), Some(Value::Object(more))) = (member.as_object_mut(), of_process) {
        fields.extend(more);
    }
    member
}

/// The replica that leads a group, and its node: of several that believe so, that of the latest term.
fn leader(group: u32, answers: &Answers) -> Option<(u32, &wire::Group)> {
    let replicas = answers.iter().flat_map(|(node, status)| {
        status.groups.iter().filter(|one| one.group == group).map(|one| (*node, one))
    });
    replicas.filter(|(node, one)| one.leader == *node).max_by_key(|(_, one)| one.term)
}

/// A group with its replicas. `lag`: entries that the leader has committed and the replica has not
/// applied; null if that is not known.
fn group(placement: &wire::Placement, names: &Names, answers: &Answers) -> Value {
    let leader = leader(placement.group, answers);
    let replica = |(node, status): (&u32, &wire::Node)| {
        let one = status.groups.iter().find(|one| one.group == placement.group)?;
        Some(json!({
            "node": names.name(*node),
            "role": one.role,
            "term": one.term,
            "last": one.last,
            "applied": one.applied,
            "purged": one.purged,
            "log_bytes": one.log_bytes,
            "lag": leader.map(|(_, leader)| leader.applied.saturating_sub(one.applied)),
        }))
    };
    json!({
        "group": placement.group,
        "leader": leader.map(|(node, _)| names.name(node)),
        "term": leader.map(|(_, leader)| leader.term),
        "placement": names.all(&placement.nodes),
        "former": names.all(&placement.former),
        "replicas": answers.iter().filter_map(replica).collect::<Vec<_>>(),
    })
}

/// Members and groups.
pub(crate) async fn cluster(api: &Api) -> Answer {
    let listed = api.cluster.nodes().await;
    let names = Names::known(api);
    let view = api.cluster.view();
    let all = listed.items.into_iter().chain([nodes::own(api)]);
    let answers: Answers = all.map(|node| (node.id, node)).collect();
    let status = |view: &MemberView| answers.get(&u32::from(view.id.0));
    let members: Vec<_> =
        view.members.iter().map(|view| member(view, &names, status(view))).collect();
    let groups = view.placement.iter().map(convert::placement);
    let groups: Vec<_> = groups.map(|placement| group(&placement, &names, &answers)).collect();
    let shown = json!({
        "cluster_id": view.cluster.map(|cluster| format!("{:016x}", cluster.0)),
        "machine_version": view.machine.0,
        "catalog_leader": view.catalog_leader.map(|node| names.name(u32::from(node.0))),
        "members": members,
        "groups": groups,
    });
    Answer::object(shown).without(listed.silent)
}

/// Begins or ends the draining of a node; answered before it has handed over everything.
pub(crate) async fn maintenance(api: &Api, call: &Call, drain: bool) -> Result<Answer, Refusal> {
    let names = Names::of(api).await;
    let id = names.id(call.name("node").unwrap_or_default()).ok_or(Refusal::NoObject)?;
    if id != u32::from(api.facts.id.0) {
        let node = u16::try_from(id).map(NodeId).map_err(|_| Refusal::NoObject)?;
        let done = api.cluster.maintain(node, drain, call.caller.user.as_str()).await;
        return done.map(|()| Answer::done()).map_err(Refusal::Unavailable);
    }
    let operator = api.broker.operator();
    if drain {
        operator.drain().await.map_err(|error| Refusal::Unavailable(error.to_string()))?;
    } else {
        operator.revive().await;
    }
    Ok(Answer::done())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::names;

    fn node(id: u32, group: wire::Group) -> (u32, wire::Node) {
        (id, wire::Node { id, groups: vec![group], ..wire::Node::default() })
    }

    fn replica(leader: u32, term: u64, applied: u64) -> wire::Group {
        wire::Group { group: 3, leader, term, applied, ..wire::Group::default() }
    }

    fn shown(answers: &Answers) -> Value {
        let placement =
            wire::Placement { group: 3, nodes: vec![1, 2], ..wire::Placement::default() };
        group(&placement, &names(), answers)
    }

    #[test]
    fn a_replica_is_as_far_behind_as_its_leader_is_ahead() {
        let shown =
            shown(&Answers::from([node(1, replica(1, 7, 100)), node(2, replica(1, 7, 90))]));
        assert_eq!(shown.pointer("/leader"), Some(&json!("rabbit1@a")));
        assert_eq!(shown.pointer("/term"), Some(&json!(7)));
        assert_eq!(shown.pointer("/replicas/0/lag"), Some(&json!(0)));
        assert_eq!(shown.pointer("/replicas/1/lag"), Some(&json!(10)));
    }

    /// A leader that has not heard of its successor yet.
    #[test]
    fn of_two_leaders_that_of_the_later_term_leads() {
        let shown = shown(&Answers::from([node(1, replica(1, 7, 90)), node(2, replica(2, 8, 80))]));
        assert_eq!(shown.pointer("/leader"), Some(&json!("rabbit2@b")));
        assert_eq!(shown.pointer("/replicas/0/lag"), Some(&json!(0)), "it is ahead");
    }

    #[test]
    fn without_a_leaders_answer_nothing_is_said_of_lag() {
        let shown = shown(&Answers::from([node(2, replica(1, 7, 90))]));
        assert_eq!(shown.pointer("/leader"), Some(&Value::Null));
        assert_eq!(shown.pointer("/replicas/0/lag"), Some(&Value::Null));
    }
}
