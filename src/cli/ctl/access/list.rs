//! Lists of users, virtual hosts, permissions and limits.

use super::super::Console;
use super::super::connect::{Connected, call_failure};
use super::super::exit::{Exit, Failure};
use super::super::format::{Sheet, render};
use super::super::options::Invocation;
use super::super::value::Value;
use super::{Table, word};
use quorate_management::wire::{self, access_request::What};
use serde_json::{Map, json};

const VHOST_COLUMNS: [&str; 6] =
    ["cluster_state", "default_queue_type", "description", "name", "tags", "tracing"];

/// Requests a list, and prints it.
pub(super) async fn list(
    table: Table,
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    let (vhost, first) = (options.vhost().to_owned(), word(invocation, 0).to_owned());
    let sheet = match table {
        Table::Users => users(&ask(connected, What::Users).await?),
        Table::Vhosts => vhosts(invocation, connected).await?,
        Table::Permissions => {
            let rows = ask(connected, What::Permissions).await?.permissions;
            let rows = rows.into_iter().filter(|row| row.vhost == vhost);
            rows_of(["user", "configure", "write", "read"], rows, |row| {
                [row.user, row.configure, row.write, row.read]
            })
        }
        Table::UserPermissions => {
            let rows = ask(connected, What::Permissions).await?.permissions;
            let rows = rows.into_iter().filter(|row| row.user == first);
            rows_of(["vhost", "configure", "write", "read"], rows, |row| {
                [row.vhost, row.configure, row.write, row.read]
            })
        }
        Table::TopicPermissions => {
            let rows = ask(connected, What::TopicPermissions).await?.topic_permissions;
            let rows = rows.into_iter().filter(|row| row.vhost == vhost);
            rows_of(["user", "exchange", "write", "read"], rows, |row| {
                [row.user, row.exchange, row.write, row.read]
            })
        }
        Table::UserTopicPermissions => {
            let rows = ask(connected, What::TopicPermissions).await?.topic_permissions;
            let rows = rows.into_iter().filter(|row| row.user == first);
            rows_of(["vhost", "exchange", "write", "read"], rows, |row| {
                [row.vhost, row.exchange, row.write, row.read]
            })
        }
        Table::VhostLimits => {
            let vhosts = ask(connected, What::Vhosts).await?.vhosts;
            let limits = vhosts.into_iter().map(|one| (one.name, vhost_limits(one.limits)));
            match limits_of(limits, "vhost", (!options.has("global")).then_some(&vhost)) {
                Shown::Sheet(sheet) => sheet,
                Shown::Text(text) => return say(console, text),
                Shown::Nobody => return Err(no_vhost(&vhost)),
            }
        }
        Table::UserLimits => {
            let users = ask(connected, What::Users).await?.users;
            let limits = users.into_iter().map(|one| (one.name, user_limits(one.limits)));
            let only = options.value("user").filter(|_| !options.has("global"));
            match limits_of(limits, "user", only.map(str::to_owned).as_ref()) {
                Shown::Sheet(sheet) => sheet,
                Shown::Text(text) => return say(console, text),
                Shown::Nobody => return Err(no_user(only.unwrap_or_default())),
            }
        }
    };
    if sheet.rows.is_empty() {
        check_subject(table, connected, &vhost, &first).await?;
    }
    console.say(&render(&sheet, options.formatter(), options.headers()));
    Ok(())
}

/// If a list has no rows, checks whether the user or virtual host exists.
async fn check_subject(
    table: Table,
    connected: &mut Connected,
    vhost: &str,
    user: &str,
) -> Result<(), Failure> {
    if table == Table::UserPermissions {
        let known = ask(connected, What::Users).await?.users;
        return known.iter().find(|one| one.name == user).map(drop).ok_or_else(|| no_user(user));
    }
    if table == Table::Permissions {
        let known = ask(connected, What::Vhosts).await?.vhosts;
        return known.iter().find(|one| one.name == vhost).map(drop).ok_or_else(|| no_vhost(vhost));
    }
    Ok(())
}

fn say(console: &mut Console<'_>, text: String) -> Result<(), Failure> {
    console.say(&text);
    Ok(())
}

fn no_user(user: &str) -> Failure {
    Failure::new(Exit::NoUser, format!("Error:\n{{:no_such_user, \"{user}\"}}\n"))
}

fn no_vhost(vhost: &str) -> Failure {
    Failure::new(Exit::Data, format!("Virtual host '{vhost}' does not exist\n"))
}

/// The names of all virtual hosts.
pub(in crate::cli::ctl) async fn vhost_names(
    connected: &mut Connected,
) -> Result<Vec<String>, Failure> {
    let vhosts = ask(connected, What::Vhosts).await?.vhosts;
    Ok(vhosts.into_iter().map(|vhost| vhost.name).collect())
}

async fn ask(connected: &mut Connected, what: What) -> Result<wire::AccessList, Failure> {
    let request = wire::AccessRequest { caller: wire::caller(), what: what.into() };
    let failed = |status: tonic::Status| call_failure(&status);
    let mut batches = connected.access.list(request).await.map_err(failed)?.into_inner();
    let mut all = wire::AccessList::default();
    while let Some(mut batch) = batches.message().await.map_err(failed)? {
        all.vhosts.append(&mut batch.vhosts);
        all.users.append(&mut batch.users);
        all.permissions.append(&mut batch.permissions);
        all.topic_permissions.append(&mut batch.topic_permissions);
    }
    Ok(all)
}

fn rows_of<T>(
    columns: [&str; 4],
    rows: impl Iterator<Item = T>,
    cells: impl Fn(T) -> [String; 4],
) -> Sheet {
    let rows = rows.map(|row| cells(row).into_iter().map(Value::text).collect());
    Sheet { columns: columns.map(str::to_owned).to_vec(), rows: rows.collect() }
}

fn users(list: &wire::AccessList) -> Sheet {
    let row = |user: &wire::User| vec![Value::text(&user.name), Value::Words(user.tags.clone())];
    let columns = ["user", "tags"].map(str::to_owned).to_vec();
    Sheet { columns, rows: list.users.iter().map(row).collect() }
}

async fn vhosts(invocation: &Invocation, connected: &mut Connected) -> Result<Sheet, Failure> {
    let mut columns: Vec<String> = invocation.arguments.clone();
    if columns.is_empty() {
        columns.push("name".to_owned());
    }
    let strange: Vec<&str> =
        columns.iter().map(String::as_str).filter(|name| !VHOST_COLUMNS.contains(name)).collect();
    if !strange.is_empty() {
        let text = format!(
            "Error (argument validation): Info key(s) {} are not supported\n",
            strange.join(",")
        );
        return Err(Failure::new(Exit::Usage, text));
    }
    let list = ask(connected, What::Vhosts).await?;
    let cell = |column: &String, vhost: &wire::Vhost| match column.as_str() {
        "name" => Value::text(&vhost.name),
        "description" => Value::text(&vhost.description),
        "tags" => Value::Words(vhost.tags.clone()),
        "tracing" => Value::Bool(vhost.tracing),
        // Every node has every virtual host.
        "cluster_state" => {
            let state = |running| json!(if running { "running" } else { "nodedown" });
            let members = connected.cluster.members.iter();
            let states = members.map(|member| (member.name.clone(), state(member.running)));
            Value::Json(states.collect::<Map<_, _>>().into())
        }
        _ => Value::text(&vhost.default_queue_type),
    };
    let row = |vhost: &wire::Vhost| columns.iter().map(|column| cell(column, vhost)).collect();
    let rows = list.vhosts.iter().map(row).collect();
    Ok(Sheet { columns, rows })
}

type Limits = Map<String, serde_json::Value>;

fn limits(named: [(&str, Option<i64>); 2]) -> Limits {
    let set = named.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), json!(limit?))));
    set.collect()
}

fn vhost_limits(of: Option<wire::VhostLimits>) -> Limits {
    let of = of.unwrap_or_default();
    limits([("max-connections", of.max_connections), ("max-queues", of.max_queues)])
}

fn user_limits(of: Option<wire::UserLimits>) -> Limits {
    let of = of.unwrap_or_default();
    limits([("max-channels", of.max_channels), ("max-connections", of.max_connections)])
}

enum Shown {
    /// The limits of all users or virtual hosts that have limits.
    Sheet(Sheet),
    /// The limits of one user or virtual host, as JSON.
    Text(String),
    /// The user or virtual host does not exist.
    Nobody,
}

fn limits_of(
    all: impl Iterator<Item = (String, Limits)>,
    subject: &str,
    only: Option<&String>,
) -> Shown {
    let mut all = all;
    if let Some(only) = only {
        return match all.find(|(name, _)| name == only) {
            None => Shown::Nobody,
            Some((_, limits)) if limits.is_empty() => Shown::Text(String::new()),
            Some((_, limits)) => Shown::Text(format!("{}\n", json!(limits))),
        };
    }
    let rows = all.filter(|(_, limits)| !limits.is_empty());
    let rows =
        rows.map(|(name, limits)| vec![Value::text(name), Value::text(json!(limits).to_string())]);
    let columns = [subject, "limits"].map(str::to_owned).to_vec();
    Shown::Sheet(Sheet { columns, rows: rows.collect() })
}
