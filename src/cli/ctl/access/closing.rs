//! `close_connection`, `close_all_connections` and `close_all_user_connections` (CTL-11, CONN-29).

use super::super::Console;
use super::super::connect::{Connected, call_failure};
use super::super::exit::{Exit, Failure};
use super::super::lists;
use super::super::names::Names;
use super::super::options::Invocation;
use super::super::progress::Progress;
use super::{AccessVerb, change, word};
use quorate_management::wire::{self, ConnectionId, Scope, close_request::Which};
use std::time::Duration;
use tokio::time::sleep;

/// Closes connections, and says how many.
pub(super) async fn close(
    verb: AccessVerb,
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    if verb == AccessVerb::CloseConnection {
        let names = Names::of(&connected.cluster);
        let Some(id) = names.connection_of(word(invocation, 0)) else {
            return Err(Failure::new(Exit::Unavailable, "Error:\n{:badarg, :invalid_pid}\n"));
        };
        let which = Which::Connection(id);
        return ask(which, Scope::Cluster, word(invocation, 1), 0, connected).await.map(drop);
    }
    let limit = change::number(invocation, "limit")?.unwrap_or(0);
    let delay = change::number(invocation, "per-connection-delay")?.unwrap_or(0);
    let of_user = verb == AccessVerb::CloseAllUserConnections;
    let closed = if of_user || delay > 0 {
        let reason = word(invocation, usize::from(of_user));
        let chosen = chosen(verb, invocation, limit, connected).await?;
        let delay = Duration::from_millis(delay.into());
        one_by_one(&chosen, reason, delay, (invocation, connected), console).await?
    } else if options.has("global") {
        ask(Which::All(true), Scope::Local, word(invocation, 0), limit, connected).await?
    } else {
        let which = Which::Vhost(options.vhost().to_owned());
        ask(which, Scope::Cluster, word(invocation, 0), limit, connected).await?
    };
    console.say(&format!("Closed {closed} connections\n"));
    Ok(())
}

/// Has connections closed; returns their number.
async fn ask(
    which: Which,
    scope: Scope,
    reason: &str,
    limit: u32,
    connected: &mut Connected,
) -> Result<u32, Failure> {
    let request = wire::CloseRequest {
        caller: wire::caller(),
        scope: scope.into(),
        which: Some(which),
        reason: reason.to_owned(),
        limit,
    };
    let reply = connected.access.close_connections(request).await;
    Ok(reply.map_err(|status| call_failure(&status))?.into_inner().closed)
}

/// The connections that a verb is about: of a user, of the node (`--global`), or of a virtual host.
async fn chosen(
    verb: AccessVerb,
    invocation: &Invocation,
    limit: u32,
    connected: &mut Connected,
) -> Result<Vec<ConnectionId>, Failure> {
    let options = &invocation.options;
    let asked = connected.cluster.asked;
    let of = |connection: &wire::Connection| {
        if verb == AccessVerb::CloseAllUserConnections {
            connection.user == word(invocation, 0)
        } else if options.has("global") {
            connection.id.is_some_and(|id| id.node == asked)
        } else {
            connection.vhost == options.vhost()
        }
    };
    let all = lists::connections(connected).await?;
    let most = if limit == 0 { usize::MAX } else { limit as usize };
    Ok(all.into_iter().filter(of).filter_map(|connection| connection.id).take(most).collect())
}

async fn one_by_one(
    chosen: &[ConnectionId],
    reason: &str,
    delay: Duration,
    (invocation, connected): (&Invocation, &mut Connected),
    console: &mut Console<'_>,
) -> Result<u32, Failure> {
    let mut progress = Progress::of(&invocation.options);
    let mut closed = 0;
    for (done, id) in chosen.iter().enumerate() {
        if done > 0 {
            sleep(delay).await;
        }
        closed += ask(Which::Connection(*id), Scope::Cluster, reason, 0, connected).await?;
        progress.show(console, |_| format!("{} of {} connections closed", done + 1, chosen.len()));
    }
    progress.end(console);
    Ok(closed)
}
