//! The verbs on virtual hosts, users, permissions, limits and connections (CTL-04 to CTL-07,
//! CTL-11, CTL-13).

mod banner;
mod change;
mod closing;
mod list;
mod manuals;

use super::Console;
use super::connect::{Connected, Target, call_failure};
use super::exit::{Exit, Failure};
use super::options::{Formatter, Invocation};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quorate_management::wire;
use quorate_rpc::Connector;
use std::io::BufRead;

pub(super) use list::vhost_names;
pub(super) use manuals::MANUALS;

/// A verb about users, permissions or virtual hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessVerb {
    List(Table),
    AddUser,
    AuthenticateUser,
    ChangePassword,
    ClearPassword,
    HashPassword,
    DeleteUser,
    SetUserTags,
    SetUserLimits,
    ClearUserLimits,
    SetPermissions,
    SetPermissionsGlobally,
    ClearPermissions,
    SetTopicPermissions,
    ClearTopicPermissions,
    AddVhost,
    DeleteVhost,
    UpdateVhostMetadata,
    SetVhostTags,
    SetVhostLimits,
    ClearVhostLimits,
    CloseConnection,
    CloseAllConnections,
    CloseAllUserConnections,
    ProtectVhost,
    UnprotectVhost,
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
    (target, connector): (&Target, &Connector),
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    use AccessVerb as V;
    let request = change::request(verb, invocation)?;
    if invocation.options.banners() {
        console.say(&format!("{}\n", banner::banner(verb, invocation, target)));
    }
    if verb == V::HashPassword {
        return hash_password(invocation, console);
    }
    let mut connected = super::connect::connect(target, connector).await?;
    match verb {
        V::List(table) => list::list(table, invocation, &mut connected, console).await,
        V::AuthenticateUser => authenticate(invocation, &mut connected, console).await,
        V::CloseConnection | V::CloseAllConnections | V::CloseAllUserConnections => {
            closing::close(verb, invocation, &mut connected, console).await
        }
        V::SetPermissionsGlobally => set_globally(invocation, &mut connected).await,
        V::AddUser
        | V::ChangePassword
        | V::ClearPassword
        | V::HashPassword
        | V::SetVhostTags
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
        | V::ProtectVhost
        | V::UnprotectVhost
        | V::TraceOn
        | V::TraceOff => {
            make(verb, request, &mut connected).await?;
            console.say(&done(verb, invocation, &connected));
            Ok(())
        }
    }
}

/// Has a change made.
async fn make(
    verb: AccessVerb,
    change: Option<wire::change_request::Change>,
    connected: &mut Connected,
) -> Result<(), Failure> {
    let change = wire::ChangeRequest { caller: wire::caller(), change };
    let reply = connected.access.change(change).await;
    let reply = reply.map_err(|status| call_failure(&status))?.into_inner();
    reply.denial.map_or(Ok(()), |denial| Err(change::failure(verb, &denial)))
}

/// Sets the permissions of a user in every virtual host.
async fn set_globally(invocation: &Invocation, connected: &mut Connected) -> Result<(), Failure> {
    for vhost in vhost_names(connected).await? {
        let text = |place| word(invocation, place).to_owned();
        let permission = wire::Permission {
            vhost,
            user: text(0),
            configure: text(1),
            write: text(2),
            read: text(3),
        };
        let change = wire::change_request::Change::SetPermissions(permission);
        make(AccessVerb::SetPermissionsGlobally, Some(change), connected).await?;
    }
    Ok(())
}

/// Prints the stored form of a password.
fn hash_password(invocation: &Invocation, console: &mut Console<'_>) -> Result<(), Failure> {
    let password = password(invocation, 0, Exit::Usage)?;
    let refuse = |why: &str| Err(Failure::new(Exit::Data, format!("Error:\n{why}\n")));
    if password.is_empty() {
        return refuse("password cannot be an empty string");
    }
    match quorate_broker::hash_password(password.as_bytes()) {
        Ok(hash) => {
            console.say(&format!("{}\n", STANDARD.encode(&hash.bytes)));
            Ok(())
        }
        Err(error) => refuse(&error.to_string()),
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
