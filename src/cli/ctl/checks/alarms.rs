//! `alarms`, `check_alarms` and `check_local_alarms` (ALM-01).

use super::super::report::alarm_line;
use super::{CheckVerb, bad, well};
use crate::cli::ctl::job::Found;
use quorate_management::wire;
use serde_json::json;

/// The alarms of the asked node, and of the others.
pub(super) fn check(verb: CheckVerb, cluster: &wire::Cluster, name: &str) -> Found {
    let only_local = verb == CheckVerb::CheckLocalAlarms;
    let of = |is_own: bool| {
        let members = cluster.members.iter().filter(move |it| (it.id == cluster.asked) == is_own);
        let statuses = members.filter_map(|member| member.status.as_ref());
        statuses.flat_map(|node| node.alarms.iter().map(|alarm| alarm_line(node, alarm)))
    };
    let local: Vec<String> = of(true).collect();
    let global: Vec<String> = if only_local { Vec::new() } else { of(false).collect() };
    if local.is_empty() && global.is_empty() {
        let text = if only_local {
            format!("Node {name} reported no local alarms")
        } else {
            format!("Node {name} reported no alarms, local or clusterwide")
        };
        let json = if verb == CheckVerb::Alarms {
            json!({ "result": "ok", "node": name, "alarms": [] })
        } else {
            json!({ "result": "ok" })
        };
        return well(text, json);
    }
    let lines: Vec<&str> = local.iter().chain(&global).map(String::as_str).collect();
    let text = lines.join("\n");
    let is_question = verb == CheckVerb::Alarms;
    let json = json!({
        "result": if is_question { "ok" } else { "error" },
        "local": local,
        "global": global,
        "message": format!("Node {name} reported alarms"),
    });
    if is_question { well(text, json) } else { bad(text, json) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alm_01_alarms_of_other_nodes_are_no_local_ones() {
        let member = |id: u32, alarms: &[&str]| {
            let alarms = alarms.iter().map(|alarm| (*alarm).to_owned()).collect();
            let status = wire::Node { name: format!("n{id}"), alarms, ..wire::Node::default() };
            wire::Member { id, status: Some(status), ..wire::Member::default() }
        };
        let members = vec![member(1, &[]), member(2, &["disk"])];
        let cluster = wire::Cluster { asked: 1, members, ..wire::Cluster::default() };
        assert!(check(CheckVerb::CheckLocalAlarms, &cluster, "n1").is_well);
        let all = check(CheckVerb::CheckAlarms, &cluster, "n1");
        assert_eq!((all.is_well, all.text.as_str()), (false, "Free disk space alarm on node n2"));
        assert!(check(CheckVerb::Alarms, &cluster, "n1").is_well, "a question that is answered");
    }
}
