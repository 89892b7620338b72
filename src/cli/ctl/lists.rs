//! The `list_*` verbs.

use super::Console;
use super::TIMEOUT_DEFAULT;
use super::access::vhost_names;
use super::columns::Listing;
use super::connect::{Connected, call_failure};
use super::exit::{Exit, Failure};
use super::format::{Sheet, render};
use super::names::Names;
use super::options::Options;
use super::rows::{self, Column, QueueRow};
use super::value::Value;
use quorate_management::wire;
use quorate_types::FieldTableError;
use std::collections::BTreeMap;
use tonic::{Status, Streaming};

/// rabbitmqctl's banner, with its spaces.
pub(super) fn banner(listing: Listing, options: &Options) -> String {
    let vhost = options.vhost();
    match listing {
        Listing::Queues => {
            let limit = options.timeout.unwrap_or(TIMEOUT_DEFAULT).as_secs_f64();
            format!("Timeout: {limit:?} seconds ...\nListing queues for vhost {vhost} ...\n")
        }
        Listing::Exchanges => format!("Listing exchanges for vhost {vhost} ...\n"),
        Listing::Bindings => format!("Listing bindings for vhost {vhost}...\n"),
        Listing::Connections => "Listing connections ...\n".to_owned(),
        Listing::Channels => "Listing channels ...\n".to_owned(),
        Listing::Consumers => format!("Listing consumers in vhost {vhost} ...\n"),
    }
}

/// The items of a list, and the nodes that did not answer.
struct Listed<T> {
    items: Vec<T>,
    silent: Vec<u32>,
}

async fn read<B, T>(
    answer: Result<tonic::Response<Streaming<B>>, Status>,
    take: impl Fn(B) -> (Vec<T>, Vec<u32>),
) -> Result<Listed<T>, Failure> {
    let mut batches = answer.map_err(|status| call_failure(&status))?.into_inner();
    let mut listed = Listed { items: Vec::new(), silent: Vec::new() };
    while let Some(batch) = batches.message().await.map_err(|status| call_failure(&status))? {
        let (mut items, silent) = take(batch);
        listed.items.append(&mut items);
        listed.silent.extend(silent);
    }
    Ok(listed)
}

/// The rows of a list: a cell for each item and chosen column.
fn fill<T>(
    columns: &[Column<T>],
    chosen: &[&'static str],
    items: &[T],
    names: &Names,
) -> Result<Sheet, Failure> {
    let cells: Vec<_> = chosen
        .iter()
        .filter_map(|name| columns.iter().find(|column| column.name == *name))
        .map(|column| column.cell)
        .collect();
    let row = |item: &T| cells.iter().map(|cell| cell(item, names)).collect();
    let rows: Result<Vec<Vec<Value>>, FieldTableError> = items.iter().map(row).collect();
    match rows {
        Ok(rows) => {
            Ok(Sheet { columns: chosen.iter().map(|name| (*name).to_owned()).collect(), rows })
        }
        Err(error) => Err(Failure::new(Exit::Software, format!("Error:\n{error}\n"))),
    }
}

fn request(options: &Options) -> wire::ListRequest {
    wire::ListRequest {
        caller: wire::caller(),
        scope: wire::Scope::Cluster.into(),
        vhost: options.vhost().to_owned(),
    }
}

/// Requests a list, and prints it.
pub(super) async fn list(
    listing: Listing,
    columns: &[&'static str],
    options: &Options,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let names = Names::of(&connected.cluster);
    let (sheet, silent) = sheet(listing, columns, options, connected, &names).await?;
    console.say(&render(&sheet, options.formatter(), options.headers()));
    if !silent.is_empty() {
        let silent = names.nodes(&silent).join(", ");
        console.complain(&format!("Warning: no answer from {silent}; the list is incomplete\n"));
    }
    Ok(())
}

async fn sheet(
    listing: Listing,
    columns: &[&'static str],
    options: &Options,
    connected: &mut Connected,
    names: &Names,
) -> Result<(Sheet, Vec<u32>), Failure> {
    let request = request(options);
    let client = &mut connected.client;
    match listing {
        Listing::Queues => queues(columns, options, connected, names).await,
        Listing::Exchanges => {
            let answer = client.list_exchanges(request).await;
            let listed = read(answer, |batch| (batch.exchanges, Vec::new())).await?;
            Ok((fill(rows::EXCHANGES, columns, &listed.items, names)?, listed.silent))
        }
        Listing::Bindings => {
            let answer = client.list_bindings(request).await;
            let listed = read(answer, |batch| (batch.bindings, Vec::new())).await?;
            Ok((fill(rows::BINDINGS, columns, &listed.items, names)?, listed.silent))
        }
        Listing::Connections => {
            let answer = client.list_connections(request).await;
            let listed = read(answer, |batch| (batch.connections, batch.silent)).await?;
            Ok((fill(rows::CONNECTIONS, columns, &listed.items, names)?, listed.silent))
        }
        Listing::Channels => {
            let answer = client.list_channels(request).await;
            let listed = read(answer, |batch| (batch.channels, batch.silent)).await?;
            Ok((fill(rows::CHANNELS, columns, &listed.items, names)?, listed.silent))
        }
        Listing::Consumers => {
            let answer = client.list_consumers(request).await;
            let listed = read(answer, |batch| (batch.consumers, batch.silent)).await?;
            Ok((fill(rows::CONSUMERS, columns, &listed.items, names)?, listed.silent))
        }
    }
}

async fn queues(
    columns: &[&'static str],
    options: &Options,
    connected: &mut Connected,
    names: &Names,
) -> Result<(Sheet, Vec<u32>), Failure> {
    let asked = connected.cluster.asked;
    let answer = connected.client.list_queues(request(options)).await;
    let mut listed = read(answer, |batch| (batch.queues, batch.silent)).await?;
    listed.items.retain(|queue| wanted(queue, options, asked));
    // Only the node of its connection knows whether a consumer is exclusive.
    let consumers = if columns.iter().any(|column| column.starts_with("exclusive_consumer")) {
        let answer = connected.client.list_consumers(request(options)).await;
        read(answer, |batch| (batch.consumers, batch.silent)).await?
    } else {
        Listed { items: Vec::new(), silent: Vec::new() }
    };
    let exclusive = consumers.items.into_iter().filter(|consumer| consumer.exclusive);
    let mut alone: BTreeMap<String, wire::Consumer> =
        exclusive.map(|consumer| (consumer.queue.clone(), consumer)).collect();
    let row = |queue: wire::Queue| QueueRow { alone: alone.remove(&queue.name), queue };
    let items: Vec<QueueRow> = listed.items.into_iter().map(row).collect();
    let silent = if listed.silent.is_empty() { consumers.silent } else { listed.silent };
    Ok((fill(rows::QUEUES, columns, &items, names)?, silent))
}

/// All queues of a virtual host.
pub(super) async fn queues_of(
    vhost: &str,
    connected: &mut Connected,
) -> Result<Vec<wire::Queue>, Failure> {
    let (caller, scope) = (wire::caller(), wire::Scope::Cluster.into());
    let request = wire::ListRequest { caller, scope, vhost: vhost.to_owned() };
    let answer = connected.client.list_queues(request).await;
    Ok(read(answer, |batch| (batch.queues, batch.silent)).await?.items)
}

/// All connections of the cluster.
pub(super) async fn connections(
    connected: &mut Connected,
) -> Result<Vec<wire::Connection>, Failure> {
    let (caller, scope) = (wire::caller(), wire::Scope::Cluster.into());
    let request = wire::ListRequest { caller, scope, vhost: String::new() };
    let answer = connected.client.list_connections(request).await;
    Ok(read(answer, |batch| (batch.connections, batch.silent)).await?.items)
}

/// Number of queues that a node leads, by their type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Led {
    pub(super) quorum: u64,
    pub(super) classic: u64,
}

/// The number of replicated queues that each node leads, of all virtual hosts.
pub(super) async fn queues_led(connected: &mut Connected) -> Result<BTreeMap<u32, Led>, Failure> {
    let mut all: BTreeMap<u32, Led> = BTreeMap::new();
    for vhost in vhost_names(connected).await? {
        let queues = queues_of(&vhost, connected).await?;
        // Those of a group; the others are of a connection.
        let replicated = queues.iter().filter(|it| it.id.is_some_and(|id| id.group != 0));
        for queue in replicated {
            let led = all.entry(queue.leader).or_default();
            if queue.queue_type == "quorum" {
                led.quorum += 1;
            } else {
                led.classic += 1;
            }
        }
    }
    Ok(all)
}

/// True if the options `--online`, `--offline` and `--local` select the queue.
fn wanted(queue: &wire::Queue, options: &Options, asked: u32) -> bool {
    let online = queue.counts.is_some();
    !(options.has("online") && !online
        || options.has("offline") && online
        || options.has("local") && queue.leader != asked)
}
