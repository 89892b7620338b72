//! The changes that the verbs request, and the messages when a change is refused.

use super::super::exit::{Exit, Failure};
use super::super::options::Invocation;
use super::{AccessVerb, password, word};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quorate_management::wire;
use serde_json::Value;
use wire::change_request::Change;
use wire::denial::Kind;

const QUEUE_TYPES: [&str; 2] = ["quorum", "classic"];

fn refuse<T>(exit: Exit, text: impl AsRef<str>) -> Result<T, Failure> {
    Err(Failure::new(exit, format!("Error:\n{}\n", text.as_ref())))
}

/// The value of an option that takes a number.
pub(super) fn number(invocation: &Invocation, name: &str) -> Result<Option<u32>, Failure> {
    match invocation.options.value(name).map(str::parse) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => refuse(Exit::Usage, format!("--{name} is not a number")),
    }
}

/// The change that the command line requests; `None` for verbs that change nothing.
///
/// # Errors
/// The arguments are invalid.
#[expect(clippy::too_many_lines, reason = "one arm a verb, nothing else")]
pub(super) fn request(
    verb: AccessVerb,
    invocation: &Invocation,
) -> Result<Option<Change>, Failure> {
    use AccessVerb as V;
    let text = |place: usize| word(invocation, place).to_owned();
    let vhost = || invocation.options.vhost().to_owned();
    Ok(Some(match verb {
        V::AddUser => Change::AddUser(add_user(invocation)?),
        V::ChangePassword => {
            let plain = password(invocation, 1, Exit::Software)?.into_bytes().into();
            let given = wire::Password { given: Some(wire::password::Given::Plain(plain)) };
            Change::ChangePassword(wire::AddUser { user: text(0), password: Some(given) })
        }
        // Without a password nobody can log in with one.
        V::ClearPassword => Change::ChangePassword(wire::AddUser { user: text(0), password: None }),
        V::DeleteUser => Change::DeleteUser(text(0)),
        V::SetUserTags => {
            let tags = invocation.arguments.iter().skip(1).cloned().collect();
            Change::SetUserTags(wire::SetUserTags { user: text(0), tags })
        }
        V::SetUserLimits => Change::SetUserLimits(set_user_limits(invocation)?),
        V::ClearUserLimits => Change::ClearUserLimits(clear_user_limits(invocation)?),
        V::SetPermissions => Change::SetPermissions(wire::Permission {
            vhost: vhost(),
            user: text(0),
            configure: text(1),
            write: text(2),
            read: text(3),
        }),
        V::ClearPermissions => {
            Change::ClearPermissions(wire::ClearPermissions { vhost: vhost(), user: text(0) })
        }
        V::SetTopicPermissions => Change::SetTopicPermissions(wire::TopicPermission {
            vhost: vhost(),
            user: text(0),
            exchange: text(1),
            write: text(2),
            read: text(3),
        }),
        V::ClearTopicPermissions => Change::ClearTopicPermissions(wire::ClearTopicPermissions {
            vhost: vhost(),
            user: text(0),
            exchange: invocation.arguments.get(1).cloned(),
        }),
        V::AddVhost => Change::AddVhost(add_vhost(invocation)?),
        V::DeleteVhost => Change::DeleteVhost(text(0)),
        V::UpdateVhostMetadata => Change::UpdateVhost(wire::UpdateVhost {
            vhost: text(0),
            description: invocation.options.value("description").map(str::to_owned),
            tags: tags(invocation).map(|tags| wire::Tags { tags }),
            default_queue_type: queue_type(invocation)?,
        }),
        V::SetVhostTags => {
            let tags = invocation.arguments.iter().skip(1).cloned().collect();
            Change::UpdateVhost(wire::UpdateVhost {
                vhost: text(0),
                tags: Some(wire::Tags { tags }),
                ..wire::UpdateVhost::default()
            })
        }
        V::SetVhostLimits => Change::SetVhostLimits(set_vhost_limits(invocation)?),
        V::ClearVhostLimits => {
            Change::SetVhostLimits(wire::SetVhostLimits { vhost: vhost(), limits: None })
        }
        V::ProtectVhost | V::UnprotectVhost => {
            let protected = verb == V::ProtectVhost;
            Change::SetProtection(wire::SetProtection { vhost: text(0), protected })
        }
        V::TraceOn | V::TraceOff => {
            let tracing = verb == V::TraceOn;
            Change::SetTracing(wire::SetTracing { vhost: vhost(), tracing })
        }
        V::AuthenticateUser
        | V::HashPassword
        | V::SetPermissionsGlobally
        | V::List(_)
        | V::CloseConnection
        | V::CloseAllConnections
        | V::CloseAllUserConnections => return Ok(None),
    }))
}

fn add_user(invocation: &Invocation) -> Result<wire::AddUser, Failure> {
    use wire::password::Given;
    let user = word(invocation, 0).to_owned();
    if user.is_empty() {
        return refuse(Exit::Data, "user cannot be an empty string");
    }
    let given = password(invocation, 1, Exit::Data)?;
    let given = if invocation.options.has("pre-hashed-password") {
        match STANDARD.decode(&given) {
            Ok(hash) => Given::Hash(hash.into()),
            Err(_) => {
                return refuse(Exit::Data, "Could not Base64 decode provided password hash value");
            }
        }
    } else {
        Given::Plain(given.into_bytes().into())
    };
    Ok(wire::AddUser { user, password: Some(wire::Password { given: Some(given) }) })
}

fn add_vhost(invocation: &Invocation) -> Result<wire::Vhost, Failure> {
    Ok(wire::Vhost {
        name: word(invocation, 0).to_owned(),
        description: invocation.options.value("description").unwrap_or_default().to_owned(),
        tags: tags(invocation).unwrap_or_default(),
        default_queue_type: queue_type(invocation)?.unwrap_or_default(),
        limits: None,
        tracing: false,
    })
}

fn set_vhost_limits(invocation: &Invocation) -> Result<wire::SetVhostLimits, Failure> {
    let names = ["max-connections", "max-queues"];
    let [max_connections, max_queues] = limits(word(invocation, 0), names, "limits")?;
    let limits = Some(wire::VhostLimits { max_connections, max_queues });
    Ok(wire::SetVhostLimits { vhost: invocation.options.vhost().to_owned(), limits })
}

fn set_user_limits(invocation: &Invocation) -> Result<wire::SetUserLimits, Failure> {
    let names = ["max-connections", "max-channels"];
    let [max_connections, max_channels] = limits(word(invocation, 1), names, "user-limits")?;
    let limits = Some(wire::UserLimits { max_connections, max_channels });
    Ok(wire::SetUserLimits { user: word(invocation, 0).to_owned(), limits })
}

fn clear_user_limits(invocation: &Invocation) -> Result<wire::ClearUserLimits, Failure> {
    let user = word(invocation, 0).to_owned();
    let (connections, channels) = match word(invocation, 1) {
        "all" => (true, true),
        "max-connections" => (true, false),
        "max-channels" => (false, true),
        _ => {
            return refuse(
                Exit::Usage,
                "limit_type must be one of max-connections, max-channels, all",
            );
        }
    };
    Ok(wire::ClearUserLimits { user, connections, channels })
}

fn tags(invocation: &Invocation) -> Option<Vec<String>> {
    let given = invocation.options.value("tags")?;
    let tags = given.split(',').map(str::trim).filter(|tag| !tag.is_empty());
    Some(tags.map(str::to_owned).collect())
}

fn queue_type(invocation: &Invocation) -> Result<Option<String>, Failure> {
    match invocation.options.value("default-queue-type") {
        None => Ok(None),
        Some("") => refuse(Exit::Data, "Default queue type must not be an empty string"),
        Some(known) if QUEUE_TYPES.contains(&known) => Ok(Some(known.to_owned())),
        Some(other) => {
            let known = QUEUE_TYPES.join(", ");
            let text = format!("Default queue type must be one of: {known}. Provided: {other}");
            refuse(Exit::Data, text)
        }
    }
}

/// Limits from a JSON document.
fn limits(document: &str, names: [&str; 2], component: &str) -> Result<[Option<i64>; 2], Failure> {
    let Ok(Value::Object(given)) = serde_json::from_str(document) else {
        return refuse(
            Exit::Unavailable,
            format!("Could not parse JSON document: ~c\"{document}\""),
        );
    };
    if let Some((name, value)) = given.iter().find(|(name, _)| !names.contains(&name.as_str())) {
        let text = format!("Unrecognised terms [{{<<\"{name}\">>,{value}}}] in {component}");
        return refuse(Exit::Unavailable, text);
    }
    let mut limits = [None, None];
    for (limit, name) in limits.iter_mut().zip(names) {
        *limit = match given.get(name) {
            None => None,
            Some(value) => match value.as_i64() {
                Some(number) => Some(number),
                None => {
                    let text = format!("{name} should be a number, actually was {value}");
                    return refuse(Exit::Unavailable, text);
                }
            },
        };
    }
    Ok(limits)
}

/// rabbitmqctl's words and exit codes for a change that was refused (CTL-12, CTL-13).
pub(super) fn failure(verb: AccessVerb, denial: &wire::Denial) -> Failure {
    use AccessVerb as V;
    let subject = &denial.subject;
    let is_permission = matches!(
        verb,
        V::SetPermissions
            | V::SetPermissionsGlobally
            | V::ClearPermissions
            | V::SetTopicPermissions
            | V::ClearTopicPermissions
    );
    let is_limit = matches!(verb, V::SetUserLimits | V::ClearUserLimits);
    let (exit, text) = match denial.kind() {
        Kind::NoSuchUser if is_permission => {
            (Exit::NoUser, format!("Error:\nUser {subject} does not exist"))
        }
        Kind::NoSuchUser if is_limit => {
            (Exit::NoUser, format!("Error:\n{{:no_such_user, \"{subject}\"}}"))
        }
        Kind::NoSuchUser => (Exit::NoUser, format!("Error:\nUser \"{subject}\" does not exist")),
        Kind::UserExists => (Exit::Software, format!("Error:\nUser \"{subject}\" already exists")),
        Kind::NoSuchVhost if is_permission => {
            (Exit::Unavailable, format!("Error:\nVirtual host {subject} does not exist"))
        }
        Kind::NoSuchVhost => (Exit::Data, format!("Virtual host '{subject}' does not exist")),
        Kind::InvalidPattern => {
            let (pattern, reason) = (charlist(subject), charlist(&denial.reason));
            let at = denial.at;
            let text = format!("Error:\n{{:invalid_regexp, {pattern}, {{{reason}, {at}}}}}");
            (Exit::Unavailable, text)
        }
        Kind::Other => (Exit::Data, format!("Error:\n{}", denial.text)),
    };
    Failure::new(exit, format!("{text}\n"))
}

/// A text in Elixir's notation for a list of characters.
fn charlist(text: &str) -> String {
    format!("~c\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
