//! The line that rabbitmqctl prints before it carries out a verb.

use super::super::connect::Target;
use super::super::options::Invocation;
use super::{AccessVerb, Table, word};

/// The banner of a verb, without the line end.
pub(super) fn banner(verb: AccessVerb, invocation: &Invocation, target: &Target) -> String {
    use AccessVerb as V;
    let (first, second) = (word(invocation, 0), word(invocation, 1));
    let vhost = invocation.options.vhost();
    match verb {
        V::List(table) => listing(table, invocation),
        V::CloseConnection => format!("Closing connection {first}, reason: {second}..."),
        V::CloseAllConnections => closing_all(invocation, target),
        V::CloseAllUserConnections => {
            format!("Closing connections of user {first}, reason: {second}...")
        }
        V::AddUser => format!("Adding user \"{first}\" ..."),
        V::AuthenticateUser => format!("Authenticating user \"{first}\" ..."),
        V::ChangePassword => format!("Changing password for user \"{first}\" ..."),
        V::ClearPassword => format!("Clearing password for user \"{first}\" ..."),
        V::HashPassword => "Will hash provided password".to_owned(),
        V::DeleteUser => format!("Deleting user \"{first}\" ..."),
        V::SetUserTags => {
            format!("Setting tags for user \"{first}\" to [{}] ...", tags(invocation))
        }
        V::SetUserLimits => {
            format!("Setting user limits to \"{second}\" for user \"{first}\" ...")
        }
        V::ClearUserLimits if second == "all" => {
            format!("Clearing all limits for user \"{first}\" ...")
        }
        V::ClearUserLimits => format!("Clearing \"{second}\" limit for user \"{first}\" ..."),
        V::SetPermissions => {
            format!("Setting permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::SetPermissionsGlobally => {
            format!("Setting permissions for user \"{first}\" in all virtual hosts ...")
        }
        V::ClearPermissions => {
            format!("Clearing permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::SetTopicPermissions => format!(
            "Setting topic permissions on \"{second}\" for user \"{first}\" in vhost \"{vhost}\" ..."
        ),
        V::ClearTopicPermissions if second.is_empty() => {
            format!("Clearing topic permissions for user \"{first}\" in vhost \"{vhost}\" ...")
        }
        V::ClearTopicPermissions => format!(
            "Clearing topic permissions on \"{second}\" for user \"{first}\" in vhost \"{vhost}\" ..."
        ),
        V::AddVhost => format!("Adding vhost \"{first}\" ..."),
        V::DeleteVhost => format!("Deleting vhost \"{first}\" ..."),
        V::UpdateVhostMetadata => format!("Updating metadata of vhost \"{first}\" ..."),
        V::SetVhostTags => {
            format!("Setting tags for virtual host \"{first}\" to [{}] ...", tags(invocation))
        }
        V::SetVhostLimits => {
            format!("Setting vhost limits to \"{first}\" for vhost \"{vhost}\" ...")
        }
        V::ClearVhostLimits => format!("Clearing vhost \"{vhost}\" limits ..."),
        V::ProtectVhost => format!("Protecting virtual host \"{first}\" from deletion ..."),
        V::UnprotectVhost => format!("Unprotecting virtual host \"{first}\" from deletion ..."),
        V::TraceOn => format!("Starting tracing for vhost \"{vhost}\" ..."),
        V::TraceOff => format!("Stopping tracing for vhost \"{vhost}\" ..."),
    }
}

fn tags(invocation: &Invocation) -> String {
    let tags: Vec<&str> = invocation.arguments.iter().skip(1).map(String::as_str).collect();
    tags.join(", ")
}

fn listing(table: Table, invocation: &Invocation) -> String {
    let options = &invocation.options;
    let (first, vhost) = (word(invocation, 0), options.vhost());
    let user = options.value("user").filter(|_| !options.has("global"));
    match table {
        Table::Users => "Listing users ...".to_owned(),
        Table::Vhosts => "Listing vhosts ...".to_owned(),
        Table::Permissions => format!("Listing permissions for vhost \"{vhost}\" ..."),
        Table::UserPermissions => format!("Listing permissions for user \"{first}\" ..."),
        Table::TopicPermissions => {
            format!("Listing topic permissions for vhost \"{vhost}\" ...")
        }
        Table::UserTopicPermissions => {
            format!("Listing topic permissions for user \"{first}\" ...")
        }
        Table::UserLimits => match user {
            Some(user) => format!("Listing limits for user \"{user}\" ..."),
            None => "Listing limits for all users ...".to_owned(),
        },
        Table::VhostLimits if options.has("global") => {
            "Listing limits for all vhosts ...".to_owned()
        }
        Table::VhostLimits => format!("Listing limits for vhost \"{vhost}\" ..."),
    }
}

fn closing_all(invocation: &Invocation, target: &Target) -> String {
    let options = &invocation.options;
    let (reason, vhost) = (word(invocation, 0), options.vhost());
    if options.has("global") {
        let node = &target.text;
        return format!(
            "Closing all connections to node {node} (across all vhosts), reason: {reason}..."
        );
    }
    match options.value("limit") {
        None | Some("0") => {
            format!("Closing all connections in vhost {vhost}, reason: {reason}...")
        }
        Some(limit) => format!("Closing {limit} connections in vhost {vhost}, reason: {reason}..."),
    }
}
