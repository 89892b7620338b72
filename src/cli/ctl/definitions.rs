//! `export_definitions` and `import_definitions`.

use super::Console;
use super::connect::{Client, call_failure};
use super::exit::{Exit, Failure};
use super::job::Job;
use super::options::Invocation;
use super::progress::{Progress, beside};
use bytes::Bytes;
use quorate_management::wire;
use std::cell::Cell;
use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;
use tokio::time::sleep;
use tonic::{Code, Status};

/// Bytes of definitions in one message, far below the 4 MiB that gRPC takes.
const CHUNK_BYTES: usize = 1 << 20;
/// Pause between questions about an import's progress.
const POLL: Duration = Duration::from_secs(1);
/// The file name that means standard input or output.
const STANDARD: &str = "-";

fn path(invocation: &Invocation) -> &str {
    invocation.arguments.first().map_or(STANDARD, String::as_str)
}

/// rabbitmqctl's banner; none if the definitions are written to standard output.
fn export_banner(invocation: &Invocation) -> String {
    match path(invocation) {
        STANDARD => String::new(),
        path => format!("Exporting definitions in JSON to a file at \"{path}\" ...\n"),
    }
}

/// The line that rabbitmqctl prints before an import.
fn import_banner(invocation: &Invocation) -> String {
    match path(invocation) {
        STANDARD => "Importing definitions in JSON from standard input ...\n".to_owned(),
        path => format!("Importing definitions in JSON from a file at \"{path}\" ...\n"),
    }
}

/// Writes the node's definitions to a file or to standard output.
pub(super) async fn export(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let invocation = job.invocation;
    if invocation.options.banners() {
        console.say(&export_banner(invocation));
    }
    let mut client = job.connect().await?.policies;
    let request = wire::DefinitionsRequest { caller: wire::caller() };
    let answer =
        client.export_definitions(request).await.map_err(|status| call_failure(&status))?;
    let mut chunks = answer.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.message().await.map_err(|status| call_failure(&status))? {
        bytes.extend_from_slice(&chunk.json);
    }
    let path = path(invocation);
    if path == STANDARD {
        console.say(&format!("{}\n", String::from_utf8_lossy(&bytes)));
        return Ok(());
    }
    // The file contains password hashes.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(&bytes));
    written.map_err(|error| file_failure(path, &error))
}

/// Reads definitions from a file or standard input, and imports them into the node.
pub(super) async fn import(job: &Job<'_>, console: &mut Console<'_>) -> Result<(), Failure> {
    let invocation = job.invocation;
    if invocation.options.banners() {
        console.say(&import_banner(invocation));
    }
    let mut connected = job.connect().await?;
    let chunks = read(invocation)?;
    let bytes = chunks.iter().map(|chunk| chunk.json.len()).sum::<usize>();
    let wanted = queues_in(&chunks);
    let there = Cell::new(None);
    let text = |elapsed: Duration| {
        let there = there.get().map(|there: u64| format!(", {there} queues are there"));
        format!(
            "importing {bytes} bytes with {wanted} queues: {} s{}",
            elapsed.as_secs(),
            there.unwrap_or_default()
        )
    };
    let import = connected.policies.import_definitions(tokio_stream::iter(chunks));
    let work = beside(import, count_queues(&mut connected.client, &there));
    let imported = Progress::of(&invocation.options).during(console, work, text).await;
    match imported {
        Ok(answer) => {
            for left_out in answer.into_inner().left_out {
                console.complain(&format!("Warning: skipped {left_out}\n"));
            }
            console.say("Successfully imported definitions\n");
            Ok(())
        }
        Err(status) => Err(refusal(&status)),
    }
}

/// The refusal of definitions.
pub(super) fn refusal(status: &Status) -> Failure {
    if status.code() == Code::InvalidArgument {
        let text = format!("Error:\nFailed to import definitions: {}\n", status.message());
        return Failure::new(Exit::Data, text);
    }
    call_failure(status)
}

/// Reads definitions, in the parts in which they are sent.
pub(super) fn read(invocation: &Invocation) -> Result<Vec<wire::DefinitionsChunk>, Failure> {
    let path = path(invocation);
    let bytes = match path {
        STANDARD => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        path => std::fs::read(path),
    };
    let bytes = Bytes::from(bytes.map_err(|error| file_failure(path, &error))?);
    let chunk = |place: usize| {
        let end = bytes.len().min(place + CHUNK_BYTES);
        wire::DefinitionsChunk { caller: wire::caller(), json: bytes.slice(place..end) }
    };
    Ok((0..bytes.len()).step_by(CHUNK_BYTES).map(chunk).collect())
}

/// The number of queues that definitions name; 0 if they are not valid, which the node says.
fn queues_in(chunks: &[wire::DefinitionsChunk]) -> usize {
    let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.json.iter().copied()).collect();
    let definitions: Result<serde_json::Value, _> = serde_json::from_slice(&bytes);
    let queues = definitions.ok().and_then(|all| all.get("queues")?.as_array().map(Vec::len));
    queues.unwrap_or(0)
}

/// Asks the node again and again how many queues there are.
async fn count_queues(client: &mut Client, there: &Cell<Option<u64>>) -> Infallible {
    loop {
        sleep(POLL).await;
        let request = wire::NodeRequest { caller: wire::caller() };
        if let Ok(node) = client.get_node(request).await {
            there.set(Some(node.into_inner().queues));
        }
    }
}

fn file_failure(path: &str, error: &std::io::Error) -> Failure {
    let text = if error.kind() == std::io::ErrorKind::NotFound {
        format!("Error:\nFile {path} does not exist\n")
    } else {
        format!("Error:\n{path}: {error}\n")
    };
    Failure::new(Exit::Data, text)
}
