//! `consume_event_stream`: what happens on a node, as it happens.

use super::super::Console;
use super::super::connect::{Connected, call_failure};
use super::super::exit::Failure;
use super::super::job::Job;
use super::log;
use quorate_management::{event_json, wire};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Between two questions for what is new.
const PAUSE: Duration = Duration::from_millis(200);
/// Most events of one answer.
const EVENTS_MAX: u32 = 1_000;

/// Prints the events from now on, an object of JSON in each line.
pub(super) async fn stream(
    job: &Job<'_>,
    connected: &mut Connected,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    let until = Instant::now() + log::duration(job)?;
    let name = super::asked_name(connected, job.target).to_owned();
    // Only the number of the newest one is needed.
    let mut since = newest(connected, 0, 1).await?.last().map_or(0, |event| event.number);
    while Instant::now() < until {
        sleep_until(until.min(Instant::now() + PAUSE)).await;
        for event in newest(connected, since, EVENTS_MAX).await? {
            since = event.number;
            console.say(&format!("{}\n", event_json(&name, &event)));
        }
    }
    Ok(())
}

async fn newest(
    connected: &mut Connected,
    since: u64,
    most: u32,
) -> Result<Vec<wire::Event>, Failure> {
    let request = wire::EventsRequest { caller: wire::caller(), since, most };
    let events = connected.events.list_events(request).await;
    Ok(events.map_err(|status| call_failure(&status))?.into_inner().events)
}
