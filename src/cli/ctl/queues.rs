//! `delete_queue` and `purge_queue`.

use super::Console;
use super::command::Verb;
use super::connect::call_failure;
use super::exit::{Exit, Failure};
use super::job::Job;
use super::options::Invocation;
use quorate_management::wire;
use tonic::Code;

fn name(invocation: &Invocation) -> &str {
    invocation.arguments.first().map_or("", String::as_str)
}

/// The line that rabbitmqctl prints before the answer.
fn banner(invocation: &Invocation) -> String {
    let (name, vhost) = (name(invocation), invocation.options.vhost());
    if invocation.manual.verb == Verb::PurgeQueue {
        return format!("Purging queue '{name}' in vhost '{vhost}' ...\n");
    }
    let condition = match (invocation.options.has("if-empty"), invocation.options.has("if-unused"))
    {
        (true, true) => "if queue is empty and if queue is unused ",
        (true, false) => "if queue is empty ",
        (false, true) => "if queue is unused ",
        (false, false) => "",
    };
    format!("Deleting queue '{name}' on vhost '{vhost}' {condition}...\n")
}

/// Deletes or purges.
pub(super) async fn change(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let invocation = job.invocation;
    if invocation.options.banners() {
        console.say(&banner(invocation));
    }
    let mut connected = job.connect().await?;
    let request = wire::QueueRequest {
        caller: wire::caller(),
        vhost: invocation.options.vhost().to_owned(),
        name: name(invocation).to_owned(),
        if_unused: invocation.options.has("if-unused"),
        if_empty: invocation.options.has("if-empty"),
    };
    if invocation.manual.verb == Verb::PurgeQueue {
        return match connected.client.purge_queue(request).await {
            Ok(_) => Ok(()),
            Err(status) if status.code() == Code::NotFound => {
                Err(Failure::new(Exit::Unavailable, "Error:\nnot_found\n"))
            }
            Err(status) => Err(call_failure(&status)),
        };
    }
    match connected.client.delete_queue(request).await {
        Ok(reply) => {
            let messages = reply.into_inner().messages;
            console
                .say(&format!("Queue was successfully deleted with {messages} ready messages\n"));
            Ok(())
        }
        // rabbitmqctl's exit code for a missing queue.
        Err(status) if status.code() == Code::NotFound => {
            Err(Failure::new(Exit::Usage, "Error:\nQueue not found\n"))
        }
        Err(status) => Err(call_failure(&status)),
    }
}
