//! The verbs on virtual hosts, users, permissions, limits and connections (CTL-04 to CTL-07,
//! CTL-11, CTL-13).

mod banner;
mod change;
mod list;
mod manuals;

use super::Console;
use super::connect::{Connected, Target, call_failure};
use super::exit::{Exit, Failure};
use super::names::Names;
use super::options::{Formatter, Invocation};
use quorate_management::wire;
use quorate_rpc::Connector;
use std::io::BufRead;
use wire::close_request::Which;

pub(super) use list::vhost_names;
pub(super) use manuals::MANUALS;

/// A verb about users, permissions or virtual hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessVerb {
    List(Table),
    AddUser,
    AuthenticateUser,
    ChangePassword,
    DeleteUser,
    SetUserTags,
    SetUserLimits,
    ClearUserLimits,
    SetPermissions,
    ClearPermissions,
    SetTopicPermissions,
    ClearTopicPermissions,
    AddVhost,
    DeleteVhost,
    UpdateVhostMetadata,
    SetVhostLimits,
    ClearVhostLimits,
    CloseConnection,
    CloseAllConnections,
    TraceOn,
    TraceOff,
}

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Users,
    UserLimits,
    Permissions,
    UserPermissions,
    TopicPermissions,
    UserTopicPermissions,
    Vhosts,
    VhostLimits,
}

/// The nth argument of the verb; the number of arguments has been checked.
fn word(invocation: &Invocation, place: usize) -> &str {
    invocation.arguments.get(place).map_or("", String::as_str)
}

/// Carries out a verb.
pub(super) async fn run(
    verb: AccessVerb,
    invocation: &Invocation,
    target: &Target,
    connector: &Connector,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    use AccessVerb as V;
    let request = change::request(verb, invocation)?;
    if invocation.options.banners() {
        console.say(&format!("{}\n", banner::banner(verb, invocation, target)));
    }
    let mut connected = super::connect::connect(target, connector).await?;
    match verb {
        V::List(table) => list::list(table, invocation, &mut connected, console).await,
        V::AuthenticateUser => authenticate(invocation, &mut connected, console).await,
        V::CloseConnection | V::CloseAllConnections => {
            close(verb, invocation, &mut connected, console).await
        }
        V::AddUser
        | V::ChangePassword
        | V::DeleteUser
        | V::SetUserTags
        | V::SetUserLimits
        | V::ClearUserLimits
        | V::SetPermissions
        | V::ClearPermissions
        | V::SetTopicPermissions
        | V::ClearTopicPermissions
        | V::AddVhost
        | V::DeleteVhost
        | V::UpdateVhostMetadata
        | V::SetVhostLimits
        | V::ClearVhostLimits
        | V::TraceOn
        | V::TraceOff => {
            let change = wire::ChangeRequest { caller: wire::caller(), change: request };
            let reply = connected.access.change(change).await;
            let reply = reply.map_err(|status| call_failure(&status))?.into_inner();
            match reply.denial {
                Some(denial) => Err(change::failure(verb, &denial)),
                None => {
                    console.say(&done(verb, invocation, &connected));
                    Ok(())
                }
            }
        }
    }
}

/// The message after a change.
fn done(verb: AccessVerb, invocation: &Invocation, connected: &Connected) -> String {
    const ADDED: &str = "Done. Don't forget to grant the user permissions to some virtual hosts! \
                         See 'rabbitmqctl help set_permissions' to learn more.";
    let options = &invocation.options;
    if options.formatter() == Formatter::Json {
        let node = connected.asked().map(|member| member.name.clone()).unwrap_or_default();
        let said = if verb == AccessVerb::AddUser {
            serde_json::json!({"status": "ok", "node": node, "message": ADDED})
        } else {
            serde_json::json!({"result": "ok", "node": node})
        };
        return format!("{said}\n");
    }
    let tracing = |what| format!("Trace {what} for vhost {}\n", options.vhost());
    if verb == AccessVerb::TraceOn {
        tracing("enabled")
    } else if verb == AccessVerb::TraceOff {
        tracing("disabled")
    } else if verb == AccessVerb::AddUser && !options.quiet && !options.silent {
        format!("{ADDED}\n")
    } else {
        String::new()
    }
}

/// A password from the command line, or else the first line of standard input.
fn password(invocation: &Invocation, place: usize, exit: Exit) -> Result<String, Failure> {
    if let Some(given) = invocation.arguments.get(place) {
        return Ok(given.clone());
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read {
        Ok(bytes) if bytes > 0 => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
        Ok(_) | Err(_) => {
            let text = "Error:\nPassword is not provided via argument or stdin\n";
            Err(Failure::new(exit, text))
        }
    }
}

async fn authenticate(
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let user = word(invocation, 0).to_owned();
    let password = password(invocation, 1, Exit::Software)?.into_bytes().into();
    let request =
        wire::AuthenticateRequest { caller: wire::caller(), user: user.clone(), password };
    let reply = connected.access.authenticate(request).await;
    if reply.map_err(|status| call_failure(&status))?.into_inner().accepted {
        console.say("Success\n");
        return Ok(());
    }
    let text = format!(
        "Error:\nError: failed to authenticate user \"{user}\"\nuser '{user}' - invalid credentials\n"
    );
    Err(Failure::new(Exit::Data, text))
}

/// Closes connections (CTL-11, CONN-29).
async fn close(
    verb: AccessVerb,
    invocation: &Invocation,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = &invocation.options;
    let all = verb == AccessVerb::CloseAllConnections;
    let (which, scope, reason) = if !all {
        let names = Names::of(&connected.cluster);
        let Some(id) = names.connection_of(word(invocation, 0)) else {
            return Err(Failure::new(Exit::Unavailable, "Error:\n{:badarg, :invalid_pid}\n"));
        };
        (Which::Connection(id), wire::Scope::Cluster, word(invocation, 1))
    } else if options.has("global") {
        (Which::All(true), wire::Scope::Local, word(invocation, 0))
    } else {
        (Which::Vhost(options.vhost().to_owned()), wire::Scope::Cluster, word(invocation, 0))
    };
    let limit = change::number(invocation, "limit")?.unwrap_or(0);
    let request = wire::CloseRequest {
        caller: wire::caller(),
        scope: scope.into(),
        which: Some(which),
        reason: reason.to_owned(),
        limit,
    };
    let reply = connected.access.close_connections(request).await;
    let closed = reply.map_err(|status| call_failure(&status))?.into_inner().closed;
    if all {
        console.say(&format!("Closed {closed} connections\n"));
    }
    Ok(())
}
