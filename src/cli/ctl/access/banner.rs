//! What rabbitmqctl says before it does something.

use super::super::connect::Target;
use super::super::options::Invocation;
use super::{AccessVerb, Table, word};

/// The banner of a verb, without its line's end.
pub(super) fn banner(verb: AccessVerb, invocation: &Invocation, target: &Target) -> String {
    use AccessVerb as V;
    let options = &invocation.options;
    let (first, second) = (word(invocation, 0), word(invocation, 1));
    let vhost = options.vhost();
    match verb {
        V::AddUser => format!("Adding user \"{first}\" ..."),
        V::AuthenticateUser => format!("Authenticating user \"{first}\" ..."),
        V::ChangePassword => format!("Changing password for user \"{first}\" ..."),
        V::DeleteUser => format!("Deleting user \"{first}\" ..."),
        V::SetUserTags => {
            let tags: Vec<&str> = invocation.arguments.iter().skip(1).map(String::as_str).collect();
            format!("Setting tags for user \"{first}\" to [{}] ...", tags.join(", "))
        }
        V::List(Table::Users) => "Listing users ...".to_owned(),
        V::SetUserLimits => {
            format!("Setting user limits to \"{second}\" for user \"{first}\" ...")
        }
        V::ClearUserLimits if second == "all" => {
            format!("Clearing all limits for user \"{first}\" ...")
        }
        V::ClearUserLimits => format!("Clearing \"{second}\" limit for user \"{first}\" ..."),
        V::List(Table::UserLimits) => match options.value("user") {
            Some(user) if !options.has("global") => {
                format!("Listing limits for user \"{user}\" ...")
            }
            Some(_) | None => "Listing limits for all users ...".to_owned(),
        },
        V::SetPermissions => {
            format!("Setting permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::ClearPermissions => {
            format!("Clearing permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::List(Table::Permissions) => format!("Listing permissions for vhost \"{vhost}\" ..."),
        V::List(Table::UserPermissions) => format!("Listing permissions for user \"{first}\" ..."),
        V::SetTopicPermissions => format!(
            "Setting topic permissions on \"{second}\" for user \"{first}\" in vhost \"{vhost}\" ..."
        ),
        V::ClearTopicPermissions if second.is_empty() => {
            format!("Clearing topic permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::ClearTopicPermissions => format!(
            "Clearing topic permissions on \"{second}\" for user \"{first}\" in vhost \"{vhost}\" ..."
        ),
        V::List(Table::TopicPermissions) => {
            format!("Listing topic permissions for vhost \"{vhost}\" ...")
        }
        V::List(Table::UserTopicPermissions) => {
            format!("Listing topic permissions for user \"{first}\" ...")
        }
        V::AddVhost => format!("Adding vhost \"{first}\" ..."),
        V::DeleteVhost => format!("Deleting vhost \"{first}\" ..."),
        V::List(Table::Vhosts) => "Listing vhosts ...".to_owned(),
        V::UpdateVhostMetadata => format!("Updating metadata of vhost \"{first}\" ..."),
        V::SetVhostLimits => {
            format!("Setting vhost limits to \"{first}\" for vhost \"{vhost}\" ...")
        }
        V::ClearVhostLimits => format!("Clearing vhost \"{vhost}\" limits ..."),
        V::List(Table::VhostLimits) if options.has("global") => {
            "Listing limits for all vhosts ...".to_owned()
        }
        V::List(Table::VhostLimits) => format!("Listing limits for vhost \"{vhost}\" ..."),
        V::CloseConnection => format!("Closing connection {first}, reason: {second}..."),
        V::CloseAllConnections if options.has("global") => format!(
            "Closing all connections to node {} (across all vhosts), reason: {first}...",
            target.text
        ),
        V::CloseAllConnections => match options.value("limit") {
            None | Some("0") => {
                format!("Closing all connections in vhost {vhost}, reason: {first}...")
            }
            Some(limit) => {
                format!("Closing {limit} connections in vhost {vhost}, reason: {first}...")
            }
        },
    }
}
