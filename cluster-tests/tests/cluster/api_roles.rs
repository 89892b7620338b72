//! Who may use which route of the HTTP API: the table of routes and roles, asked of a node as users with these
//! roles.

#![expect(clippy::expect_used, reason = "tests")]

use crate::browse::{GUEST, api};
use quorate_cluster_tests::harness::http::credentials;
use quorate_cluster_tests::harness::{Cluster, Options};
use serde_json::json;

/// Written by the unit test of the routes, which finds that no route is left out.
const TABLE: &str = include_str!("../../../src/management/api/roles.txt");
const PASSWORD: &str = "p";
/// Users in the order of the table's columns, with their tags, and whether they have permissions in the virtual
/// host `/`. The last one is named by the paths that it asks for.
const USERS: [(&str, &str, bool); 8] = [
    ("plain", "", true),
    ("manager", "management", false),
    ("manager-in-vhost", "management", true),
    ("policymaker", "policymaker", false),
    ("policymaker-in-vhost", "policymaker", true),
    ("monitor", "monitoring", false),
    ("administrator", "administrator", true),
    ("itself", "management", false),
];

/// The path with names for what stands in braces: of nothing whose change would change who may do what.
fn filled(path: &str, user: &str) -> String {
    let changes_vhost = path == "vhosts/{vhost}" || path.contains("protection");
    let fill = |segment| match segment {
        "{vhost}" if changes_vhost => "other",
        "{vhost}" => "%2F",
        "{user}" if user == "itself" => user,
        "{port}" => "5672",
        "{position}" | "{task}" | "{within}" => "1",
        "{unit}" => "weeks",
        "{control}" => "pause",
        "{kind}" => "q",
        _ => segment.trim_matches(['{', '}']),
    };
    path.split('/').map(fill).collect::<Vec<_>>().join("/")
}

async fn with_users() -> Cluster {
    let cluster = Cluster::start(1, Options::default()).await;
    for (user, tags, in_vhost) in USERS {
        let body = json!({ "password": PASSWORD, "tags": tags }).to_string();
        let put = ("PUT", &*format!("users/{user}"));
        assert_eq!(api(&cluster, 1, GUEST, put, &body).await.0, 201);
        if in_vhost {
            let all = r#"{"configure":".*","write":".*","read":".*"}"#;
            let put = ("PUT", &*format!("permissions/%2F/{user}"));
            assert_eq!(api(&cluster, 1, GUEST, put, all).await.0, 201);
        }
    }
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_may_use_its_routes_and_no_others() {
    let cluster = with_users().await;
    let (mut wrong, mut asked) = (Vec::new(), 0);
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let marks: Vec<bool> = words.by_ref().take(USERS.len()).map(|mark| mark == "x").collect();
        let (method, path) = words.next().zip(words.next()).expect("a method and a path");
        for ((user, _, _), may) in USERS.into_iter().zip(marks) {
            let path = filled(path, user);
            let body = if method == "GET" { "" } else { "{}" };
            let by = credentials(user, PASSWORD);
            let (status, answer) = api(&cluster, 1, &by, (method, &path), body).await;
            asked += 1;
            if (status == 401) == may || status == 405 {
                wrong.push(format!("{user}: {method} {path}: {status} {answer}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
