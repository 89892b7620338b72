//! `status`, `cluster_status` and `report`.

use super::Console;
use super::access::vhost_names;
use super::checks::own;
use super::columns::{self, Listing};
use super::command::Verb;
use super::connect::Connected;
use super::exit::Failure;
use super::job::{Job, asked_name};
use super::options::{Formatter, Options};
use super::{about, lists, policies, report};
use quorate_catalog::PolicyKind;

/// Shows the status of the asked node, or of the cluster.
pub(super) async fn show(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut connected = job.connect().await?;
    let options = &job.invocation.options;
    if job.invocation.manual.verb == Verb::Status {
        let node = own(&connected)?;
        if job.is_json() {
            console.say(&format!("{}\n", report::status_json(node)));
            return Ok(());
        }
        job.banner(console, format!("Status of node {} ...", node.name));
        console.say(&report::status(node));
        return Ok(());
    }
    // Without a majority the name is not known, but the rest is.
    let name = policies::cluster_name(&mut connected.policies).await.ok().flatten();
    let (node, name) = (own(&connected)?.name.clone(), name.as_deref());
    if options.formatter() == Formatter::Json {
        console.say(&format!("{}\n", report::cluster_status_json(&connected.cluster, name)));
        return Ok(());
    }
    job.banner(console, format!("Cluster status of node {node} ..."));
    console.say(&report::cluster_status(&connected.cluster, name));
    Ok(())
}

/// Prints what somebody who helps would ask for, one part after the other.
pub(super) async fn report(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut connected = job.connect().await?;
    let node = asked_name(&connected, job.target).to_owned();
    job.banner(console, format!("Reporting server status of node {node} ..."));
    let name = policies::cluster_name(&mut connected.policies).await.ok().flatten();
    let process = about::process(&mut connected).await?;
    let part = |console: &mut Console<'_>, title: &str, text: &str| {
        console.say(&format!("\n{title}\n\n{}\n", text.trim_end()));
    };
    part(console, &format!("Status of node {node} ..."), &report::status(own(&connected)?));
    let cluster = report::cluster_status(&connected.cluster, name.as_deref());
    part(console, &format!("Cluster status of node {node} ..."), &cluster);
    part(console, &format!("Settings of node {node} ..."), &about::environment(&process));
    let arguments = process.arguments.join("\n");
    part(console, &format!("Command line arguments of node {node} ..."), &arguments);
    for listing in [Listing::Connections, Listing::Channels] {
        list(listing, "/", job, &mut connected, console).await?;
    }
    for vhost in vhost_names(&mut connected).await? {
        for listing in [Listing::Queues, Listing::Exchanges, Listing::Bindings, Listing::Consumers]
        {
            list(listing, &vhost, job, &mut connected, console).await?;
        }
        for kind in [PolicyKind::User, PolicyKind::Operator] {
            let policies = policies::of_vhost(kind, &vhost, &mut connected.policies).await?;
            let lines: Vec<String> = policies
                .iter()
                .map(|it| {
                    format!("{}\t{}\t{}\t{}", it.name, it.pattern, it.apply_to, it.definition)
                })
                .collect();
            let title = match kind {
                PolicyKind::User => format!("Listing policies for vhost \"{vhost}\" ..."),
                PolicyKind::Operator => {
                    format!("Listing operator policy overrides for vhost \"{vhost}\" ...")
                }
            };
            part(console, &title, &lines.join("\n"));
        }
    }
    Ok(())
}

/// Prints a list with all its columns.
async fn list(
    listing: Listing,
    vhost: &str,
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let options = Options { vhost: Some(vhost.to_owned()), ..job.invocation.options.clone() };
    console.say(&format!("\n{}\n", lists::banner(listing, &options)));
    lists::list(listing, &columns::names(listing), &options, connected, console).await
}
